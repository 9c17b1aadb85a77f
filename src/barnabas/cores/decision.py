"""PURE: a coordinator core's answer to an event, and the undo log that reverts it after a failed append.

All coordinators (groups, share states, transactions) are driven in the same way by `broker/coordinators/runtime.py`: the
core steps an event, the Decision's records are appended as one batch, then its timers are set and its replies sent.

State is kept in mappings of values: a change replaces a value and never edits a stored one. So an undo entry is
(mapping, key, old value), and undoing in reverse order restores exactly the previous state, whatever happened in between.
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
    """Makes records part of a transaction: the broker writes them in a transactional batch with this producer id."""

    producer_id: int
    producer_epoch: int


class Timer(NamedTuple):
    """Set or replace the timer of `key`; a deadline of None cancels it. Each key has at most one deadline."""

    key: Any
    deadline_ms: int | None


class Note(NamedTuple):
    """One line for the broker's log: constant text, and fields."""

    text: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DoneReply:
    """The answer to events that return nothing but an error."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TimerFired:
    """`deadline_ms` is that of the timer that fired; if the timer was moved or cancelled since, nothing happens."""

    now_ms: int
    key: Any
    deadline_ms: int
    token: object = field(default=None)

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer for a refused event: only an error."""
        return DoneReply(error)


class CorruptRecord(Exception):
    """A record in a coordinator's topic is of a known kind but cannot be decoded."""


@dataclass(slots=True)
class Decision:
    """What the broker does for one event: append `records`, then set `timers` and send `replies`.

    records: all records of one event go into one batch.
    producer: set when the records are part of a transaction; they need a transactional batch of their own.
    replies: (token, reply) pairs, also for requests that earlier events left waiting; they are held back until the high
        watermark covers everything that this core has appended so far.
    effects: requests to other coordinators, to be sent once the records are committed.
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
    """Set `key` to `value` (MISSING removes the key), and note the old value in `undo`."""
    if undo is not None:
        undo.append((mapping, key, mapping.get(key, MISSING)))
    if value is MISSING:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def take_back(undo: Undo) -> None:
    """Undo every noted `put`, newest first."""
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
"""The client's error after the append of its change failed: it looks for the coordinator again, or retries."""
