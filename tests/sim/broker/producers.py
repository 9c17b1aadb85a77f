"""Simulated producers: pipelined, idempotent or not, and stubborn."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.records.batch import Record, build_batch
from barnabas.records.compression import Codec
from barnabas.sim.history import Sent
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.broker.wire import REQUEST_TIMEOUT_S, Client, Lost

if TYPE_CHECKING:
    from tests.sim.broker.world import Topic, World

NO_IDS = 12
"""The last version of Produce that names topics by name."""
AGAIN = {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
FORGOTTEN = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}


@dataclass(slots=True)
class Batch:
    """One batch, until it is acknowledged."""

    partition: int
    sequence: int
    values: list[bytes]
    data: bytes
    crashes: int
    """How often the broker had restarted when it was made."""
    acked: bool = False


class Producer(Client):
    """Writes `count` batches to one topic and sees each acknowledged, whatever happens meanwhile."""

    def __init__(self, world: World, name: str, topic: Topic, count: int) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.left = count
        self.idempotent = self.chance.random() < 0.75
        self.in_flight_max = self.chance.choice([1, 1, 2, 5])
        self.acks = self.chance.choice([1, -1])
        self.codec = self.chance.choice(
            [Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP]
        )
        self.oldest = 7 if self.codec == Codec.ZSTD else 3
        self.records_max = self.chance.choice([1, 3, 8])
        self.padding = self.chance.choice([0, 20, 200])
        self.pause_s = self.chance.choice([0.0, 0.2, 0.8])
        self._run = 0
        self._producer_id = -1
        self._sequences: dict[int, int] = {}
        self._unacked: deque[Batch] = deque()
        self._made = 0

    @property
    def waiting_for(self) -> str | None:
        """What it has still to do."""
        if self.left or self._unacked:
            return f"{self.name} has {self.left} batches to send and {len(self._unacked)} to see acknowledged"
        return None

    async def run(self) -> None:
        if self.idempotent:
            await self._begin_run()
        while self.waiting_for is not None:
            try:
                await self._send_some()
            except Lost:
                await self.rest()
            if self._unacked:
                await self._send_again()
            elif self.pause_s and self.chance.random() < 0.5:
                await self.rest(self.pause_s)
        self.close()

    async def _begin_run(self) -> None:
        """Become a new producer: what was under way may be in the log or not, and is not sent again."""
        while True:
            try:
                answer = await self.call(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                )
            except Lost:
                await self.rest()
                continue
            if not answer.error_code:
                break
            await self.rest()
        self._run += 1
        self._producer_id = answer.producer_id
        self._sequences.clear()
        self._unacked.clear()
        self.lives = self.world.power_cuts

    def _make(self) -> Batch:
        partition = self.chance.randrange(self.topic.partitions)
        count = self.chance.randint(1, self.records_max)
        sequence = self._sequences.get(partition, 0)
        run = f"{self.name}.{self._run}"
        values = [b"%s:%d:%s" % (run.encode(), self._made + i, b"x" * self.padding) for i in range(count)]
        key = b"k%d" % self.chance.randrange(6) if self.topic.compacted else None
        now_ms = self.world.node.clock.now_ms()
        data = build_batch(
            [Record(0, now_ms, key, value) for value in values],
            codec=self.codec,
            producer_id=self._producer_id,
            producer_epoch=0 if self.idempotent else -1,
            base_sequence=sequence if self.idempotent else -1,
        )
        history = self.world.partition(self.topic.name, partition)
        history.on_sent(values, Sent(run, self._made, self.idempotent, key))
        self._made += count
        self._sequences[partition] = sequence + count
        return Batch(partition, sequence, values, data, self.world.crashes)

    def _request(self, batch: Batch) -> ProduceRequest:
        rows = [PartitionProduceData(index=batch.partition, records=batch.data)]
        topics = [TopicProduceData(name=self.topic.name, partition_data=rows)]
        return ProduceRequest(acks=self.acks, timeout_ms=10_000, topic_data=topics)

    async def _send_some(self) -> None:
        """A row of batches at once; what is not acknowledged stays in the queue."""
        wire = await self.wire()
        version = self.version(ProduceRequest(), self.oldest, NO_IDS)
        calls = []
        for _ in range(min(self.in_flight_max, self.left)):
            self.left -= 1
            batch = self._make()
            self._unacked.append(batch)
            calls.append((batch, wire.send(self._request(batch), version)))
        timer = wire.time_out_after(REQUEST_TIMEOUT_S, "Produce")
        try:
            for batch, call in calls:
                self._note(batch, await call)
        finally:
            timer.cancel()
            while self._unacked and self._unacked[0].acked:
                self._unacked.popleft()

    async def _send_again(self) -> None:
        """What is not acknowledged, one after the other, in order."""
        while self._unacked:
            batch = self._unacked[0]
            if batch.acked:
                self._unacked.popleft()
                continue
            try:
                code = self._note(batch, await self.call(self._request(batch), low=self.oldest, high=NO_IDS))
            except Lost:
                await self.rest()
                continue
            if code in FORGOTTEN:
                if self._is_known(batch):
                    self.world.fail(
                        "lost",
                        f"{self.name} is refused with {ErrorCode(code).name} for sequence {batch.sequence} of "
                        f"{self.topic.name}-{batch.partition}, which comes next",
                    )
                await self._begin_run()
            elif code:
                await self.rest()

    def _is_known(self, batch: Batch) -> bool:
        """Whether the broker must recognise this batch, the oldest that is not acknowledged, or take it as the next.

        What it kept of a producer for a restart is the last batch alone, as in Kafka: one that has another behind
        it may be refused then, although both are in the log.
        """
        if self.lives != self.world.power_cuts:
            return False
        alone = not any(later.partition == batch.partition for later in list(self._unacked)[1:])
        return alone or batch.crashes == self.world.crashes

    def _note(self, batch: Batch, answer: object) -> int:
        row = answer.responses[0].partition_responses[0]  # type: ignore[attr-defined]
        if not row.error_code:
            history = self.world.partition(self.topic.name, batch.partition)
            history.on_acked(
                row.base_offset, batch.values, on_disk=self.world.flushes, now_s=self.world.loop.time()
            )
            batch.acked = True
        elif row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            batch.acked = True
        elif row.error_code not in AGAIN and row.error_code not in FORGOTTEN:
            self.world.fail(
                "failed", f"{self.name} is refused with error {row.error_code}: {row.error_message}"
            )
            batch.acked = True
        code: int = row.error_code
        return code
