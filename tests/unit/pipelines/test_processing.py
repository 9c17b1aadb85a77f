"""User code with state, without Spark: the test harness, what fails and leaves no trace, types, and declarations."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import ClassVar

import pytest

from barnabas.pipelines.compiler.queries import ON_DISK, STATE_OPTION, own_settings
from barnabas.pipelines.fronts.yaml.spec import load_spec, parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.processing import Windows
from barnabas.pipelines.plan.schema import Schema
from barnabas.pipelines.processing import ListState, MapState, Processor, ValueState
from barnabas.pipelines.processing.processor import declared_states
from barnabas.pipelines.processing.testing import ProcessorFailed, ProcessorTest
from barnabas.pipelines.processing.values import BadType, BadValue, type_named

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


class Dangerous(Processor):
    returns: ClassVar = {"driver": "string", "events": "int", "until": "timestamp"}
    recent = ListState("timestamp")

    def process(self, row):
        times = sorted(at for at in [*self.recent, row["at"]] if at > row["at"] - timedelta(minutes=10))
        self.recent.set(times)
        self.timers.clear()
        self.timers.set(times[-1] + timedelta(minutes=10))
        if len(times) == 3:
            yield {"driver": self.key, "events": 3, "until": times[-1]}

    def on_timer(self, at):
        self.recent.clear()


def test_three_events_within_ten_minutes():
    test = ProcessorTest(Dangerous, key="driver", time="event", of="at", late="1 minute")
    assert test.send({"driver": "Ada", "at": NOON}, {"driver": "Ada", "at": after(4)}) == []
    assert test.send({"driver": "Blaise", "at": after(5)}) == []
    rows = test.send({"driver": "Ada", "at": after(9)})
    assert rows == [{"driver": "Ada", "events": 3, "until": after(9)}] == test.rows
    assert test.advance(after(60)) == []
    assert test.store.lists == {(("Ada",), "recent"): [], (("Blaise",), "recent"): []}


class Everything(Processor):
    returns: ClassVar = {"n": "bigint"}
    count = ValueState("bigint")
    seen = ListState("string")
    best = MapState("string", "decimal(10,2)")

    def process(self, row):
        self.count.set(self.count.get(0) + 1)
        self.seen.append(row["name"])
        self.best[row["name"]] = max(row["price"], self.best.get(row["name"], row["price"]))
        if row["fail"] == "remove":
            self.seen.clear()
            self.best.clear()
            self.count.clear()
            self.timers.clear()
        self.timers.set(row["at"])
        if row["fail"] == "late":
            self.best["other"] = "no decimal"
        if row["fail"]:
            raise ValueError("no")
        yield {"n": self.count.get()}


@pytest.mark.parametrize("seed", range(20))
def test_a_row_that_fails_leaves_no_trace(seed):
    """Of a history in which some rows fail, the states are those of the history without them."""
    chance = random.Random(seed)
    rows = [
        {
            "k": chance.randrange(3),
            "name": chance.choice("abc"),
            "price": Decimal(chance.randrange(1000)).scaleb(-2),
            "fail": chance.choice((None, None, "early", "late", "remove")),
            "at": after(chance.randrange(1, 100)),
        }
        for _ in range(60)
    ]
    whole, good = (ProcessorTest(Everything, key="k", time="clock", now=NOON) for _ in range(2))
    for row in rows:
        if row["fail"]:
            with pytest.raises(ProcessorFailed):
                whole.send(row)
        else:
            assert whole.send(row) == good.send(row)
    kept = [(test.store.lists, test.store.timer_times, test.store.kept) for test in (whole, good)]
    assert [{k: v for k, v in part.items() if v} for part in kept[0]] == [
        {k: v for k, v in part.items() if v} for part in kept[1]
    ]


def test_a_failure_is_told_in_one_line_with_its_place():
    test = ProcessorTest(Everything, key="k")
    with pytest.raises(ProcessorFailed, match=r"^KeyError: 'name' \(test_processing.py:\d+\)$"):
        test.send({"k": 1})
    with pytest.raises(
        ProcessorFailed, match="RuntimeError: the step has no timers: give it time: event or time: clock"
    ):
        test.send({"k": 1, "name": "a", "price": Decimal(1), "fail": None, "at": NOON})


class Wrong(Processor):
    returns: ClassVar = {"n": "int", "at": "timestamp"}

    def process(self, row):
        return [row["made"]]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"n": "1"}, "field n: '1' is a str, not a whole number (int)"),
        ({"n": 1 << 31}, "field n: 2147483648 is too large for int"),
        (
            {"at": datetime(2026, 1, 1)},
            "field at: 2026-01-01 00:00:00 has no time zone: give it one, like datetime.UTC",
        ),
        ({"m": 1}, "returns does not declare the field 'm'"),
        (3, "3 is a int, not a row as a dict"),
    ],
)
def test_rows_have_the_declared_fields(row, reason):
    with pytest.raises(ProcessorFailed) as failed:
        ProcessorTest(Wrong, key="k").send({"k": 1, "made": row})
    assert str(failed.value) == reason
    assert ProcessorTest(Wrong, key="k").send({"k": 1, "made": {"n": 1}}) == [{"n": 1, "at": None}]


def test_values_come_back_as_they_were():
    for name, value in [
        ("timestamp", NOON + timedelta(microseconds=1)),
        ("date", date(1, 1, 1)),
        ("decimal(38,3)", Decimal("12345678901234567890123456789012345.125")),
        ("binary", b"\x00\xff"),
        ("double", 0.1),
        ("array<struct<a:int,`b.c`:map<string,timestamp>>>", [{"a": 1, "b.c": {"x": NOON}}, None]),
        ("map<bigint,boolean>", {1 << 62: True}),
        ("string", "ä\ud83d"),
    ]:
        kind = type_named(name)
        assert kind.decode(kind.encode(value)) == value, name
        assert kind.decode(kind.encode(None)) is None
    for name, value in [
        ("decimal(4,2)", Decimal("1.005")),
        ("decimal(4,2)", Decimal(100)),
        ("int", True),
        ("string", 1),
    ]:
        with pytest.raises(BadValue):
            type_named(name).check(value)
    for name in ("", "integre", "array<int", "array<int>>", "struct<a int>", "decimal(99)", "map<int>"):
        with pytest.raises(BadType):
            type_named(name)


class Forgets(Processor):
    returns: ClassVar = {"n": "bigint"}
    count = ValueState("long", ttl="10 minutes")

    def process(self, row):
        self.count.set(self.count.get(0) + 1)
        yield {"n": self.count.get()}

    def on_timer(self, at):
        yield {"n": -1}


def test_a_ttl_goes_by_the_clock():
    test = ProcessorTest(Forgets, key="k", time="clock", now=NOON)
    assert test.send({"k": 1}, {"k": 1}) == [{"n": 1}, {"n": 2}]
    test.advance(after(9))
    assert test.send({"k": 1}) == [{"n": 3}]
    test.advance(after(19))
    assert test.send({"k": 1}) == [{"n": 1}]


PIPELINE = """
pipeline: p
source: {topic: t}
steps:
  - parse: {json: {k: string, at: timestamp}}
  - process: %s
outputs: [{topic: out}]
"""
CODE = """
from barnabas.pipelines.processing import Aggregator, Processor, ValueState
import beside

class Count(Processor):
    returns = {"k": "string", "n": "integer"}
    count = ValueState("long", ttl="1 hour")

    def process(self, row):
        yield {}

class Nothing(Processor):
    pass

class Sum(Aggregator):
    accumulator = "bigint"
    returns = {"n": "long"}

def one(row, kept):
    kept.seen.set(True)

def bare(row):
    pass
"""


def test_code_beside_the_pipeline_file(tmp_path):
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "beside.py").write_text("")
    path = tmp_path / "p.yaml"

    def step(text):
        path.write_text(PIPELINE % text)
        return load_spec(path).plan["source"].operators[-1]

    process = step("{with: code:Count, key: k}")
    assert (process.returns, process.time, process.states) == (
        {"k": "string", "n": "int"},
        "clock",
        declared_states(process.code),
    )
    assert step("{with: code:Count, key: k, time: clock}") == process
    process = step("{with: code:one, key: [k, at], state: {seen: {value: bool}}, returns: {n: long}}")
    assert process.states["seen"].type == "boolean"
    assert process.returns == {"n": "bigint"}
    assert process.time == "none"
    assert (
        step(
            "{with: code:one, key: k, state: {m: {map: {string: long}, ttl: 1 day}}, returns: {n: long}}"
        ).time
        == "clock"
    )
    process = step(
        "{with: code:Sum, key: k, window: {every: 1 hour, slide: 20 minutes, as: from}, emit: changes}"
    )
    assert process.windows == Windows("every", 3_600_000, 1_200_000, "from", "", False)
    assert process.after(Schema({"k": "string"})).fields == {
        "k": "string",
        "from": "timestamp",
        "n": "bigint",
    }
    for text, reason in [
        ("{with: code:Cuont, key: k}", "has no 'Cuont'; did you mean 'Count'?"),
        ("{with: coed:Count, key: k}", "there is no module coed"),
        ("{with: code:Nothing, key: k}", "code:Nothing needs returns"),
        ("{with: code:bare, key: k, returns: {n: int}}", "is called with two arguments"),
        ("{with: code:Count, key: k, time: event}", "count has a ttl, which goes by the clock"),
        ("{with: code:Count, key: k, state: {x: {value: int}}}", "declares its states itself"),
        (
            "{with: code:one, key: k, state: {timers: {value: int}}, returns: {n: int}}",
            "cannot be called 'timers'",
        ),
        ("{with: code:one, key: k, returns: {n: integre}}", "integre is none of"),
        ("{with: code:Sum, key: k}", "code:Sum aggregates, which needs a window"),
        (
            "{with: code:Sum, key: k, window: {sliding: 1 hour}}",
            "code:Sum needs takes for windows of this kind",
        ),
        ("{with: code:Sum, key: k, window: {session: 1 hour}}", "code:Sum needs merge"),
        ("{with: code:Sum, key: k, time: clock, window: {every: 1 hour}}", "windows go by event time"),
        ("{with: code:Sum, key: k, window: {every: 1 hour, slide: 2 hours}}", "slides by at most its length"),
        ("{with: code:Count, key: k, window: {every: 1 hour}}", "code:Count is not derived from Aggregator"),
        ("{with: code:Count, key: k, emit: final}", "emit needs window"),
        ("{with: os.system, key: k}", "not of the form module:name"),
    ]:
        with pytest.raises(PipelineError, match=r"p\.yaml:6: ") as refused:
            step(text)
        assert reason in str(refused.value)
    (tmp_path / "code.py").write_text("1 / 0\n")
    with pytest.raises(
        PipelineError, match=r"cannot be imported: ZeroDivisionError: division by zero \(code.py:1\)"
    ):
        step("{with: code:Count, key: k}")


def test_a_run_with_a_clock_comes_to_an_end(tmp_path):
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "beside.py").write_text("")

    def settings(text: str, *, once: bool) -> list[dict[str, str]]:
        (tmp_path / "p.yaml").write_text(PIPELINE % text)
        spec = load_spec(tmp_path / "p.yaml")
        return [own_settings(spec, query, once=once) for query in spec.queries()]

    endless = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
    timeless = "{with: code:one, key: k, state: {seen: {value: bool}}, returns: {n: long}}"
    on_disk = {STATE_OPTION: ON_DISK}
    assert settings("{with: code:Count, key: k}", once=True) == [{**on_disk, **endless}]
    assert settings("{with: code:Count, key: k}", once=False) == [on_disk]
    assert settings(timeless, once=True) == [on_disk]


def test_a_server_runs_no_code_unless_it_has_a_folder_for_it():
    with pytest.raises(
        PipelineError, match="this server runs no code of pipelines: start it with --code FOLDER"
    ):
        parse_spec(PIPELINE % "{with: os:system, key: k}")
