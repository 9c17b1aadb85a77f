"""Views over a real broker: what they hold equals the output topic, through restarts, repeated micro-batches, losses and
kills. They are read over HTTP, by the command, and by SQLite itself."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
from pathlib import Path

import pytest

from barnabas.client.blocking import NewTopic
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.pipeline import Pipeline
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from barnabas.pipelines.views.lookup import Asked, Reader
from tests.pipelines.conftest import records_of, send
from tests.pipelines.readers import consumed
from tests.pipelines.test_server import Server, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TOTALS = """
pipeline: {t}
source: {{topic: {t}}}
steps:
  - parse: {{json: {{customer: string, at: timestamp, amount: "decimal(9,2)"}}}}
outputs:
  - name: totals
    aggregate:
      window: {{of: at, every: 1 hour, as: hour, end: until, late: {late}}}
      by: [customer]
      compute: {{orders: count(*), total: sum(amount)}}
    view: {{{view}}}
  - topic: {t}-out
    aggregate:
      window: {{of: at, every: 1 hour, as: hour, end: until, late: {late}}}
      by: [customer]
      compute: {{orders: count(*), total: sum(amount)}}
""".replace(", late: {late}}}", "}}")


def order(customer: str | None, hour: int, amount: str = "1.25") -> bytes:
    at = f"2026-01-31T{hour:02}:30:00Z"
    return json.dumps({"customer": customer, "at": at, "amount": amount}).encode()


def newest(bootstrap: str, topic: str) -> dict[bytes | None, dict]:
    """The newest value of each key of a topic, as librdkafka reads it."""
    values_by_key = {record.key: record.value for record in consumed(bootstrap, topic)}
    return {
        key: json.loads(value, parse_float=str) for key, value in values_by_key.items() if value is not None
    }


def by_key(rows: list[dict]) -> dict:
    """Rows by customer and hour, times in one notation."""
    return {
        (row["customer"], row["hour"].replace(".000Z", "Z")): {
            **row, **{name: row[name].replace(".000Z", "Z") for name in ("hour", "until")}
        }
        for row in rows
    }  # fmt: skip


def looked_up(path: Path, **asked) -> list[dict]:
    page = Reader(path).find(Asked(limit=10_000, **asked))
    return [json.loads(text, parse_float=str) for text in page.rows]


@pytest.fixture
def run(spark, bootstrap, tmp_path):
    def once(text: str):
        return run_pipeline(
            parse_spec(text, "x.yaml"), once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path
        )

    return once


@pytest.mark.soak
def test_totals_that_are_repeated_lost_and_rebuilt(run, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(2)
    place = tmp_path / topic / "totals"
    path = place / "view.sqlite"
    text = TOTALS.format(t=topic, view=f"changelog: {topic}-changes")

    def is_right() -> None:
        wanted = by_key(list(newest(bootstrap, f"{topic}-out").values()))
        assert by_key(looked_up(path)) == wanted
        assert by_key(list(newest(bootstrap, f"{topic}-changes").values())) == wanted

    send(client, topic, [order("A", 9), order("B", 9), order("A", 10, "0.10"), order(None, 9)])
    send(client, topic, [order("A", 9, "100.00"), b"broken"], 1)
    run(text)
    is_right()
    assert client.topic_configs(f"{topic}-changes")["cleanup.policy"] == "compact"
    one = looked_up(path, key=("A",), window="2026-01-31T09:59:59Z")
    assert one == [
        {
            "customer": "A",
            "hour": "2026-01-31T09:00:00Z",
            "until": "2026-01-31T10:00:00Z",
            "orders": 2,
            "total": "101.25",
        }
    ]
    note = Reader(path).find(Asked()).note
    assert (note.batch, note.offsets) == (0, {topic: {"0": 4, "1": 2}})

    # Somebody else's reader of SQLite's format.
    with sqlite3.connect(path) as connection:
        cursor = connection.execute(
            "SELECT customer, hour, orders, total FROM rows WHERE customer = 'A' ORDER BY hour"
        )
        assert cursor.fetchall() == [("A", 1769850000000000, 2, "101.25"), ("A", 1769853600000000, 1, "0.10")]
        assert connection.execute("SELECT value FROM barnabas WHERE name = 'batch'").fetchone() == ("0",)
    connection.close()

    send(client, topic, [order("A", 9), order("C", 11)])
    run(text)
    is_right()

    # A micro-batch that Spark repeats, because it did not learn that it was applied, changes nothing.
    before, changes = path.read_bytes(), len(records_of(client, f"{topic}-changes"))
    for name in ("1", ".1.crc"):
        (place / "commits" / name).unlink(missing_ok=True)
    run(text)
    is_right()
    assert len(records_of(client, f"{topic}-changes")) == changes
    assert path.read_bytes()[100:] == before[100:]

    # A lost file, and one that is cut, are rebuilt from the changelog.
    path.unlink()
    send(client, topic, [order("D", 12)])
    run(text)
    is_right()
    with path.open("r+b") as raw:
        raw.truncate(5_000)
    send(client, topic, [order("A", 9)])
    run(text)
    is_right()
    assert list(place.glob("view.sqlite.damaged.*"))

    # Without a changelog the query is refused, with what to do.
    path.unlink()
    send(client, topic, [order("A", 9)])
    with pytest.raises(
        PipelineError, match=r"has no rows, and the query has had 4 micro-batches; it has no changelog"
    ):
        run(TOTALS.format(t=topic, view=""))


def test_old_windows_leave_the_view_and_its_changelog(run, bootstrap, client, new_topic, tmp_path):
    topic = new_topic()
    path = tmp_path / topic / "totals" / "view.sqlite"
    text = TOTALS.format(t=topic, view=f"keep: 2 hours, changelog: {topic}-changes")
    send(client, topic, [order("A", hour) for hour in range(4)])
    run(text)
    send(client, topic, [order("A", 10)])
    run(text)
    assert [row["hour"] for row in looked_up(path)] == ["2026-01-31T10:00:00Z"]
    assert list(by_key(list(newest(bootstrap, f"{topic}-changes").values()))) == [
        ("A", "2026-01-31T10:00:00Z")
    ]


ROWS = """
pipeline: {t}
source: {{topic: {t}, tombstones: deletes}}
steps:
  - parse: {{json: {{name: string, tags: array<string>}}}}
  - metadata: {{id: key}}
outputs:
  - name: people
    view: {{key: [id]}}
"""


def test_the_newest_row_of_each_key_with_deletes_and_rows_without_a_key(
    run, bootstrap, client, new_topic, tmp_path
):
    topic = new_topic()
    path = tmp_path / topic / "people" / "view.sqlite"
    text = ROWS.format(t=topic)

    def person(key: bytes | None, *values: bytes | None) -> None:
        send(client, topic, list(values), key=key)

    person(b"1", b'{"name": "Ann", "tags": ["a"]}', b'{"name": "Anna", "tags": ["a", "b"]}')
    person(b"2", b'{"name": "Bob"}', None)
    person(b"3", None, b'{"name": "Cid"}')
    person(None, b'{"name": "nobody"}')
    run(text)
    assert looked_up(path) == [
        {"name": "Anna", "tags": ["a", "b"], "id": "1"},
        {"name": "Cid", "tags": None, "id": "3"},
    ]
    (letter,) = consumed(bootstrap, f"{topic}-dead-letters")
    assert (letter.value, letter.header("reason")) == (b'{"name": "nobody"}', "the view's key id is null")
    person(b"1", None)
    run(text)
    assert [row["id"] for row in looked_up(path)] == ["3"]


KEPT = """
pipeline: {t}
sources:
  customers:
    table: {t}
    options: {{maxOffsetsPerTrigger: 7}}
    steps: [parse: {{json: {{id: string, name: string, rank: int}}}}]
relations:
  good: {{from: customers, steps: [filter: rank > 1]}}
outputs:
  - {{name: good, from: good, view: {{key: [id], changelog: {t}-changes}}}}
"""


def test_a_view_of_a_kept_table(run, bootstrap, client, new_topic, tmp_path):
    """Rows that are deleted, or that the filter no longer lets pass, leave the view and its changelog."""
    topic = new_topic(cleanup_policy="compact")
    chance, table = random.Random(1), {}
    for _ in range(2):
        for number in range(20):
            key = f"c{chance.randrange(6)}"
            table[key] = {"id": key, "name": f"at {number}", "rank": chance.randrange(4)}
            if chance.random() < 0.25:
                table[key] = None
            value = None if table[key] is None else json.dumps(table[key]).encode()
            send(client, topic, [value], key=key.encode())
        run(KEPT.format(t=topic))
        wanted = sorted((row for row in table.values() if row and row["rank"] > 1), key=lambda row: row["id"])
        assert looked_up(tmp_path / topic / "good" / "view.sqlite") == wanted
        left = newest(bootstrap, f"{topic}-changes").values()
        assert sorted(left, key=lambda row: row["id"]) == wanted


def test_topics_and_keys_that_do_not_fit_are_refused(run, spark, client, new_topic):
    topic = new_topic()
    send(client, topic, [order("A", 9)])
    wrong = TOTALS.format(t=topic, view="key: [at]")
    with pytest.raises(PipelineError, match="the key is at, but the aggregate's groups are customer"):
        run(wrong)
    with pytest.raises(PipelineError, match="the view needs key, the fields that identify a row"):
        run(ROWS.format(t=topic).replace("{key: [id]}", "{}"))
    client.create_topics([NewTopic(f"{topic}-plain", 1)])
    with pytest.raises(PipelineError, match=f"{topic}-plain has cleanup.policy=delete, so it would lose"):
        run(TOTALS.format(t=topic, view=f"changelog: {topic}-plain"))
    client.create_topics([NewTopic(f"{topic}-other", 1, configs={"cleanup.policy": "compact"})])
    send(client, f"{topic}-other", [b"{}"], key=b"x")
    with pytest.raises(PipelineError, match=f"{topic}-other has records that are no changes of a view"):
        run(TOTALS.format(t=topic, view=f"changelog: {topic}-other"))


def test_a_view_in_python():
    pipeline = Pipeline("orders").source("orders").parse(json={"customer": "string"})
    output = pipeline.to_view(name="newest", key=["customer"], keep="7 days", window="at").spec().outputs[0]
    assert (output.name, output.destination) == ("newest", "view")
    assert output.target.options == {
        "key": ["customer"], "window": "at", "keep": "7 days", "changelog": None, "folder": None
    }  # fmt: skip


@pytest.mark.soak
def test_lookups_of_a_server_that_is_killed(bootstrap, client, new_topic, tmp_path):
    topic = new_topic(2)
    server = Server(tmp_path / "pipelines", bootstrap)
    server.start()
    base = f"/pipelines/{topic}/views"
    sent = 0

    def feed(count: int) -> None:
        nonlocal sent
        for partition in range(2):
            numbers = range(sent, sent + count)
            send(client, topic, [order(f"C{n % 700}", n % 24) for n in numbers], partition)
        sent += count

    def orders() -> int:
        status, page = server.call("GET", f"{base}/totals?limit=10000")
        if status != 200:
            return -1
        assert page["next"] is None
        return sum(row["orders"] for row in page["rows"])

    try:
        assert server.call("POST", "/pipelines", TOTALS.format(t=topic, view=""))[0] == 201
        assert server.call("GET", f"{base}/totals?key=C1")[0] == 503  # no micro-batch yet
        feed(2_000)
        until(lambda: orders() == 2 * sent)

        # Killed during updates: the rows from before are there at once, and the others follow.
        feed(6_000)
        until(lambda: orders() > 2 * (sent - 6_000))
        server.stop(signal.SIGKILL)
        server.start()
        assert orders() > 0
        until(lambda: orders() == 2 * sent)

        wanted = by_key(list(until(lambda: _complete(newest(bootstrap, f"{topic}-out"), 2 * sent)).values()))
        answer = server.call("GET", f"{base}/totals?limit=10000")[1]
        assert by_key(answer["rows"]) == {
            key: {**row, "total": float(row["total"])} for key, row in wanted.items()
        }
        assert answer["as_of"]["offsets"] == {topic: {"0": sent, "1": sent}}
        assert answer["as_of"]["state"] in ("running", "starting")

        _look_up(server, topic)
        _look_up_with_commands(server, topic)

        # Stopped, the view can still be looked up.
        assert server.call("POST", f"/pipelines/{topic}/stop")[0] == 200
        assert server.call("GET", f"{base}/totals?key=C5")[1]["as_of"]["state"] == "stopped"
        assert "(the pipeline is stopped, " in server.command("get", topic, "C5").stderr
        assert "Traceback" not in server.log.read_text()
    finally:
        server.stop(signal.SIGKILL)


def _look_up(server: Server, topic: str) -> None:
    base = f"/pipelines/{topic}/views"
    status, answer = server.call("GET", f"{base}/totals?key=C5&window=2026-01-31T05:00:00Z")
    assert (status, [row["customer"] for row in answer["rows"]]) == (200, ["C5"])
    assert server.call("GET", f"{base}/nothing")[1] == {
        "error": f"pipeline {topic} has no view 'nothing'; allowed: totals"
    }
    for query, reason in (("limit=0", "limit"), ("kei=1", "'key'"), ("key=a&key=b", "customer string")):
        status, answer = server.call("GET", f"{base}/totals?{query}")
        assert (status, reason in answer["error"]) == (400, True), answer
    (view,) = server.call("GET", base)[1]
    assert (view["key"], view["window"]["seconds"]) == ([{"name": "customer", "type": "string"}], 3600.0)


def _look_up_with_commands(server: Server, topic: str) -> None:
    got = server.command("get", topic, "C5", "--window", "2026-01-31T05:30:00Z")
    assert got.stdout.splitlines()[0].split() == ["customer", "hour", "until", "orders", "total"]
    assert got.stderr.startswith(f"1 rows of {topic}/totals as of 20")
    assert server.command("get", f"{topic}/totals", "nobody").returncode == 1
    assert "totals" in server.command("get", f"{topic}/other", "x").stderr
    ranged = server.command("get", topic, "--from", "C10", "--to", "C12", "--limit", "3", "--json")
    assert len(json.loads(ranged.stdout)["rows"]) == 3
    assert all(
        len(row["total"].partition(".")[2]) == 2 for row in json.loads(ranged.stdout, parse_float=str)["rows"]
    )
    assert server.command("views", topic).stdout.splitlines()[1].split()[0] == f"{topic}/totals"


def _complete(rows: dict, count: int) -> dict:
    return rows if sum(row["orders"] for row in rows.values()) == count else {}
