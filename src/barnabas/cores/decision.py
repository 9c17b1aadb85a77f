"""PURE: what a coordinator core decides about an event, and the entries of its log.

All coordinators (groups, share states, transactions) are driven in the same way by `broker/coordinators/runtime.py`:
`decide` reads the state and returns a Decision; its entries are appended as one batch; then `apply` replays them, with the
functions by which a restart replays the log. If they cannot be appended, nothing has changed, and `refuse` says what to
answer. So the state follows from the log, whether it was read just now or a year ago.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from barnabas.wire.errors import ErrorCode
from barnabas.wire.schema import Data

Reply_co = TypeVar("Reply_co", covariant=True)


class Event(Protocol[Reply_co]):
    """What a core is asked: a request, a timer, a piece of a sweep. The answer to it is a `Reply_co`."""

    @property
    def token(self) -> object:
        """The runtime's handle of the request that waits for the reply; None if nobody waits."""

    @property
    def now_ms(self) -> int:
        """The time at which the event happens."""

    def refused(self, error: ErrorCode) -> Reply_co:
        """The reply that carries nothing but an error."""


RawEntry = tuple[bytes, bytes | None]
"""Key and value of an entry as they are in the log; value None for a tombstone."""


class Entry(NamedTuple):
    """An entry of a coordinator's log, before it is encoded; `value` None is a tombstone.

    version: the layout of the value. The key's class has the kind of entry as its last version.
    """

    key: Data
    value: Data | None
    version: int = 0

    def encode(self) -> RawEntry:
        """The bytes in the log."""
        return self.key.encode_versioned(), (
            None if self.value is None else self.value.encode_versioned(self.version)
        )


class Producer(NamedTuple):
    """Makes entries part of a transaction: the broker writes them in a transactional batch with this producer id."""

    producer_id: int
    producer_epoch: int


class Timer(NamedTuple):
    """Set or replace the timer of `key`; a deadline of None cancels it. Each key has at most one deadline."""

    key: Any
    deadline_ms: int | None


class Note(NamedTuple):
    """One line for the broker's log: constant text, and fields."""

    text: str
    fields: Mapping[str, object]


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
    """What the broker does for one event: append `entries`, apply the decision, then set `timers` and send `replies`.

    entries: all entries of one event go into one batch.
    producer: set when the entries are part of a transaction; they need a transactional batch of their own.
    replies: (token, reply) pairs, also for requests that earlier events left waiting; they are held back until the high
        watermark covers everything that this core has appended so far.
    effects: requests to other coordinators, to be sent once the entries are committed.
    remember: writes what is not in the log, such as requests that wait; called by `apply` after the entries were replayed.
    """

    event: Event[object] | None = None
    entries: tuple[Entry, ...] = ()
    replies: tuple[tuple[object, object], ...] = ()
    timers: tuple[Timer, ...] = ()
    producer: Producer | None = None
    notes: tuple[Note, ...] = ()
    effects: tuple[object, ...] = ()
    remember: Callable[[], None] | None = field(default=None, repr=False)

    def encoded(self) -> list[RawEntry]:
        """The entries as they are appended."""
        return [entry.encode() for entry in self.entries]


def set_deadlines(deadlines: dict[Any, int], timers: Iterable[Timer]) -> None:
    """Note what a decision's timers are set to."""
    for key, deadline_ms in timers:
        if deadline_ms is None:
            deadlines.pop(key, None)
        else:
            deadlines[key] = deadline_ms


def refusal_of(decision: Decision, error: ErrorCode, retry_at_ms: int) -> Decision:
    """What to do instead of a decision whose entries could not be appended: its own request is answered with `error`, and
    a timer fires again at `retry_at_ms`. Requests that waited before still wait."""
    event = decision.event
    if isinstance(event, TimerFired):
        return Decision(event, timers=(Timer(event.key, retry_at_ms),))
    if event is None or event.token is None:
        return Decision(event)
    return Decision(event, replies=((event.token, event.refused(error)),))


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
