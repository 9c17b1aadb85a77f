"""The changes of one event: collected while deciding, written to the state only when they are applied.

A decider reads the state through its Turn and edits drafts, which are private copies obtained from `edit`. The state itself
is untouched until `Turn.apply`, so an event that is refused half-way leaves no trace.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from barnabas.cores.decision import MISSING, Decision, Entry, Note, Producer, Timer, Undo, put
from barnabas.cores.group.classic.group import ClassicGroup
from barnabas.cores.group.events import TimerKey, VisibleTopics
from barnabas.cores.group.state import Committed, Group, Partition, State, put_held, put_offset
from barnabas.wire.errors import ApiError, ErrorCode

AnyGroup = TypeVar("AnyGroup", bound=Group)


class Turn:
    """Drafts and effects of one event."""

    __slots__ = (
        "_deleting",
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
        "visible",
    )

    def __init__(self, state: State, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.records: list[Entry] = []
        self.replies: list[tuple[Any, Any]] = []
        self.timers: dict[TimerKey, int | None] = {}
        self.producer: Producer | None = None
        self.notes: list[Note] = []
        self.effects: list[Any] = []
        self.visible: VisibleTopics | None = None
        self._drafts: dict[str, Group | None] = {}
        self._offsets: list[tuple[str, Partition, Committed | None]] = []
        self._deleting: dict[str, tuple[Any, ...] | None] = {}
        self._pending: list[tuple[int, str, dict[Partition, Committed] | None]] = []

    # --- groups

    def find(self, group_id: str) -> Group | None:
        """The group for reading, as changed by this event so far; None if it does not exist."""
        if group_id in self._drafts:
            return self._drafts[group_id]
        return self.state.groups.get(group_id)

    def require(self, group_id: str, error: ErrorCode) -> Group:
        """The group for reading, of any type; raises ApiError(error) if it does not exist."""
        group = self.find(group_id)
        if group is None:
            raise ApiError(error, f"no group {group_id!r} on this coordinator")
        return group

    def classic(self, group_id: str, error: ErrorCode) -> ClassicGroup:
        """The classic group for reading; raises ApiError(error) if it does not exist."""
        group = self.require(group_id, error)
        if not isinstance(group, ClassicGroup):
            raise ApiError(error, f"Group {group_id} is not a classic group.")
        return group

    def edit(self, group: AnyGroup) -> AnyGroup:
        """A draft of `group` that this event may modify."""
        draft = self._drafts.get(group.group_id)
        if draft is None:
            draft = self._drafts[group.group_id] = group.copy()
        assert type(draft) is type(group)
        return cast(AnyGroup, draft)

    def put(self, group: AnyGroup) -> AnyGroup:
        """Add or replace a group; it is a draft from here on."""
        self._drafts[group.group_id] = group
        return group

    def create(self, group_id: str) -> ClassicGroup:
        """A new classic group, as a draft."""
        return self.put(ClassicGroup(group_id, state_since_ms=self.now_ms))

    def remove(self, group_id: str) -> None:
        """Remove the group when this event is applied."""
        self._drafts[group_id] = None

    # --- offsets

    def commit(self, group_id: str, partition: Partition, committed: Committed | None) -> None:
        """Make an offset visible at once; None deletes the partition's offset."""
        self._offsets.append((group_id, partition, committed))

    def hold(self, producer_id: int, group_id: str, offsets: dict[Partition, Committed] | None) -> None:
        """Replace the offsets that a transaction holds for a group; None drops them."""
        self._pending.append((producer_id, group_id, offsets))

    def set_deleting(self, group_id: str, tokens: tuple[Any, ...] | None) -> None:
        """Mark the group as being deleted, with the requests that wait for that; None ends it."""
        self._deleting[group_id] = tokens

    # --- effects

    def record(self, record: Entry) -> None:
        """Append `record` with this event."""
        self.records.append(record)

    def reply(self, token: Any, reply: Any) -> None:
        """Answer a request; a token of None wants no answer."""
        if token is not None:
            self.replies.append((token, reply))

    def arm(self, group_id: str, member_id: str, kind: str, deadline_ms: int) -> None:
        """Set or move a timer."""
        self.timers[TimerKey(group_id, member_id, kind)] = deadline_ms

    def disarm(self, group_id: str, member_id: str, kind: str) -> None:
        """Cancel a timer, if it is set."""
        self.timers[TimerKey(group_id, member_id, kind)] = None

    def is_armed(self, group_id: str, member_id: str, kind: str) -> bool:
        """Whether a timer is set, including changes by this event."""
        key = TimerKey(group_id, member_id, kind)
        return self.timers.get(key, self.state.deadlines.get(key)) is not None

    def effect(self, effect: Any) -> None:
        """A task for the broker elsewhere, once the records are committed (share/events.py)."""
        self.effects.append(effect)

    def note(self, text: str, **fields: Any) -> None:
        """Write a line to the broker's log."""
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
        for group_id, tokens in self._deleting.items():
            put(state.deleting, group_id, MISSING if tokens is None else tokens, undo)
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
