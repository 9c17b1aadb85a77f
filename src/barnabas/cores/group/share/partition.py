"""One partition as the queue of one share group (KIP-932): which member works on a record, and how often it was delivered.

The window [start, end) contains every record that was delivered and is not finished: all records from `end` on are
untouched, all before `start` are finished. An offset within the window that has no entry is finished, too, or was never
a record (compaction, control records).

    AVAILABLE --acquire--> ACQUIRED --accept--> ACKNOWLEDGED
        ^                     |  \\--reject, gap, too many deliveries--> ARCHIVED (maybe to a dead-letter topic)
        \\--release, lock expired, member gone--/

The broker writes `ShareChange.writes` to the share coordinator and answers when that is done; if it fails, `abandon` undoes
the change, except where later changes depend on it. Locks are not stored: after a reload every unfinished record is
available again, with the deliveries that had been counted when it was last released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple, TypeVar, cast

from barnabas.wire.errors import ApiError, ErrorCode


class Delivery(IntEnum):
    """The values are those of the stored state."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


DONE: Final = (Delivery.ACKNOWLEDGED, Delivery.ARCHIVED)


class Ack(IntEnum):
    """How a record is acknowledged; the values are the protocol's."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """How many records one fetch may lock; the values are the protocol's."""

    BATCH_OPTIMIZED = 0  # whole batches, even if these exceed the requested number
    RECORD_LIMIT = 1


class Record(NamedTuple):
    """The delivery state of one record. member_id, lock_until_ms: only while it is ACQUIRED."""

    state: Delivery
    delivery_count: int
    member_id: str = ""
    lock_until_ms: int = 0


STEPS_MAX: Final = 1_000
"""How far the start of a window moves step by step; a gap in the log may reach over millions of offsets."""
UNTOUCHED: Final = Record(Delivery.AVAILABLE, 0)


class StateBatch(NamedTuple):
    """Offsets first to last (both included) with the same delivery state, as stored."""

    first: int
    last: int
    state: Delivery
    delivery_count: int


class Acquired(NamedTuple):
    """Offsets first to last (both included) locked for a member, with their delivery count."""

    first: int
    last: int
    delivery_count: int


class AckBatch(NamedTuple):
    """Acknowledgement of offsets first to last. types: one for all offsets, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]


class DeadLetter(NamedTuple):
    """A record to be written to the group's dead-letter topic, if it has one."""

    offset: int
    delivery_count: int
    reason: str


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """The options group.share.* or, for a single group, share.* (configs 2.5 and 2.8)."""

    delivery_count_limit: int = 5
    record_lock_duration_ms: int = 30_000
    partition_max_record_locks: int = 2_000
    renew_acknowledge_enable: bool = True


class Step(NamedTuple):
    """Neighbouring offsets that came to the same state. before: their records, one for each offset."""

    offsets: range
    before: Sequence[Record]
    after: Record


@dataclass(slots=True)
class ShareChange:
    """The effect of one request. `writes` and `start_offset` must be stored if `must_store` is set."""

    start_offset: int
    writes: tuple[StateBatch, ...] = ()
    acquired: tuple[Acquired, ...] = ()
    dead_letters: list[DeadLetter] = field(default_factory=list)
    must_store: bool = False
    steps: list[Step] = field(default_factory=list)


class SharePartitionCore:
    """The delivery states of one partition. Times are passed in with the requests."""

    def __init__(self, limits: ShareLimits, start_offset: int, stored: Sequence[StateBatch] = ()) -> None:
        self.limits = limits
        self.start = start_offset
        self.end = max([start_offset, *(batch.last + 1 for batch in stored)])
        self.records: dict[int, Record] = {}
        """The unfinished records within the window."""
        self._maybe_available = start_offset  # no offset below is available
        for batch in stored:
            for offset in range(max(batch.first, start_offset), batch.last + 1):
                if batch.state is Delivery.AVAILABLE:
                    self.records[offset] = Record(Delivery.AVAILABLE, batch.delivery_count)
        covered = {o for b in stored for o in range(max(b.first, start_offset), b.last + 1)}
        for offset in range(self.start, self.end):
            if offset not in covered:  # was locked when the previous leader stopped
                self.records[offset] = Record(Delivery.AVAILABLE, 0)
        self._advance_start()

    # --- fetching

    def next_fetch_offset(self) -> int | None:
        """Where to continue reading; None when the number of locks is at its limit."""
        offset, busy = self.end, None  # neighbours mostly share one record
        for known in self._known(max(self._maybe_available, self.start), self.end):
            record = self.records[known]
            if record is not busy:
                if record.state is Delivery.AVAILABLE:
                    offset = known
                    break
                busy = record
        self._maybe_available = offset
        if offset < self.end or self.end - self.start < self.limits.partition_max_record_locks:
            return offset
        return None

    def _known(self, first: int, stop: int) -> Iterable[int]:
        """The offsets from `first` up to `stop` that have a record, in order: however far gaps in the log reach, this takes
        no longer than there are records."""
        if stop - first > len(self.records):
            return sorted(offset for offset in self.records if first <= offset < stop)
        return (offset for offset in range(first, stop) if offset in self.records)

    def next_lock_end_ms(self) -> int | None:
        """When the next lock expires, so that `release_expired` must be called; None without locks."""
        return min(
            (r.lock_until_ms for r in self.records.values() if r.state is Delivery.ACQUIRED), default=None
        )

    def acquire(
        self,
        now_ms: int,
        member_id: str,
        fetched_from: int,
        batches: Sequence[tuple[int, int]],
        max_records: int,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        read_to: int = -1,
    ) -> ShareChange:
        """Lock records for the member, from the (first, last) ranges that were read; each lock counts as a delivery.

        A batch that contains records on their last delivery is locked alone: if consumers cannot read it, it is given up on
        without its neighbours. Locks are not stored. However, offsets from `fetched_from` up to `read_to` (-1: the end of
        the last range) at which the log has no record for consumers are finished, and this is stored.
        """
        lock_until_ms = now_ms + self.limits.record_lock_duration_ms
        taken: list[tuple[int, int, int]] = []  # first, last, delivery count
        left = max_records
        change = ShareChange(self.start)
        self._skip_gaps(change, fetched_from, batches, read_to)
        for first, last in batches:
            if left <= 0:
                break
            comes_alone = self._is_last_delivery(first, last)
            if comes_alone and taken:
                break
            if fetched_from <= self.end < first:
                self.end = first  # the log has no records before it: they hold nobody up, and need no lock
                self._advance_start()
            known_to = min(last + 1, self.end)
            for offset in self._known(max(first, self.start), known_to):
                if mode is AcquireMode.RECORD_LIMIT and left <= 0:
                    break
                before = self.records[offset]
                if before.state is not Delivery.AVAILABLE:
                    continue
                count = before.delivery_count + 1
                self._set(change, offset, before, Record(Delivery.ACQUIRED, count, member_id, lock_until_ms))
                taken.append((offset, offset, count))
                left -= 1
            end = min(last + 1, self.start + self.limits.partition_max_record_locks)
            if mode is AcquireMode.RECORD_LIMIT:
                end = min(end, max(first, self.start, known_to) + left)
            fresh = range(max(first, self.start, known_to), end)
            if fresh:
                self._acquire_fresh(change, fresh, Record(Delivery.ACQUIRED, 1, member_id, lock_until_ms))
                taken.append((fresh[0], fresh[-1], 1))
                left -= len(fresh)
            if (comes_alone and taken) or last >= self.end:  # the window is full
                break
        if fetched_from <= self.end and all(last < self.end for _, last in batches):
            self.end = max(self.end, read_to)
        change.acquired = tuple(Acquired(*run) for run in _merged(taken))
        return self._finish(change)

    def _is_last_delivery(self, first: int, last: int) -> bool:
        """Whether a batch contains a released record that may be delivered only once more."""
        tried = self.limits.delivery_count_limit - 1
        if tried < 1:
            return False
        known = map(self.records.__getitem__, self._known(max(first, self.start), min(last + 1, self.end)))
        return any(r.state is Delivery.AVAILABLE and r.delivery_count >= tried for r in known)

    def _acquire_fresh(self, change: ShareChange, offsets: range, lock: Record) -> None:
        """Lock records that were never delivered, all with one value. Offsets skipped before them contain no record."""
        self.records.update(dict.fromkeys(offsets, lock))
        change.steps.append(Step(offsets, [UNTOUCHED] * len(offsets), lock))
        if self._maybe_available >= self.end:
            self._maybe_available = offsets.stop
        self.end = offsets.stop

    def _skip_gaps(
        self, change: ShareChange, fetched_from: int, batches: Sequence[tuple[int, int]], read_to: int
    ) -> None:
        """Available offsets before, between and after the ranges that were read no longer contain a record."""
        position = fetched_from
        for first, last in (*batches, (read_to, read_to)):
            for offset in self._known(max(position, self.start), min(first, self.end)):
                before = self.records[offset]
                if before.state is Delivery.AVAILABLE:
                    self._set(change, offset, before, Record(Delivery.ARCHIVED, before.delivery_count))
            position = last + 1

    def done_in_window(self) -> int:
        """The number of finished offsets in the window, which follow unfinished ones."""
        return self.end - self.start - len(self.records)

    # --- acknowledging

    def acknowledge(self, now_ms: int, member_id: str, acks: Sequence[AckBatch]) -> ShareChange:
        """Apply all acknowledgements or none. Raises INVALID_REQUEST, or INVALID_RECORD_STATE if a lock is not held."""
        change = ShareChange(self.start)
        for offsets, states, ack in self._checked(member_id, acks):
            if ack is Ack.ACCEPT and states.count(states[0]) == len(states):
                self._accept(change, offsets, states)
                continue
            for offset, before in zip(offsets, states, strict=True):
                match ack:
                    case Ack.ACCEPT:
                        after = Record(Delivery.ACKNOWLEDGED, before.delivery_count)
                    case Ack.RENEW:
                        after = before._replace(lock_until_ms=now_ms + self.limits.record_lock_duration_ms)
                    case Ack.RELEASE:
                        after = self._given_back(change, offset, before, "released too often")
                    case _:
                        after = Record(Delivery.ARCHIVED, before.delivery_count)
                        if ack is Ack.REJECT:
                            change.dead_letters.append(DeadLetter(offset, before.delivery_count, "rejected"))
                self._set(change, offset, before, after)
        return self._finish(change)

    def check(self, member_id: str, acks: Sequence[AckBatch]) -> None:
        """Raises what `acknowledge` would raise."""
        self._checked(member_id, acks)

    def _accept(self, change: ShareChange, offsets: range, before: list[Record]) -> None:
        """Finish records that are all in the same state, as nearly all are that are acknowledged."""
        after = Record(Delivery.ACKNOWLEDGED, before[0].delivery_count)
        for offset in offsets:
            del self.records[offset]
        change.steps.append(Step(offsets, before, after))

    def _checked(self, member_id: str, acks: Sequence[AckBatch]) -> list[tuple[range, list[Record], Ack]]:
        """The acknowledgements as runs of one type, with the records, which the member has locked."""
        checked: list[tuple[range, list[Record], Ack]] = []
        previous = -1
        for batch in acks:
            count = batch.last - batch.first + 1
            if batch.first <= previous or count < 1 or len(batch.types) not in (1, count):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"acknowledgement {batch.first} to {batch.last} is malformed"
                )
            previous = batch.last
            if batch.last >= self.end:
                raise ApiError(ErrorCode.INVALID_RECORD_STATE, f"offset {batch.last} was never handed out")
            first = max(batch.first, self.start)  # earlier ones have been finished meanwhile
            types = batch.types if len(batch.types) == 1 else batch.types[first - batch.first :]
            for kind, run in groupby(types):
                end = batch.last + 1 if len(batch.types) == 1 else first + len(list(run))
                offsets = range(first, end)
                if not offsets:
                    break
                ack = self._checked_type(kind)
                checked.append((offsets, self._acquired_records(offsets, member_id), ack))
                first = end
        return checked

    def _acquired_records(self, offsets: range, member_id: str) -> list[Record]:
        """The records. Raises INVALID_RECORD_STATE unless all are locked by the member."""
        records = list(map(self.records.get, offsets))
        same = records.count(records[0]) == len(records)  # neighbours are mostly in one state
        for offset, record in zip(offsets, records[:1] if same else records, strict=not same):
            if record is None or record.state is not Delivery.ACQUIRED or record.member_id != member_id:
                raise ApiError(
                    ErrorCode.INVALID_RECORD_STATE, f"offset {offset} is not locked by member {member_id!r}"
                )
        return cast("list[Record]", records)

    def _checked_type(self, kind: int) -> Ack:
        if kind not in Ack._value2member_map_ or (
            kind == Ack.RENEW and not self.limits.renew_acknowledge_enable
        ):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"acknowledge type {kind} is not allowed")
        return Ack(kind)

    def _given_back(self, change: ShareChange, offset: int, before: Record, why: str) -> Record:
        if before.delivery_count < self.limits.delivery_count_limit:
            return Record(Delivery.AVAILABLE, before.delivery_count)
        change.dead_letters.append(DeadLetter(offset, before.delivery_count, why))
        return Record(Delivery.ARCHIVED, before.delivery_count)

    # --- locks that end without the member

    def release_expired(self, now_ms: int) -> ShareChange:
        """Release records whose locks have expired."""
        change = ShareChange(self.start)
        for offset, before in sorted(self.records.items()):
            if before.state is Delivery.ACQUIRED and before.lock_until_ms <= now_ms:
                after = self._given_back(change, offset, before, "not acknowledged in time too often")
                self._set(change, offset, before, after)
        return self._finish(change)

    def release_member(self, member_id: str) -> ShareChange:
        """The member's share session has ended: release its records, without counting this delivery."""
        change = ShareChange(self.start)
        for offset, before in sorted(self.records.items()):
            if before.state is Delivery.ACQUIRED and before.member_id == member_id:
                self._set(change, offset, before, Record(Delivery.AVAILABLE, before.delivery_count - 1))
        return self._finish(change)

    def log_start_moved(self, offset: int) -> ShareChange:
        """Records below `offset` have been deleted."""
        change = ShareChange(self.start)
        for old in [o for o in self.records if o < offset]:
            before = self.records[old]
            self._set(change, old, before, Record(Delivery.ARCHIVED, before.delivery_count))
        moved = offset > self.start
        self.start, self.end = max(self.start, offset), max(self.end, offset)
        change.must_store = moved
        return self._finish(change)

    # --- writing

    def _set(self, change: ShareChange, offset: int, before: Record, after: Record) -> None:
        if after.state in DONE:
            self.records.pop(offset, None)
        else:
            self.records[offset] = after
            if after.state is Delivery.AVAILABLE:
                self._maybe_available = min(self._maybe_available, offset)
        change.steps.append(Step(range(offset, offset + 1), (before,), after))

    def _finish(self, change: ShareChange) -> ShareChange:
        change.writes = tuple(
            StateBatch(first, last, after.state, after.delivery_count)
            for first, last, after in _merged(
                (offsets[0], offsets[-1], after) for offsets, _, after in change.steps
            )
            if after.state is not Delivery.ACQUIRED
        )
        self._advance_start()
        change.must_store = change.must_store or bool(change.writes)
        change.start_offset = self.start
        return change

    def _advance_start(self) -> None:
        for offset in range(self.start, min(self.start + STEPS_MAX, self.end)):
            if offset in self.records:
                self.start = offset
                return
        self.start = min(self.records, default=self.end)

    def abandon(self, change: ShareChange) -> None:
        """The change could not be stored: restore locks and availability, except where later changes depend on it."""
        for offsets, befores, after in change.steps:
            for offset, before in zip(offsets, befores, strict=True):
                current = self.records.get(offset)
                if current is after or (current is None and after.state in DONE):
                    self.records[offset] = before
                    self.start = min(self.start, offset)
                    self._maybe_available = min(self._maybe_available, offset)


Value = TypeVar("Value")


def _merged(runs: Iterable[tuple[int, int, Value]]) -> Iterator[tuple[int, int, Value]]:
    """Merge neighbouring runs (first, last, value) with equal values."""
    pending: tuple[int, int, Value] | None = None
    for first, last, value in runs:
        if pending is not None and first == pending[1] + 1 and value == pending[2]:
            pending = pending[0], last, value
            continue
        if pending is not None:
            yield pending
        pending = first, last, value
    if pending is not None:
        yield pending
