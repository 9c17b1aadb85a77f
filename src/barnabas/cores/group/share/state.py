"""The share coordinator: delivery states of share partitions in `__share_group_state` (KIP-932).

There is one core for each partition of that topic. Changes are written as deltas (ShareUpdate), and every so often as a
complete state (ShareSnapshot), in Kafka's formats. Records before the oldest snapshot in use may be deleted. Requests of
stale leaders and stale groups are recognized by the leader epoch and the state epoch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.cores.decision import (
    REFUSAL_FOR_APPEND_ERROR,
    CorruptRecord,
    Decision,
    Entry,
    Event,
    RawEntry,
    refusal_of,
)
from barnabas.cores.group.share.partition import Delivery, StateBatch
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.primitives import WireError
from barnabas.wire.records_schemas import share_state as schemas
from barnabas.wire.schema import Data
from barnabas.wire.uuids import parse_uuid_text, uuid_text

UPDATES_PER_SNAPSHOT: Final = 500
NO_START_OFFSET: Final = -1
_SNAPSHOT_KIND: Final = b"\x00\x00"


class ShareKey(NamedTuple):
    """Identifies a share partition."""

    group_id: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """The stored state of one share partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = -1
    snapshot_epoch: int = 0
    updates: int = 0  # deltas since the snapshot
    created_ms: int = -1


class StateReply(NamedTuple):
    """`state`: what ReadState and SummarizeState have found; None if there is none."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: ShareState | None = None


class _Event:
    """The common part of all events about one state."""

    __slots__ = ()

    def refused(self, error: ErrorCode) -> StateReply:
        """The answer for a refused event: only an error."""
        return StateReply(error, f"the share coordinator says {error.name}: try again")


@dataclass(frozen=True, slots=True)
class InitializeState(_Event):
    """InitializeShareGroupState."""

    token: object
    now_ms: int
    key: ShareKey
    state_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class ReadState(_Event):
    """ReadShareGroupState, by a leader of the partition. From now on only that leader may write."""

    token: object
    now_ms: int
    key: ShareKey
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class WriteState(_Event):
    """WriteShareGroupState; a start offset of -1 leaves the stored one unchanged."""

    token: object
    now_ms: int
    key: ShareKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    delivery_complete_count: int = -1


@dataclass(frozen=True, slots=True)
class DeleteState(_Event):
    """DeleteShareGroupState; also removes a state that now belongs to another partition of the topic."""

    token: object
    now_ms: int
    key: ShareKey


@dataclass(frozen=True, slots=True)
class SummarizeState(_Event):
    """ReadShareGroupStateSummary: the current state, for descriptions of a group."""

    token: object
    now_ms: int
    key: ShareKey


@dataclass(frozen=True, slots=True)
class SnapshotState(_Event):
    """Write a complete state, so that its earlier records are no longer needed."""

    token: object
    now_ms: int
    key: ShareKey


@dataclass(frozen=True, slots=True)
class AdoptState(_Event):
    """Take over a state that was stored in the wrong partition of the topic."""

    token: object
    now_ms: int
    key: ShareKey
    state: ShareState


class ShareStateCore:
    """See the module. A method that decides raises ApiError to refuse, and changes nothing: `apply` does."""

    def __init__(self, updates_per_snapshot: int = UPDATES_PER_SNAPSHOT) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.states: dict[ShareKey, ShareState] = {}
        self.deadlines: Mapping[object, int] = {}
        self.snapshot_offsets: dict[bytes, int] = {}
        """The offset of the newest snapshot of each state, by the raw key of its entry."""

    def decide(self, event: Event[object]) -> Decision:
        """Decide on one event. Nothing changes until the decision is applied."""
        reply = StateReply()
        try:
            if isinstance(event, ReadState):
                state, decision = self.read(event.now_ms, event.key, event.leader_epoch)
                reply = StateReply(state=state if event.key in self.states else None)
            elif isinstance(event, SummarizeState):
                decision, reply = Decision(), StateReply(state=self.summary(event.key))
            else:
                decision = self._decide(event)
        except ApiError as refusal:
            decision, reply = Decision(), StateReply(refusal.code, refusal.message)
        decision.event = event
        if event.token is not None:
            decision.replies = ((event.token, reply),)
        return decision

    def apply(self, decision: Decision) -> None:
        """The decision's entries are in the log: replay them."""
        for key, value, _ in decision.entries:
            self._replay(key, value)

    def refuse(self, decision: Decision, error: ErrorCode, now_ms: int) -> Decision:
        """What to apply instead of a decision whose entries could not be appended."""
        return refusal_of(decision, REFUSAL_FOR_APPEND_ERROR.get(error, error), now_ms)

    def _decide(self, event: Event[object]) -> Decision:
        match event:
            case WriteState():
                return self.write(
                    event.now_ms,
                    event.key,
                    event.state_epoch,
                    event.leader_epoch,
                    event.start_offset,
                    event.batches,
                    event.delivery_complete_count,
                )
            case InitializeState():
                return self.initialize(event.now_ms, event.key, event.state_epoch, event.start_offset)
            case DeleteState():
                return self.delete(event.key)
            case SnapshotState():
                return self.snapshot(event.now_ms, event.key)
            case AdoptState():
                return self.adopt(event.now_ms, event.key, event.state)
            case _:
                raise AssertionError(f"no event of share states: {type(event).__name__}")

    # --- requests (InitializeShareGroupState to ReadShareGroupStateSummary)

    def initialize(self, now_ms: int, key: ShareKey, state_epoch: int, start_offset: int) -> Decision:
        """Create a state, or reset it.

        Without a start offset, nothing changes if a state with this epoch exists: then the request was repeated, and the
        group may have progressed since.
        """
        old = self.states.get(key)
        if old is not None and state_epoch < old.state_epoch:
            raise _fenced(ErrorCode.FENCED_STATE_EPOCH, key, old.state_epoch, state_epoch)
        if old is not None and state_epoch == old.state_epoch and start_offset == NO_START_OFFSET:
            return Decision()
        epoch = 0 if old is None else old.snapshot_epoch + 1
        leader_epoch = 0 if old is None else old.leader_epoch
        fresh = ShareState(state_epoch, leader_epoch, start_offset, snapshot_epoch=epoch, created_ms=now_ms)
        return Decision(entries=(_snapshot(now_ms, key, fresh),))

    def read(self, now_ms: int, key: ShareKey, leader_epoch: int) -> tuple[ShareState, Decision]:
        """The state for a new leader of the partition. From now on only that leader may write."""
        state = self.states.get(key)
        if state is None:
            # Not initialized yet: the leader starts where share.auto.offset.reset says.
            return ShareState(0, leader_epoch, NO_START_OFFSET), Decision()
        if leader_epoch < state.leader_epoch:
            raise _fenced(ErrorCode.FENCED_LEADER_EPOCH, key, state.leader_epoch, leader_epoch)
        if leader_epoch == state.leader_epoch:
            return state, Decision()
        count = state.delivery_complete_count
        decision = self._update(now_ms, key, state, leader_epoch, state.start_offset, (), count)
        return replace(state, leader_epoch=leader_epoch), decision

    def write(
        self,
        now_ms: int,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int = -1,
    ) -> Decision:
        """Merge `batches` into the state; a start offset of -1 leaves the stored one unchanged."""
        old = self.states.get(key)
        if old is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no share state of {_name(key)}")
        if leader_epoch < old.leader_epoch:
            raise _fenced(ErrorCode.FENCED_LEADER_EPOCH, key, old.leader_epoch, leader_epoch)
        if state_epoch < old.state_epoch:
            raise _fenced(ErrorCode.FENCED_STATE_EPOCH, key, old.state_epoch, state_epoch)
        start = old.start_offset if start_offset < 0 else max(start_offset, old.start_offset)
        return self._update(now_ms, key, old, leader_epoch, start, batches, delivery_complete_count)

    def delete(self, key: ShareKey) -> Decision:
        """Write tombstones, if there is anything to delete."""
        if key not in self.states:
            return Decision()
        return Decision(entries=(Entry(_snapshot_key(key), None), Entry(_update_key(key), None)))

    def snapshot(self, now_ms: int, key: ShareKey) -> Decision:
        """Write an existing state completely, so that its earlier entries are no longer needed."""
        old = self.states.get(key)
        if old is None:
            return Decision()
        whole = replace(old, snapshot_epoch=old.snapshot_epoch + 1)
        return Decision(entries=(_snapshot(now_ms, key, whole),))

    def adopt(self, now_ms: int, key: ShareKey, state: ShareState) -> Decision:
        """Take over a state from another partition of the topic, unless it exists here: that one is at least as new."""
        if key in self.states:
            return Decision()
        return Decision(entries=(_snapshot(now_ms, key, state),))

    def summary(self, key: ShareKey) -> ShareState | None:
        """The current state, or None."""
        return self.states.get(key)

    def _update(
        self,
        now_ms: int,
        key: ShareKey,
        old: ShareState,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int,
    ) -> Decision:
        """A delta; after many of them a complete state."""
        value = schemas.ShareUpdateValue(
            snapshot_epoch=old.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=_rows(batches),
        )
        if old.updates + 1 < self.updates_per_snapshot:
            return Decision(entries=(Entry(_update_key(key), value),))
        whole = replace(_updated(old, value), snapshot_epoch=old.snapshot_epoch + 1)
        return Decision(entries=(_snapshot(now_ms, key, whole),))

    def note_offsets(self, offset: int, entries: Sequence[RawEntry]) -> None:
        """Called for entries once they are in the log, in its order; `offset` is that of the first."""
        for number, (raw_key, value) in enumerate(entries):
            if raw_key[:2] != _SNAPSHOT_KIND:
                continue
            if value is None:
                self.snapshot_offsets.pop(raw_key, None)
            else:
                self.snapshot_offsets[raw_key] = offset + number

    # --- loading

    def names(self) -> Iterable[str]:
        """The names from which the partition of each state is computed."""
        return [coordinator_name(key) for key in self.states]

    def export(self, name: str, now_ms: int) -> Iterator[AdoptState]:
        """The event that recreates a state in another core."""
        key = key_of(name)
        yield AdoptState(None, now_ms, key, self.states[key])

    def disown(self, name: str, now_ms: int) -> Iterator[DeleteState]:
        """The event that removes a state here after another core has received it."""
        yield DeleteState(None, now_ms, key_of(name))

    def on_loaded(self, now_ms: int) -> Iterator[Decision]:
        """Nothing to do: states have no timers and no waiting requests."""
        return iter(())

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """States are never part of a transaction."""

    def replay(self, key: bytes, value: bytes | None, *, producer_id: int = -1) -> None:
        """Apply one entry of the log. Raises CorruptRecord, also for a kind that this version does not know."""
        try:
            entry = schemas.decode_share_state_record(key, value)
        except WireError as error:
            raise CorruptRecord(f"record of the share states with key {key[:80]!r}: {error}") from error
        self._replay(*entry)

    def _replay(self, key: Data, value: Data | None) -> None:
        share_key = _share_key(key)
        old = self.states.get(share_key)
        if isinstance(value, schemas.ShareSnapshotValue):
            self.states[share_key] = ShareState(
                value.state_epoch,
                value.leader_epoch,
                value.start_offset,
                merge((), _batches(value.state_batches), value.start_offset),
                value.delivery_complete_count,
                value.snapshot_epoch,
                created_ms=value.create_timestamp,
            )
        elif isinstance(value, schemas.ShareUpdateValue):
            if old is not None and value.snapshot_epoch == old.snapshot_epoch:
                self.states[share_key] = _updated(old, value)
        elif isinstance(key, schemas.ShareSnapshotKey):
            self.states.pop(share_key, None)


def _updated(old: ShareState, delta: schemas.ShareUpdateValue) -> ShareState:
    start = max(delta.start_offset, old.start_offset)
    return replace(
        old,
        leader_epoch=delta.leader_epoch,
        start_offset=start,
        batches=merge(old.batches, _batches(delta.state_batches), start),
        delivery_complete_count=delta.delivery_complete_count,
        updates=old.updates + 1,
    )


def merge(old: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """`old` overwritten with `new`, from `start_offset` on; neighbours with equal values are merged.

    old: an earlier result, so in order and without overlaps. new: in any order; later ones count. O(new * log(old)), and
    the copies of lists.
    """
    pieces = list(old)
    for batch in new:
        _overwrite(pieces, batch)
    begin = bisect_left(pieces, (start_offset,))
    if begin and pieces[begin - 1].last >= start_offset:
        begin -= 1
        pieces[begin] = pieces[begin]._replace(first=start_offset)
    return tuple(pieces[begin:])


def _overwrite(pieces: list[StateBatch], batch: StateBatch) -> None:
    first, last, state, count = batch
    if not pieces or first > pieces[-1].last + 1:
        pieces.append(batch)
        return
    low = bisect_left(pieces, (first,))  # a tuple of one is less than those that begin with the same
    if low and pieces[low - 1].last >= first - 1:
        low -= 1  # overlaps, or is the neighbour before
    high = bisect_left(pieces, (last + 2,), low)
    changed: list[StateBatch] = []
    for piece in pieces[
        low : high : max(high - low - 1, 1)
    ]:  # the first and the last of those that are overwritten
        if piece.state is state and piece.delivery_count == count:
            first, last = min(first, piece.first), max(last, piece.last)
    if low < high:
        before, after = pieces[low], pieces[high - 1]
        if before.first < first:
            changed.append(before._replace(last=min(before.last, first - 1)))
        changed.append(StateBatch(first, last, state, count))
        if after.last > last:
            changed.append(after._replace(first=max(after.first, last + 1)))
    else:
        changed.append(batch)
    pieces[low:high] = changed


def coordinator_name(key: ShareKey) -> str:
    """The name from which Kafka computes the partition that stores a state."""
    return f"{key.group_id}:{uuid_text(key.topic_id)}:{key.partition}"


def key_of(name: str) -> ShareKey:
    """The inverse of `coordinator_name`; group ids may contain colons."""
    group_id, topic_id, partition = name.rsplit(":", 2)
    return ShareKey(group_id, parse_uuid_text(topic_id), int(partition))


def _snapshot(now_ms: int, key: ShareKey, state: ShareState) -> Entry:
    value = schemas.ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=now_ms,
        state_batches=_rows(state.batches),
    )
    return Entry(_snapshot_key(key), value)


def record_key(raw_key: bytes) -> ShareKey:
    """The share partition that an entry belongs to. Raises WireError."""
    return _share_key(schemas.decode_share_state_record(raw_key, None)[0])


def _share_key(key: Data) -> ShareKey:
    return ShareKey(key.group_id, key.topic_id, key.partition)  # type: ignore[attr-defined]


def _snapshot_key(key: ShareKey) -> Data:
    return schemas.ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


NO_ENTRY: Final = Entry(_snapshot_key(ShareKey("", UUID(int=0), -1)), None)
"""An entry that changes no state: the tombstone of one that cannot exist."""


def _update_key(key: ShareKey) -> Data:
    return schemas.ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def _rows(batches: Iterable[StateBatch]) -> list[schemas.StateBatch]:
    return [
        schemas.StateBatch(
            first_offset=b.first,
            last_offset=b.last,
            delivery_state=int(b.state),
            delivery_count=b.delivery_count,
        )
        for b in batches
    ]


def _batches(rows: Iterable[schemas.StateBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(row.first_offset, row.last_offset, Delivery(row.delivery_state), row.delivery_count)
        for row in rows
    )


def _name(key: ShareKey) -> str:
    return f"group {key.group_id!r}, topic {key.topic_id}, partition {key.partition}"


def _fenced(code: ErrorCode, key: ShareKey, current: int, epoch: int) -> ApiError:
    return ApiError(code, f"{_name(key)} is at epoch {current}, not {epoch}")
