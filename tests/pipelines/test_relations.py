"""Pipelines of several sources: unions, joins of streams and with tables, aggregates with further steps behind them."""

from __future__ import annotations

import json
import os

import pytest

from barnabas.pipelines import Pipeline
from barnabas.pipelines.compiler.checking import check_plan
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.replay import replay
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.pipelines.spark.tables.operators import kept_table
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def rows(*values):
    return [json.dumps(value).encode() if isinstance(value, dict) else value for value in values]


def values(bootstrap, topic):
    return [(record.key, json.loads(record.value)) for record in consumed(bootstrap, topic)]


UNION = """
pipeline: {t}
sources:
  web:
    topic: {t}-web
    steps: [parse: {{json: {{id: int, path: string}}}}]
  app:
    topic: {t}-app
    steps: [parse: {{json: {{id: int, screen: string}}}}, rename: {{screen: path}}, constant: {{from_app: yes}}]
relations:
  visits:
    union: [web, app]
    steps: [filter: id >= 0, set: {{half: 10 / id}}]
outputs:
  - {{topic: {t}-visits, key: id}}
  - {{topic: {t}-web-only, from: web, key: id}}
"""


def test_a_union(spark, bootstrap, client, new_topic, tmp_path):
    """And a replay: each letter goes to the outputs that do not have its record, in the place of its source."""
    t = new_topic()
    for name in ("web", "app"):
        client.create_topics([type_of_topic(f"{t}-{name}")])
    send(client, f"{t}-web", rows({"id": 1, "path": "/"}, b"bad web", {"id": -1, "path": "/left-out"}))
    send(client, f"{t}-app", rows({"id": 2, "screen": "home"}, b"bad app"))
    spec = parse_spec(UNION.format(t=t), "shop.yaml")

    def run():
        report = run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
        return {query.name: (query.rows, query.failed) for query in report.queries}

    send(client, f"{t}-web", rows({"id": 0, "path": "/"}))
    assert run() == {f"{t}-visits": (5, 3), f"{t}-web-only": (3, 0)}
    assert sorted(values(bootstrap, f"{t}-visits")) == [
        (b"1", {"id": 1, "path": "/", "from_app": None, "half": 10.0}),
        (b"2", {"id": 2, "path": "home", "from_app": True, "half": 5.0}),
    ]
    assert [key for key, _ in values(bootstrap, f"{t}-web-only")] == [b"1", b"-1", b"0"]
    dead = consumed(bootstrap, f"{t}-dead-letters")
    assert sorted((record.value, record.header("step"), record.header("topic")) for record in dead) == [
        (b"bad app", "app: 1 parse", f"{t}-app"),
        (b"bad web", "web: 1 parse", f"{t}-web"),
        (b'{"id": 0, "path": "/"}', "visits: 2 set", f"{t}-web"),
    ]
    assert client.committed(f"{t}.{t}-visits") == {(f"{t}-web", 0): 4, (f"{t}-app", 0): 2}
    report = replay(spark, spec, bootstrap, repair='\'{"id": 4, "path": "/r", "screen": "s"}\'')
    assert (report.found, report.replayed, report.kept, report.still_bad) == (3, 3, {}, {})
    assert report.outputs == {f"{t}-visits": 3, f"{t}-web-only": 1}
    again = sorted(v["path"] for _, v in values(bootstrap, f"{t}-visits") if v["id"] == 4)
    assert again == ["/r", "/r", "s"]
    assert [v for _, v in values(bootstrap, f"{t}-web-only") if v["id"] == 4] == [{"id": 4, "path": "/r"}]
    assert replay(spark, spec, bootstrap, dry_run=True).found == 0
    swapped = UNION.format(t=t).replace("[web, app]", "[app, site]").replace("  web:", "  site:")
    swapped = parse_spec(swapped.replace("from: web", "from: site"))
    with pytest.raises(
        PipelineError, match="was begun with the sources web, app, but the pipeline now has site, app"
    ):
        run_pipeline(swapped, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)


def type_of_topic(name):
    from barnabas.client.blocking import NewTopic
    from tests.support.admin import KEPT

    return NewTopic(name, 1, configs=KEPT)


JOINS = """
pipeline: {t}
sources:
  orders:
    topic: {t}-orders
    options: {{maxOffsetsPerTrigger: 3}}
    steps: [parse: {{json: {{id: int, customer: string, at: timestamp}}}}]
    time: {{of: at, late: 1 minute}}
  payments:
    topic: {t}-payments
    options: {{maxOffsetsPerTrigger: 3}}
    steps: [parse: {{json: {{order: int, paid_at: timestamp, amount: int}}}}]
    time: {{of: paid_at, late: 1 minute}}
  customers:
    table: {t}-customers
    steps: [parse: {{json: {{customer: string, name: string}}}}]
relations:
  paid:
    join: {{left: orders, right: payments, by: {{id: order}}, within: {{before: 0 seconds, after: 1 hour}}, kind: left}}
    steps: [drop: order]
  named:
    join: {{left: paid, right: customers, by: customer, kind: left}}
    steps: [set: {{greeting: "concat('Dear ', name)"}}]
  hours:
    from: paid
    aggregate: {{window: {{every: 1 hour, as: hour}}, by: [customer], compute: {{orders: count(*), amount: sum(amount)}}}}
  large:
    from: hours
    steps: [filter: orders > 1]
outputs:
  - {{topic: {t}-named, from: named, key: id}}
  - {{topic: {t}-large, from: large}}
"""


def test_joins(spark, bootstrap, client, new_topic, tmp_path):
    t = new_topic()
    for name in ("orders", "payments", "customers"):
        client.create_topics([type_of_topic(f"{t}-{name}")])

    def order(id, customer, at):
        return {"id": id, "customer": customer, "at": f"2026-01-01T{at}Z"}

    def payment(order, at, amount):
        return {"order": order, "paid_at": f"2026-01-01T{at}Z", "amount": amount}

    for key, name in ((b"a", "Old"), (b"a", "Anna"), (b"b", "Ben")):
        send(client, f"{t}-customers", rows({"customer": key.decode(), "name": name}), key=key)
    send(client, f"{t}-customers", rows({"customer": "c", "name": "Gone"}), key=b"c")
    send(client, f"{t}-customers", [None], key=b"c")
    send(client, f"{t}-customers", [b"bad customer"], key=b"x")
    # In micro-batches of three. What comes with the third closes the hour: then it is known which orders stay without a
    # payment, and the fourth gives them.
    orders = [
        order(1, "a", "10:00:00"), order(2, "b", "10:05:00"), order(3, "c", "10:10:00"),
        order(4, "a", "10:20:00"), b"bad order", {"id": 9, "customer": "a", "at": None},
        order(5, "a", "23:00:00"), order(6, "b", "23:10:00"), order(7, "a", "23:20:00"),
        order(8, "a", "23:21:00"),
    ]  # fmt: skip
    paid = [
        payment(1, "10:30:00", 5), payment(4, "10:20:00", 8), payment(3, "10:09:00", 1),
        payment(2, "11:30:00", 7), payment(5, "23:30:00", 1), payment(6, "23:40:00", 2),
        payment(7, "23:50:00", 3),
    ]  # fmt: skip
    send(client, f"{t}-orders", rows(*orders))
    send(client, f"{t}-payments", rows(*paid))
    spec = parse_spec(JOINS.format(t=t), "shop.yaml")
    report = run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    assert {query.name: query.failed for query in report.queries} == {
        f"{t}-named": 0,
        f"{t}-large": 0,
        "orders.dead-letters": 2,
        "payments.dead-letters": 0,
        "customers.dead-letters": 1,
    }
    pairs = values(bootstrap, f"{t}-named")
    shown = {key: (value["amount"], value["name"], value["greeting"]) for key, value in pairs}
    assert shown == {
        b"1": (5, "Anna", "Dear Anna"),
        b"2": (None, "Ben", "Dear Ben"),
        b"3": (None, None, None),
        b"4": (8, "Anna", "Dear Anna"),
        b"5": (1, "Anna", "Dear Anna"),
        b"6": (2, "Ben", "Dear Ben"),
        b"7": (3, "Anna", "Dear Anna"),
    }
    assert len(pairs) == 7
    assert values(bootstrap, f"{t}-large") == [
        (
            b'{"hour":"2026-01-01T10:00:00.000Z","customer":"a"}',
            {"hour": "2026-01-01T10:00:00.000Z", "customer": "a", "orders": 2, "amount": 13},
        )
    ]
    dead = consumed(bootstrap, f"{t}-dead-letters")
    assert sorted((record.header("step"), record.header("reason")) for record in dead) == [
        ("customers: 1 parse", "not a JSON object: bad customer"),
        ("orders: 1 parse", "not a JSON object: bad order"),
        ("orders: time", "the event time at is null"),
    ]
    stay = replay(spark, spec, bootstrap, dry_run=True)
    assert (stay.found, stay.replayed, sum(stay.kept.values())) == (3, 0, 3)
    assert (
        f"orders feeds {t}-named, which joins or counts: write the repaired record to {t}-orders" in stay.kept
    )


def test_lines_of_files_and_sessions(spark, bootstrap, client, new_topic, tmp_path):
    """Built in Python: lines of files, beside a topic, counted by sessions once those are over."""
    t = new_topic()
    (tmp_path / "in").mkdir()
    files = (
        "2026-01-01T10:00:00Z,x\nbad\n2026-01-01T10:30:00Z,x\n",
        "2026-01-01T13:05:00Z,x\n",
        "2026-01-01T13:06:00Z,x\n",
    )
    for number, text in enumerate(files, 1):
        file = tmp_path / "in" / f"{number}.csv"
        file.write_text(text)
        os.utime(file, (number, number))
    send(
        client, t, [f"2026-01-01T{at}:00Z,y".encode() for at in ("10:30", "11:30", "13:05", "13:06", "13:07")]
    )
    steps = [{"parse": {"csv": {"at": "timestamp", "kind": "string"}}}]
    timed = {"steps": steps, "time": {"of": "at", "late": "1 minute"}}
    lines = {"path": str(tmp_path / "in"), "files_per_trigger": 1}
    pipeline = (
        Pipeline(f"{t}-lines")
        .sources(
            old={"files": lines, **timed}, new={"topic": t, "options": {"maxOffsetsPerTrigger": 2}, **timed}
        )
        .relations(lines={"union": ["old", "new"]})
        .to_topic(
            f"{t}-sessions",
            aggregate={
                "window": {"session": "45 minutes", "as": "from", "end": "to"},
                "by": ["kind"],
                "compute": {"n": "count(*)"},
                "emit": "final",
            },
        )
    )
    pipeline.run(once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints")
    sessions = sorted(
        (value["from"][11:16], value["to"][11:16], value["kind"], value["n"])
        for _, value in values(bootstrap, f"{t}-sessions")
    )
    assert sessions == [("10:00", "11:15", "x", 2), ("10:30", "11:15", "y", 1), ("11:30", "12:15", "y", 1)]
    (dead,) = consumed(bootstrap, f"{t}-lines-dead-letters")
    assert (dead.value, dead.header("step")) == (b"bad", "old: 1 parse")
    assert dead.header("topic").endswith("/in/1.csv")


CHECKED = """pipeline: p
sources:
  a:
    topic: a
    steps: [parse: {json: {id: int, name: string, at: timestamp}}]
    time: {of: at, late: 1 minute}
  b:
    topic: b
    steps: [parse: {json: {id: int, total: int, at: timestamp}}]
    time: {of: at, late: 1 minute}
relations:
  both:
    join: {left: a, right: b, by: id, within: 1 hour, prefix: b_}
outputs:
  - topic: o
    key: id
"""


def test_a_check_of_what_is_right(spark):
    check_plan(spark, parse_spec(CHECKED, "p.yaml"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "by: id",
            "by: ident",
            r"p\.yaml:13: .*both: there is no field 'ident' at this point",
        ),
        (
            "by: id",
            "by: {name: total}",
            r"p\.yaml:13: .*name of a is string and total of b is int: convert one of them",
        ),
        (
            ", prefix: b_",
            "",
            r"p\.yaml:13: .*a and b both have a field 'at': rename or drop one, or give the join a prefix",
        ),
        ("{of: at, late", "{of: name, late", r"p\.yaml:6: .*name is string, not a timestamp"),
        ("key: id", "key: idd", r"p\.yaml:16: .*there is no field 'idd'"),
        ("json: {id: int, total", "json: {id: string, total", r"id of a is int and id of b is string"),
        (
            "{json: {id: int, name: string, at: timestamp}}",
            "{json: all}",
            r"p\.yaml:6: .*at is variant, not a timestamp",
        ),
        (
            "join: {left: a, right: b, by: id, within: 1 hour, prefix: b_}",
            "union: [a, c]\n  c: {from: b, steps: [rename: {total: name}]}",
            r"p\.yaml:13: .*name is string in a and int in c: a union needs one type",
        ),
    ],
)
def test_what_a_check_finds(spark, old, new, message):
    assert CHECKED.count(old) >= 1
    with pytest.raises(PipelineError, match=message) as caught:
        check_plan(spark, parse_spec(CHECKED.replace(old, new, 1), "p.yaml"))
    assert "\n" not in str(caught.value)


def test_a_table_follows_its_keys_into_partitions_that_were_added(spark):
    """With offsets alone, a record in an old, long partition would hide all updates and deletes in a new one."""
    changes = kept_table(
        spark.sql(
            """
            SELECT cast(key AS binary) AS key, cast(value AS binary) AS value, 't' AS topic, partition,
                   cast(offset AS bigint) AS offset, timestamp_millis(ms) AS timestamp
            FROM VALUES ('changed', 'old', 0, 900, 1), ('changed', 'new', 3, 5, 2), ('deleted', 'old', 0, 901, 1),
                        ('deleted', null, 3, 6, 2), ('late', 'first', 0, 7, 9), ('late', 'second', 0, 8, 4),
                        ('same time', 'old', 1, 902, 5), ('same time', 'new', 3, 7, 5)
                        AS t(key, value, partition, offset, ms)
            """
        )
    )
    table = {}
    for row in changes.collect():
        key, value = bytes(row.key), bytes(row.value)
        if row._sign > 0:
            assert key not in table
            table[key] = value
        else:
            assert table.pop(key) == value
    assert table == {
        b"changed": b"new",
        b"late": b"second",
        b"same time": b"new",
    }
