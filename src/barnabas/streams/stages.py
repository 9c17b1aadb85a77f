"""A topology as a plan: the records of its topics, one step of user code for each stage, and what is written.

The rows between the stages say for which stage they are; a stage passes on what is not for it.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final

from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.graph import plan_of
from barnabas.pipelines.plan.operators import Filter
from barnabas.pipelines.plan.outputs import Output, Route, Stores
from barnabas.pipelines.plan.pipeline import PipelineSpec, checked
from barnabas.pipelines.plan.processing import Process
from barnabas.pipelines.plan.relations import Derived, Relation, Scan
from barnabas.pipelines.plan.sources import Source as Topics
from barnabas.pipelines.plan.whole import SendHeaders, WholeRecord
from barnabas.pipelines.processing import MapState, Processor
from barnabas.pipelines.processing.engine import Skipped, Stopped, reason_of
from barnabas.pipelines.processing.processor import declared_states
from barnabas.pipelines.processing.values import EPOCH
from barnabas.streams.ahead import Outcome
from barnabas.streams.handling import Failure, kind_of
from barnabas.streams.queries import layout_of
from barnabas.streams.records import Record, headers_of
from barnabas.streams.running.processors import STREAM_TIME, WALL_CLOCK
from barnabas.streams.running.processors import Process as UserCode
from barnabas.streams.running.run import KEPT, NEVER, OUT, Place, Run
from barnabas.streams.running.stores import SEPARATOR
from barnabas.streams.texts import value_of
from barnabas.streams.topology import Topology

ROW: Final = {
    "stage": "int",
    "node": "string",
    "task": "bigint",
    "key": "string",
    "value": "string",
    "at": "bigint",
    "headers": "string",
    "to": "string",
    "out_key": "binary",
    "out_value": "binary",
}
"""The rows that stages make. Those for later stages have node, task, key and value (as in texts.py); those for topics have
to, out_key and out_value."""
MILLISECOND: Final = timedelta(milliseconds=1)
READ, WRITTEN = "records", "written"
QUERY: Final = "topics"
"""The name of the one output, and so of the query."""
TASK_TIME: Final = "\x1etask"


class Stage(Processor):
    """A stage of a topology as a step of a pipeline: the key is the task."""

    returns: ClassVar = ROW
    makes_whole_rows = True
    topology: ClassVar[Topology]
    stage: ClassVar[int]
    kept = MapState("string", "string")

    def init(self) -> None:
        self._run: Run | None = None
        self._cells: Any = None
        self._outcomes: dict[int, Outcome] = {}
        self._by_topic = {
            topic: source for source in reversed(self.topology.sources) for topic in source.topics
        }
        nodes = [node for node in self.topology.nodes.values() if node.stage == self.stage]
        self._user = [node for node in nodes if isinstance(node, UserCode)]

    def process(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self.stage > 0 and row["stage"] != self.stage:
            return iter((row,))
        try:
            return self._processed(row)
        except Exception as error:
            self._handle(row, error)
            raise

    def _handle(self, row: dict[str, Any], error: Exception) -> None:
        """Raises Skipped, or Stopped, if the handler says so."""
        topic, partition, offset = (
            (row["topic"], row["partition"], row["offset"]) if self.stage == 0 else ("", -1, -1)
        )
        word = self.topology.handlers.word(
            Failure(kind_of(error), error, topic, partition, offset, row["key"], row["value"])
        )
        if word == "skip":
            raise Skipped from error
        if word == "stop":
            raise Stopped(f"a record {kind_of(error)}: {reason_of(error)}") from error

    def _processed(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        run = self._begun()
        if self.stage == 0:
            self._read(run, row)
        else:
            classes = self.topology.classes
            record = Record(
                value_of(row["key"], classes),
                value_of(row["value"], classes),
                row["at"],
                headers_of(row["headers"]),
            )
            self._note(run, record.timestamp)
            node = self.topology.nodes[row["node"]]
            if (known := self._outcomes.pop(id(row), None)) is not None:
                node.call.now = known  # type: ignore[attr-defined]
            run.pass_to(node, record)
        self._punctuate(run)
        return iter(run.made)

    def call_ahead(self, rows: Sequence[dict[str, Any]]) -> None:
        """Calls the functions of this stage that are called for many records at once."""
        self._outcomes = {}
        for node in self.topology.ahead_in(self.stage):
            mine = [row for row in rows if row["stage"] == self.stage and row["node"] == node.name]
            classes = self.topology.classes
            pairs = [(value_of(row["key"], classes), value_of(row["value"], classes)) for row in mine]
            found = node.call.ahead(pairs)
            self._outcomes |= {id(row): outcome for row, outcome in zip(mine, found, strict=True)}

    def on_timer(self, at: Any) -> Iterator[dict[str, Any]]:
        run = self._begun()
        self._by_clock(run)
        return iter(run.made)

    def changes(self) -> Iterator[dict[str, Any]]:
        """What has changed in stores that can be looked up, once the rows of a task are processed."""
        if self._run is None:
            return
        version = time.time_ns() // 1000
        for store, key, kept in self._run.stores.changes():
            row = {"stage": KEPT, "to": store, "task": 0, "key": key, "value": kept, "at": version}
            yield {**dict.fromkeys(ROW), **row}

    def _begun(self) -> Run:
        """The task at work; the same for all rows of a key that come together."""
        if self._run is None or self._cells is not self.cells:
            self._close()
            self._cells = self.cells
            self._run = Run(self.topology, self.stage, self.kept)
            self._run.stores.shown = self.topology.shown_in(self.key)
            latest = self._run.stores.get(TASK_TIME, "")
            self._run.stream_time = NEVER if latest is None else int(latest)
        run = self._run
        run.now_ms = (self.now - EPOCH) // MILLISECOND
        run.made = []
        return run

    def _close(self) -> None:
        for user, _ in () if self._run is None else self._run.working.values():
            if hasattr(user, "close"):
                user.close()

    def _read(self, run: Run, row: dict[str, Any]) -> None:
        run.place = Place(row["topic"], row["partition"], row["offset"])
        for source in self.topology.sources:
            if row["topic"] in source.topics:
                record = source.read(row["key"], row["value"], row["at"], headers_of(row["headers"]))
                self._note(run, record.timestamp)
                run.pass_to(source, record)

    def _note(self, run: Run, at: int) -> None:
        if self._user and at > run.stream_time:
            run.stream_time = at
            run.stores.put(TASK_TIME, "", at)

    def _punctuate(self, run: Run) -> None:
        for node in self._user:
            if run.stream_time != NEVER:
                node.punctuate(run, STREAM_TIME, run.stream_time)
        if self.topology.by_clock:
            self._by_clock(run)

    def _by_clock(self, run: Run) -> None:
        for node in self._user:
            coming = node.punctuate(run, WALL_CLOCK, run.now_ms) if node.by_clock else None
            if coming is not None:
                self.timers.set(EPOCH + coming * MILLISECOND)


def stage_class(topology: Topology, number: int) -> type[Stage]:
    """The user code of a stage. It says that it is of the module with the user's functions, which is sent along with it."""
    members: dict[str, Any] = {"topology": topology, "stage": number, "__module__": _module(topology)}
    if topology.named:
        members["finish"] = Stage.changes
    if topology.ahead_in(number):
        members["prepare"] = Stage.call_ahead
    return type(f"Stage{number}", (Stage,), members)


def _module(topology: Topology) -> str:
    for node in topology.nodes.values():
        for function in node.functions:
            inner = getattr(function, "call", function)
            name = getattr(inner, "__module__", None) or ""
            if (
                name
                and not name.startswith(("barnabas.", "builtins", "pyspark."))
                and not inspect.isbuiltin(inner)
            ):
                return str(name)
    return __name__


def plan_from(topology: Topology, start: str = "earliest") -> tuple[Relation, ...]:
    """The relations of a topology: `records` with all stages but the last, and `written`."""
    steps: list[Any] = [WholeRecord(tasks=topology.tasks, label="1 topics")]
    for number in range(topology.stages):
        code = stage_class(topology, number)
        steps.append(
            Process(
                called=f"stage {number}",
                key=(Expression.of("task"),),
                states=declared_states(code),
                returns=ROW,
                time="clock" if topology.by_clock else "none",
                code=code,
                label=f"stage {number}",
            )
        )
    read = Relation(READ, Scan(Topics(topics=topology.topics, start=start)), tuple(steps))
    wanted = f"stage in ({OUT}, {KEPT})" if topology.named else f"stage = {OUT}"
    ends = (
        Filter(wanted=Expression.of(wanted), label="written"),
        SendHeaders(of="headers", label="headers"),
    )
    return read, Relation(WRITTEN, Derived(READ), ends)


def stores_of(topology: Topology) -> Stores | None:
    """The stores that can be looked up while a topology runs."""
    if not topology.named:
        return None
    return Stores(
        layouts={name: layout_of(topology, name) for name in sorted(topology.named)},
        about=Expression.of(f"stage = {KEPT}"),
        store="to",
        key="key",
        kept="value",
        version="at",
        processes={
            name: topology.stages - 1 - topology.nodes[topology.queryable[name]].stage
            for name in topology.named
        },
        state="kept",
        separator=SEPARATOR,
    )


def pipeline_of(
    topology: Topology, name: str, *, start: str = "earliest", dead_letters: str | None = None
) -> PipelineSpec:
    """The pipeline that runs a topology. start: where topics are read from at first. Raises PipelineError."""
    dead = dead_letters or f"{name}-dead-letters"
    known = tuple(dict.fromkeys(sink.topic for sink in topology.sinks if isinstance(sink.topic, str)))
    output = Output(
        name=QUERY,
        topic=known[0] if known else dead,
        key=Expression.of("out_key"),
        value=Expression.of("out_value"),
        timestamp=Expression.of("timestamp_millis(at)"),
        route=Route(Expression.of("`to`"), also=known),
        relation=WRITTEN,
        stores=stores_of(topology),
    )
    return checked(
        PipelineSpec(
            name,
            plan_of(plan_from(topology, start), [output]),
            dead,
            spark={"spark.sql.shuffle.partitions": str(topology.tasks)},
            where=f"streams {name}",
        )
    )
