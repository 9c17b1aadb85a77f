"""The results of an output's aggregate are rows like any others: with headers, and with a way out for those that fail."""

from __future__ import annotations

import json

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from tests.pipelines.conftest import pass_once, records_of, send

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TEXT = """
pipeline: {t}
source: {{topic: {t}}}
steps: [parse: {{json: {{id: int, n: int}}}}]
outputs:
  - topic: {t}-sums
    key: string(100 / (id - 2))
    headers: {{total: string(total)}}
    timestamp: timestamp('2020-01-01T00:00:00Z')
    aggregate: {{by: [id], compute: {{total: sum(n)}}}}
"""


def test_results_have_headers_and_failures_are_dead_letters(spark, bootstrap, client, new_topic):
    topic = new_topic()
    send(client, topic, [b'{"id": 1, "n": 2}', b'{"id": 1, "n": 3}', b'{"id": 2, "n": 4}'])
    pass_once(spark, parse_spec(TEXT.format(t=topic)), bootstrap)
    (record,) = records_of(client, f"{topic}-sums")
    assert (record["key"], json.loads(record["value"])) == (b"-100.0", {"id": 1, "total": 5})
    assert record["headers"] == [{"key": "total", "value": b"5"}]
    assert record["timestamp"].year == 2020
    (letter,) = records_of(client, f"{topic}-dead-letters")
    assert (json.loads(letter["key"]), json.loads(letter["value"])) == ({"id": 2}, {"id": 2, "total": 4})
    headers = {header["key"]: header["value"] for header in letter["headers"]}
    assert headers["barnabas.step"] == f"{topic}-sums: key".encode()
    assert headers["barnabas.reason"].startswith(b"cannot compute string(100 / (id - 2)) with id = 2")
