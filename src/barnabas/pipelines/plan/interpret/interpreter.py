"""An interpreter of plans: records in, the rows of every relation out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.pipelines.plan.graph import Plan
from barnabas.pipelines.plan.interpret.expressions import Failed, NotInterpreted, evaluated
from barnabas.pipelines.plan.interpret.groups import duration, grouped
from barnabas.pipelines.plan.interpret.processes import AtWork, Record, Work, whole
from barnabas.pipelines.plan.interpret.steps import parts_of, plain, several, worked
from barnabas.pipelines.plan.interpret.stream_joins import StreamJoin
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.processing import Process
from barnabas.pipelines.plan.relations import Derived, Join, Relation, Scan, Union
from barnabas.pipelines.plan.whole import SendHeaders, WholeRecord

Fields = Mapping[str, Any]
NO_KEY = "a record of a table needs a key"


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that a relation could not process."""

    relation: str
    reason: str
    record: Record


@dataclass(slots=True)
class Interpreter:
    """The state of a plan after some records. letters: those that failed in the steps of a source, or of a stream. at_work:
    runs steps of user code; None: they are not interpreted. now_ms: the clock."""

    plan: Plan
    at_work: AtWork | None = None
    now_ms: int = 0
    letters: list[Letter] = field(default_factory=list)
    _kept: dict[str, dict[bytes, Fields]] = field(default_factory=dict)
    _streams: dict[str, list[Fields]] = field(default_factory=dict)
    _tables: dict[str, dict[str, Fields]] = field(default_factory=dict)
    _works: dict[str, Work] = field(default_factory=dict)
    _stream_joins: dict[str, StreamJoin] = field(default_factory=dict)

    def read(self, records: Iterable[Record]) -> None:
        """Reads records that came together, in the order in which operators take them: by time, tables first. Of one key
        of a table, records count in the order of their offsets, whatever their times say."""
        latest: dict[tuple[str, str, int, bytes | None], int] = {}
        turns: list[tuple[tuple[Any, ...], str, Record]] = []
        for record in sorted(records, key=lambda r: (r.topic, r.partition, r.offset)):
            for name, scan in self._scans(record.topic):
                at = record.at_us
                if scan.table:
                    place = (name, record.topic, record.partition, record.key)
                    at = latest[place] = max(at, latest.get(place, at))
                order = (at, not scan.table, record.topic, record.partition, record.offset)
                turns.append((order, name, record))
        for _, name, record in sorted(turns, key=lambda turn: turn[:2]):
            self._take(name, record)
            self._tables.clear()

    def _scans(self, topic: str) -> Iterator[tuple[str, Scan]]:
        for name, relation in self.plan.relations.items():
            if isinstance(relation.origin, Scan) and relation.origin.source.reads(topic):
                yield name, relation.origin

    def _take(self, name: str, record: Record) -> None:
        relation = self.plan[name]
        assert isinstance(relation.origin, Scan)
        if relation.origin.table:
            self._keep(relation, record)
            return
        self._flow(relation, parts_of(record), record)

    def _keep(self, relation: Relation, record: Record) -> None:
        kept = self._kept.setdefault(relation.name, {})
        if record.key is None:
            self.letters.append(Letter(relation.name, NO_KEY, record))
            return
        kept.pop(record.key, None)
        if record.value is None:
            return
        try:
            fields = worked(relation.operators, parts_of(record))
        except Failed as error:
            self.letters.append(Letter(relation.name, str(error), record))
            return
        if fields is not None:
            kept[record.key] = plain(fields)

    # --- streams ------------------------------------------------------------------------------------------

    def stream(self, name: str) -> list[Fields]:
        """The rows of a stream so far, before its aggregate if it has one."""
        return self._streams.setdefault(name, [])

    def _flow(self, relation: Relation, fields: dict[str, Any], record: Record) -> None:
        """A row from the origin of a stream, through its steps, to the streams that read it."""
        self._on(relation, self._rows_after(relation, 0, [fields], record), record)

    def _on(self, relation: Relation, rows: Iterable[Fields], record: Record) -> None:
        """Rows that have passed the steps of a stream go on to those that read it."""
        for fields in rows:
            row = plain(fields)
            self.stream(relation.name).append(row)
            if relation.aggregate is not None:
                if relation.aggregate.emit == "final":
                    raise NotInterpreted("emit: final")
                continue
            for below in self.plan.relations.values():
                for pair in self._rows_for(below, relation.name, row):
                    self._flow(below, pair, record)

    def _rows_after(
        self, relation: Relation, begin: int, rows: list[dict[str, Any]], record: Record
    ) -> list[dict[str, Any]]:
        """What the operators of a stream, from one on, make of rows that came of the same record."""
        for operator in relation.operators[begin:]:
            rows_after: list[dict[str, Any]] = []
            for row in rows:
                try:
                    rows_after += self._step(operator, row, record)
                except Failed as error:
                    self.letters.append(Letter(relation.name, str(error), record))
            rows = rows_after
        return rows

    def _step(self, operator: Operator, fields: dict[str, Any], record: Record) -> list[dict[str, Any]]:
        if isinstance(operator, WholeRecord):
            return [whole(operator, record)]
        if isinstance(operator, SendHeaders):
            return [fields]
        if isinstance(operator, Process):
            keys = [evaluated(key.text, fields) for key in operator.key]
            key = keys[0] if len(keys) == 1 else tuple(keys)
            return self._work(operator).process(key, plain(fields), self.now_ms)
        return several((operator,), fields)

    def _work(self, step: Process) -> Work:
        """The step's user code with what it keeps."""
        if self.at_work is None:
            raise NotInterpreted(f"the step {step.kind}")
        if step.id not in self._works:
            self._works[step.id] = self.at_work(step)
        return self._works[step.id]

    def advance(self, now_ms: int) -> None:
        """Lets the clock reach a time: timers of steps of user code that go by it fire."""
        self.now_ms = max(self.now_ms, now_ms)
        nothing = Record("", None, None, self.now_ms * 1000)
        for relation in self.plan.relations.values():
            for number, operator in enumerate(relation.operators):
                if isinstance(operator, Process) and operator.time == "clock":
                    try:
                        rows = self._work(operator).advance(self.now_ms)
                    except Failed as error:
                        self.letters.append(Letter(relation.name, str(error), nothing))
                        continue
                    self._on(relation, self._rows_after(relation, number + 1, rows, nothing), nothing)

    def _rows_for(self, below: Relation, name: str, row: Fields) -> Iterator[dict[str, Any]]:
        origin = below.origin
        if isinstance(origin, (Derived, Union)):
            yield from (dict(row) for above in origin.inputs if above == name)
        elif isinstance(origin, Join) and name in origin.inputs:
            if not self.plan.is_table(origin.right):
                yield from self._joined(below, origin).take(row, left=name == origin.left)
                return
            if origin.as_of:
                raise NotInterpreted("a join with a table as of a time")
            pairs = _pairs(origin, {"": row}, self.table(origin.right), self._names(origin.right))
            yield from (dict(pair) for pair in pairs.values())

    def _joined(self, relation: Relation, join: Join) -> StreamJoin:
        """What a join of two streams remembers. Raises NotInterpreted."""
        if relation.name not in self._stream_joins:
            times = self.plan[join.left].event_time, self.plan[join.right].event_time
            if times[0] is None or times[1] is None:
                raise NotInterpreted("a join whose event time is that of a join")
            self._stream_joins[relation.name] = StreamJoin(
                join,
                (self._names(join.left), self._names(join.right)),
                (times[0].of, times[1].of),
                (duration(times[0].late), duration(times[1].late)),
            )
        return self._stream_joins[relation.name]

    # --- tables -------------------------------------------------------------------------------------------

    def table(self, name: str) -> Mapping[str, Fields]:
        """The rows of a table now, by what identifies each."""
        if name not in self._tables:
            relation = self.plan[name]
            self._tables[name] = self._computed(relation)
        return self._tables[name]

    def _computed(self, relation: Relation) -> dict[str, Fields]:
        origin = relation.origin
        if not self.plan.aggregates_table(relation):
            rows: dict[str, Fields] = {str(i): row for i, row in enumerate(self.stream(relation.name))}
        elif isinstance(origin, Scan):
            rows = {repr(key): row for key, row in self._kept.get(relation.name, {}).items()}
        elif isinstance(origin, Join):
            tables = self.table(origin.left), self.table(origin.right)
            names = self._names(origin.right), self._names(origin.left)
            rows = self._steps(relation, _pairs(origin, *tables, *names))
        else:
            rows = self._steps(relation, self.table(origin.inputs[0]))
        if relation.aggregate is None:
            return rows
        groups = relation.aggregate.groups
        groups_now = grouped(relation.aggregate, rows.values())
        return {repr([group[name] for name in groups]): group for group in groups_now}

    @staticmethod
    def _steps(relation: Relation, rows: Mapping[str, Fields]) -> dict[str, Fields]:
        rows_by_id: dict[str, Fields] = {}
        for id, row in rows.items():
            try:
                fields = worked(relation.operators, dict(row))
            except Failed:
                continue
            if fields is not None:
                rows_by_id[id] = plain(fields)
        return rows_by_id

    def _names(self, name: str) -> tuple[str, ...]:
        schema = self.plan[name].schema
        if not schema.closed:
            raise NotInterpreted(f"the fields of {name}, which only Spark knows")
        return tuple(schema.fields)


def _pairs(
    join: Join,
    left: Mapping[str, Fields],
    right: Mapping[str, Fields],
    right_names: tuple[str, ...],
    left_names: tuple[str, ...] = (),
) -> dict[str, Fields]:
    """Pairs of rows whose fields are equal; a null equals nothing."""
    both = {ours for ours, theirs in join.on.items() if ours == theirs and not join.prefix}
    pairs: dict[str, Fields] = {}
    met: set[str] = set()

    def others(row: Fields | None) -> dict[str, Any]:
        names = (name for name in right_names if name not in both)
        return {join.prefix + name: None if row is None else row[name] for name in names}

    for id, row in left.items():
        wanted = [row[name] for name in join.on]
        partners = {
            other: fields
            for other, fields in right.items()
            if None not in wanted and [fields[name] for name in join.on.values()] == wanted
        }
        met |= set(partners)
        for other, fields in partners.items():
            pairs[f"{id}|{other}"] = {**row, **others(fields)}
        if not partners and join.kind in ("left", "full"):
            pairs[f"{id}|"] = {**row, **others(None)}
    if join.kind in ("right", "full"):
        for other, fields in right.items():
            if other not in met:
                own = {name: fields[name] if name in both else None for name in left_names}
                pairs[f"|{other}"] = {**own, **others(fields)}
    return pairs
