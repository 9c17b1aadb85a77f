"""The partitions of this broker: found by name or id, created, deleted; the log manager owns their logs.

Partitions and logs are used only on the loop. Opening a log (which may scan it), syncing and removing files run in threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from barnabas.broker.partitions.partition import Partition
from barnabas.broker.partitions.replica import Replica, Surroundings
from barnabas.config import broker_identity, broker_network, broker_share
from barnabas.cores.cluster_image import ClusterImage, PartitionImage, TopicImage
from barnabas.records.batch import BatchHeader
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.dirs.log_manager import LogManager
from barnabas.storage.errors import LogDirOffline
from barnabas.storage.logs.log import Log
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.net.turn import Turn
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.machine import Machine

log = logging.getLogger("barnabas.partitions")

LOGS_PER_TURN = 100
LOGS_MADE_PER_TURN = 16


def no_transactions(partition: Replica, header: BatchHeader) -> bool:
    """Refuses every transactional batch; in use until the transaction coordinator is there."""
    raise ApiError(ErrorCode.INVALID_TXN_STATE, f"{partition}: the broker does not serve transactions yet")


COUNTED: Final = (
    "messages_in", "bytes_in", "produce_requests", "failed_produces", "bytes_out", "fetch_requests", "failed_fetches",
    "replicated_in", "replicated_out",
)  # fmt: skip
"""What each partition counts since the broker's start; see PartitionState."""


class Partitions:
    """See the module."""

    def __init__(self, turn: Turn, config: BrokerConfig, machine: Machine) -> None:
        self._turn = turn
        self._clock = machine.clock
        self._config = config
        self._surroundings: Surroundings | None = None
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self.on_all_offline: Callable[[], None] = lambda: None
        self.check_transaction: Callable[[Replica, BatchHeader], bool] = no_transactions
        """Called before each transactional batch of a producer is appended (see Surroundings)."""
        self._names: dict[UUID, str] = {}
        self._ids: dict[str, UUID] = {}
        self._offline: dict[str, set[int]] = {}
        self._counts: dict[str, int] = {}
        """Topic -> its partition count on all brokers."""
        self.on_roles_changed: Callable[[Sequence[Partition]], None] = lambda partitions: None
        """Called with partitions that now lead, follow, follow another broker, or are no longer on this broker."""
        self.in_sync_changed: Callable[[Replica], None] = lambda partition: None
        """See Surroundings."""
        self.broker_epoch: Callable[[int], int | None] = lambda broker: -1
        """See Surroundings."""
        self._is_taken_up = False
        self.topology = 0
        """Counts changes to the set of partitions, and to which of them are online."""
        self.retired = dict.fromkeys(COUNTED, 0)
        """What the partitions have counted that are no longer here, so that the broker's totals never fall."""
        self.checking = asyncio.Lock()
        """Held while a log is checked for damage: one at a time, since that takes disk time from clients."""
        self._log_config: Callable[[str], LogConfig] = lambda topic: LogConfig()
        self.logs = LogManager(
            config.log_dirs,
            lambda topic: self._log_config(topic),
            recovery_threads_per_dir=config.get(broker_network.NUM_RECOVERY_THREADS_PER_DATA_DIR),
            dir_mode=broker_identity.LOG_DIR_MODES[config.get(broker_identity.LOG_DIRS_PERMISSIONS)],
            new_pool=machine.new_pool,
        )
        self.logs.on_offline = self._went_offline
        self.logs.moving.on_moved = self._moved

    # --- start and stop --------------------------------------------------------------------------------

    def lock(self) -> None:
        """Lock the log dirs for this process. Raises StorageError."""
        self.logs.lock()

    async def open(self, image: ClusterImage, node_id: int, log_config: Callable[[str], LogConfig]) -> None:
        """Open, and after a crash recover, every log in the dirs. Raises StorageError."""
        self._log_config = log_config
        loop = self._turn.loop
        self._surroundings = Surroundings(
            node_id,
            self._clock,
            self._turn.to_wake,
            lambda work: loop.run_in_executor(None, self.logs.flush_timed, work),
            self.write_failed,
            lambda partition, header: self.check_transaction(partition, header),
            lambda partition: self.in_sync_changed(partition),
            lambda broker: self.broker_epoch(broker),
        )
        self.logs.claim(image.cluster_id, node_id)
        now_ms = self._clock.now_ms()
        await self._turn.loop.run_in_executor(None, self.logs.load, now_ms)
        for topic_id in self.logs.bin.topic_ids & image.by_id.keys():
            await self._bring_back(
                image.by_id[topic_id]
            )  # the broker died while the topic was being restored

    @property
    def recovered_unclean(self) -> bool:
        """Whether a log dir was not shut down cleanly, so that its last records may be missing."""
        return self.logs.recovered_unclean

    def without_logs(self, image: ClusterImage) -> list[tuple[str, int]]:
        """The partitions that list this broker and others as in sync although it has no log of them."""
        if self.logs.offline_dirs:
            return []  # the missing logs may be in an offline dir
        return [
            (topic.name, index)
            for topic in image.topics.values()
            for index, partition in topic.partitions.items()
            if self._node_id in partition.isr
            and len(partition.isr) > 1
            and (
                TopicPartition(topic.name, index) not in self.logs.logs
                or self.logs.topic_id(topic.name, index) not in (None, topic.topic_id)
            )
        ]

    def load(self, image: ClusterImage) -> None:
        """Take up the partitions that the image assigns to this broker; set aside logs that it does not know."""
        self._is_taken_up = True
        for name in list(self.logs.logs):
            topic = image.topics.get(name.topic)
            kept_id = self.logs.topic_id(name.topic, name.partition)
            if (
                topic is None
                or name.partition not in topic.partitions
                or kept_id not in (None, topic.topic_id)
                or self._node_id not in topic.partitions[name.partition].replicas
            ):
                if kept_id is not None and kept_id in image.bin:
                    self._lay_in_bin(name, kept_id)
                else:
                    self.logs.set_aside(name.topic, name.partition)
        for topic in image.topics.values():
            for _ in self._taking_up(topic, new=False):
                pass

    @property
    def _node_id(self) -> int:
        assert self._surroundings is not None, "open() comes first"
        return self._surroundings.node_id

    def close(self) -> None:
        """Close every log and mark the dirs as cleanly shut down.

        The mark is omitted when the broker was started after an unclean stop and ends before it has taken up its partitions:
        it has not left the in-sync sets yet (`decide_unclean_restart`), and the next start must know that it has to.
        """
        self.logs.keeps_unclean = not self._is_taken_up
        self._by_topic.clear()
        self.logs.close()

    # --- topics ----------------------------------------------------------------------------------------

    async def create(self, topic: TopicImage) -> None:
        """Take up a topic's partitions that are assigned to this broker, creating logs for new ones; update the roles of
        those already served; drop those that have moved to other brokers.

        Works on a few partitions at a time, so that requests run in between; all become visible at the end, in one turn.
        The logs of a restored topic come from the bin.
        """
        if topic.topic_id in self.logs.bin.topic_ids:
            await self._bring_back(topic)
        for count, _ in enumerate(self._taking_up(topic, new=True), 1):
            if count % LOGS_MADE_PER_TURN == 0:
                await asyncio.sleep(0)

    def update(self, topic: str, index: int, image: PartitionImage) -> None:
        """A partition has another leader or in-sync set; its replicas have not changed."""
        partition = self.get(topic, index)
        if partition is not None and partition.take_role(image):
            self.on_roles_changed((partition,))

    def _taking_up(self, topic: TopicImage, *, new: bool) -> Iterator[int]:
        """The work of `create`, one partition per step; the results become visible after the last step.

        new: the topic is new, so no log can exist. Otherwise a missing log may be in an offline dir; creating an empty one
        instead would lose its records when that dir comes back.
        """
        surroundings = self._surroundings
        assert surroundings is not None, "open() comes before create()"
        served = dict(self._by_topic.get(topic.name, {}))
        now_ms = self._clock.now_ms()
        changed: list[Partition] = []
        moved: list[Partition] = []
        without: list[int] = []
        reason: LogDirOffline | None = None
        for index, image in topic.partitions.items():
            if surroundings.node_id not in image.replicas:
                if index in served:
                    moved.append(served.pop(index))
                continue
            if index in served:
                if served[index].take_role(image):
                    changed.append(served[index])
                yield index
                continue
            fresh = new and index not in self.offline_of(topic.name)
            try:
                opened = self.logs.create(topic.name, index, topic.topic_id, now_ms, new=fresh)
            except LogDirOffline as error:
                without.append(index)
                reason = error
                continue
            served[index] = Partition(surroundings, topic.name, index, topic.topic_id, opened, image)
            changed.append(served[index])
            yield index
        self._publish(topic, served, without, reason)
        for partition in moved:
            self._drop(partition)
        if changed or moved:
            self.on_roles_changed([*changed, *moved])

    def _drop(self, partition: Partition) -> None:
        """A partition has moved to other brokers: its log is no longer needed here."""
        partition.move_away()
        self._retire(partition)
        try:
            self.logs.delete(partition.topic, partition.index)
        except LogDirOffline as error:
            log.error("a log that has moved stays on disk", extra={"reason": str(error)})

    def _retire(self, partition: Partition) -> None:
        for name in COUNTED:
            self.retired[name] += getattr(partition, name)

    def _publish(
        self,
        topic: TopicImage,
        served: dict[int, Partition],
        without: list[int],
        reason: LogDirOffline | None,
    ) -> None:
        self._names[topic.topic_id] = topic.name
        self._ids[topic.name] = topic.topic_id
        self._by_topic[topic.name] = served
        self._counts[topic.name] = len(topic.partitions)
        self.topology += 1
        offline_dirs = self.logs.offline_dirs
        for index, partition in served.items():
            log_dir = partition.log.log_dir
            if partition.offline is None and log_dir in offline_dirs:
                # Its dir failed between two steps, when the partition was not visible yet.
                self._take_offline(f"log dir {log_dir} is offline", [TopicPartition(topic.name, index)])
        if without:
            self._offline.setdefault(topic.name, set()).update(without)
            log.error(
                "partitions are offline with their log dir",
                extra={"topic": topic.name, "partitions": without, "reason": str(reason)},
            )

    async def _bring_back(self, topic: TopicImage) -> None:
        """Take the logs of a restored topic from the bin."""
        config, now_ms = self._log_config(topic.name), self._clock.now_ms()
        logs = self.logs
        try:
            taken = await self._turn.loop.run_in_executor(
                None, logs.bin.take, topic.name, topic.topic_id, config, now_ms
            )
        except LogDirOffline as error:
            log.error(
                "the logs of a restored topic stay away", extra={"topic": topic.name, "reason": str(error)}
            )
            logs.take_offline(error.log_dir, error)
            return
        logs.bin.bring_back(topic.topic_id, taken)

    def _lay_in_bin(self, name: TopicPartition, topic_id: UUID) -> None:
        """Keep the log of a deleted topic that can be restored; what it has not written yet is written in a thread."""
        gone = self.logs.bin.lay(name.topic, name.partition, topic_id)
        if gone is not None:
            self._turn.loop.run_in_executor(None, self.logs.bin.close, gone)

    async def delete(self, topic: TopicImage, *, rests: bool = False) -> None:
        """Drop a topic's partitions, all in this turn; their files are removed after `file.delete.delay.ms`.

        rests: they are kept, for the topic can be restored.
        """
        self.topology += 1
        dropped = self._by_topic.pop(topic.name, {})
        self._names.pop(topic.topic_id, None)
        self._ids.pop(topic.name, None)
        self._offline.pop(topic.name, None)
        self._counts.pop(topic.name, None)
        for count, (index, partition) in enumerate(dropped.items(), 1):
            partition.close()
            self._retire(partition)
            try:
                if rests:
                    self._lay_in_bin(TopicPartition(topic.name, index), topic.topic_id)
                else:
                    self.logs.delete(topic.name, index)
            except LogDirOffline as error:
                log.error("a deleted log stays on disk", extra={"topic": topic.name, "reason": str(error)})
            if count % LOGS_MADE_PER_TURN == 0:
                await asyncio.sleep(0)
        self.on_roles_changed(list(dropped.values()))

    def reconfigure(self, topic: str) -> None:
        """The options of a topic have changed."""
        self.logs.set_config(topic, self._log_config(topic))

    # --- finding ---------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition | None:
        """A partition served by this broker, or None; `why_missing` says why."""
        served = self._by_topic.get(topic)
        return None if served is None else served.get(index)

    def of_topic(self, topic: str) -> Mapping[int, Partition]:
        """The partitions of a topic by number; valid until `topology` changes."""
        return self._by_topic.get(topic, {})

    def require(self, topic: str, index: int) -> Partition:
        """A partition served by this broker. Raises ApiError UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER if it is on
        other brokers, KAFKA_STORAGE_ERROR if its log dir is offline."""
        partition = self.get(topic, index)
        if partition is None:
            raise ApiError(self.why_missing(topic, index), f"there is no {topic}-{index} on this broker")
        return partition

    def require_leader(self, topic: str, index: int) -> Partition:
        """As `require`; also raises NOT_LEADER_OR_FOLLOWER if another broker leads the partition."""
        partition = self.require(topic, index)
        if not partition.is_leader and partition.offline is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {partition}")
        return partition

    def led(self) -> Iterator[Partition]:
        """Every partition that this broker leads."""
        for served in list(self._by_topic.values()):
            for partition in served.values():
                if partition.is_leader:
                    yield partition

    def broker_registered(self, broker: int, epoch: int | None) -> None:
        """A broker has registered anew: forget how far it was as a follower. Without an epoch: it is not alive any more."""
        for partition in self.led():
            partition.follower_registered(broker, epoch)

    def why_missing(self, topic: str, index: int) -> ErrorCode:
        """The error to answer when `get` returns None."""
        if index in self.offline_of(topic):
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.exists(topic, index):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def offline_of(self, topic: str) -> Collection[int]:
        """The partitions of a topic whose log dir has failed."""
        return self._offline.get(topic, ())

    def exists(self, topic: str, index: int) -> bool:
        """Whether this partition exists, on this or on other brokers."""
        return 0 <= index < self.count(topic)

    def count(self, topic: str) -> int:
        """The number of a topic's partitions on all brokers, from which keys are mapped to partitions."""
        return self._counts.get(topic, 0)

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of the topic with this id, or None."""
        return self._names.get(topic_id)

    def id_of(self, topic: str) -> UUID | None:
        """The id of the topic of this name, or None."""
        return self._ids.get(topic)

    # --- disks -----------------------------------------------------------------------------------------

    def write_failed(self, partition: Replica, error: LogDirOffline) -> None:
        """A write failed: take its log dir offline with all partitions in it, or only this partition if just its own files
        are at fault."""
        self.logs.log_failed(TopicPartition(partition.topic, partition.index), partition.log, error)

    def _went_offline(self, reason: str, lost: list[TopicPartition]) -> None:
        """Called on the loop when a write has failed, or in the thread that was flushing or writing a checkpoint."""
        loop = self._turn.loop
        try:
            on_loop = asyncio.get_running_loop() is loop
        except RuntimeError:
            on_loop = False
        if on_loop:
            self._take_offline(reason, lost)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._take_offline, reason, lost)

    def _take_offline(self, reason: str, lost: list[TopicPartition]) -> None:
        self.topology += 1
        for name in lost:
            partition = self._by_topic.get(name.topic, {}).get(name.partition)
            if partition is not None:
                partition.go_offline(reason)
                self._offline.setdefault(name.topic, set()).add(name.partition)
        if len(self.logs.offline_dirs) == len(self.logs.dirs):
            self.on_all_offline()

    def _moved(self, name: TopicPartition, opened: Log) -> None:
        """A partition's log has moved to another log dir."""
        partition = self.get(*name)
        if partition is not None:
            partition.log = opened

    async def delete_old_segments(self) -> None:
        """Apply retention to every log, a few in each turn."""
        now_ms = self._clock.now_ms()
        names = list(self.logs.logs)
        for begin in range(0, len(names), LOGS_PER_TURN):
            self.logs.delete_old_segments(now_ms, names[begin : begin + LOGS_PER_TURN])
            # Let requests run: the first access to a log after a start opens its files.
            await asyncio.sleep(0)
        await self.remove_doomed()

    def forget_idle_producers(self) -> None:
        """Forget producers that wrote nothing for producer.id.expiration.ms, with their sequence numbers."""
        now_ms = self._clock.now_ms()
        idle_ms = self._config.get(broker_share.PRODUCER_ID_EXPIRATION_MS)
        for log in self.logs.logs.values():
            if len(log.core.producers):
                log.core.forget_producers(log.core.expired_producers(now_ms, idle_ms))

    async def checkpoint(self) -> None:
        """Write the checkpoint files, in a thread."""
        await self._turn.loop.run_in_executor(None, self.logs.checkpoint)

    async def flush_due(self) -> None:
        """Flush, in a thread, the logs that have not been flushed for `flush.ms` or have rolled a segment."""
        await self._turn.loop.run_in_executor(None, self.logs.flush_due, self._clock.monotonic_ms())

    async def remove_doomed(self) -> None:
        """Remove, in a thread, deleted files whose delay has passed."""
        await self._turn.loop.run_in_executor(None, self.logs.remove_doomed, self._clock.monotonic_ms())
