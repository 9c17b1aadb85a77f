"""What the pipeline server's API gives away, and to whom."""

from __future__ import annotations

import asyncio
import json

import pytest

from barnabas.http.server import HttpOptions, make_app
from barnabas.pipelines.entries.document import parse
from barnabas.pipelines.entries.hiding import MASK, hide, masked, secret_values
from barnabas.pipelines.fronts.yaml.spec import PIPELINE, parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.api import make_service

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


class Managed:
    """What a manager says about no pipelines. added: the files that it was given."""

    trouble = None

    def __init__(self) -> None:
        self.added = []

    def states(self):
        return []

    def statuses(self):
        return []

    def put(self, text, *, start, rebuild):
        self.added.append(text)
        raise PipelineError("seen")


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/health", {"host": "evil.example"}, 200),
        ("/pipelines", {"host": "127.0.0.1:8084"}, 400),
        ("/pipelines", {"host": "localhost:8084", "origin": "http://localhost:8084"}, 400),
        ("/pipelines", {"host": "127.0.0.1:8084", "origin": "http://evil.example"}, 403),
        ("/pipelines", {"host": "evil.example:8084"}, 403),
        ("/pipelines", {"host": "127.0.0.1:8084", "sec-fetch-site": "cross-site"}, 403),
        ("/pipelines", {"host": "127.0.0.1:8084", "content-type": "application/yaml"}, 400),
        ("/pipelines", {"host": "127.0.0.1:8084", "content-type": "text/plain"}, 415),
        ("/pipelines", {"host": "127.0.0.1:8084", "content-type": "application/x-www-form-urlencoded"}, 415),
        ("/preview", {"host": "127.0.0.1:8084", "content-type": "multipart/form-data; boundary=a"}, 415),
    ],
)
def test_pages_of_other_sites_start_nothing(path, headers, status):
    manager = Managed()
    app = make_app(make_service(manager), HttpOptions("127.0.0.1:0"))

    sent = []

    async def receive():
        return {"type": "http.request", "body": b"a", "more_body": False}

    async def send(message):
        sent.append(message)

    rows = [(name.encode(), value.encode()) for name, value in {**headers, "content-length": "1"}.items()]
    method = "GET" if path == "/health" else "POST"
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": rows}
    asyncio.run(app(scope, receive, send))
    assert (sent[0]["status"], len(manager.added)) == (status, int(status == 400))
    assert status == 200 or list(json.loads(sent[1]["body"])) == ["error"]
