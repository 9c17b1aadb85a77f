"""Runs the group cores: one for each partition of `__consumer_offsets` that this broker leads.

A request becomes an event; the core decides; its records are appended as one batch; then replies are given
out and timers set. Nothing is awaited in between, so a core never sees two events at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.group_limits import limits_of_one
from barnabas.broker.internal_topics import OFFSETS_TOPIC
from barnabas.config import broker_groups
from barnabas.cores.group import (
    Decision,
    DoneReply,
    ExpireOffsets,
    GroupCoordinatorCore,
    GroupLimits,
    TimerFired,
    TopicInfo,
    TopicsDeleted,
)
from barnabas.cores.group.records import CorruptRecord
from barnabas.records.batch import Record, batches, build_batch, records_of
from barnabas.records.compression import Codec
from barnabas.records.control import EndTransactionMarker, read_marker
from barnabas.runtime.timers import KeyedTimers
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.partition import Partition
    from barnabas.broker.server import BrokerServer

log = logging.getLogger("barnabas.groups")

LOAD_BYTES: Final = 5 << 20

MakeEvent = Callable[[asyncio.Future[Any], int], Any]
"""(token, now_ms) -> event."""


def java_hash(text: str) -> int:
    """String.hashCode of Java, made non-negative as Kafka does: which partition keeps a group's state."""
    value = 0
    units = text.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8) + low) & 0xFFFFFFFF
    return value & 0x7FFFFFFF if value != 0x80000000 else 0


class GroupShard:
    """One core with its partition of the offsets topic."""

    def __init__(self, partition: Partition, limits: GroupLimits) -> None:
        self.partition = partition
        self.topics_seen = -1
        """The topology that the core was last told of."""
        self.core = GroupCoordinatorCore(limits)

    def load(self, now_ms: int, load_bytes: int = LOAD_BYTES) -> Decision:
        """Replay the partition from its start. Records of unknown kinds are skipped, broken ones logged."""
        offset = self.partition.log_start_offset
        while offset < self.partition.log_end_offset:
            data = self.partition.read_bytes(offset, load_bytes)
            if not data:
                break
            for position, header in batches(data):
                offset = max(offset, header.next_offset)
                records = records_of(data, position, header)
                if header.is_control:
                    self._replay_marker(header.producer_id, next(records))
                    continue
                producer_id = header.producer_id if header.is_transactional else -1
                for record in records:
                    self._replay(record, producer_id)
        return self.core.on_loaded(now_ms)

    def _replay(self, record: Record, producer_id: int) -> None:
        try:
            self.core.replay(record.key or b"", record.value, producer_id=producer_id)
        except CorruptRecord as error:
            log.warning(
                "a group record cannot be read",
                extra={"partition": self.partition.index, "offset": record.offset, "reason": str(error)},
            )

    def _replay_marker(self, producer_id: int, record: Record) -> None:
        marker = read_marker(record)
        if isinstance(marker, EndTransactionMarker):
            self.core.replay_marker(producer_id, marker.commit)


class GroupCoordinator:
    """All group shards of one broker."""

    def __init__(self, broker: BrokerServer, limits: GroupLimits) -> None:
        self._broker = broker
        self._limits = limits
        self._codec = Codec(broker.config.get(broker_groups.OFFSETS_TOPIC_COMPRESSION_CODEC))
        self._load_bytes = broker.config.get(broker_groups.OFFSETS_LOAD_BUFFER_SIZE)
        self._shards: dict[int, GroupShard] = {}
        self._timers = KeyedTimers(broker.loop, broker.clock, self._fire)
        self._preparing: asyncio.Task[None] | None = None
        self._partition_count = 0
        self.on_effect: Callable[[Any], None] = lambda effect: None
        """What share groups ask of the share coordinator (cores.group.share_events)."""
        self._topics: Mapping[str, TopicInfo] = {}
        self._topics_of = -1

    # --- the offsets topic -----------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Create and load the offsets topic, once. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
        if self._partition_count:
            return
        if self._preparing is None:
            self._preparing = asyncio.ensure_future(self._prepare())
            self._preparing.add_done_callback(self._prepared)
        await asyncio.shield(self._preparing)

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._preparing = None
        if not task.cancelled() and task.exception() is not None:
            log.error("the offsets topic cannot be prepared", extra={"reason": str(task.exception())})

    async def _prepare(self) -> None:
        self._load_all(await self._broker.ensure_internal_topic(OFFSETS_TOPIC))

    def load_existing(self) -> None:
        """At start: load what an earlier run left, so that groups keep their offsets and members their time."""
        self._load_all(self._broker.partitions.count(OFFSETS_TOPIC))

    def _load_all(self, count: int) -> None:
        self._partition_count = count
        for index in range(count):
            partition = self._broker.partitions.get(OFFSETS_TOPIC, index)
            if partition is not None:
                self._load(index, partition)

    def _load(self, index: int, partition: Partition) -> None:
        shard = self._shards[index] = GroupShard(partition, self._limits)
        self._tell_topics(shard)
        for kind, name in self._broker.image.configs:
            if kind == "groups" and self._index_of(name) == index:
                self._set_group_limits(shard, name)
        self._carry_out(index, shard, shard.load(self._broker.clock.now_ms(), self._load_bytes))

    def _index_of(self, group_id: str) -> int:
        return java_hash(group_id) % self._partition_count

    def has_forgotten(self, group_id: str, topic_id: UUID, index: int) -> bool:
        """Whether the state of a share group's partition is nobody's: False too where the group is not loaded."""
        shard = self._shards.get(self._index_of(group_id)) if self._partition_count else None
        return shard is not None and not shard.core.keeps_share_state(group_id, topic_id, index)

    # --- asking ----------------------------------------------------------------------------------------

    async def ask(self, make_event: MakeEvent, group_id: str) -> Any:
        """The core's reply to an event about one group; it may come much later."""
        await self.prepare()
        index = self._index_of(group_id)
        return await self._ask(index, make_event)

    async def ask_all(self, make_event: MakeEvent) -> list[Any]:
        """The replies of every shard to the same question."""
        if not self._partition_count:
            return []
        return [await self._ask(index, make_event) for index in self._shards]

    def _ask(self, index: int, make_event: MakeEvent) -> asyncio.Future[Any]:
        token: asyncio.Future[Any] = self._broker.loop.create_future()
        shard = self._shards.get(index)
        if shard is None:
            token.set_exception(ApiError(ErrorCode.NOT_COORDINATOR, f"partition {index} is led elsewhere"))
            return token
        self._step(index, shard, make_event(token, self._broker.clock.now_ms()))
        return token

    def _step(self, index: int, shard: GroupShard, event: Any) -> None:
        if shard.topics_seen != self._broker.partitions.topology:
            self._tell_topics(shard)
        decision = shard.core.step(event)
        if decision.records:
            now_ms = self._broker.clock.now_ms()
            try:
                shard.partition.append_built(_batch(decision, now_ms, self._codec))
            except ApiError as error:
                log.error(
                    "a group's change was not written", extra={"partition": index, "reason": error.message}
                )
                decision = shard.core.abandon([decision], error.code, now_ms)
        self._carry_out(index, shard, decision)

    def _carry_out(self, index: int, shard: GroupShard, decision: Decision) -> None:
        for timer in decision.timers:
            if timer.deadline_ms is None:
                self._timers.cancel((index, timer.key))
            else:
                self._timers.set((index, timer.key), timer.deadline_ms)
        for note in decision.notes:
            log.info(note.text, extra=dict(note.fields))
        for token, reply in decision.replies:
            if not token.done():
                token.set_result(reply)
        for effect in decision.effects:
            self.on_effect(effect)

    # --- time and topics -------------------------------------------------------------------------------

    def _fire(self, key: Hashable) -> None:
        assert isinstance(key, tuple)
        index, timer_key = key
        shard = self._shards.get(index)
        if shard is None:
            return
        deadline_ms = shard.core.state.deadlines.get(timer_key)
        if deadline_ms is not None:
            self._step(index, shard, TimerFired(self._broker.clock.now_ms(), timer_key, deadline_ms))

    def poll_timers(self) -> None:
        """Fire what is due now; for tests that move the clock."""
        self._timers.poll()

    def expire_offsets(self) -> None:
        for index, shard in self._shards.items():
            self._step_to_the_end(index, shard, ExpireOffsets)

    def on_topics_deleted(self, topics: frozenset[str]) -> None:
        for index, shard in self._shards.items():
            self._step_to_the_end(index, shard, lambda token, now_ms: TopicsDeleted(token, now_ms, topics))

    def _step_to_the_end(self, index: int, shard: GroupShard, make_event: MakeEvent) -> None:
        """Steps an event that may be too much for one batch of records until nothing is left of it."""
        more = True
        while more:
            token: asyncio.Future[DoneReply] = self._broker.loop.create_future()
            self._step(index, shard, make_event(token, self._broker.clock.now_ms()))
            more = token.done() and token.result().more

    def on_configs_changed(self, kind: str, entity: str) -> None:
        """An administrator has changed options: those of one group hold from its next event on."""
        if kind == "groups" and self._partition_count:
            shard = self._shards.get(self._index_of(entity))
            if shard is not None:
                self._set_group_limits(shard, entity)

    def _set_group_limits(self, shard: GroupShard, group_id: str) -> None:
        texts = self._broker.image.config("groups", group_id)
        shard.core.set_group_limits(group_id, limits_of_one(self._limits, texts))

    def _tell_topics(self, shard: GroupShard) -> None:
        """Shards learn of new, grown and deleted topics with their next event; idle ones cost nothing."""
        topology = self._broker.partitions.topology
        if self._topics_of != topology:
            self._topics_of = topology
            self._topics = {
                name: TopicInfo(topic.topic_id, len(topic.partitions))
                for name, topic in self._broker.image.topics.items()
            }
        shard.topics_seen = topology
        shard.core.set_topics(self._topics)

    def close(self) -> None:
        self._timers.close()
        for index, shard in self._shards.items():
            self._carry_out(index, shard, shard.core.unload())


def _batch(decision: Decision, now_ms: int, codec: Codec) -> bytes:
    records = [Record(0, now_ms, key, value) for key, value in decision.records]
    if decision.producer is None:
        return build_batch(records, codec=codec)
    return build_batch(
        records,
        codec=codec,
        producer_id=decision.producer.producer_id,
        producer_epoch=decision.producer.producer_epoch,
        transactional=True,
    )
