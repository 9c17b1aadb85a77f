"""A compacted topic as a table of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

from barnabas.client.errors import BrokerUnavailable, ClientError
from barnabas.client.options import ClientOptions
from barnabas.client.tables.replay import Codec, Rows
from barnabas.client.tables.replica import TopicReplica
from barnabas.client.tables.topic import CompactedTopic
from barnabas.client.tables.writing import Fenced, TooLarge, Writer
from barnabas.records.units import Offset

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

READ_BACK_S: Final = 30.0


class TopicTable(Generic[K, V]):
    """The last value of each key, as this instance has read it. Any number of instances may write: the last one wins."""

    def __init__(
        self,
        client: ClientOptions,
        topic: CompactedTopic,
        codec: Codec[K, V],
        *,
        read_back_s: float = READ_BACK_S,
    ) -> None:
        self._rows: Rows[K, V] = Rows()
        self._replica = TopicReplica(client, topic, codec, self._rows)
        self._codec = codec
        self._read_back_s = read_back_s
        self._writer = Writer(client, topic.name)
        self._has_begun = False
        self._writing = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, f"writer of {topic.name}")

    @property
    def trouble(self) -> str | None:
        """Why the topic cannot be read; None if it can."""
        return self._replica.trouble

    async def start(self) -> None:
        """Create the topic if it does not exist, and read all of it. Raises ClientError."""
        async with self._in_time():
            await self._replica.start()

    async def stop(self) -> None:
        """End the threads."""
        await self._replica.stop()
        self._thread.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._writer.close)

    def get(self, key: K) -> V | None:
        """The value of a key; None if it has none."""
        return self._rows.shown.get(key)

    def snapshot(self) -> Mapping[K, V]:
        """All keys and values at this moment; changes later on do not appear in it."""
        return dict(self._rows.shown)

    def __len__(self) -> int:
        return len(self._rows.shown)

    async def put(self, key: K, value: V) -> None:
        """Give a key a value. Returns when this instance has read it back. Raises as `write`."""
        await self.write({key: value})

    async def delete(self, key: K) -> None:
        """Remove a key, with a tombstone. Raises as `write`."""
        await self.write({key: None})

    async def write(self, changes: Mapping[K, V | None]) -> None:
        """Make changes together, in one batch; None removes a key. Returns when this instance has read them back.

        Raises ClientError: the changes may have been made unless it is TooLarge.
        """
        rows = [self._codec.encode(key, value) for key, value in changes.items()]
        async with self._writing:
            beginnings = self._replica.beginnings
            offset = await self._append(rows)
        async with self._in_time():
            await self._replica.wait_for(Offset(offset + len(rows)), beginnings)

    async def _append(self, rows: list[tuple[bytes, bytes | None]]) -> int:
        if not self._has_begun:
            await self._in_thread(self._writer.begin)
            self._has_begun = True
        try:
            return await self._in_thread(lambda: self._writer.append(rows))
        except TooLarge:
            raise
        except Fenced:
            # The brokers forget a producer that has not written for days, and a new topic knows none: nothing was stored.
            await self._in_thread(self._writer.begin)
            return await self._in_thread(lambda: self._writer.append(rows))
        except ClientError:
            self._has_begun = False
            raise

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Wait for blocking work to its end, also when the caller gives up: the writer's sequence must be known."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._read_back_s):
                yield
        except TimeoutError:
            topic = self._replica.topic.name
            raise BrokerUnavailable(f"topic {topic} could not be read in {self._read_back_s:g} s") from None
