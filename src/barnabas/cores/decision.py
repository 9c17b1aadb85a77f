"""PURE: what a coordinator's core answers to an event, and the undo log that takes a failed append back.

Every coordinator (groups, share states) is driven in the same way by `broker/coordinators/runtime.py`: an event is
stepped, the Decision's records are appended as one batch, then its timers are set and its replies given out.

State is kept in mappings of values: a change puts a new value in place of the old one and never edits what is
stored. So an undo entry is (mapping, key, old value), and undoing in reverse order gives back exactly the
state from before, whatever happened in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from barnabas.wire.errors import ErrorCode

Entry = tuple[bytes, bytes | None]
"""Key and value of a record of the coordinator's own topic; value None for a tombstone."""

MISSING: Final = object()
Undo = list[tuple[dict[Any, Any], Any, Any]]


class Producer(NamedTuple):
    """Marks records as part of a transaction: the broker writes them in a transactional batch of this id."""

    producer_id: int
    producer_epoch: int


class Timer(NamedTuple):
    """Arm `key` (again); a deadline of None cancels. One deadline per key: the latest wins."""

    key: Any
    deadline_ms: int | None


class Note(NamedTuple):
    """One line for the broker's log: constant text and fields."""

    text: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DoneReply:
    """The answer to events that only have to be carried out."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TimerFired:
    """`deadline_ms` is that of the Timer which fired; one that was moved or cancelled since does nothing."""

    now_ms: int
    key: Any
    deadline_ms: int
    token: object = field(default=None)

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


class CorruptRecord(Exception):
    """A record of a known kind, in a coordinator's topic, that cannot be decoded."""


@dataclass(slots=True)
class Decision:
    """What the broker does for one event: append `records`, then give out `replies` and set `timers`.

    records: all of one event go into one batch.
    producer: set when the records are part of a transaction; they need a transactional batch of their own.
    replies: (token, reply) pairs, also for requests that earlier events left waiting; to be held until the
        high watermark covers everything that this core has appended so far.
    effects: requests to other coordinators, to be made once the records are committed.
    """

    event: Any = None
    records: tuple[Entry, ...] = ()
    replies: tuple[tuple[Any, Any], ...] = ()
    timers: tuple[Timer, ...] = ()
    producer: Producer | None = None
    notes: tuple[Note, ...] = ()
    effects: tuple[Any, ...] = ()
    undo: Undo = field(default_factory=list, repr=False)


def put(mapping: dict[Any, Any], key: Any, value: Any, undo: Undo | None) -> None:
    """Write `value` (MISSING removes the key) and remember what was there."""
    if undo is not None:
        undo.append((mapping, key, mapping.get(key, MISSING)))
    if value is MISSING:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def take_back(undo: Undo) -> None:
    """Undo every `put` that was noted, the newest first."""
    for mapping, key, old in reversed(undo):
        if old is MISSING:
            mapping.pop(key, None)
        else:
            mapping[key] = old
    undo.clear()


REFUSAL_FOR_APPEND_ERROR: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a client gets when the append of its change failed: it looks for the coordinator again or retries."""
