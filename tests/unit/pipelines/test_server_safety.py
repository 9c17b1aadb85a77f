"""What the pipeline server's API gives away, and to whom."""

from __future__ import annotations

import pytest

from barnabas.pipelines.document import parse
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.hiding import MASK, hide, masked, secret_values
from barnabas.pipelines.server.api import foreign
from barnabas.pipelines.spec import PIPELINE, parse_spec

FILE = """pipeline: p  # password: none here
source:
  topic: a
  options: {kafka.sasl.password: "p,w", kafka.sasl.username: me, kafka.ssl.key.password: '${env:KEY}'}
steps:
  - parse: {json: {token: string, password: string}}
  - hash: {fields: [token], salt: 'with ''quotes'''}
outputs:
  - database: {url: "postgresql://me:hunter%402@db/logs?sslpassword=s1", table: t}
  - elasticsearch: {url: "http://me:${env:PW}@h:9200", api_key: abc, index: i, id: token}
  - name: third
    database:
      driver: psycopg
      table: t
      connect:
        password: |
          top secret
        user: me
        conninfo: "host=h password='o n e' user=me"
  - files:
      path: a
      storage: {AWS_SECRET_ACCESS_KEY: wJalr, AWS_REGION: eu-1}
spark: {spark.hadoop.fs.s3a.secret.key: s3, spark.hadoop.fs.s3a.endpoint: "https://e"}
"""
SECRETS = {
    "p,w", "with 'quotes'", "hunter%402", "hunter@2", "s1", "abc", "top secret\n", "o n e", "wJalr", "s3", "from-env", "key"
}  # fmt: skip


def test_secrets_are_declared(monkeypatch):
    monkeypatch.setenv("KEY", "key")
    monkeypatch.setenv("PW", "from-env")
    assert secret_values(parse(FILE, "f"), PIPELINE) == SECRETS


def test_secrets_are_masked():
    text = masked(FILE, PIPELINE)
    for secret in ("p,w", "quotes", "hunter", "s1", "abc", "top secret", "o n e", "wJalr", ": s3"):
        assert secret not in text
    assert text.count(MASK) == 9
    for kept in (
        "kafka.sasl.username: me,", "${env:KEY}", "${env:PW}", "index: i", "user: me", "@db/logs", "host=h", "id: token",
        "AWS_REGION: eu-1", '"https://e"', "{json: {token: string, password: string}}",
    ):  # fmt: skip
        assert kept in text
    parse(text, "it is a file still", fill=False)


def test_messages_lose_secrets():
    secrets = {"hunter2", "me", "p+w)"}
    assert hide("hunter2 of me: some (p+w)", secrets) == f"{MASK} of {MASK}: some ({MASK}"


def test_what_is_refused_shows_no_secret():
    text = "pipeline: p\nsource: {topic: a}\noutputs: [elasticsearch: {url: 'ftp://me:hunter2@h', index: i}]"
    with pytest.raises(PipelineError, match=r"f:3: 'ftp://me:\*+@h' is not a URL") as caught:
        parse_spec(text, "f")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"host": "127.0.0.1:8084"}, False),
        ({"host": "127.0.0.1:8084", "origin": "http://127.0.0.1:8084"}, False),
        ({"host": "localhost:8084", "origin": "http://localhost:8084"}, False),
        ({"host": "127.0.0.1:8084", "origin": "http://evil.example"}, True),
        ({"host": "127.0.0.1:8084", "origin": "null"}, True),
        ({"host": "127.0.0.1:8084", "origin": "http://127.0.0.1:9000"}, True),
        ({"host": "127.0.0.1:8084", "sec-fetch-site": "cross-site"}, True),
        ({"host": "evil.example:8084", "origin": "http://evil.example:8084"}, True),
    ],
)
def test_pages_of_other_origins_are_refused(headers, refused):
    assert (foreign(headers) is not None) == refused
