"""Steps of user code in real queries: states, timers by event time, dead letters, and what a restart keeps.

What a history has to become is said by the same processor with its state in memory.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from barnabas.pipelines import Pipeline
from barnabas.pipelines.fronts.yaml.spec import load_spec
from barnabas.pipelines.processing import ListState, MapState, Processor, ValueState
from barnabas.pipelines.processing.testing import ProcessorFailed, ProcessorTest
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Totals(Processor):
    """Counts, sums and remembers; fails for some rows after it has changed everything."""

    returns: ClassVar = {
        "k": "string",
        "n": "bigint",
        "names": "array<string>",
        "best": "map<string,int>",
        "at": "timestamp",
    }
    count = ValueState("bigint")
    names = ListState("string")
    best = MapState("string", "int")

    def process(self, row):
        self.count.set(self.count.get(0) + 1)
        self.names.append(row["name"])
        self.best[row["name"]] = max(row["x"], self.best.get(row["name"], row["x"]))
        if row["x"] == 7:
            self.best.clear()
            raise ValueError("seven")
        yield {
            "k": self.key,
            "n": self.count.get(),
            "names": list(self.names),
            "best": dict(self.best),
            "at": row["at"],
        }
        if row["x"] == 8:
            yield {"k": self.key, "n": -8}


def history(seed: int, count: int, keys: str = "abc") -> list[dict]:
    chance = random.Random(seed)
    return [
        {
            "k": chance.choice(keys),
            "name": chance.choice("xyz"),
            "x": chance.randrange(10),
            "at": (NOON + timedelta(minutes=n)).isoformat(),
        }
        for n in range(count)
    ]


def test_states_are_those_of_the_model_through_restarts(spark, bootstrap, client, new_topic, tmp_path):
    t = new_topic()
    pipeline = (
        Pipeline(t)
        .source(t, options={"maxOffsetsPerTrigger": 20})
        .parse(json={"k": "string", "name": "string", "x": "int", "at": "timestamp"})
        .process(Totals, key="k")
        .to_topic(f"{t}-out", key="k")
    )
    model = ProcessorTest(Totals, key="k")
    wanted, failed = [], 0
    rows = history(1, 60)
    for part in (rows[:35], rows[35:]):
        values = [json.dumps(row).encode() for row in part]
        send(client, t, [*values, b'{"k": null}', b"{"])
        for row in part:
            try:
                wanted += model.send({**row, "at": datetime.fromisoformat(row["at"])})
            except ProcessorFailed:
                failed += 1
        report = run_pipeline(pipeline.spec(), once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    assert failed
    assert report.rows
    out_rows = [json.loads(record.value) for record in consumed(bootstrap, f"{t}-out")]
    plain = [
        {**row, "at": row.get("at") and row["at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        for row in wanted
    ]
    for key in "abc":
        mine = [{n: v for n, v in row.items() if v is not None} for row in plain if row["k"] == key]
        assert [
            {n: v for n, v in row.items() if v is not None} for row in out_rows if row["k"] == key
        ] == mine
    letters = consumed(bootstrap, f"{t}-dead-letters")
    reasons = [(letter.header("step"), letter.header("reason").split(" (")[0]) for letter in letters]
    assert reasons.count(("2 process", "ValueError: seven")) == failed
    assert reasons.count(("2 process", "the key k is null")) == 2
    assert len(reasons) == failed + 4
    assert all(json.loads(x.value)["x"] == 7 for x in letters if "seven" in x.header("reason"))


CODE = '''
from datetime import timedelta
from barnabas.pipelines.processing import Aggregator, ListState, Processor

class Quiet(Processor):
    """Tells of a key from which nothing came for ten minutes."""

    returns = {"k": "string", "events": "int"}
    recent = ListState("timestamp")

    def process(self, row):
        self.recent.append(row["at"])
        self.timers.clear()
        self.timers.set(max(self.recent) + timedelta(minutes=10))

    def on_timer(self, at):
        if self.key == "bad":
            raise RuntimeError("no timer for this one")
        yield {"k": self.key, "events": len(self.recent)}
        self.recent.clear()

class Longest(Aggregator):
    """The largest number of a window, and how many there are."""

    accumulator = "array<double>"
    takes = {"x": "double"}
    returns = {"n": "int", "largest": "double"}

    def init(self):
        return []

    def add(self, accumulator, row):
        return [*accumulator, row["x"]]

    def result(self, accumulator):
        return {"n": len(accumulator), "largest": max(accumulator)}

def count(row, kept):
    kept.n.set(kept.n.get(0) + 1)
    if row["x"] < 0:
        raise ValueError("negative")
    yield {"k": kept.key[0], "n": kept.n.get()}
'''
PIPELINE = """
pipeline: {t}
sources:
  events:
    topic: {t}
    steps: [parse: {{json: {{k: string, at: timestamp}}}}]
    time: {{of: at, late: 1 minute}}
relations:
  quiet: {{from: events, steps: [process: {{with: code:Quiet, key: k, time: event}}]}}
  hours:
    from: quiet
    aggregate: {{window: {{every: 1 hour, as: hour}}, by: [k], compute: {{sum: sum(events)}}, emit: final}}
outputs:
  - {{from: quiet, topic: {t}-quiet}}
  - {{from: hours, topic: {t}-hours}}
  - from: events
    topic: {t}-minutes
    aggregate: {{window: {{every: 1 minute}}, by: [k], compute: {{n: count(*)}}, emit: final}}
"""


def test_timers_by_event_time(spark, bootstrap, client, new_topic, tmp_path):
    t = new_topic()
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "p.yaml").write_text(PIPELINE.format(t=t))
    spec = load_spec(tmp_path / "p.yaml")

    def run(*events: tuple[str, float]) -> dict[str, int]:
        rows = [{"k": k, "at": (NOON + timedelta(minutes=minute)).isoformat()} for k, minute in events]
        send(client, t, [json.dumps(row).encode() for row in rows])
        report = run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints")
        return {query.name: query.late for query in report.queries if query.late}

    assert run(("a", 0), ("b", 3), ("a", 5), ("bad", 1)) == {}
    assert consumed(bootstrap, f"{t}-quiet") == []
    assert run(("c", 14.5)) == {}
    quiet = [(record.key, json.loads(record.value)) for record in consumed(bootstrap, f"{t}-quiet")]
    assert quiet == [(b'{"k": "b"}', {"k": "b", "events": 1})]
    # The last one is late: the step processes it nevertheless, but its minute is over.
    assert run(("c", 200), ("a", 1)) == {f"{t}-minutes": 1}
    quiet = [json.loads(record.value) for record in consumed(bootstrap, f"{t}-quiet")]
    assert sorted((row["k"], row["events"]) for row in quiet) == [("a", 3), ("b", 1)]
    hours = [json.loads(record.value) for record in consumed(bootstrap, f"{t}-hours")]
    assert sorted((row["k"], row["sum"]) for row in hours) == [("a", 3), ("b", 1)]
    (letter,) = consumed(bootstrap, f"{t}-dead-letters")
    assert (letter.key, letter.value, letter.header("step")) == (b'{"k": "bad"}', None, "quiet: 1 process")
    assert letter.header("reason") == "RuntimeError: no timer for this one (code.py:18)"


WINDOWS = """
pipeline: {t}
sources:
  events:
    topic: {t}
    steps: [parse: {{json: {{k: string, at: timestamp, x: double}}}}]
    time: {{of: at, late: 1 minute}}
relations:
  minutes:
    from: events
    steps:
      - process: {{with: code:Longest, key: k, window: {{every: 2 minutes, as: start, end: end}}}}
  sliding:
    from: events
    steps:
      - process: {{with: code:Longest, key: k, window: {{sliding: 3 minutes, end: end}}, emit: changes}}
  counted:
    from: events
    steps:
      - process:
          with: code:count
          key: [k, date(at)]
          state: {{n: {{value: long, ttl: 1 hour}}}}
          returns: {{k: string, n: long}}
outputs:
  - {{from: minutes, topic: {t}-minutes, key: k}}
  - {{from: sliding, topic: {t}-sliding}}
  - {{from: counted, topic: {t}-counted}}
"""


@pytest.mark.soak
def test_aggregates_and_functions_of_users(spark, bootstrap, client, new_topic, tmp_path):
    t = new_topic()
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "p.yaml").write_text(WINDOWS.format(t=t))
    spec = load_spec(tmp_path / "p.yaml")

    def at(minute: float) -> str:
        return (NOON + timedelta(minutes=minute)).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def run(*events: tuple[str, float, float]) -> None:
        send(client, t, [json.dumps({"k": k, "at": at(m), "x": x}).encode() for k, m, x in events])
        run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints")

    run(("a", 0, 1.0), ("a", 1.5, 3.0), ("b", 1, 2.0))
    run(("a", 1, 2.5), ("a", 4, -1.0))
    run(("b", 0.5, 9.0), ("a", 30, 1.0))

    def rows_of(name: str) -> list[dict]:
        return [json.loads(record.value) for record in consumed(bootstrap, f"{t}-{name}")]

    def result(k: str, start: float, end: float, n: int, largest: float) -> dict:
        return {"k": k, "start": at(start), "end": at(end), "n": n, "largest": largest}

    # The window of the last row of b was over when it came.
    assert sorted(rows_of("minutes"), key=lambda row: (row["k"], row["start"])) == [
        result("a", 0, 2, 3, 3.0),
        result("a", 4, 6, 1, -1.0),
        result("b", 0, 2, 1, 2.0),
    ]
    newest = {(row["k"], row["end"]): (row["window"], row["n"], row["largest"]) for row in rows_of("sliding")}
    assert newest == {
        ("a", at(0)): (at(-3), 1, 1.0),
        ("a", at(1)): (at(-2), 2, 2.5),
        ("a", at(1.5)): (at(-1.5), 3, 3.0),
        ("a", at(4)): (at(1), 3, 3.0),
        ("a", at(30)): (at(27), 1, 1.0),
        ("b", at(1)): (at(-2), 1, 2.0),
    }
    counted = [(row["k"], row["n"]) for row in rows_of("counted")]
    assert [n for k, n in counted if k == "a"] == [1, 2, 3, 4]
    assert [n for k, n in counted if k == "b"] == [1, 2]
    letters = consumed(bootstrap, f"{t}-dead-letters")
    reasons = sorted((letter.header("step"), letter.header("reason").split(",")[0]) for letter in letters)
    assert reasons == [
        ("counted: 1 process", "ValueError: negative (code.py:41)"),
        ("minutes: 1 process", "TooLate: its window ended at 2026-01-31T12:02:00+00:00"),
        ("sliding: 1 process", "TooLate: its window ended at 2026-01-31T12:00:30+00:00"),
    ]
