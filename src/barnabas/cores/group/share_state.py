"""The share coordinator: delivery states of share partitions in `__share_group_state` (KIP-932).

One core for each partition of that topic. A change is written as a delta (ShareUpdate) and every so often as
the whole (ShareSnapshot), in Kafka's formats; what lies before the oldest snapshot that counts may go.
Stale leaders and stale groups are told from current ones by the leader epoch and the state epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.cores.group.share_partition import Delivery, StateBatch
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.records_schemas import share_state as schemas

UPDATES_PER_SNAPSHOT: Final = 500
NO_START_OFFSET: Final = -1
_SNAPSHOT_KIND: Final = b"\x00\x00"


class ShareKey(NamedTuple):
    group_id: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class ShareState:
    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...] = ()
    delivery_complete_count: int = -1
    snapshot_epoch: int = 0
    updates: int = 0  # deltas since the snapshot
    created_ms: int = -1


Record = tuple[bytes, bytes | None]


@dataclass(slots=True)
class StateChange:
    """Append `records` as one batch; when that fails, hand the change to `abandon`, newest first."""

    key: ShareKey
    before: ShareState | None
    after: ShareState | None
    records: tuple[Record, ...]


class ShareStateCore:
    """Each method changes the state at once and raises ApiError, with nothing changed, to refuse."""

    def __init__(self, updates_per_snapshot: int = UPDATES_PER_SNAPSHOT) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.states: dict[ShareKey, ShareState] = {}

    # --- requests (InitializeShareGroupState to ReadShareGroupStateSummary)

    def initialize(self, now_ms: int, key: ShareKey, state_epoch: int, start_offset: int) -> StateChange:
        old = self.states.get(key)
        if old is not None and state_epoch < old.state_epoch:
            raise _fenced(ErrorCode.FENCED_STATE_EPOCH, key, old.state_epoch, state_epoch)
        epoch = 0 if old is None else old.snapshot_epoch + 1
        leader_epoch = 0 if old is None else old.leader_epoch
        fresh = ShareState(state_epoch, leader_epoch, start_offset, snapshot_epoch=epoch, created_ms=now_ms)
        return self._store(key, fresh, _snapshot(now_ms, key, fresh))

    def read(self, now_ms: int, key: ShareKey, leader_epoch: int) -> tuple[ShareState, StateChange | None]:
        """The state for a new leader of the partition; from now on only that leader may write."""
        state = self.states.get(key)
        if state is None:
            # Not initialized yet: the leader starts where share.auto.offset.reset says.
            return ShareState(0, leader_epoch, NO_START_OFFSET), None
        if leader_epoch < state.leader_epoch:
            raise _fenced(ErrorCode.FENCED_LEADER_EPOCH, key, state.leader_epoch, leader_epoch)
        if leader_epoch == state.leader_epoch:
            return state, None
        change = self._update(now_ms, key, replace(state, leader_epoch=leader_epoch), ())
        return self.states[key], change

    def write(
        self,
        now_ms: int,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int = -1,
    ) -> StateChange:
        """Merge `batches` over what is there; a start offset of -1 leaves it as it is."""
        old = self.states.get(key)
        if old is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no share state of {_name(key)}")
        if leader_epoch < old.leader_epoch:
            raise _fenced(ErrorCode.FENCED_LEADER_EPOCH, key, old.leader_epoch, leader_epoch)
        if state_epoch < old.state_epoch:
            raise _fenced(ErrorCode.FENCED_STATE_EPOCH, key, old.state_epoch, state_epoch)
        start = old.start_offset if start_offset < 0 else max(start_offset, old.start_offset)
        changed = replace(
            old,
            leader_epoch=leader_epoch,
            start_offset=start,
            batches=merge(old.batches, batches, start),
            delivery_complete_count=delivery_complete_count,
        )
        return self._update(now_ms, key, changed, batches)

    def delete(self, key: ShareKey) -> StateChange | None:
        if key not in self.states:
            return None
        return self._store(key, None, (_snapshot_key(key), None), (_update_key(key), None))

    def snapshot(self, now_ms: int, key: ShareKey) -> StateChange:
        """Write a state that is there as a whole, so that the records before are not needed for it."""
        old = self.states[key]
        state = replace(old, updates=0, snapshot_epoch=old.snapshot_epoch + 1)
        return self._store(key, state, _snapshot(now_ms, key, state))

    def summary(self, key: ShareKey) -> ShareState | None:
        return self.states.get(key)

    # --- writing

    def _update(
        self, now_ms: int, key: ShareKey, state: ShareState, batches: Sequence[StateBatch]
    ) -> StateChange:
        if state.updates + 1 >= self.updates_per_snapshot:
            whole = replace(state, updates=0, snapshot_epoch=state.snapshot_epoch + 1)
            return self._store(key, whole, _snapshot(now_ms, key, whole))
        state = replace(state, updates=state.updates + 1)
        value = schemas.ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=_rows(batches),
        )
        return self._store(key, state, (_update_key(key), value.encode_versioned(0)))

    def _store(self, key: ShareKey, state: ShareState | None, *records: Record) -> StateChange:
        before = self.states.get(key)
        self._put(key, state)
        return StateChange(key, before, state, records)

    def _put(self, key: ShareKey, state: ShareState | None) -> None:
        if state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = state

    def abandon(self, changes: Iterable[StateChange]) -> None:
        """Take back changes whose records could not be appended, newest first."""
        for change in changes:
            self._put(change.key, change.before)

    # --- loading

    def replay(self, raw_key: bytes, raw_value: bytes | None) -> ShareKey:
        """Take over one record of the log; whose it is. Raises WireError; its subclass for unknown kinds."""
        key, value = schemas.decode_share_state_record(raw_key, raw_value)
        share_key = ShareKey(key.group_id, key.topic_id, key.partition)  # type: ignore[attr-defined]
        old = self.states.get(share_key)
        if isinstance(value, schemas.ShareSnapshotValue):
            self.states[share_key] = ShareState(
                value.state_epoch,
                value.leader_epoch,
                value.start_offset,
                _batches(value.state_batches),
                value.delivery_complete_count,
                value.snapshot_epoch,
                created_ms=value.create_timestamp,
            )
        elif isinstance(value, schemas.ShareUpdateValue):
            if old is not None and value.snapshot_epoch == old.snapshot_epoch:
                start = max(value.start_offset, old.start_offset)
                self.states[share_key] = replace(
                    old,
                    leader_epoch=value.leader_epoch,
                    start_offset=start,
                    batches=merge(old.batches, _batches(value.state_batches), start),
                    delivery_complete_count=value.delivery_complete_count,
                    updates=old.updates + 1,
                )
        elif isinstance(key, schemas.ShareSnapshotKey):
            self.states.pop(share_key, None)
        return share_key


def merge(old: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """`new` laid over `old`, from `start_offset` on; neighbours that say the same become one."""
    pieces: list[StateBatch] = list(old)
    for batch in new:
        kept: list[StateBatch] = []
        for piece in pieces:
            if piece.first < batch.first:
                kept.append(piece._replace(last=min(piece.last, batch.first - 1)))
            if piece.last > batch.last:
                kept.append(piece._replace(first=max(piece.first, batch.last + 1)))
        kept.append(batch)
        pieces = kept
    merged: list[StateBatch] = []
    for piece in sorted(pieces):
        if piece.last < start_offset:
            continue
        piece = piece._replace(first=max(piece.first, start_offset))
        last = merged[-1] if merged else None
        if last is not None and last.last + 1 == piece.first and last[2:] == piece[2:]:
            merged[-1] = last._replace(last=piece.last)
        else:
            merged.append(piece)
    return tuple(merged)


def _snapshot(now_ms: int, key: ShareKey, state: ShareState) -> Record:
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
    return _snapshot_key(key), value.encode_versioned(0)


def is_snapshot(record: Record) -> bool:
    """Whether a record states the whole, and is not a delta or a tombstone."""
    return record[0][:2] == _SNAPSHOT_KIND and record[1] is not None


def _snapshot_key(key: ShareKey) -> bytes:
    record_key = schemas.ShareSnapshotKey(
        group_id=key.group_id, topic_id=key.topic_id, partition=key.partition
    )
    return record_key.encode_versioned(0)


def _update_key(key: ShareKey) -> bytes:
    record_key = schemas.ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return record_key.encode_versioned(1)


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


def _fenced(code: ErrorCode, key: ShareKey, current: int, given: int) -> ApiError:
    return ApiError(code, f"{_name(key)} is at epoch {current}, not {given}")
