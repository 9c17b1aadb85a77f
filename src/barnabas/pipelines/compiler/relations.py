"""Compiles the relations of a plan into Spark data frames.

Each relation is compiled once per query, after those it reads. A row that fails in a step stays in the frame with its
error, through unions and further relations, until an output sends it to the dead letters. Before a join or an aggregate
failed rows are filtered out, and a separate query sends them (`PipelineSpec.queries`).

`_skipped` is true for a row with an error that another query sends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.compiler.carrying import carried, unparcelled
from barnabas.pipelines.compiler.changelogs import from_changelog, with_state_told, without_places
from barnabas.pipelines.compiler.columns import EVENT, HIDDEN, SKIPPED
from barnabas.pipelines.compiler.sessions import sessions_of
from barnabas.pipelines.compiler.totals import Places, table_of_groups, then_computed
from barnabas.pipelines.formats.columns import DDL_TYPES
from barnabas.pipelines.kinds.sources import SOURCES
from barnabas.pipelines.kinds.steps import STEPS
from barnabas.pipelines.kinds.steps.whole import WHOLE_STEPS
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.graph import Plan
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.own_aggregates import BadCall, expanded
from barnabas.pipelines.plan.places import Place
from barnabas.pipelines.plan.processing import Process
from barnabas.pipelines.plan.relations import Aggregate, Derived, Join, Relation, Scan, Union
from barnabas.pipelines.plan.whole import WholeRecord
from barnabas.pipelines.spark.exact_json import json_object
from barnabas.pipelines.spark.frame import (
    CHANGE,
    DELETED,
    ERROR_TYPE,
    ID,
    OPEN,
    RECORD_COLUMNS,
    ROW,
    SENT,
    SIGN,
    TEXT,
    Frame,
    always,
    attempt,
    complaint,
    expression,
    fail,
    flag,
    kept,
    quoted,
    spark_reason,
)
from barnabas.pipelines.spark.outgoing import json_value
from barnabas.pipelines.spark.packed import packed_stages, takes_packs
from barnabas.pipelines.spark.private import knows_charset
from barnabas.pipelines.spark.tables.operators import RIGHT, Before, Past, joined, kept_table

Load = Callable[[Relation, bool], DataFrame]
"""Loads the rows of a relation from its source. The second argument is false for a table, whose rows are kept: a replay
reads those that exist now."""
ABSENT: Final = {DELETED: False}
"""Default values of hidden columns in rows that lack them; null for all others."""


def opened(rows: DataFrame, encoding: str | None = None, *, deletes: bool = False) -> Frame:
    """A frame of source rows: the record in hidden columns, and no fields yet. encoding: of values; default UTF-8.
    deletes: whether records without a value stand for deletes. Raises PipelineError for an encoding that Java does not
    support."""
    there = set(rows.columns)
    columns = [
        F.col(name[1:]).alias(name)
        if name[1:] in there
        else F.lit(None).cast(DDL_TYPES[name[1:]]).alias(name)
        for name in RECORD_COLUMNS
    ]
    data = rows.select(*columns, F.lit(None).cast(ERROR_TYPE).alias("_error"))
    data = carried(data, rows, columns)
    if SIGN in there:
        marks = [F.col(SIGN), F.col(CHANGE), F.col("key").alias(ID)]
        data = rows.select(*columns, F.lit(None).cast(ERROR_TYPE).alias("_error"), *marks)
    data = data.withColumns({TEXT: _text(data, encoding), SENT: F.col("_headers")})
    return Frame(data.withColumn(DELETED, F.col("_value").isNull()) if deletes else data)


def _text(data: DataFrame, encoding: str | None) -> Column:
    """The value as text; null if its bytes are not valid in the encoding."""
    if encoding is None or encoding.lower().replace("-", "") == "utf8":
        return F.try_validate_utf8(F.col("_value").cast("string"))
    try:
        data.select(F.decode(F.lit("x").cast("binary"), encoding))
        known = knows_charset(data.sparkSession, encoding)
    except Exception:
        known = False
    if not known:
        raise PipelineError(
            f"source.encoding is {encoding!r}, which Java does not support; use one like windows-1252"
        )
    return F.when(always(), attempt(F.decode(F.col("_value"), encoding)))["v"]


def run_steps(frame: Frame, steps: Iterable[Operator]) -> Frame:
    """The frame after these operators. Raises PipelineError with the place of one that Spark rejects."""
    rest = deque(steps)
    while rest:
        step = rest.popleft()
        try:
            if isinstance(step, WholeRecord) and rest and takes_packs(rest[0]):
                packed: list[Process] = []
                while rest and takes_packs(next_step := rest[0]):
                    packed.append(next_step)
                    rest.popleft()
                frame = packed_stages(frame, step, packed)
                continue
            own = WHOLE_STEPS.get(step.kind)
            frame = STEPS[step.kind].apply(frame, step) if own is None else own(frame, step)
        except PipelineError:
            raise
        except Exception as error:
            raise PipelineError(f"{step.where}: step {step.label}: {spark_reason(error)}") from error
    return frame


class Compiler:
    """Compiles the relations of one query. sends: the relations whose failed rows this query sends; failed rows of
    other relations are marked in `_skipped`. whole: the pipeline's own plan, if in `plan` some tables are read from their
    changelogs. kept: the table whose changelog the query writes: its rows have headers with their state. before:
    loads the state with which that table begins."""

    def __init__(
        self,
        plan: Plan,
        load: Load,
        sends: Collection[str],
        *,
        whole: Plan | None = None,
        kept: str | None = None,
        before: Before | None = None,
    ) -> None:
        self.plan = plan
        self.load = load
        self.sends = sends
        self.whole = whole or plan
        self.kept = kept
        self.before = before
        self._done: dict[str, Frame] = {}

    def frame(self, name: str) -> Frame:
        """The rows of a relation. Raises PipelineError."""
        if name not in self._done:
            relation = self.plan[name]
            frame = self._before_aggregate(relation)
            if relation.aggregate is not None:
                frame = self._aggregated(relation, frame)
            self._done[name] = frame
        return self._done[name]

    def _aggregated(self, relation: Relation, frame: Frame) -> Frame:
        wanted = relation.aggregate
        assert wanted is not None

        def place(what: str) -> Place:
            return place_in(relation, what)

        if not self.plan.is_table(relation.name):
            return aggregated(frame, wanted, place)
        frame, groups = grouped(frame, wanted, place)
        if relation.name == self.kept:
            table = table_of_groups(
                frame, groups, wanted, place, each=False, kept_state=True, before=self.before
            )
            return with_state_told(table)
        return table_of_groups(frame, groups, wanted, place, each=self.plan.meets_stream(relation.name))

    def buried(self, name: str) -> Frame:
        """The rows of a relation for a query that sends only failed rows: those before its aggregate, and for a table
        every record of its topic instead of the newest of each key."""
        return self._before_aggregate(self.plan[name], as_stream=self.plan.scans_table(name))

    def _before_aggregate(self, relation: Relation, *, as_stream: bool = False) -> Frame:
        name = relation.name
        frame = self._origin(relation, as_stream)
        if SKIPPED in frame.data.columns:
            if not relation.operators and relation.event_time is None:
                return frame
            before = F.col("_error").isNotNull()
            frame = replace(frame, data=frame.data.withColumn("_failed_before", before))
            frame = self._worked(frame, relation)
            skipped = F.when(F.col("_failed_before"), F.col(SKIPPED)).otherwise(self._sent_elsewhere(name))
            return replace(frame, data=frame.data.withColumn(SKIPPED, skipped).drop("_failed_before"))
        frame = self._worked(frame, relation)
        skipped = self._sent_elsewhere(name) & unparcelled(frame.data)
        return replace(frame, data=frame.data.withColumn(SKIPPED, skipped))

    def _sent_elsewhere(self, name: str) -> Column:
        return F.lit(False) if name in self.sends else F.col("_error").isNotNull()

    def _worked(self, frame: Frame, relation: Relation) -> Frame:
        """The frame after the relation's operators, with its event time."""
        frame = run_steps(frame, relation.operators)
        if frame.signed:
            # A row that fails was never in the table, so it cannot leave it either.
            there = F.col("_error").isNull() | (F.col(SIGN) > 0)
            frame = replace(frame, data=kept(frame.data, there))
        return frame if relation.event_time is None else timed(frame, relation)

    def _origin(self, relation: Relation, as_stream: bool) -> Frame:
        origin = relation.origin
        if isinstance(origin, Scan):
            rows = self.load(relation, as_stream or not origin.table)
            if not origin.table:
                return opened(rows, origin.source.encoding, deletes=origin.source.deletes)
            of = origin.source.settings.get("changelog")
            if of is not None:
                frame = opened(kept_table(without_places(rows)))
                return from_changelog(frame, self._fields_of(of), place_in(relation, "changelog"))
            rows = rows.where("value IS NOT NULL OR key IS NULL") if as_stream else kept_table(rows)
            frame = opened(rows, origin.source.encoding)
            keyless = F.when(F.col("_key").isNull(), complaint("a record of a table needs a key"))
            return replace(frame, data=flag(frame.data, keyless, place_in(relation, "table")))
        if isinstance(origin, Derived):
            return self.buried(origin.relation) if as_stream else self.frame(origin.relation)
        place = place_in(relation, "origin")
        if isinstance(origin, Union):
            return union([(name, self.frame(name)) for name in origin.relations], place)
        return join(self.plan, origin, self.frame(origin.left), self.frame(origin.right), place)

    def _fields_of(self, name: str) -> dict[str, str]:
        """The fields of a table that is read from its changelog, with their types, as its own query computes them."""
        some = self.load(self.plan[name], False).sparkSession

        def nothing(relation: Relation, stream: bool) -> DataFrame:
            assert isinstance(relation.origin, Scan)
            source = relation.origin.source
            return SOURCES[source.kind].empty(some, source)

        frame = Compiler(self.whole, nothing, self.sends).frame(name)
        return {field: frame.kind(F.col(quoted(field))) for field in frame.fields}


def place_in(relation: Relation, what: str) -> Place:
    """The place of a relation's entry in the file, for messages."""
    label = relation.name if what == "origin" else f"{relation.name}: {what}"
    return Place(label=label, where=relation.at(what.partition(".")[0]))


def timed(frame: Frame, relation: Relation) -> Frame:
    """The frame with the event time that its relation declares; rows in which it is null get an error."""
    declared = relation.event_time
    assert declared is not None
    place = place_in(relation, "time")
    time = frame.source(declared.of, place)
    kind = frame.kind(time)
    if kind not in ("timestamp", "timestamp_ntz"):
        fail(place, f"{declared.of} is {kind}, not a timestamp: use a time or convert step before")
    data = frame.data.withColumn(EVENT, time.cast("timestamp"))
    missing = F.when(F.col(EVENT).isNull(), complaint(f"the event time {declared.of} is null"))
    data = flag(data, missing, place)
    return replace(frame, data=data.withWatermark(EVENT, declared.late))


# --- several relations --------------------------------------------------------------------------------


def union(frames: list[tuple[str, Frame]], place: Place) -> Frame:
    """The rows of all frames, with the fields of all frames; fields that a frame lacks are null in its rows."""
    names = tuple(dict.fromkeys(name for _, frame in frames for name in frame.fields))
    is_open = any(frame.open for _, frame in frames)
    declared = [(name, frame.declare(names, place) if frame.open else frame) for name, frame in frames]
    kinds = {field: _common_kind(declared, field, place) for field in names}
    timed = all(EVENT in frame.data.columns for _, frame in declared)
    hidden = {
        name: kind
        for name, kind in HIDDEN.items()
        if any(name in frame.data.columns for _, frame in declared) and (name != OPEN or is_open)
    }

    def aligned(frame: Frame) -> DataFrame:
        there = set(frame.data.columns)
        columns = [
            F.col(quoted(name)) if name in there else F.lit(ABSENT.get(name)).cast(kind).alias(name)
            for name, kind in hidden.items()
        ]
        for name in names:
            known = F.col(quoted(name)) if name in frame.fields else F.lit(None)
            columns.append(known.cast(kinds[name]).alias(name))
        return frame.data.select(*columns, *([EVENT] if timed else []))

    data = aligned(declared[0][1])
    for _, frame in declared[1:]:
        data = data.union(aligned(frame))
    return Frame(data, names, is_open)


def _common_kind(frames: list[tuple[str, Frame]], field: str, place: Place) -> str:
    """The common type of a field in all frames that have it; variant if it is an open field in one of them. Raises
    PipelineError for different types."""
    kinds: dict[str, str] = {
        name: frame.data.schema[field].dataType.simpleString()
        for name, frame in frames
        if field in frame.fields
    }
    declared: set[str] = {kind for kind in kinds.values() if kind != "void"}
    if len(declared) == 1:
        return declared.pop()
    if not declared or "variant" in declared:
        return "variant" if declared else "string"
    kinds_text = " and ".join(f"{kind} in {name}" for name, kind in kinds.items())
    fail(place, f"{field} is {kinds_text}: a union needs one type, so convert one of them")


def join(plan: Plan, wanted: Join, left: Frame, right: Frame, place: Place) -> Frame:
    """Pairs of rows of two frames, without failed rows. A pair has the topic, partition and offset of its left row's
    record, or of its right row's if there is no left row."""
    for name, frame in ((wanted.left, left), (wanted.right, right)):
        if frame.open:
            fail(
                place,
                f"the fields of {name} must be known: declare them in the parse step, or name them in a keep step",
            )
        if frame.deletes:
            fail(
                place,
                f"records of {name} may be deletes (tombstones: deletes), which have no fields to join on",
            )
    both = _same_names(wanted, left, right, place)
    if right.signed:
        return _with_table(plan, wanted, left, right, both, place)
    left_data, right_data = (
        kept(frame.data, F.col("_error").isNull()).withColumn("_there", F.lit(True))
        for frame in (left, right)
    )
    right_data = right_data.select(*[F.col(quoted(n)).alias(RIGHT + n) for n in right_data.columns])
    condition = F.lit(True)
    _check_kinds(wanted, left, right, place)
    for ours, theirs in wanted.on.items():
        condition = condition & (F.col(quoted(ours)) == _of_right(theirs))
        if wanted.within is not None:
            # A join of streams looks partners up by the bytes of these fields, and those of null are equal.
            condition = condition & F.col(quoted(ours)).isNotNull() & _of_right(theirs).isNotNull()
    if wanted.within is not None:
        time, other = F.col(EVENT), _of_right(EVENT)
        condition = condition & (other >= time - F.expr(f"INTERVAL {wanted.within.before}"))
        condition = condition & (other <= time + F.expr(f"INTERVAL {wanted.within.after}"))
    how = {"left": "left_outer", "right": "right_outer", "full": "full_outer"}.get(wanted.kind, "inner")
    return _paired(plan, wanted, left, right, left_data.join(right_data, condition, how), both)


def _check_kinds(wanted: Join, left: Frame, right: Frame, place: Place) -> None:
    for ours, theirs in wanted.on.items():
        kinds = (left.kind(left.source(ours, place)), right.kind(right.source(theirs, place)))
        if kinds[0] != kinds[1]:
            fail(
                place,
                f"{ours} of {wanted.left} is {kinds[0]} and {theirs} of {wanted.right} is {kinds[1]}: convert one of them",
            )


OF_TABLE: Final = ("_key", "_topic", "_partition", "_offset", "_timestamp", ID, SIGN, CHANGE)
"""The hidden columns of a table's row that pairs are made of."""


def _with_table(plan: Plan, wanted: Join, left: Frame, right: Frame, both: set[str], place: Place) -> Frame:
    """Pairs of the rows of two tables, or of a stream and a table."""
    _check_kinds(wanted, left, right, place)
    sides = []
    for frame in (left, right):
        good = _typed(kept(frame.data, F.col("_error").isNull()))
        if frame.signed:
            good = good.select(*OF_TABLE, *[F.col(quoted(name)) for name in frame.fields])
        sides.append(good)
    on = [(F.col(quoted(ours)), F.col(quoted(theirs))) for ours, theirs in wanted.on.items()]
    past = None
    if wanted.as_of:
        if left.kind(time := left.source(wanted.as_of, place)) != "timestamp":
            fail(
                place,
                f"as_of: {wanted.as_of} is {left.kind(time)}, not a timestamp: use a time or convert step before",
            )
        past = Past(F.coalesce(time, F.col("_timestamp")), wanted.history)
    pairs = joined(sides[0], sides[1], on, wanted.kind, stream=not left.signed, past=past)
    if left.signed:
        return _of_tables(wanted, left, right, pairs, both)
    if EVENT in left.data.columns:  # the operator does not pass on that Spark has a watermark for it
        metadata = left.data.schema[EVENT].metadata
        pairs = pairs.withColumn(EVENT, F.col(EVENT).alias(EVENT, metadata=metadata))
    return _paired(plan, wanted, left, right, pairs, both)


def _typed(data: DataFrame) -> DataFrame:
    """The rows without columns of the type void, of which no state can be kept."""
    void = [field.name for field in data.schema if field.dataType.simpleString() == "void"]
    return data.withColumns({name: F.col(quoted(name)).cast("string") for name in void})


def _of_tables(wanted: Join, left: Frame, right: Frame, pairs: DataFrame, both: set[str]) -> Frame:
    """A frame with the columns of pairs of two tables. A pair has the key of its left row, or of its right row if there is
    no left row, and as its place the record that caused the change."""
    columns = {}
    for name in left.fields:
        column = F.col(quoted(name))
        columns[name] = F.coalesce(column, _of_right(name)) if name in both else column
    columns |= {wanted.prefix + name: _of_right(name) for name in right.fields if name not in both}
    ids = [F.coalesce(F.base64(column), F.lit("")) for column in (F.col(ID), _of_right(ID))]
    own = {
        "_key": F.coalesce(F.col("_key"), _of_right("_key")),
        "_topic": F.col(CHANGE)["topic"],
        "_partition": F.col(CHANGE)["partition"],
        "_offset": F.col(CHANGE)["offset"],
        "_timestamp": F.timestamp_micros(F.col(CHANGE)["at"]),
        ID: F.concat_ws(",", *ids).cast("binary"),
        SIGN: F.col(SIGN),
        CHANGE: F.col(CHANGE),
    }
    joined_rows = pairs.select(
        *[column.alias(name) for name, column in own.items()],
        *[column.alias(name) for name, column in columns.items()],
    )
    frame = Frame(joined_rows, tuple(columns))
    others = {
        name: F.lit(None).cast(kind)
        for name, kind in HIDDEN.items()
        if name not in (*own, "_value", TEXT, SKIPPED, ROW, OPEN, DELETED)
    }
    text = json_value(frame)
    record_columns = {"_value": text.cast("binary"), TEXT: text, SKIPPED: F.lit(False), **others}
    return replace(frame, data=joined_rows.withColumns(record_columns))


def _of_right(name: str) -> Column:
    return F.col(quoted(RIGHT + name))


def _same_names(wanted: Join, left: Frame, right: Frame, place: Place) -> set[str]:
    """The fields that are joined on and have the same name on both sides, which become one field of the pair. Raises
    PipelineError when both sides have another field of the same name."""
    both = {ours for ours, theirs in wanted.on.items() if ours == theirs and not wanted.prefix}
    names = {wanted.prefix + name for name in right.fields if name not in both}
    if clash := sorted(names & set(left.fields)):
        fail(
            place,
            f"{wanted.left} and {wanted.right} both have a field {clash[0]!r}: rename or drop one, or give the join a "
            "prefix for the right side's",
        )
    return both


def _paired(plan: Plan, wanted: Join, left: Frame, right: Frame, pairs: DataFrame, both: set[str]) -> Frame:
    """A frame with the columns of the pairs."""
    lone_right = wanted.kind in ("right", "full")

    def hidden(name: str) -> Column:
        if not lone_right:
            return F.col(name)
        return F.when(F.col("_there"), F.col(name)).otherwise(_of_right(name))

    columns = [hidden(name).alias(name) for name in (*RECORD_COLUMNS, "_error", TEXT, SENT)]
    columns.append(F.lit(False).alias(SKIPPED))
    columns.append(_pair_row(left, right).alias(ROW))
    timed_side = {"right": "right", "full": ""}.get(wanted.kind, "left")
    if timed_side and plan.has_event_time(getattr(wanted, timed_side)):
        columns.append(F.col(EVENT) if timed_side == "left" else _of_right(EVENT).alias(EVENT))
    for name in left.fields:
        column = F.col(quoted(name))
        columns.append((F.coalesce(column, _of_right(name)) if name in both else column).alias(name))
    others = {name: wanted.prefix + name for name in right.fields if name not in both}
    columns += [_of_right(name).alias(new) for name, new in others.items()]
    return Frame(pairs.select(*columns), (*left.fields, *others.values()))


def _pair_row(left: Frame, right: Frame) -> Column:
    """Identifies a pair among those of the same left record, by the topic, partition and offset of its right record."""
    own = [F.col(ROW)] if ROW in left.data.columns else []
    others = [_of_right(name).cast("string") for name in ("_topic", "_partition", "_offset")]
    if ROW in right.data.columns:
        others.append(_of_right(ROW))
    return F.concat_ws("-", *own, F.when(F.col("_there"), F.concat_ws("-", *others)))


# --- aggregates ---------------------------------------------------------------------------------------


def aggregated(frame: Frame, wanted: Aggregate, place: Places) -> Frame:
    """Groups and their results as fields, of the rows without an error, with the window's time as event time. They come
    from no single record: their key is the group's values and their value all fields, both as JSON."""
    frame, groups = grouped(frame, wanted, place)
    if wanted.takes_back:
        named = {by.text: group for by, group in zip(wanted.by, groups, strict=True)}
        return sessions_of(frame, named, wanted, place)
    results = []
    for name, computation in wanted.compute.items():
        known = _known_to_spark(computation, place)
        frame, column = expression(frame, known, place(f"aggregate.compute.{name}"))
        results.append(column.alias(name))
    counted = frame.data.groupBy(*groups).agg(*results)
    fields = [by.text for by in wanted.by]
    if wanted.window is not None:
        ends = dict(zip(wanted.window.names, ("start", "end"), strict=False))
        counted = counted.withColumn(EVENT, F.window_time("_window"))
        counted = counted.withColumns({name: F.col("_window")[end] for name, end in ends.items()})
        counted = counted.drop("_window")
        fields[:0] = wanted.window.names
    return then_computed(_of_groups(Frame(counted, (*fields, *wanted.compute)), wanted), wanted, place)


def _known_to_spark(wanted: Expression, place: Places) -> Expression:
    try:
        return replace(wanted, text=expanded(wanted.text))
    except BadCall as error:
        fail(
            replace(place("aggregate.compute"), where=wanted.where or place("aggregate.compute").where),
            str(error),
        )


def grouped(frame: Frame, wanted: Aggregate, place: Places) -> tuple[Frame, list[Column]]:
    """The rows without an error, and the columns that they are grouped by, the window (`_window`) first."""
    if frame.deletes:
        fail(
            place("aggregate"),
            "records may be deletes (tombstones: deletes), which cannot be subtracted from results",
        )
    good = F.col("_error").isNull()
    frame = replace(frame, data=kept(frame.data, good) if frame.signed else frame.data.where(good))
    groups: list[Column] = []
    for by in wanted.by:
        frame, column = expression(frame, by, place("aggregate.by"))
        # Spark cannot group by variants, so their text is used.
        groups.append((column.cast("string") if frame.kind(column) == "variant" else column).alias(by.text))
    if wanted.takes_back:
        return _with_time(frame, wanted, place("aggregate.window.of")), groups
    if wanted.window is not None:
        frame, window = _window(frame, wanted, place("aggregate.window.of"))
        groups.insert(0, window)
    return frame, groups


def _of_groups(frame: Frame, wanted: Aggregate) -> Frame:
    """The results of an aggregate with the hidden columns of rows. Each group has a key of its own, so compaction keeps its
    newest result."""
    own = {
        "_key": json_object(frame.data, wanted.groups).cast("binary"),
        "_value": json_value(frame).cast("binary"),
        TEXT: json_value(frame),
        SKIPPED: F.lit(False),
    }
    others = {
        name: F.lit(None).cast(kind)
        for name, kind in HIDDEN.items()
        if name not in (*own, ROW, OPEN, DELETED, SIGN, CHANGE, ID)
    }
    return replace(frame, data=frame.data.withColumns({**own, **others}))


def _with_time(frame: Frame, wanted: Aggregate, place: Place) -> Frame:
    """The rows that have a time, with it as their event time."""
    if EVENT in frame.data.columns and (wanted.window is None or wanted.window.of is None):
        return frame
    frame, _ = _window(frame, wanted, place)
    data = frame.data.withColumn(EVENT, F.col("_time")).drop("_time")
    return replace(frame, data=data.where(F.col(EVENT).isNotNull()))


def _window(frame: Frame, wanted: Aggregate, place: Place) -> tuple[Frame, Column]:
    """The frame with the time of its rows, `_time` if the window names it, and the window as a column to group by."""
    window = wanted.window
    assert window is not None

    def of(time: str) -> Column:
        if window.gap is not None:
            return F.session_window(time, window.gap).alias("_window")
        assert window.every is not None
        return F.window(time, window.every, window.slide or window.every).alias("_window")

    if window.of is None:
        if EVENT not in frame.data.columns:
            fail(place, "the window needs `of`, a field with a time: its input has no event time")
        return frame, of(EVENT)
    frame, time = expression(frame, window.of, place)
    if frame.kind(time) != "timestamp":
        place = replace(place, where=window.of.where or place.where)
        fail(place, f"{window.of.text!r} is {frame.kind(time)}, not a timestamp: use a time step before")
    frame = replace(frame, data=frame.data.withColumn("_time", time))
    if wanted.late is not None:
        frame = replace(frame, data=frame.data.withWatermark("_time", wanted.late))
    return frame, of("_time")
