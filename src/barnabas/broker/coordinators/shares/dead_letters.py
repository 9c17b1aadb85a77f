"""Writes records that share groups give up on to the dead-letter topic of the group (KIP-1191).

The headers of a letter say where the record is stored and why it was given up; with
errors.deadletterqueue.copy.record.enable the letter also carries the record's own key, value and headers. The topic's owner
must have agreed (errors.deadletterqueue.group.enable), and its name must begin with
errors.deadletterqueue.topic.name.prefix: otherwise anybody who may set a group's options could write anywhere. When another
broker leads the target partition, the letters are sent to it, as by a producer with acks=all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.shares.options import ShareOptions
from barnabas.broker.net.peers import PeerLost
from barnabas.broker.partitions.acknowledgement import all_ready
from barnabas.config import broker_share
from barnabas.cores.group.share.partition import DeadLetter, ShareChange
from barnabas.records.batch import BatchHeader, CorruptBatch, Record, batches, build_batch, records_of
from barnabas.records.units import Offset
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.coordinators.shares.partition import SharePartition
    from barnabas.broker.net.peers import Peers
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.shares")

ALLOWED_BY_TOPIC: Final = "errors.deadletterqueue.group.enable"
COPY_BYTES_MAX: Final = 1 << 20
"""How much of the source log is read at a time to copy records."""

ACKS_ALL: Final = -1
COMMIT_TIMEOUT_MS: Final = 10_000
TRY_S: Final = 10.0
"""For how long writing is retried while the target partition has no leader, or changes its leader."""
PAUSE_S: Final = 0.1
TRIED_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

Headers = tuple[tuple[str, bytes | None], ...]


class DeadLetters:
    """Writes letters. When that fails, the failure is logged and the record is given up all the same, as in Kafka."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        controller: Controller,
        partitions: Partitions,
        peers: Peers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._controller = controller
        self._partitions = partitions
        self._peers = peers
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._writing: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Stop: unwritten letters are dropped, and their records are not marked as given up either."""
        for task in (*self._writing, *self._creating.values()):
            task.cancel()

    def prepare(self, options: ShareOptions) -> None:
        """Create the group's topic before the first letter, if the brokers are configured to create such topics."""
        name = options.dead_letter_topic
        config = self._config
        if (
            name
            and name not in self._controller.image.topics
            and name not in self._creating
            and config.get(broker_share.DEADLETTERQUEUE_AUTO_CREATE_TOPICS_ENABLE)
            and self._refused_name(name) is None
        ):
            task = asyncio.ensure_future(self._create(name))
            self._creating[name] = task
            task.add_done_callback(lambda _: self._creating.pop(name, None))

    async def _create(self, name: str) -> None:
        try:
            await self._controller.topics.create(
                name, -1, -1, {}, {ALLOWED_BY_TOPIC: "true"}, clamp_replication=True
            )
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                log.error(
                    "a dead-letter topic was not created", extra={"topic": name, "reason": error.message}
                )

    def write(self, queue: SharePartition, change: ShareChange) -> asyncio.Future[None] | None:
        """Write the letters of one change, if the group has a topic for them; None when there is nothing to wait for."""
        name = queue.options.dead_letter_topic
        if not name:
            return None
        making = self._creating.get(name)
        if making is None and self._is_alone(name, queue.partition.index):
            self._write_here(queue, name, change.dead_letters)
            return None
        task = asyncio.ensure_future(self._write_soon(queue, name, change.dead_letters, making))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    def _is_alone(self, name: str, source_index: int) -> bool:
        """Whether no other broker is involved, so that the letters are written, or refused, in this turn."""
        topic = self._controller.image.topics.get(name)
        if topic is None or not topic.partitions:
            return True
        known = topic.partitions[source_index % len(topic.partitions)]
        return known.leader == self._controller.node_id and len(known.replicas) == 1

    def _write_here(self, queue: SharePartition, name: str, letters: Sequence[DeadLetter]) -> None:
        try:
            index = self._target(name, queue.partition.index)
            target = self._partitions.require_leader(name, index)
            for batch in self._batches(queue, name, letters):
                data = memoryview(bytearray(batch))
                target.append(data, acks_all=False, zstd_allowed=True, schemas_checked=True)
        except ApiError as error:
            _not_written(queue, name, len(letters), error)

    async def _write_soon(
        self,
        queue: SharePartition,
        name: str,
        letters: Sequence[DeadLetter],
        making: asyncio.Task[None] | None,
    ) -> None:
        """Raises nothing but CancelledError."""
        if making is not None:
            await asyncio.wait([making])
        until_ms = self._clock.monotonic_ms() + TRY_S * 1000
        left: deque[bytes] | None = None
        while True:
            try:
                index = self._target(name, queue.partition.index)
                if left is None:
                    left = deque(self._batches(queue, name, letters))
                while left:
                    await self._append(name, index, left[0])
                    left.popleft()
                return
            except ApiError as error:
                if error.code not in TRIED_AGAIN or self._clock.monotonic_ms() > until_ms:
                    _not_written(queue, name, len(letters), error)
                    return
            except Exception:
                log.exception("writing dead letters met a bug", extra={"topic": name})
                return
            await asyncio.sleep(PAUSE_S)

    async def _append(self, name: str, index: int, batch: bytes) -> None:
        """Append to a partition wherever its leader is, and wait until the append is committed. Raises ApiError."""
        known = self._controller.image.partition(name, index)
        if known is None or known.leader < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{index} has no leader")
        if known.leader == self._controller.node_id:
            target = self._partitions.require_leader(name, index)
            data = memoryview(bytearray(batch))
            appended = target.append(data, acks_all=True, zstd_allowed=True, schemas_checked=True)
            await all_ready([appended], COMMIT_TIMEOUT_MS)
            if appended.error is not None:
                raise appended.error
            return
        try:
            await self._peers.append(known.leader, name, index, batch, ACKS_ALL)
        except PeerLost as error:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)) from error

    def _batches(self, queue: SharePartition, name: str, letters: Sequence[DeadLetter]) -> list[bytes]:
        originals = self._originals(queue, letters) if queue.options.copy_dead_letters else {}
        now_ms = self._clock.now_ms()
        records = [self._letter(queue, letter, originals.get(letter.offset), now_ms) for letter in letters]
        return _in_batches(records, self._controller.configs.log_config(name).max_message_bytes)

    def _target(self, name: str, source_index: int) -> int:
        """The partition for letters about a source partition. Raises ApiError if letters may not be written there."""
        refused = self._refused_name(name)
        topic = self._controller.image.topics.get(name)
        if refused is None and topic is None:
            refused = f"there is no topic {name}; create it with {ALLOWED_BY_TOPIC}=true"
        elif (
            refused is None and self._controller.image.config("topics", name).get(ALLOWED_BY_TOPIC) != "true"
        ):
            refused = f"{name} does not allow it; set {ALLOWED_BY_TOPIC}=true on the topic"
        if refused is not None or topic is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(refused))
        return source_index % len(topic.partitions)

    def _refused_name(self, name: str) -> str | None:
        prefix = self._config.get(broker_share.DEADLETTERQUEUE_TOPIC_NAME_PREFIX)
        if name.startswith("__"):
            return f"{name}: names with __ belong to the broker"
        if not name.startswith(prefix):
            return f"{name} does not begin with errors.deadletterqueue.topic.name.prefix, which is {prefix!r}"
        return None

    def _letter(
        self, queue: SharePartition, letter: DeadLetter, original: Record | None, now_ms: int
    ) -> Record:
        facts = {
            "topic": queue.partition.topic,
            "partition": str(queue.partition.index),
            "offset": str(letter.offset),
            "group": queue.key.group_id,
            "delivery.count": str(letter.delivery_count),
            "message": letter.reason,
        }
        headers: Headers = tuple((f"__dlq.errors.{name}", text.encode()) for name, text in facts.items())
        if original is None:
            return Record(0, now_ms, None, None, headers)
        return Record(0, now_ms, original.key, original.value, (*original.headers, *headers))

    def _originals(self, queue: SharePartition, letters: Sequence[DeadLetter]) -> dict[int, Record]:
        """The original records, as far as the log still has them. Only here are records decoded."""
        wanted = {letter.offset for letter in letters}
        originals: dict[int, Record] = {}
        for offset in sorted(wanted):
            if (
                offset in originals
                or not queue.partition.log_start_offset <= offset < queue.partition.log_end_offset
            ):
                continue
            data = queue.partition.read_bytes(Offset(offset), COPY_BYTES_MAX)
            for position, header in batches(data):
                if header.base_offset > max(wanted):
                    break
                if not header.is_control and header.last_offset >= offset:
                    originals.update(self._records(queue, data, position, header, wanted))
        return originals

    def _records(
        self, queue: SharePartition, data: bytes, position: int, header: BatchHeader, wanted: Set[int]
    ) -> dict[int, Record]:
        """The wanted records of a batch; none if it cannot be unpacked: their letters then carry no copy."""
        try:
            return {r.offset: r for r in records_of(data, position, header) if r.offset in wanted}
        except CorruptBatch as error:
            log.error(
                "a batch cannot be unpacked; the dead letters of its records carry no copies",
                extra={
                    "topic": queue.partition.topic,
                    "partition": queue.partition.index,
                    "offset": header.base_offset,
                    "reason": str(error),
                },
            )
            return {}


def _in_batches(records: Sequence[Record], bytes_max: int) -> list[bytes]:
    """`records` in batches of at most `bytes_max`; a single record that is larger gets its own batch."""
    batch = build_batch(records)
    if len(batch) <= bytes_max or len(records) == 1:
        return [batch]
    half = len(records) // 2
    return _in_batches(records[:half], bytes_max) + _in_batches(records[half:], bytes_max)


def _not_written(queue: SharePartition, name: str, count: int, error: ApiError) -> None:
    log.error(
        "records were given up without a dead letter",
        extra={"group": queue.key.group_id, "topic": name, "records": count, "reason": error.message},
    )
