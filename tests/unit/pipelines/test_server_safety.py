"""What the pipeline server's API gives away, and to whom."""

from __future__ import annotations

import pytest

from barnabas.pipelines.server.api import foreign
from barnabas.pipelines.server.manager import MASK, masked

FILE = """pipeline: p  # password: none here
source:
  topic: a
  options: {kafka.sasl.password: "p,w", kafka.sasl.username: me, kafka.ssl.key.password: '${env:KEY}'}
outputs:
  - database: {url: "postgresql://me:hunter2@db/logs", table: t}
  - elasticsearch: {url: "http://me:${env:PW}@h:9200", api_key: abc, index: i}
  - database:
      driver: psycopg
      connect:
        password: top secret
        user: me
"""


def test_secrets_are_masked():
    text = masked(FILE)
    for secret in ("p,w", "hunter2", "abc", "top secret"):
        assert secret not in text
    assert text.count(MASK) == 5
    for kept in ("kafka.sasl.username: me,", "${env:KEY}", "${env:PW}", "index: i", "user: me", "@db/logs"):
        assert kept in text


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
