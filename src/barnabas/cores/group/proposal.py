"""The changes of one event: collected while deciding, written to the state only when they are applied.

A decider reads the state through its Proposal and edits drafts, which are private copies obtained from `edit`. The state
itself is untouched until the decision is applied, so an event that is refused half-way, or whose entries cannot be appended,
leaves no trace. What the log says of a group is changed in a draft only by replaying an entry (`consumer/records.py`,
`share/records.py`); classic groups hold more than the log says (see INVARIANTS.md, "Coordinator memory follows the log").
"""

from __future__ import annotations

from typing import TypeVar, cast

from barnabas.cores.decision import Decision, Entry, Event, Note, Producer, Timer
from barnabas.cores.group.classic.group import ClassicGroup
from barnabas.cores.group.events import TimerKey
from barnabas.cores.group.state import Group, State
from barnabas.wire.errors import ApiError, ErrorCode

AnyGroup = TypeVar("AnyGroup", bound=Group)


class Proposal:
    """Drafts and effects of one event."""

    __slots__ = (
        "_deleting",
        "_drafts",
        "effects",
        "entries",
        "notes",
        "now_ms",
        "producer",
        "replies",
        "state",
        "timers",
    )

    def __init__(self, state: State, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.entries: list[Entry] = []
        self.replies: list[tuple[object, object]] = []
        self.timers: dict[TimerKey, int | None] = {}
        self.producer: Producer | None = None
        self.notes: list[Note] = []
        self.effects: list[object] = []
        self._drafts: dict[str, Group | None] = {}
        self._deleting: dict[str, tuple[object, ...] | None] = {}

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

    def set_deleting(self, group_id: str, tokens: tuple[object, ...] | None) -> None:
        """Mark the group as being deleted, with the requests that wait for that; None ends it."""
        self._deleting[group_id] = tokens

    # --- effects

    def record(self, entry: Entry) -> None:
        """Append an entry with this event."""
        self.entries.append(entry)

    def reply(self, token: object, reply: object) -> None:
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

    def effect(self, effect: object) -> None:
        """A task for the broker elsewhere, once the entries are committed (share/events.py)."""
        self.effects.append(effect)

    def note(self, text: str, **fields: object) -> None:
        """Write a line to the broker's log."""
        self.notes.append(Note(text, fields))

    # --- the outcome

    def decision(self, event: Event[object] | None) -> Decision:
        """What was decided. Nothing is written yet."""
        deadlines = self.state.deadlines
        return Decision(
            event,
            tuple(self.entries),
            tuple(self.replies),
            tuple(
                Timer(key, deadline_ms)
                for key, deadline_ms in self.timers.items()
                if deadline_ms is not None or key in deadlines
            ),
            self.producer,
            tuple(self.notes),
            tuple(self.effects),
            self._remember if self._drafts or self._deleting else None,
        )

    def _remember(self) -> None:
        """The drafts become the groups: in them the entries were replayed already, and the rest is not in the log."""
        groups, deleting = self.state.groups, self.state.deleting
        for group_id, draft in self._drafts.items():
            if draft is None:
                groups.pop(group_id, None)
            else:
                groups[group_id] = draft
        for group_id, tokens in self._deleting.items():
            if tokens is None:
                deleting.pop(group_id, None)
            else:
                deleting[group_id] = tokens
