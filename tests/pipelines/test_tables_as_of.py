"""A stream that meets the rows which a table had at the time of the stream's rows."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from barnabas.client.blocking import NewTopic
from barnabas.pipelines.formats.columns import append_batch
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.records.columnar_encoder import BatchEncoder
from tests.pipelines.readers import consumed

SPEC = """
pipeline: {t}
sources:
  sales: {{topic: {t}-sales, steps: [parse: {{json: {{id: int, product: string, at: timestamp}}}}]}}
  prices: {{table: {t}-prices, steps: [parse: {{json: {{product: string, price: int}}}}]}}
relations:
  priced: {{join: {{left: sales, right: prices, by: product, kind: left, as_of: at, history: 1 hour}}}}
outputs:
  - {{topic: {t}-priced, from: priced}}
"""
HOUR_MS = 3_600_000
BEGIN_MS = 1_769_853_600_000  # 2026-01-31T10:00:00Z


def write(client, topic: str, rows: list[tuple[str, dict | None, int]]) -> None:
    """rows: key, value and milliseconds after the beginning."""
    encoder = BatchEncoder(1)
    batch = pa.record_batch(
        {
            "key": pa.array([key.encode() for key, _, _ in rows], pa.binary()),
            "value": pa.array(
                [None if v is None else json.dumps(v).encode() for _, v, _ in rows], pa.binary()
            ),
            "timestamp": pa.array([(BEGIN_MS + ms) * 1000 for *_, ms in rows], pa.timestamp("us", "UTC")),
        }
    )
    append_batch(encoder, batch, 0)
    for piece in encoder.flush():
        client.produce_raw(topic, 0, piece.data)


def sale(number: int, minute: int) -> tuple[str, dict, int]:
    at = f"2026-01-31T{10 + minute // 60}:{minute % 60:02}:00.000Z"
    return "s", {"id": number, "product": "tea", "at": at}, 10 * HOUR_MS


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_rows_as_of_a_time(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic()
    keep = {"retention.ms": "-1"}
    client.create_topics([NewTopic(f"{topic}-{name}", 1, configs=keep) for name in ("sales", "prices")])
    minute = 60_000

    def run() -> dict[int, int | None]:
        spec = parse_spec(SPEC.format(t=topic))
        run_pipeline(spec, bootstrap=bootstrap, checkpoint_dir=tmp_path, once=True)
        rows = [json.loads(record.value) for record in consumed(bootstrap, f"{topic}-priced")]
        return {row["id"]: row["price"] for row in rows}

    prices = [
        ({"product": "tea", "price": 3}, 0),
        (None, 20 * minute),
        ({"product": "tea", "price": 5}, 30 * minute),
    ]
    write(client, f"{topic}-prices", [("tea", value, at) for value, at in prices])
    write(client, f"{topic}-sales", [sale(1, 10), sale(2, 25), sale(3, 40)])
    assert run() == {1: 3, 2: None, 3: 5}
    # In the next micro-batch what was there is still known, until it is an hour older than the newest price.
    write(client, f"{topic}-sales", [sale(4, 15)])
    assert run()[4] == 3
    write(client, f"{topic}-prices", [("tea", {"product": "tea", "price": 7}, 100 * minute)])
    assert run()[4] == 3
    write(client, f"{topic}-sales", [sale(5, 15), sale(6, 50), sale(7, 101)])
    assert {number: price for number, price in run().items() if number > 4} == {5: None, 6: 5, 7: 7}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (", history: 1 hour", "", "as_of needs history"),
        ("left: sales, right: prices", "left: prices, right: prices", "as_of is for a stream"),
    ],
)
def test_what_has_no_past_is_refused(old, new, reason):
    with pytest.raises(PipelineError, match=reason):
        parse_spec(SPEC.format(t="t").replace(old, new))
