"""Simulated consumers: they read partitions from the beginning and look at everything that they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.records.batch import CorruptBatch, batches, read_records
from barnabas.sim.history import Read
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.sim.broker.wire import Client, Lost

if TYPE_CHECKING:
    from tests.sim.broker.world import Topic, World

OFFSETS_FROM = 5
"""The first version that says where a log starts."""
SESSIONS_FROM = 7
IDS_FROM = 13
SESSION_GONE = {
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
}


class Fetcher:
    """Positions in some partitions of one topic, and the fetch session in which they are asked for."""

    def __init__(self, client: Client, topic: Topic, reader: str) -> None:
        self.client = client
        self.world = client.world
        self.topic = topic
        self.reader = reader
        self.positions: dict[int, int] = {}
        self.in_sessions = client.chance.random() < 0.6
        self.max_bytes = client.chance.choice([300, 2_000, 60_000])
        self.wait_ms = client.chance.choice([0, 200, 1_000])
        self.on_records: Callable[[int, list[Read]], None] = lambda index, records: None
        self._session_id = 0
        self._session_epoch = 0
        self._asked: dict[int, int] = {}
        """Positions as the session knows them."""
        self._wire: object = None

    def forget_session(self) -> None:
        self._session_id, self._session_epoch = 0, 0
        self._asked.clear()

    async def poll(self, wait_ms: int | None = None) -> int:
        """One fetch; how many records came. Raises Lost."""
        wire = await self.client.wire()
        if wire is not self._wire:
            self._wire = wire
            self.forget_session()
        version = self.client.version(FetchRequest(), OFFSETS_FROM)
        topic_id = await self.world.topic_id(self.client, self.topic) if version >= IDS_FROM else None
        if self.client._wire is not wire or not self.positions:
            raise Lost("the connection was lost while the topic was looked up")
        wait_ms = self.wait_ms if wait_ms is None else wait_ms
        if not wait_ms:
            await self.client.rest(0.25)
        request = self._request(version, topic_id, wait_ms)
        floors = {
            index: (history.watermark, history.start)
            for index in self.positions
            for history in (self.world.partition(self.topic.name, index),)
        }
        cuts, crashes = self.world.power_cuts, self.world.crashes
        asked_s = self.world.loop.time()
        answer: FetchResponse = await wire.call(request, version, wait_s=wait_ms / 1000)
        if answer.error_code:
            if answer.error_code not in SESSION_GONE:
                self.world.fail("failed", f"{self.reader}: a fetch is refused with {answer.error_code}")
            self.forget_session()
            return 0
        if self.in_sessions and version >= SESSIONS_FROM:
            self._session_id = answer.session_id
            self._session_epoch = self._session_epoch + 1 if answer.session_id else 0
        count = 0
        for topic in answer.responses:
            for row in topic.partitions:
                if row.partition_index in self.positions:
                    watermark, start = floors.get(row.partition_index, (0, 0))
                    watermark = watermark if cuts == self.world.power_cuts else 0
                    start = start if crashes == self.world.crashes else 0
                    count += await self._take(row, (watermark, start), asked_s)
        return count

    def _request(self, version: int, topic_id: UUID | None, wait_ms: int) -> FetchRequest:
        session = self.in_sessions and version >= SESSIONS_FROM
        if not session:
            self._asked.clear()
        rows = [
            FetchPartition(partition=index, fetch_offset=position, partition_max_bytes=self.max_bytes)
            for index, position in self.positions.items()
            if self._asked.get(index) != position
        ]
        self._asked.update(self.positions)
        topics = []
        if rows:
            topics = [FetchTopic(topic=self.topic.name, topic_id=topic_id or UUID(int=0), partitions=rows)]
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self._session_id if session else 0,
            session_epoch=self._session_epoch if session else -1,
            topics=topics,
        )

    async def _take(self, row: Any, floor: tuple[int, int], asked_s: float) -> int:
        index, code = row.partition_index, row.error_code
        history = self.world.partition(self.topic.name, index)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            history.on_out_of_range(self.positions[index], row.log_start_offset, floor[0], self.reader)
            self.positions[index] = max(row.log_start_offset, 0)
            if row.log_start_offset < 0:
                await self.client.rest()
            return 0
        if code:
            if code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
                self.forget_session()
            self._asked.pop(index, None)
            await self.client.rest()
            return 0
        history.on_watermark(floor[0], row.high_watermark, self.reader)
        if row.log_start_offset >= 0:
            history.on_log_start(floor[1], row.log_start_offset, self.reader)
        if not row.records:
            return 0
        position = self.positions[index]
        try:
            records = [Read(r.offset, r.value) for r in read_records(row.records) if r.offset >= position]
        except CorruptBatch as error:
            self.world.fail("changed", f"{self.reader} got damaged records of {history.name}: {error}")
            raise Lost("damaged records") from error
        self.on_records(index, records)
        if self.world.is_calm:
            history.on_waited(records, asked_s, self.world.loop.time(), self.reader)
        position = history.on_read(position, records, self.reader)
        if self.topic.compacted:  # what compaction has left of a batch may end before the batch does
            position = max([position, *(header.next_offset for _, header in batches(row.records))])
        self.positions[index] = position
        return len(records)


class Consumer(Client):
    """Reads all partitions of a topic for as long as there is something to come."""

    def __init__(self, world: World, name: str, topic: Topic) -> None:
        super().__init__(world, name)
        self.topic = topic
        self.fetcher = Fetcher(self, topic, name)
        self.fetcher.positions = dict.fromkeys(range(topic.partitions), 0)

    @property
    def waiting_for(self) -> str | None:
        """What it has still to read."""
        for index, position in self.fetcher.positions.items():
            history = self.world.partition(self.topic.name, index)
            if not self.topic.compacted and not history.is_read_from(position):
                return f"{self.name} is at {position} of {history.name}, which reaches {history.watermark}"
        return None

    async def run(self) -> None:
        while not self.world.over:
            quiet = self.world.quiet_since_s is not None
            try:
                await self.fetcher.poll(6_000 if quiet and self.waiting_for is None else None)
            except Lost:
                await self.rest()
        self.close()
