"""Joins, windows, sessions and aggregates over a generated history, compared with what duckdb makes of the same records.

The history comes in several steps, each read by a run of its own that goes on from the checkpoints. Times are out of order.
A record is either in time (less than `late` behind everything that its topic had before) or so late that every window and
every possible partner of it is over; between the two, Spark may count a record or not.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed
from tests.pipelines.test_relations import type_of_topic

duckdb = pytest.importorskip("duckdb")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PIPELINE = """
pipeline: {t}
sources:
  orders:
    topic: {t}-orders
    steps: [parse: {{json: {{id: int, customer: string, amount: int, placed: timestamp}}}}]
    time: {{of: placed, late: 20 minutes}}
  payments:
    topic: {t}-payments
    steps: [parse: {{json: {{pid: int, customer: string, paid_at: timestamp}}}}]
    time: {{of: paid_at, late: 20 minutes}}
  people:
    table: {t}-people
    steps: [parse: {{json: {{customer: string, name: string}}}}]
relations:
  inner: {{join: {{left: orders, right: payments, by: customer, within: 10 minutes}}}}
  left:
    join: {{left: orders, right: payments, by: customer, within: {{before: 0 seconds, after: 15 minutes}}, kind: left}}
  right: {{join: {{left: orders, right: payments, by: customer, within: 10 minutes, kind: right}}}}
  full:
    join: {{left: orders, right: payments, by: customer, within: {{before: 5 minutes, after: 10 minutes}}, kind: full}}
  named: {{join: {{left: orders, right: people, by: customer, kind: left}}}}
  known: {{join: {{left: orders, right: people, by: customer}}}}
outputs:
{outputs}
"""
COMPUTE = "compute: {n: count(*), total: sum(amount), least: min(amount), last: max(placed)}"
COUNTED = "from: orders, aggregate: {by: [customer], " + COMPUTE
AGGREGATES = {
    "tumbling": COUNTED + ", window: {every: 10 minutes, as: w, end: e}, emit: final}",
    "sliding": COUNTED + ", window: {every: 30 minutes, slide: 10 minutes, as: w, end: e}, emit: final}",
    "session": COUNTED + ", window: {session: 15 minutes, as: w, end: e}, emit: final}",
    "changes": COUNTED + ", window: {every: 10 minutes, as: w, end: e}}",
    "ever": COUNTED + "}",
    "joined": "from: left, aggregate: {window: {every: 30 minutes, as: w, end: e}, by: [customer], "
    "compute: {n: count(*), paid: count(pid)}, emit: final}",
}
JOINS = ("inner", "left", "right", "full", "named", "known")

RESULTS = "count(*)::BIGINT AS n, sum(amount)::BIGINT AS total, min(amount) AS least, max(placed) AS last"
PAIRS = "SELECT o.id, o.amount, o.placed, {customer} AS customer, p.pid, p.paid_at FROM timely o {kind} JOIN paid p ON "
NEAR = (
    "o.customer = p.customer AND p.paid_at "
    "BETWEEN o.placed - INTERVAL {before} MINUTE AND o.placed + INTERVAL {after} MINUTE"
)
WINDOWS = (
    "SELECT w, w + INTERVAL {size} MINUTE AS e, customer, {results} FROM (SELECT *, "
    "time_bucket(INTERVAL {slide} MINUTE, placed) - INTERVAL {slide} MINUTE * unnest(range({count})) AS w "
    "FROM {rows}) GROUP BY ALL"
)
PEOPLE = (
    "SELECT o.id, o.customer, o.amount, o.placed, p.name FROM orders o {kind} JOIN people p "
    "ON o.customer = p.customer AND p.since <= o.step AND o.step < p.until"
)


def pairs(kind: str, before: int, after: int) -> str:
    customer = "coalesce(o.customer, p.customer)"
    return PAIRS.format(kind=kind, customer=customer) + NEAR.format(before=before, after=after)


QUERIES = {
    "inner": pairs("INNER", 10, 10),
    "left": pairs("LEFT", 0, 15),
    "right": pairs("RIGHT", 10, 10),
    "full": pairs("FULL", 5, 10),
    "named": PEOPLE.format(kind="LEFT"),
    "known": PEOPLE.format(kind="INNER"),
    "tumbling": WINDOWS.format(size=10, slide=10, count=1, results=RESULTS, rows="timely"),
    "sliding": WINDOWS.format(size=30, slide=10, count=3, results=RESULTS, rows="timely"),
    "changes": WINDOWS.format(size=10, slide=10, count=1, results=RESULTS, rows="timely"),
    "session": (
        f"SELECT min(placed) AS w, max(placed) + INTERVAL 15 MINUTE AS e, customer, {RESULTS} FROM ("
        "SELECT *, sum(begins) OVER (PARTITION BY customer ORDER BY placed, id) AS nth FROM (SELECT *, "
        "(lag(placed) OVER (PARTITION BY customer ORDER BY placed, id) + INTERVAL 15 MINUTE >= placed "
        "IS NOT TRUE)::INT AS begins "
        "FROM timely)) GROUP BY customer, nth"
    ),
    "ever": f"SELECT customer, {RESULTS} FROM orders GROUP BY customer",
    "joined": WINDOWS.format(
        size=30,
        slide=30,
        count=1,
        results="count(*) AS n, count(pid) AS paid",
        rows=f"({pairs('LEFT', 0, 15)})",
    ),
}

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LATE = 20
STEPS = 4
CUSTOMERS = ("a", "b", "c", "d", None)
FAR = 60 * 24 * 45
"""Records of the end, in another month, close all windows of those before."""


@dataclass
class History:
    """The records of each step. orders and payments: (id, customer, amount, minute, late)."""

    orders: list[list[tuple]] = field(default_factory=list)
    payments: list[list[tuple]] = field(default_factory=list)
    people: list[list[tuple[str, str | None, str]]] = field(default_factory=list)


def generate(seed: int) -> History:
    chance = random.Random(seed)
    history = History()
    ends = [0]
    steps_by_topic: dict[str, list[list[tuple]]] = {"orders": history.orders, "payments": history.payments}
    latest = dict.fromkeys(steps_by_topic, 0)
    number = 0
    for step in range(STEPS):
        over = ends[-2] - LATE - 90 if len(ends) > 1 else 0
        for topic, steps in steps_by_topic.items():
            steps.append([])
            middle = 150 * step
            for _ in range(40):
                number += 1
                middle += chance.randrange(8)
                late = over > 0 and chance.random() < 0.15
                minute = (
                    chance.randrange(over)
                    if late
                    else max(middle - chance.randrange(35), latest[topic] - LATE + 1, 0)
                )
                latest[topic] = max(latest[topic], minute)
                steps[-1].append((number, chance.choice(CUSTOMERS), chance.randrange(100), minute, late))
        ends.append(min(latest.values()))
        keys = [(f"k{chance.randrange(4)}", chance.choice(CUSTOMERS[:4])) for _ in range(3)]
        history.people.append(
            [(key, chance.choice((customer, customer, None)), f"{key} in {step}") for key, customer in keys]
        )
    return history


def at(minute: int) -> datetime:
    return BEGIN + minute * MINUTE


def write_step(client, topic: str, history: History, step: int) -> None:
    for key, customer, name in history.people[step]:
        value = None if customer is None else json.dumps({"customer": customer, "name": name}).encode()
        send(client, f"{topic}-people", [value], key=key.encode())
    for name, columns in (
        ("orders", ("id", "customer", "amount", "placed")),
        ("payments", ("pid", "customer", "paid_at")),
    ):
        rows = []
        for number, customer, amount, minute, _ in getattr(history, name)[step]:
            known = {"id": number, "pid": number, "customer": customer, "amount": amount}
            known |= dict.fromkeys(("placed", "paid_at"), at(minute).isoformat())
            rows.append(json.dumps({column: known[column] for column in columns}).encode())
        send(client, f"{topic}-{name}", rows)


def expected(history: History) -> dict[str, list[dict]]:
    """What duckdb makes of the whole history."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for name in ("all_orders", "all_payments"):
            db.execute(
                f"CREATE TABLE {name} (id INT, customer TEXT, amount INT, placed TIMESTAMP, late BOOLEAN, step INT)"
            )
            for step, rows in enumerate(getattr(history, name.removeprefix("all_"))):
                db.executemany(
                    f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?)",
                    [
                        (i, c, amount, at(m).replace(tzinfo=None), late, step)
                        for i, c, amount, m, late in rows
                    ],
                )
        db.execute("CREATE VIEW orders AS FROM all_orders")
        db.execute("CREATE VIEW timely AS FROM all_orders WHERE NOT late")
        db.execute(
            "CREATE VIEW paid AS SELECT id AS pid, customer, placed AS paid_at FROM all_payments WHERE NOT late"
        )
        db.execute("CREATE TABLE changed (key TEXT, customer TEXT, name TEXT, step INT, nth INT)")
        changes = [
            (*row, step, nth) for step, rows in enumerate(history.people) for nth, row in enumerate(rows)
        ]
        db.executemany("INSERT INTO changed VALUES (?, ?, ?, ?, ?)", changes)
        db.execute(
            "CREATE VIEW people AS FROM (SELECT *, step AS since, coalesce(lead(step) OVER (PARTITION BY key ORDER BY step, "
            "nth), 1000) AS until FROM changed) WHERE customer IS NOT NULL"
        )
        rows_by_name = {}
        for name, sql in QUERIES.items():
            cursor = db.execute(sql)
            names = [column[0] for column in cursor.description]
            rows_by_name[name] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return rows_by_name


def plain(rows: list[dict]) -> list[str]:
    """Rows as sorted text, with times as JSON of a pipeline has them."""
    return sorted(
        json.dumps(
            {n: f"{v:%Y-%m-%dT%H:%M:%S}.000Z" if isinstance(v, datetime) else v for n, v in row.items()},
            sort_keys=True,
        )
        for row in rows
    )


def of_the_end(row: dict) -> bool:
    """Whether a time in the row is that of the records that close all windows."""
    return any(str(value).startswith(f"{at(FAR):%Y-%m}") for value in row.values())


def found_in(bootstrap: str, topic: str, *, newest: bool) -> list[dict]:
    records = consumed(bootstrap, topic)
    kept = list({record.key: record for record in records}.values()) if newest else records
    rows = [json.loads(record.value) for record in kept]
    return [row for row in rows if not of_the_end(row)]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_history_in_steps(spark, bootstrap, client, new_topic, tmp_path, seed):
    t = new_topic()
    for name in ("orders", "payments", "people"):
        client.create_topics([type_of_topic(f"{t}-{name}")])
    lines = [f"  - {{topic: {t}-{name}, from: {name}}}" for name in JOINS]
    lines += [f"  - {{topic: {t}-{name}, {text}}}" for name, text in AGGREGATES.items()]
    spec = parse_spec(PIPELINE.format(t=t, outputs="\n".join(lines)), "history.yaml")
    history = generate(seed)
    for step in range(STEPS):
        write_step(client, t, history, step)
        report = run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
        assert report.failed == 0
    wanted = expected(history)
    end = History([[(-1, "end", 0, FAR, False)]], [[(-1, "end", 0, FAR, False)]], [[]])
    write_step(client, t, end, 0)
    run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    differences = {}
    for name, rows in wanted.items():
        result_rows = found_in(bootstrap, f"{t}-{name}", newest=name in ("changes", "ever"))
        if name == "ever":
            result_rows = [row for row in result_rows if row["customer"] != "end"]
        if plain(result_rows) != plain(rows):
            ours, theirs = plain(result_rows), plain(rows)
            differences[name] = {
                "too much": list((Counter(ours) - Counter(theirs)).elements()),
                "missing": list((Counter(theirs) - Counter(ours)).elements()),
            }
    assert not differences, json.dumps(differences, indent=1)
