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
from barnabas.pipelines.processing.packed import BUCKETS, FINISHED, Entry, Origin, TaskOutput
from barnabas.pipelines.processing.processor import declared_states
from barnabas.pipelines.processing.values import EPOCH
from barnabas.streams.ahead import Outcome
from barnabas.streams.handling import Failure, kind_of
from barnabas.streams.packing import PackedRun, PendingResult, keeps_nothing, received
from barnabas.streams.queries import layout_of, ttl_of
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
BATCH_MAX: Final = 250_000
"""With records of 1 kB these are 250 MB, and what Python needs around them."""


class Stage(Processor):
    """A stage of a topology as a step of a pipeline: the key is the task."""

    returns: ClassVar = ROW
    makes_whole_rows = True
    topology: ClassVar[Topology]
    stage: ClassVar[int]
    keeps_nothing: ClassVar[bool]
    kept = MapState("string", "string")

    def init(self) -> None:
        self._run: Run | None = None
        self._cells: Any = None
        self._outcomes: dict[int, Outcome] = {}
        self._by_topic = {
            topic: [source for source in self.topology.sources if topic in source.topics]
            for topic in self.topology.topics
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
        return iter(run.rows_out)

    def call_ahead(self, rows: Sequence[dict[str, Any]]) -> None:
        """Calls the functions of this stage that are called for many records at once."""
        self._outcomes = {}
        for node in self.topology.ahead_in(self.stage):
            mine = [row for row in rows if row["stage"] == self.stage and row["node"] == node.name]
            classes = self.topology.classes
            pairs = [(value_of(row["key"], classes), value_of(row["value"], classes)) for row in mine]
            outcomes = node.call.ahead(pairs)
            self._outcomes |= {id(row): outcome for row, outcome in zip(mine, outcomes, strict=True)}

    def on_timer(self, at: Any) -> Iterator[dict[str, Any]]:
        run = self._begun()
        self._by_clock(run)
        return iter(run.rows_out)

    def changes(self) -> Iterator[dict[str, Any]]:
        """What has changed in stores that can be looked up, once the rows of a task are processed."""
        if self._run is None:
            return
        version = time.time_ns() // 1000
        for store, key, kept in self._run.stores.changes():
            row = {"stage": KEPT, "to": store, "task": 0, "key": key, "value": kept, "at": version}
            yield {**dict.fromkeys(ROW), **row}

    def _begun(self, kind: type[Run] = Run) -> Any:
        """The task at work; the same for all rows of a key that come together."""
        if self._run is None or self._cells is not self.cells:
            self._close()
            self._cells = self.cells
            self._run = kind(self.topology, self.stage, self.kept)
            self._run.stores.shown = self.topology.shown_in(self.key)
            latest = self._run.stores.get(TASK_TIME, "")
            self._run.stream_time = NEVER if latest is None else int(latest)
        run = self._run
        run.now_ms = (self.now - EPOCH) // MILLISECOND
        run.rows_out = []
        return run

    # --- entries ------------------------------------------------------------------------------------------

    def process_entries(self, entries: Sequence[Entry]) -> TaskOutput:
        """Processes all that a task gets in a micro-batch."""
        run, packed = self._begun(PackedRun), TaskOutput()
        if self.topology.ahead_in(self.stage):
            self._call_items_ahead(entries)
        for entry in entries:
            run.origin, run.number = entry.origin, entry.place
            if self.stage == 0:
                self._attempt(run, packed, 0, self._read_origin, entry.origin)
            for item in entry.items:
                self._attempt(run, packed, item[0], self._take, item)
        return self._finished(run, packed)

    def fire_entries(self, at_ms: int) -> TaskOutput:
        """Does what is due by the clock."""
        run, packed = self._begun(PackedRun), TaskOutput()
        run.origin, run.number = None, ()
        self._attempt(run, packed, 0, lambda run, _: self._by_clock(run), None)
        return self._finished(run, packed)

    def _finished(self, run: PackedRun, packed: TaskOutput) -> TaskOutput:
        """Passes on the results that were held, and tells what has changed in stores."""
        waiting = list(run.pending.values())
        run.pending = {}
        for one in waiting:
            run.origin, run.number = one.origin, one.place
            self._attempt(run, packed, FINISHED, self._release, one)
        run.hand_over_counted(packed)
        if self.topology.named:
            packed.rows += [(row, None) for row in self.changes()]
        return packed

    def _release(self, run: PackedRun, waiting: PendingResult) -> None:
        run.forward(waiting.node, waiting.record)

    def _attempt(self, run: PackedRun, packed: TaskOutput, number: int, work: Any, what: Any) -> None:
        """Does something; if it fails, nothing of it stays, and the record is among those that failed."""
        kept: Any = self.cells["kept"]
        try:
            work(run, what)
        except Exception as error:
            run.rows_out.clear()
            for back in reversed(run.undo):
                back()
            run.undo.clear()
            if not self.keeps_nothing:
                kept.back()
            self._note_failed(run.origin, error, packed)
            return
        run.undo.clear()
        if not self.keeps_nothing:
            kept.settle()
        if run.rows_out:
            run.taken(packed, number)

    def _note_failed(self, origin: Origin | None, error: Exception, packed: TaskOutput) -> None:
        known = origin or Origin("", -1, -1, 0)
        row = {"topic": known.topic, "partition": known.partition, "offset": known.offset}
        try:
            self._handle({**row, "key": known.key, "value": known.value}, error)
        except Skipped:
            return
        packed.failed.append((origin, reason_of(error)))

    def _read_origin(self, run: PackedRun, origin: Origin) -> None:
        run.place = Place(origin.topic, origin.partition, origin.offset)
        for source in self._by_topic[origin.topic]:
            record = source.read(origin.key, origin.value, origin.at_us // 1000, origin.headers)
            self._note(run, record.timestamp)
            run.pass_to(source, record)
        self._punctuate(run)

    def _take(self, run: PackedRun, item: tuple[Any, ...]) -> None:
        name, record = received(item, self.topology.classes)
        self._note(run, record.timestamp)
        node: Any = run.nodes[name]
        if (known := self._outcomes.pop(id(item), None)) is not None:
            node.call.now = known
        if type(record.value) is tuple and name in self.topology.counting:
            node.count(run, record, record.value[0])
        else:
            run.pass_to(node, record)
        self._punctuate(run)

    def _call_items_ahead(self, entries: Sequence[Entry]) -> None:
        self._outcomes = {}
        for node in self.topology.ahead_in(self.stage):
            mine = [item for entry in entries for item in entry.items if item[1] == node.name]
            records = [received(item, self.topology.classes)[1] for item in mine]
            outcomes = node.call.ahead([(record.key, record.value) for record in records])
            self._outcomes |= {id(item): outcome for item, outcome in zip(mine, outcomes, strict=True)}

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
    mine = [node for node in topology.nodes.values() if node.stage == number]
    members["keeps_nothing"] = keeps_nothing(mine) and not topology.ahead_in(number)
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


def plan_from(
    topology: Topology, start: str = "earliest", batch_max: int = BATCH_MAX
) -> tuple[Relation, ...]:
    """The relations of a topology: `records` with all stages, and `written`. batch_max: how many records a micro-batch has
    at most."""
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
                of_app=True,
                label=f"stage {number}",
            )
        )
    options = {"maxOffsetsPerTrigger": str(batch_max)}
    read = Relation(READ, Scan(Topics(topics=topology.topics, start=start, options=options)), tuple(steps))
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
        state=BUCKETS,
        separator=SEPARATOR,
        ttls_ms={name: ttl for name in sorted(topology.named) if (ttl := ttl_of(topology, name)) is not None},
    )


def pipeline_of(
    topology: Topology,
    name: str,
    *,
    start: str = "earliest",
    dead_letters: str | None = None,
    batch_max: int = BATCH_MAX,
) -> PipelineSpec:
    """The pipeline that runs a topology. start: where topics are read from at first. batch_max: how many records a
    micro-batch has at most. Raises PipelineError."""
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
            plan_of(plan_from(topology, start, batch_max), [output]),
            dead,
            spark={"spark.sql.shuffle.partitions": str(topology.tasks)},
            where=f"streams {name}",
        )
    )
