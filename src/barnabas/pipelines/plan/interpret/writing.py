"""What the outputs of a plan write, record by record: an interpreter of their keys, values, groups and windows."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.pipelines.plan.graph import Plan
from barnabas.pipelines.plan.interpret.expressions import Failed, NotInterpreted, evaluated
from barnabas.pipelines.plan.interpret.groups import duration, windows
from barnabas.pipelines.plan.interpret.interpreter import Interpreter, Letter
from barnabas.pipelines.plan.interpret.processes import Record
from barnabas.pipelines.plan.interpret.steps import parts_of
from barnabas.pipelines.plan.interpret.totals import results_in_order
from barnabas.pipelines.plan.outputs import Output
from barnabas.pipelines.plan.relations import Aggregate

Fields = Mapping[str, Any]
Members = list[Fields]


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that an output writes. at_us: its timestamp, in microseconds since 1970."""

    output: str
    topic: str
    key: bytes | None
    value: bytes | None
    at_us: int


@dataclass(slots=True)
class _Groups:
    """The groups of an output's aggregate. sessions: their rows by the other parts of the group, each with its bounds."""

    aggregate: Aggregate
    members: dict[str, tuple[dict[str, Any], Members]] = field(default_factory=dict)
    latest: datetime.datetime | None = None
    done: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Writer:
    """The outputs of a plan, after some records. What the interpreter does not know raises NotInterpreted."""

    plan: Plan
    model: Interpreter = field(init=False)
    _groups: dict[str, _Groups] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)
    _offsets: dict[str, int] = field(default_factory=dict)
    _letters: int = 0

    def __post_init__(self) -> None:
        self.model = Interpreter(self.plan)

    def reads(self, topic: str) -> bool:
        """Whether a topic is among the sources."""
        return any(source.reads(topic) for source in self.plan.sources)

    def read(self, record: Record) -> tuple[list[Sent], list[Letter]]:
        """What the outputs write when this record comes, and the letters of records that failed."""
        outputs = [output for output in self.plan.outputs if output.topic]
        before = {
            o.name: dict(self.model.table(o.relation)) for o in outputs if self.plan.is_table(o.relation)
        }
        self.model.read([record])
        messages: list[Sent] = []
        for output in outputs:
            rows = (
                self._changed(output, before[output.name], record)
                if output.name in before
                else self._new(output)
            )
            sent_rows = [(gone, self._sent(output, row, gone, record)) for row, gone in rows]
            put = {sent.key for gone, sent in sent_rows if sent is not None and not gone}
            messages += [
                sent for gone, sent in sent_rows if sent is not None and not (gone and sent.key in put)
            ]
        letters = self.model.letters[self._letters :]
        self._letters = len(self.model.letters)
        return messages, letters

    def _changed(self, output: Output, before: Fields, record: Record) -> Iterator[tuple[Fields, bool]]:
        """The rows of a table that a record has put, changed or removed."""
        after = self.model.table(output.relation)
        for name, row in before.items():
            if name not in after:
                yield row, True
        for name, row in after.items():
            if before.get(name) != row or name == repr(record.key):
                yield row, False

    def _new(self, output: Output) -> Iterator[tuple[Fields, bool]]:
        rows = self.model.stream(output.relation)
        new = rows[self._seen.get(output.name, 0) :]
        self._seen[output.name] = len(rows)
        if output.aggregate is None:
            yield from ((row, False) for row in new)
            return
        groups = self._groups.setdefault(output.name, _Groups(output.aggregate))
        for row in new:
            yield from _grouped(groups, row)

    def _sent(self, output: Output, row: Fields, gone: bool, record: Record) -> Sent | None:
        fields = {**parts_of(record), **row}
        if output.key_schema is not None:
            raise NotInterpreted("a key with a schema")
        try:
            key = record.key if output.key is None else _bytes(evaluated(output.key.text, fields))
            value = None
            if not gone and output.value is not None:
                value = _bytes(evaluated(output.value.text, fields))
            elif not gone and output.schema is not None:
                raise NotInterpreted("an output with a schema")
            at = record.at_us
            if output.timestamp is not None:
                time = evaluated(output.timestamp.text, fields)
                at = at if time is None else int(time.timestamp() * 1_000_000)
        except Failed as error:
            self.model.letters.append(Letter(output.name, str(error), record))
            return None
        return Sent(output.name, output.topic, key, value, at)


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _grouped(groups: _Groups, row: Fields) -> list[tuple[dict[str, Any], bool]]:
    """The groups whose results are written when this row comes, and whether they are taken back instead."""
    aggregate = groups.aggregate
    by = {one.text: evaluated(one.text, row) for one in aggregate.by}
    window, late = aggregate.window, duration(aggregate.late) if aggregate.late is not None else None
    if window is None:
        members = groups.members.setdefault(repr(by), (by, []))[1]
        members.append(row)
        return [({**by, **results_in_order(aggregate, by, members)}, False)]
    if window.of is None:
        raise NotInterpreted("windows of the event time")
    time = evaluated(window.of.text, row)
    if time is None:
        return []
    groups.latest = max(time, groups.latest or time)
    touched: list[str] = []
    gone: list[dict[str, Any]] = []
    if window.gap is not None:
        touched, gone = _in_session(groups, row, by, time, late)
    else:
        for bounds in sorted(windows(window, row), key=lambda found: found[window.name]):
            end = bounds[window.name] + duration(window.every or "")
            if late is None or end + late > groups.latest:
                key = {**bounds, **by}
                groups.members.setdefault(repr(key), (key, []))[1].append(row)
                touched.append(repr(key))
    if aggregate.emit == "final":
        touched = _over(groups, late)
    none = dict.fromkeys((*aggregate.compute, *aggregate.then))
    results = [({**none, **key}, True) for key in gone if aggregate.takes_back]
    return results + [
        ({**key, **results_in_order(aggregate, key, members)}, False)
        for key, members in (groups.members[name] for name in touched)
    ]


def _in_session(
    groups: _Groups, row: Fields, by: Fields, time: datetime.datetime, late: datetime.timedelta | None
) -> tuple[list[str], list[dict[str, Any]]]:
    """Puts a row into a session: one that it meets, or several, which become one, or a new one. What identifies the session,
    and those that are not there any more; nothing if the row comes too late for a session."""
    window = groups.aggregate.window
    assert window is not None
    gap = duration(window.gap or "")

    def is_over(end: datetime.datetime) -> bool:
        return late is not None and end + late < (groups.latest or time)

    near = sorted(
        (key[window.name], name)
        for name, (key, _) in groups.members.items()
        if name not in groups.done
        and not is_over(key[_end(groups)])
        and all(key[part] == value for part, value in by.items())
        and key[window.name] <= time + gap
        and time <= key[_end(groups)]
    )
    if not near and is_over(time + gap):
        return [], []
    start, end, members = time, time + gap, list[Fields]()
    gone = []
    for _, name in near:
        key, others = groups.members.pop(name)
        start, end = min(start, key[window.name]), max(end, key[_end(groups)])
        members += others
        gone.append(key)
    key = {window.name: start, _end(groups): end, **by}
    groups.members[repr(key)] = (key, [*members, row])
    return [repr(key)], [one for one in gone if one != key]


def _end(groups: _Groups) -> str:
    window = groups.aggregate.window
    assert window is not None
    return window.end or f"{window.name}.end"


def _over(groups: _Groups, late: datetime.timedelta | None) -> list[str]:
    """The windows that no row can change any more, which have not been written yet."""
    window = groups.aggregate.window
    assert window is not None
    assert groups.latest is not None
    names = []
    for name, (key, _) in groups.members.items():
        end = key[_end(groups)] if window.gap is not None else key[window.name] + duration(window.every or "")
        if name not in groups.done and end + (late or datetime.timedelta()) <= groups.latest:
            groups.done.add(name)
            names.append(name)
    return names
