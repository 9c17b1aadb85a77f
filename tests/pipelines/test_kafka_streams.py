"""Kafka Streams as a witness: its TopologyTestDriver and the interpreter of plans read the same histories, and their tables
are the same in the end: joins by key and by foreign key, a stream with a table, aggregates of tables and of aggregates,
windows.

What the compiler makes of a plan is compared with the interpreter in test_table_histories.py.
"""

from __future__ import annotations

import datetime
import json
import random
import subprocess
from pathlib import Path

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.interpret.interpreter import Interpreter, Record
from tests.clients.foreign import SHORT_JAVA, build, fingerprint, made, maven, need

SOURCES = Path(__file__).parent / "streams"
PIPELINE = """
pipeline: witness
sources:
  visits: {topic: visits, steps: [parse: {json: {who: string, n: int, at: timestamp}}]}
  people: {table: people, steps: [parse: {json: {who: string, name: string}}]}
  homes: {table: homes, steps: [parse: {json: {who: string, city: string}}]}
  orders: {table: orders, steps: [parse: {json: {order: string, who: string, amount: int}}]}
relations:
  inner: {join: {left: people, right: homes, by: who}}
  left: {join: {left: people, right: homes, by: who, kind: left}}
  full: {join: {left: people, right: homes, by: who, kind: full}}
  foreign-inner: {join: {left: orders, right: people, by: who}}
  foreign-left: {join: {left: orders, right: people, by: who, kind: left}}
  met-inner: {join: {left: visits, right: people, by: who}}
  met-left: {join: {left: visits, right: people, by: who, kind: left}}
  owned: {from: orders, steps: [filter: who is not null]}
  totals: {from: owned, aggregate: {by: [who], compute: {n: count(*), amount: sum(amount)}}}
  many: {from: totals, steps: [filter: n > 1]}
  of-totals: {from: totals, aggregate: {by: [n], compute: {groups: count(*), amount: sum(amount)}}}
  known: {from: visits, steps: [filter: who is not null]}
  tumbling:
    from: known
    aggregate: {window: {of: at, every: 1 hour}, by: [who], compute: {n: count(*)}, emit: changes}
  hopping:
    from: known
    aggregate: {window: {of: at, every: 1 hour, slide: 20 minutes}, by: [who], compute: {n: count(*)}, emit: changes}
"""
WRITTEN = {
    "inner": lambda row: (row["who"], f"{row['name']} {row['city']}"),
    "left": lambda row: (row["who"], f"{row['name']} {row['city'] or '-'}"),
    "full": lambda row: (row["who"], f"{row['name'] or '-'} {row['city'] or '-'}"),
    "foreign-inner": lambda row: (row["order"], f"{row['who']} {row['amount']} {row['name']}"),
    "foreign-left": lambda row: (row["order"], f"{row['who'] or '-'} {row['amount']} {row['name'] or '-'}"),
    "met-inner": lambda row: (row["who"], f"{row['n']} {row['name']}"),
    "met-left": lambda row: (str(row["who"] or "null"), f"{row['n']} {row['name'] or '-'}"),
    "totals": lambda row: (row["who"], f"{row['n']} {row['amount']}"),
    "many": lambda row: (row["who"], f"{row['n']} {row['amount']}"),
    "of-totals": lambda row: (str(row["n"]), f"{row['groups']} {row['amount']}"),
    "tumbling": lambda row: (f"{row['who']} {milliseconds(row['window'])}", str(row["n"])),
    "hopping": lambda row: (f"{row['who']} {milliseconds(row['window'])}", str(row["n"])),
}
"""What Witness.java writes for a row: key and value."""


def milliseconds(time: datetime.datetime) -> int:
    return round(time.timestamp() * 1000)


def history(seed: int) -> list[tuple[str, str, dict | None, int]]:
    """topic, key, value, milliseconds: out of order, with updates and deletes."""
    chance = random.Random(seed)
    records: list[tuple[str, str, dict | None, int]] = []
    for number in range(chance.randrange(5, 60)):
        ms = 1_700_000_000_000 + chance.randrange(3 * 3_600_000)
        who = f"w{chance.randrange(4)}"
        topic = chance.choice(("visits", "people", "homes", "orders", "orders"))
        gone = chance.random() < 0.25
        if topic == "visits":
            at = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat()
            owner = chance.choice((who, who, who, None))
            records.append((topic, owner or "-", {"who": owner, "n": number, "at": at}, ms))
        elif topic == "orders":
            order = f"o{chance.randrange(5)}"
            value = {"order": order, "who": chance.choice((who, who, None)), "amount": chance.randrange(9)}
            records.append((topic, order, None if gone else value, ms))
        else:
            field = "name" if topic == "people" else "city"
            records.append((topic, who, None if gone else {"who": who, field: f"{field}{number % 7}"}, ms))
    return records


def as_line(topic: str, key: str, value: dict | None, ms: int) -> str:
    """A record as Witness.java reads it."""
    parts = {"visits": ("n",), "people": ("name",), "homes": ("city",), "orders": ("who", "amount")}[topic]
    text = (
        "-" if value is None else " ".join("-" if value[part] is None else str(value[part]) for part in parts)
    )
    return f"{topic}\t{key}\t{text}\t{ms}\n"


def program(name: str = "Witness") -> list[str]:
    """The command that runs a program in streams/."""
    java, javac = need("java"), need("javac")
    pom = SOURCES / "pom.xml"
    jars = made(
        f"streams-{fingerprint(SOURCES, 'pom.xml')}", lambda folder: maven(pom, folder, "Kafka Streams")
    )

    def compile_it(folder: Path) -> None:
        flags = [f"-J{option}" for option in SHORT_JAVA]
        command = [javac, *flags, "-Xlint:all", "-cp", f"{jars}/*", "-d", str(folder), f"{name}.java"]
        build(command, SOURCES)

    classes = made(f"streams-{name.lower()}-{fingerprint(SOURCES, 'pom.xml', '*.java')}", compile_it)
    return [java, *SHORT_JAVA, "-cp", f"{classes}:{jars}/*", name]


def answers(histories: list[list]) -> list[dict[str, list[tuple[str, str]]]]:
    """What Kafka Streams has in its tables after each history, and in its streams."""
    text = "".join("".join(as_line(*record) for record in records) + "\n" for records in histories)
    done = subprocess.run(program(), input=text, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    results = []
    for part in done.stdout.split("\n\n")[: len(histories)]:
        rows: dict[str, list[tuple[str, str]]] = {name: [] for name in WRITTEN}
        for line in part.splitlines():
            if line:
                name, key, value = line.split("\t")
                rows[name].append((key, value))
        results.append(rows)
    return results


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.soak)])
def test_kafka_streams_has_the_same_tables(count):
    outputs = "\n".join(f"  - {{topic: {name}-out, from: {name}}}" for name in WRITTEN)
    plan = parse_spec(f"{PIPELINE}outputs:\n{outputs}\n", "witness.yaml").plan
    histories = [history(seed) for seed in range(count)]
    for records, theirs in zip(histories, answers(histories), strict=True):
        model = Interpreter(plan)
        for offset, (topic, key, value, ms) in enumerate(records):
            data = None if value is None else json.dumps(value).encode()
            model.read([Record(topic, key.encode(), data, ms * 1000, offset=offset)])
        for name, written in WRITTEN.items():
            rows = model.table(name).values() if plan.is_table(name) else model.stream(name)
            ours = [written(row) for row in rows]
            if plan.is_table(name):
                ours.sort()
                theirs[name].sort()
            assert ours == theirs[name], (name, records)
