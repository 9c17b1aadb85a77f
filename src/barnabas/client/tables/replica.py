"""A compacted topic on an event loop: a thread reads it, and its records are replayed on the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.client.tables.following import Follower
from barnabas.client.tables.replay import Change, Codec, Replay, Replayed
from barnabas.client.tables.topic import LARGEST_DEFAULT, CompactedTopic, TopicFacts, prepare
from barnabas.records.units import Offset

K = TypeVar("K")
V = TypeVar("V")

JOIN_S: Final = 10.0


class TopicReplica(Generic[K, V]):
    """Public methods may be called on the event loop only, on which `target` is changed, too.

    record_bytes_max: the largest batch that the topic takes.
    """

    def __init__(
        self, client: ClientOptions, topic: CompactedTopic, codec: Codec[K, V], target: Replayed[K, V]
    ) -> None:
        self.client = client
        self.topic = topic
        self.record_bytes_max = LARGEST_DEFAULT
        self.cluster_id = ""
        self._codec = codec
        self._trouble: str | None = None
        self._replay: Replay[K, V, asyncio.Future[None]] = Replay(target)
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def trouble(self) -> str | None:
        """Why the topic cannot be read, or is not complete; None if nothing is amiss."""
        if self._trouble is None and not self._replay.is_whole:
            return "the topic has not been read to its end yet"
        return self._trouble

    @property
    def beginnings(self) -> int:
        """How often reading has begun again; offsets from before then are invalid."""
        return self._replay.beginnings

    async def start(self) -> None:
        """Create the topic if it does not exist, and read all of it. Raises ClientError."""
        self._loop = asyncio.get_running_loop()
        facts = await asyncio.to_thread(self._prepare)
        self.record_bytes_max, self.cluster_id = facts.record_bytes_max, facts.cluster_id
        self._replay.begin(facts.start, facts.end)
        follower = Follower(
            self.client, self.topic.name, self._codec, _OnLoop(self), self._stopping, facts.start
        )
        name = f"reader of {self.topic.name}"
        self._thread = threading.Thread(target=follower.run, name=name, daemon=True)
        self._thread.start()
        await self.wait_for(facts.end, self.beginnings)

    async def stop(self) -> None:
        """End the reader's thread."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, JOIN_S)

    def _prepare(self) -> TopicFacts:
        with BlockingClient(self.client) as client:
            return prepare(client, self.topic)

    async def wait_for(self, offset: Offset, beginnings: int) -> None:
        """Wait until all before `offset` has been replayed. Raises ClientError if reading begins again meanwhile.

        beginnings: the value of `beginnings` before the offset was looked up.
        """
        if beginnings != self.beginnings:
            raise self._read_again()
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._replay.must_wait(offset, reached):
            await reached

    def take(self, changes: Sequence[Change[K, V]], next_offset: Offset) -> None:
        """Replay records that have been read."""
        for reached in self._replay.take(changes, next_offset):
            if not reached.done():
                reached.set_result(None)

    def begin_again(self, start: Offset, end: Offset) -> None:
        """The topic is another one, or a part of it is gone: it is being read from its start."""
        for waiting in self._replay.begin_again(start, end):
            if not waiting.done():
                waiting.set_exception(self._read_again())

    def _read_again(self) -> ClientError:
        return ClientError(f"topic {self.topic.name} was recreated or truncated, and is being read again")

    def note_trouble(self, reason: str | None) -> None:
        """Why the topic cannot be read; None: it can."""
        self._trouble = reason

    # --- in the reader's thread ---------------------------------------------------------------------

    def hand_over(self, work: Callable[[], None]) -> None:
        """Have the event loop do something and wait for it, so that no more piles up there than one piece."""
        done = threading.Event()

        def run() -> None:
            try:
                work()
            finally:
                done.set()

        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError:  # the loop has ended
            self._stopping.set()
            return
        while not done.wait(1.0):
            if self._stopping.is_set():
                return


class _OnLoop(Generic[K, V]):
    """What a follower gives its records to: the event loop's replica."""

    def __init__(self, replica: TopicReplica[K, V]) -> None:
        self._replica = replica

    def take(self, changes: Sequence[Change[K, V]], next_offset: Offset) -> None:
        """See Sink."""
        self._replica.hand_over(lambda: self._replica.take(changes, next_offset))

    def begin_again(self, start: Offset, end: Offset) -> None:
        """See Sink."""
        self._replica.hand_over(lambda: self._replica.begin_again(start, end))

    def note_trouble(self, reason: str | None) -> None:
        """See Sink."""
        self._replica.note_trouble(reason)
