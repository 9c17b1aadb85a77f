"""What one event wants: gathered while deciding, written to the state only when it is applied.

A decider reads the state through its Turn and edits drafts: private copies that it gets from `edit`. The
state itself is untouched until `Turn.apply`, so an event that is refused half-way leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from barnabas.cores.group.classic import ClassicGroup
from barnabas.cores.group.events import Producer, Timer, TimerKey
from barnabas.cores.group.state import (
    MISSING,
    Committed,
    Group,
    Partition,
    State,
    Undo,
    put,
    put_held,
    put_offset,
)
from barnabas.wire.errors import ApiError, ErrorCode

Record = tuple[bytes, bytes | None]
AnyGroup = TypeVar("AnyGroup", bound=Group)


class Note(NamedTuple):
    """One line for the broker's log: constant text and fields."""

    text: str
    fields: Mapping[str, Any]


@dataclass(slots=True)
class Decision:
    """What the broker does for one event: append `records`, then give out `replies` and set `timers`.

    records: (key, value) pairs, value None for a tombstone; all of one event go into one batch.
    producer: set when the records are part of a transaction; they need a transactional batch of their own.
    replies: (token, reply) pairs, also for requests that earlier events left waiting; to be held until the
        high watermark covers everything that this shard has appended so far.
    effects: requests to the share coordinator, to be made once the records are committed (share_events).
    """

    event: Any = None
    records: tuple[Record, ...] = ()
    replies: tuple[tuple[Any, Any], ...] = ()
    timers: tuple[Timer, ...] = ()
    producer: Producer | None = None
    notes: tuple[Note, ...] = ()
    effects: tuple[Any, ...] = ()
    undo: Undo = field(default_factory=list, repr=False)


class Turn:
    """Drafts and effects of one event."""

    __slots__ = (
        "_drafts",
        "_offsets",
        "_pending",
        "effects",
        "notes",
        "now_ms",
        "producer",
        "records",
        "replies",
        "state",
        "timers",
    )

    def __init__(self, state: State, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.records: list[Record] = []
        self.replies: list[tuple[Any, Any]] = []
        self.timers: dict[TimerKey, int | None] = {}
        self.producer: Producer | None = None
        self.notes: list[Note] = []
        self.effects: list[Any] = []
        self._drafts: dict[str, Group | None] = {}
        self._offsets: list[tuple[str, Partition, Committed | None]] = []
        self._pending: list[tuple[int, str, dict[Partition, Committed] | None]] = []

    # --- groups

    def find(self, group_id: str) -> Group | None:
        if group_id in self._drafts:
            return self._drafts[group_id]
        return self.state.groups.get(group_id)

    def require(self, group_id: str, error: ErrorCode) -> Group:
        """The group to read, of whatever type; raises ApiError(error) when there is none."""
        group = self.find(group_id)
        if group is None:
            raise ApiError(error, f"no group {group_id!r} on this coordinator")
        return group

    def classic(self, group_id: str, error: ErrorCode) -> ClassicGroup:
        """The classic group to read; raises ApiError(error) when there is none."""
        group = self.require(group_id, error)
        if not isinstance(group, ClassicGroup):
            raise ApiError(error, f"Group {group_id} is not a classic group.")
        return group

    def edit(self, group: AnyGroup) -> AnyGroup:
        """A draft of `group` that this event may change."""
        draft = self._drafts.get(group.group_id)
        if draft is None:
            draft = self._drafts[group.group_id] = group.copy()
        assert type(draft) is type(group)
        return cast(AnyGroup, draft)

    def put(self, group: AnyGroup) -> AnyGroup:
        """A new group, or one that takes the place of another; it is a draft from here on."""
        self._drafts[group.group_id] = group
        return group

    def create(self, group_id: str) -> ClassicGroup:
        return self.put(ClassicGroup(group_id, state_since_ms=self.now_ms))

    def remove(self, group_id: str) -> None:
        self._drafts[group_id] = None

    # --- offsets

    def commit(self, group_id: str, partition: Partition, committed: Committed | None) -> None:
        """Visible at once; None forgets the partition's offset."""
        self._offsets.append((group_id, partition, committed))

    def hold(self, producer_id: int, group_id: str, offsets: dict[Partition, Committed] | None) -> None:
        """Replace what a transaction holds for a group; None drops it."""
        self._pending.append((producer_id, group_id, offsets))

    # --- effects

    def record(self, record: Record) -> None:
        self.records.append(record)

    def reply(self, token: Any, reply: Any) -> None:
        if token is not None:
            self.replies.append((token, reply))

    def arm(self, group_id: str, member_id: str, kind: str, deadline_ms: int) -> None:
        self.timers[TimerKey(group_id, member_id, kind)] = deadline_ms

    def disarm(self, group_id: str, member_id: str, kind: str) -> None:
        self.timers[TimerKey(group_id, member_id, kind)] = None

    def is_armed(self, group_id: str, member_id: str, kind: str) -> bool:
        key = TimerKey(group_id, member_id, kind)
        return self.timers.get(key, self.state.deadlines.get(key)) is not None

    def effect(self, effect: Any) -> None:
        """Something for the broker to do elsewhere once the records are committed (share_events)."""
        self.effects.append(effect)

    def note(self, text: str, **fields: Any) -> None:
        self.notes.append(Note(text, fields))

    # --- the only writes

    def apply(self, event: Any) -> Decision:
        """Write drafts, offsets and deadlines into the state; returns the decision with its undo log."""
        state = self.state
        undo: Undo = []
        for group_id, draft in self._drafts.items():
            put(state.groups, group_id, MISSING if draft is None else draft, undo)
        for group_id, partition, committed in self._offsets:
            put_offset(state, group_id, partition, committed, undo)
        for producer_id, group_id, held in self._pending:
            put_held(state, producer_id, group_id, held, undo)
        timers = []
        for key, deadline_ms in self.timers.items():
            if deadline_ms is None and key not in state.deadlines:
                continue
            put(state.deadlines, key, MISSING if deadline_ms is None else deadline_ms, undo)
            timers.append(Timer(key, deadline_ms))
        return Decision(
            event,
            tuple(self.records),
            tuple(self.replies),
            tuple(timers),
            self.producer,
            tuple(self.notes),
            tuple(self.effects),
            undo,
        )
