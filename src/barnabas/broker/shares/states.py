"""The share coordinator of this broker: `__share_group_state`, one core for each of its partitions.

Who changes a share partition waits for its record: a change that cannot be appended has not happened. Nothing
is awaited between the change and the append.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.group_coordinator import LOAD_BYTES, java_hash
from barnabas.broker.internal_topics import SHARE_STATE_TOPIC
from barnabas.config import broker_share
from barnabas.cores.group.share_partition import DONE, StateBatch
from barnabas.cores.group.share_state import (
    ShareKey,
    ShareState,
    ShareStateCore,
    StateChange,
    is_snapshot,
)
from barnabas.cores.znode_layout import uuid_text
from barnabas.records.batch import Record, batches, build_batch, records_of
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.primitives import WireError

if TYPE_CHECKING:
    from barnabas.broker.partition import Partition
    from barnabas.broker.server import BrokerServer

log = logging.getLogger("barnabas.shares")

RECORDS_PER_KEY_KEPT: Final = 4
"""How many records a share partition may have on average before idle ones are written anew to free the rest."""


class StateShard:
    """One partition of the topic with its core, and where each state's snapshot lies."""

    def __init__(self, partition: Partition, updates_per_snapshot: int) -> None:
        self.partition = partition
        self.core = ShareStateCore(updates_per_snapshot)
        self.snapshots: dict[ShareKey, int] = {}
        self._kept_records = 2 * updates_per_snapshot

    def load(self) -> None:
        """Replay the partition from its start. Records that cannot be read are logged and skipped."""
        offset = self.partition.log_start_offset
        while offset < self.partition.log_end_offset:
            data = self.partition.read_bytes(offset, LOAD_BYTES)
            if not data:
                break
            for position, header in batches(data):
                offset = max(offset, header.next_offset)
                if not header.is_control:
                    for record in records_of(data, position, header):
                        self._replay(record)

    def _replay(self, record: Record) -> None:
        key = record.key or b""
        try:
            share_key = self.core.replay(key, record.value)
        except WireError as error:
            extra = {"partition": self.partition.index, "offset": record.offset, "reason": str(error)}
            log.warning("a record of a share group's state cannot be read", extra=extra)
            return
        self._note(share_key, record.offset, ((key, record.value),))

    def _note(self, key: ShareKey, offset: int, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        if key not in self.core.states:
            self.snapshots.pop(key, None)
        elif any(is_snapshot(record) for record in records):
            self.snapshots[key] = offset

    def append(self, change: StateChange, now_ms: int) -> None:
        """Raises ApiError with the change taken back."""
        batch = build_batch([Record(0, now_ms, key, value) for key, value in change.records])
        try:
            offset = self.partition.append_built(batch)
        except ApiError as error:
            self.core.abandon([change])
            log.error("a share group's state was not written", extra={"reason": error.message})
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        self._note(change.key, offset, change.records)

    def prune(self, now_ms: int) -> None:
        """Give up the records that no state needs any more."""
        end = self.partition.log_end_offset
        kept = self._kept_records + RECORDS_PER_KEY_KEPT * len(self.snapshots)
        for key in [key for key, offset in self.snapshots.items() if offset < end - kept]:
            self.append(self.core.snapshot(now_ms, key), now_ms)
        self.partition.log.advance_log_start(min(self.snapshots.values(), default=end))


class ShareStates:
    """All states that this broker keeps. Methods that change raise ApiError, with nothing changed."""

    def __init__(self, broker: BrokerServer) -> None:
        self._broker = broker
        self._shards: dict[int, StateShard] = {}
        self._count = 0
        self._preparing = asyncio.Lock()

    async def prepare(self) -> None:
        """Create and load the topic, once. Raises ApiError."""
        if self._count:
            return
        async with self._preparing:
            if not self._count:
                self._load_all(await self._broker.ensure_internal_topic(SHARE_STATE_TOPIC))

    def load_existing(self) -> None:
        """At start: load what an earlier run left."""
        self._load_all(self._broker.partitions.count(SHARE_STATE_TOPIC))

    def _load_all(self, count: int) -> None:
        updates = self._broker.config.get(broker_share.SHARE_SNAPSHOT_UPDATE_RECORDS)
        for index in range(count):
            partition = self._broker.partitions.get(SHARE_STATE_TOPIC, index)
            if partition is not None:
                shard = self._shards[index] = StateShard(partition, updates)
                shard.load()
        self._count = count

    def index_of(self, key: ShareKey) -> int:
        """The partition of the topic that keeps a state."""
        text = f"{key.group_id}:{uuid_text(key.topic_id)}:{key.partition}"
        return java_hash(text) % self._count

    def _shard(self, key: ShareKey) -> StateShard:
        shard = self._shards.get(self.index_of(key)) if self._count else None
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"this broker does not keep the state of {key}")
        return shard

    def _change(self, key: ShareKey, make: Callable[[ShareStateCore, int], StateChange | None]) -> None:
        shard, now_ms = self._shard(key), self._broker.clock.now_ms()
        change = make(shard.core, now_ms)
        if change is not None:
            shard.append(change, now_ms)

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int = -1) -> None:
        """Begin a state anew. What an earlier group of the same name left with a higher epoch goes first."""
        old = self.find(key)
        if old is not None and state_epoch < old.state_epoch:
            self.delete(key)
        self._change(key, lambda core, now_ms: core.initialize(now_ms, key, state_epoch, start_offset))

    def find(self, key: ShareKey) -> ShareState | None:
        return self._shard(key).core.summary(key) if self._count else None

    def read(self, key: ShareKey, leader_epoch: int) -> ShareState:
        """The state for a leader of the partition; from now on only that one may write."""
        found: list[ShareState] = []

        def read(core: ShareStateCore, now_ms: int) -> StateChange | None:
            state, change = core.read(now_ms, key, leader_epoch)
            found.append(state)
            return change

        self._change(key, read)
        return found[0]

    def write(
        self,
        key: ShareKey,
        state: ShareState,
        start_offset: int,
        batches: Sequence[StateBatch],
        delivery_complete_count: int,
    ) -> None:
        """`state` as it was read: its epochs say on whose behalf."""
        self._change(
            key,
            lambda core, now_ms: core.write(
                now_ms,
                key,
                state.state_epoch,
                state.leader_epoch,
                start_offset,
                batches,
                delivery_complete_count,
            ),
        )

    def cut(self, key: ShareKey, log_end_offset: int) -> None:
        """Forget what is stored of offsets that the log has lost: the records that come there next are others."""
        state = self.find(key)
        if state is None or max((state.start_offset - 1, *(b.last for b in state.batches))) < log_end_offset:
            return
        kept = [
            b._replace(last=min(b.last, log_end_offset - 1))
            for b in state.batches
            if b.first < log_end_offset
        ]
        start = min(state.start_offset, log_end_offset)
        self.initialize(key, state.state_epoch, start)
        settled = sum(batch.last - batch.first + 1 for batch in kept if batch.state in DONE)
        self.write(key, state, start, kept, settled)

    def delete(self, key: ShareKey) -> None:
        if self._count:
            self._change(key, lambda core, now_ms: core.delete(key))

    def keys(self) -> list[ShareKey]:
        return [key for shard in self._shards.values() for key in shard.core.states]

    def prune(self) -> None:
        """Called every share.coordinator.state.topic.prune.interval.ms."""
        now_ms = self._broker.clock.now_ms()
        for shard in self._shards.values():
            try:
                shard.prune(now_ms)
            except ApiError as error:
                extra = {"partition": shard.partition.index, "reason": error.message}
                log.error("old records of share groups' states are kept for now", extra=extra)
