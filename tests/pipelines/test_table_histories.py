"""Operators on tables, on generated histories, against the interpreter of plans: after every micro-batch each table holds
what the interpreter says, and each record of a stream has met the rows that it says.

The records come from files, so that no broker is needed and each micro-batch is known. Histories share topics and have keys
of their own, so hundreds of them pass in one query. The query is stopped in between, and goes on from its checkpoint.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
import pytest
from pyarrow import parquet

from barnabas.pipelines.compiler import outputs
from barnabas.pipelines.compiler.outputs import query_rows
from barnabas.pipelines.compiler.queries import ON_DISK, STATE_OPTION, begun
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.interpret.interpreter import Interpreter, Record
from barnabas.pipelines.spark.session.start import adopt_session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PIPELINE = """
pipeline: histories
sources:
  visits: {topic: visits, steps: [parse: {json: {id: int, customer: string}}]}
  customers: {table: customers, steps: [parse: {json: {customer: string, name: string, rank: int}}]}
  orders: {table: orders, steps: [parse: {json: {order: string, customer: string, amount: int, price: double}}]}
relations:
  good: {from: customers, steps: [filter: rank > 2, set: {twice: rank * 2}]}
  met: {join: {left: visits, right: good, by: customer, kind: left}}
  inner: {join: {left: orders, right: good, by: customer}}
  left: {join: {left: orders, right: good, by: customer, kind: left}}
  right: {join: {left: orders, right: good, by: customer, kind: right}}
  full: {join: {left: orders, right: good, by: customer, kind: full}}
  # A row without a partner and its pairs are different rows here, and a pair finds its way through two more operators.
  deep: {join: {left: left, right: customers, by: {name: name}, kind: full, prefix: again_}}
  totals:
    from: orders
    aggregate:
      by: [customer]
      compute:
        orders: count(*)
        amount: sum(amount)
        price: sum(price)
        average: avg(amount)
        least: min(amount)
        most: max(price)
        dearest: max_by(order, price)
        all: collect_list(amount)
        different: count(distinct amount)
        large: count(*) filter (where amount > 5)
        ratio: sum(amount) / count(*)
  many: {from: totals, steps: [filter: orders > 1]}
  sizes:
    from: totals
    aggregate: {by: [orders], compute: {customers: count(*), most: max(amount), set: collect_set(least)}}
  ranks: {from: full, aggregate: {by: [rank], compute: {pairs: count(*), amount: sum(amount), names: collect_set(name)}}}
  visited:
    from: visits
    aggregate: {by: [customer], compute: {visits: count(*), last: max(id), first: min(id), ids: collect_list(id)}}
  both: {join: {left: visited, right: many, by: customer, kind: full}}
  knew: {join: {left: visits, right: totals, by: customer, kind: left}}
outputs:
"""
TABLES = {
    "inner": "`order`",
    "left": "`order`",
    "right": "concat_ws('-', `order`, customer)",
    "full": "concat_ws('-', `order`, customer)",
    "deep": "concat_ws('-', `order`, again_customer)",
    "totals": None,
    "many": None,
    "sizes": None,
    "ranks": None,
    "visited": None,
    # Null is a group on both sides, and no partner of itself.
    "both": "concat(coalesce(customer, '-'), case when visits is null then 'r' else 'l' end)",
}
STREAMS = ("met", "knew")
EVERYTHING = (*TABLES, *STREAMS)
QUICK = ("ranks", "sizes", "knew", "visited")
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
}
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
CUSTOMERS, ORDERS, HISTORIES = 4, 6, 100


def pipeline() -> str:
    outputs = [
        f"  - {{topic: {name}, from: {name}" + (f', key: "{TABLES[name]}"' if TABLES.get(name) else "") + "}"
        for name in EVERYTHING
    ]
    return PIPELINE + "\n".join(outputs)


class History:
    """Records with keys of one history. Their times are out of order, also those of one key."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.name = f"h{seed}"

    def records(self, count: int) -> Iterator[tuple[str, str, dict | None, int]]:
        """topic, key, value, milliseconds."""
        chance = self.chance
        for _ in range(count):
            number = chance.randrange(1_000_000)
            ms = 1_700_000_000_000 + chance.randrange(1000)
            customer = f"{self.name}-c{chance.randrange(CUSTOMERS)}"
            topic = chance.choice(("visits", "customers", "customers", "orders", "orders"))
            gone = chance.random() < 0.25
            if topic == "visits":
                yield topic, "v", {"id": number, "customer": chance.choice((customer, customer, None))}, ms
            elif topic == "customers":
                value = {
                    "customer": customer,
                    "name": f"{self.name}-{chance.randrange(3)}",
                    "rank": chance.randrange(6),
                }
                yield topic, customer, None if gone else value, ms
            else:
                order = f"{self.name}-o{chance.randrange(ORDERS)}"
                value = {
                    "order": order,
                    "customer": chance.choice((customer, customer, customer, None)),
                    "amount": chance.randrange(9),
                    "price": chance.choice((0.1, 0.2, 0.3, 1e17, 7.5, None)),
                }
                yield topic, order, None if gone else value, ms


class Writer:
    """Writes the records of a micro-batch as one file for each topic."""

    def __init__(self, spark, folder, seed: int) -> None:
        self.spark, self.folder, self.chance = spark, folder, random.Random(seed)
        self.offsets: dict[tuple[str, int], int] = {}
        self.number = 0

    def write(self, histories: list[History], count: int) -> list[Record]:
        mixed = [record for history in histories for record in history.records(count)]
        self.chance.shuffle(mixed)
        records = []
        for topic, key, value, ms in mixed:
            partition = sum(key.encode()) % 2
            offset = self.offsets[topic, partition] = self.offsets.get((topic, partition), -1) + 1
            data = None if value is None else json.dumps(value).encode()
            records.append(Record(topic, key.encode(), data, ms * 1000, partition, offset))
        for topic in ("visits", "customers", "orders"):
            mine = [r for r in records if r.topic == topic]
            rows = [
                [r.key for r in mine],
                [r.value for r in mine],
                [topic] * len(mine),
                [r.partition for r in mine],
                [r.offset for r in mine],
                [r.at_us for r in mine],
            ]
            place = self.folder / topic
            place.mkdir(parents=True, exist_ok=True)
            table = pa.Table.from_arrays(
                [pa.array(column, kind) for column, kind in zip(rows, TYPES.values(), strict=True)],
                names=list(TYPES),
            )
            parquet.write_table(table, self.folder / "new.parquet")
            os.rename(self.folder / "new.parquet", place / f"{self.number:04}.parquet")
        self.number += 1
        return records


def seen(rows: dict) -> list[str]:
    """Rows of the interpreter, as what is written for them."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


class Written:
    """What the outputs have written: tables as compacted topics, streams since the last look."""

    def __init__(self) -> None:
        self.batches: list[list] = []

    def __call__(self, rows, batch_id: int) -> None:
        self.batches.append(
            [(r.topic, r.key and bytes(r.key), r.value and bytes(r.value)) for r in rows.collect()]
        )


@pytest.mark.parametrize(
    ("seed", "names", "runs", "batches"),
    [
        (1, QUICK, 2, 1),
        *(
            pytest.param(10 * seed + part, EVERYTHING[part::4], 4, 3, marks=pytest.mark.soak)
            for seed in range(2, 5)
            for part in range(4)
        ),
    ],
)
def test_histories(spark, tmp_path, monkeypatch, seed, names, runs, batches):
    adopt_session(spark)
    # The outputs are one query here, and Spark allows one observation of a name in each.
    monkeypatch.setattr(outputs, "observed", lambda data, *_: data)
    spec = parse_spec(pipeline(), "histories.yaml")
    model, tables, written = Interpreter(spec.plan), {name: {} for name in TABLES}, Written()
    writer = Writer(spark, tmp_path / "in", seed)
    generated = [History(seed * 1000 + number) for number in range(HISTORIES)]
    streamed = dict.fromkeys(STREAMS, 0)
    for _ in range(runs):
        records = [writer.write(generated, 4) for _ in range(batches)]

        def load(relation, stream):
            topic = relation.origin.source.topics[0]
            read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1")
            return read.parquet(str(tmp_path / "in" / topic))

        queries = [query for query in spec.queries() if query.name in names]
        rows = [query_rows(spec, query, load).select("topic", "key", "value") for query in queries]
        sink = reduce(lambda one, other: one.union(other), rows).writeStream.foreachBatch(written)
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query = begun(spark, sink, None, own={STATE_OPTION: ON_DISK})
        query.awaitTermination()
        assert query.exception() is None
        assert len(written.batches) == batches
        for batch, came in zip(written.batches, records, strict=True):
            model.read(came)
            for topic, key, value in batch:
                if topic in tables:
                    if value is None:
                        tables[topic].pop(key, None)  # what came and went between is a tombstone, too
                    else:
                        tables[topic][key] = value
            for name in [name for name in names if name in TABLES]:
                table = tables[name]
                rows_now = sorted(json.dumps(json.loads(value), sort_keys=True) for value in table.values())
                assert rows_now == seen(model.table(name).values()), name
            for name in [name for name in names if name in STREAMS]:
                rows = model.stream(name)[streamed[name] :]
                streamed[name] += len(rows)
                rows_now = [json.loads(value) for topic, _, value in batch if topic == name]
                assert sorted(json.dumps(row, sort_keys=True) for row in rows_now) == seen(rows), name
        written.batches.clear()
