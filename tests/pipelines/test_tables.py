"""Tables: kept once, joined with streams and with each other, written as rows and deletes.

A history is written in steps, each read by a run of its own that goes on from the checkpoints, in micro-batches of a few
records. A plain model in memory says what has to come out: `pairs` what the tables hold in the end, and for the stream which
rows of the table each of its records has met.
"""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest

from barnabas.pipelines.formats.columns import append_batch
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.records.columnar_encoder import BatchEncoder
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed
from tests.pipelines.test_relations import type_of_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PIPELINE = """
pipeline: {t}
sources:
  visits:
    topic: {t}-visits
    options: {{maxOffsetsPerTrigger: 25}}
    steps: [parse: {{json: {{id: int, customer: string}}}}]
  customers:
    table: {t}-customers
    options: {{maxOffsetsPerTrigger: 25}}
    steps: [parse: {{json: {{customer: string, name: string, rank: int}}}}]
  orders:
    table: {t}-orders
    options: {{maxOffsetsPerTrigger: 25}}
    steps: [parse: {{json: {{order: string, customer: string, amount: int}}}}]
relations:
  good: {{from: customers, steps: [filter: rank > 2, set: {{twice: rank * 2}}]}}
  met: {{join: {{left: visits, right: customers, by: customer, kind: left}}}}
  inner: {{join: {{left: orders, right: good, by: customer}}}}
  left: {{join: {{left: orders, right: good, by: customer, kind: left}}}}
  full: {{join: {{left: orders, right: good, by: customer, kind: full}}}}
outputs:
  - {{topic: {t}-good, from: good}}
  - {{topic: {t}-met, from: met}}
  - {{topic: {t}-inner, from: inner, key: order}}
  - {{topic: {t}-left, from: left}}
  - {{topic: {t}-full, from: full, key: "concat_ws('-', order, customer)"}}
"""
STEPS, CUSTOMERS, ORDERS = 3, 8, 12


class History:
    """Records of each step: (topic, key, value or None, milliseconds). Times are out of order, but those of one key rise,
    so that the same is newest by offset and by time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 1_700_000_000_000
        self.steps = [[self.record(step * 60 + n) for n in range(60)] for step in range(STEPS)]

    def record(self, number: int) -> tuple[str, bytes, dict | None, int]:
        chance = self.chance
        self.now_ms += 10
        customer = f"c{chance.randrange(CUSTOMERS)}"
        kind = chance.choice(("visits", "customers", "customers", "orders"))
        if kind == "visits":
            return (
                kind,
                b"v",
                {"id": number, "customer": chance.choice((customer, customer, None))},
                self.now_ms,
            )
        gone = chance.random() < 0.25
        if kind == "customers":
            value = {"customer": customer, "name": f"{customer} at {number}", "rank": chance.randrange(6)}
            return kind, customer.encode(), None if gone else value, self.now_ms
        order = f"o{chance.randrange(ORDERS)}"
        value = {"order": order, "customer": chance.choice((customer, None)), "amount": number}
        return kind, order.encode(), None if gone else value, self.now_ms


def write(client, topic, records):
    for name in ("visits", "customers", "orders"):
        mine = [record for record in records if record[0] == name]
        if not mine:
            continue
        encoder = BatchEncoder(1)
        batch = pa.record_batch(
            {
                "key": pa.array([key for _, key, _, _ in mine], pa.binary()),
                "value": pa.array(
                    [None if value is None else json.dumps(value).encode() for _, _, value, _ in mine],
                    pa.binary(),
                ),
                "timestamp": pa.array([ms * 1000 for *_, ms in mine], pa.timestamp("us", "UTC")),
            }
        )
        append_batch(encoder, batch, 0)
        for piece in encoder.flush():
            client.produce_raw(f"{topic}-{name}", 0, piece.data)


def pairs(orders: dict, good: dict, kind: str) -> dict:
    """The rows of the join of both tables, by what tells them apart."""
    pairs_met, met = {}, set()
    empty = dict.fromkeys(("name", "rank", "twice"))
    for order in orders.values():
        row = good.get(order["customer"])
        if row is not None:
            met.add(order["customer"])
            pairs_met[order["order"], row["customer"]] = {**order, **row}
        elif kind != "inner":
            pairs_met[order["order"], order["customer"]] = {**order, **empty}
    for customer, row in good.items():
        if kind == "full" and customer not in met:
            pairs_met[None, customer] = {"order": None, "amount": None, **row}
    return pairs_met


def table_in(bootstrap, topic) -> list[dict]:
    """What is left in a compacted topic."""
    newest = {record.key: record.value for record in consumed(bootstrap, topic)}
    rows = [json.loads(value) for value in newest.values() if value is not None]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def in_order(rows) -> list[dict]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 12))
def test_a_history_of_tables(spark, bootstrap, client, new_topic, tmp_path, seed):
    t = new_topic()
    for name in ("visits", "customers", "orders"):
        client.create_topics([type_of_topic(f"{t}-{name}")])
    spec = parse_spec(PIPELINE.format(t=t), "tables.yaml")
    customers: dict[str, dict] = {}
    orders: dict[str, dict] = {}
    met: dict[int, list] = {}
    for records in History(seed).steps:
        write(client, t, records)
        if not met:
            send(client, f"{t}-customers", [b'{"customer": "c0", "name": "of no key", "rank": 5}'])
        # What a visit may meet: its record's customer as of its time, or, where micro-batches cut the topics at other
        # times, as it was or will be in this step.
        first, before = not met, dict(customers)
        for name, key, value, _ in records:
            if name == "visits":
                seen = [before.get(value["customer"]), customers.get(value["customer"])]
                met[value["id"]] = [value, seen]
            else:
                table = customers if name == "customers" else orders
                table.pop(key.decode(), None)
                if value is not None:
                    table[key.decode()] = value
        for name, key, value, _ in records:
            if name == "customers":
                for visit, seen in met.values():
                    if visit["customer"] == key.decode():
                        seen.append(value)
        report = run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
        assert report.failed == int(first)
        good = {key: {**row, "twice": row["rank"] * 2} for key, row in customers.items() if row["rank"] > 2}
        assert table_in(bootstrap, f"{t}-good") == in_order(good.values())
        for kind in ("inner", "left", "full"):
            wanted = in_order(pairs(orders, good, kind).values())
            assert table_in(bootstrap, f"{t}-{kind}") == wanted, kind
    (letter,) = consumed(bootstrap, f"{t}-dead-letters")
    assert (letter.header("step"), letter.header("reason")) == (
        "customers: table",
        "a record of a table needs a key",
    )
    rows = [json.loads(record.value) for record in consumed(bootstrap, f"{t}-met")]
    assert sorted(row["id"] for row in rows) == sorted(met)
    for row in rows:
        visit, seen = met[row["id"]]
        names = {None if one is None else one["name"] for one in seen}
        assert row["customer"] == visit["customer"]
        assert row["name"] in names if visit["customer"] else row["name"] is None
