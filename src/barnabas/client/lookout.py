"""Tells many readers when there are records for them, with few requests.

    lookout = Lookout(options, read_committed=False)
    lookout.await_news(reader, {("events", 0): 120}, reader.wake)

One thread has fetches under way that the brokers hold back until there is something behind one of the positions. A reader
is told once, and also when its positions cannot be watched: it finds out why when it looks itself.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
WAIT_MS: Final = 1_000
"""How long a broker holds a request back. Positions that are added meanwhile are asked for by another request."""
REQUESTS_MAX: Final = 8
"""The most requests under way to one broker; more positions wait until the first one is answered."""


@dataclass(eq=False, slots=True)
class _Reader:
    """positions: what it waits behind."""

    positions: Mapping[TopicPartition, int]
    tell: Callable[[], None]


@dataclass(eq=False, slots=True)
class _Asked:
    """A request under way. asked: the offset of each partition in it."""

    node: int
    connection: BrokerConnection
    asked: dict[TopicPartition, int]


@dataclass(slots=True)
class _Waiting:
    """Readers by what identifies them, those of each partition, and the newest known end of each partition."""

    readers: dict[Hashable, _Reader] = field(default_factory=dict)
    of: dict[TopicPartition, set[Hashable]] = field(default_factory=lambda: defaultdict(set))
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, key: Hashable, reader: _Reader) -> None:
        self.take(key)
        self.readers[key] = reader
        for pair in reader.positions:
            self.of[pair].add(key)

    def take(self, key: Hashable) -> _Reader | None:
        reader = self.readers.pop(key, None)
        for pair in () if reader is None else reader.positions:
            keys = self.of[pair]
            keys.discard(key)
            if not keys:
                del self.of[pair]
                self.ends.pop(pair, None)  # old before anybody waits for it again
        return reader

    def offset(self, pair: TopicPartition) -> int:
        """Where a fetch that serves all readers of the partition begins. If there are records already for the first of
        them, it is answered at once, and that reader waits no longer."""
        return min(self.readers[key].positions[pair] for key in self.of[pair])


class Lookout:
    """Watches one cluster. The thread starts with the first reader; `close` ends it."""

    def __init__(self, options: ClientOptions, *, read_committed: bool) -> None:
        self._cluster = Cluster(options)
        self._read_committed = read_committed
        self._lock = threading.Lock()
        self._waiting = _Waiting()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._heard, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._heard, False)
        # Below: only the thread.
        self._asked: list[_Asked] = []

    def await_news(
        self, key: Hashable, positions: Mapping[TopicPartition, int], tell: Callable[[], None]
    ) -> None:
        """Calls `tell` once, soon after there is a record at or after one of the positions, from the thread of the lookout
        or of the caller. key: identifies the reader; it waits for the last positions only."""
        reader = _Reader(dict(positions), tell)
        with self._lock:
            self._waiting.add(key, reader)
            is_there = any(self._waiting.ends.get(pair, 0) > at for pair, at in positions.items())
            if is_there:
                self._waiting.take(key)
            elif self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="lookout", daemon=True)
                self._thread.start()
        if is_there:
            tell()
        else:
            self._ring()

    def forget(self, key: Hashable) -> None:
        """This reader is told nothing any more."""
        with self._lock:
            self._waiting.take(key)

    def close(self) -> None:
        """Ends the thread; nobody is told anything any more."""
        with self._lock:
            self._closed = True
            self._waiting = _Waiting()
            thread = self._thread
        self._ring()
        if thread is not None:
            thread.join()
        os.close(self._heard)
        os.close(self._bell)

    def _ring(self) -> None:
        try:
            os.write(self._bell, b"!")
        except BlockingIOError:
            pass  # it has much to hear already

    # --- the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            try:
                self._turn()
            except Exception as error:
                log.debug("lookout failed: %s", error)
                self._tell_all()
        self._cluster.close()

    def _turn(self) -> None:
        self._ask()
        by_socket = {asked.connection.fileno(): asked for asked in self._asked}
        ready, _, _ = select.select([self._heard, *by_socket], [], [], WAIT_MS / 1000)
        for number in ready:
            if number == self._heard:
                os.read(self._heard, 4096)
            else:
                self._answered(by_socket[number])

    def _ask(self) -> None:
        """Asks for the partitions that no request under way asks for at the right offset."""
        under_way: dict[TopicPartition, int] = {}
        for asked in self._asked:
            under_way.update(asked.asked)
        with self._lock:
            wanted = {pair: self._waiting.offset(pair) for pair in self._waiting.of}
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for pair, offset in wanted.items():
            if under_way.get(pair) == offset:
                continue
            try:
                by_leader[self._cluster.leader(*pair)][pair] = offset
            except ClientError:
                self._tell({pair})
        busy = [asked.node for asked in self._asked]
        for node, pairs in by_leader.items():
            if busy.count(node) < REQUESTS_MAX:
                self._send(node, pairs)

    def _send(self, node: int, pairs: dict[TopicPartition, int]) -> None:
        topics: dict[str, list[FetchPartition]] = defaultdict(list)
        for (topic, partition), offset in pairs.items():
            row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1)
            topics[topic].append(row)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=1,  # a broker sends one batch all the same
            isolation_level=int(self._read_committed),
            session_epoch=-1,
            topics=[FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
        )
        try:
            connection = self._cluster.node(node)
            connection.send(request, FetchResponse)
        except (ClientError, OSError) as error:
            log.debug("nothing can be waited for: %s", error)
            self._tell(set(pairs))
            return
        self._asked.append(_Asked(node, connection, pairs))

    def _answered(self, asked: _Asked) -> None:
        self._asked.remove(asked)
        try:
            answer = asked.connection.receive()
        except (ClientError, OSError) as error:
            log.debug("nothing can be waited for: %s", error)
            self._cluster.forget(asked.connection)
            self._cluster.topics.clear()  # the leaders may have changed
            self._tell(set(asked.asked))
            return
        self._note(asked, answer)

    def _note(self, asked: _Asked, answer: Any) -> None:
        wrong: set[TopicPartition] = set(asked.asked) if answer.error_code else set()
        grown: set[TopicPartition] = set()
        with self._lock:
            for topic in answer.responses:
                for row in topic.partitions:
                    pair = (topic.topic, row.partition_index)
                    if row.error_code:
                        wrong.add(pair)
                        self._cluster.topics.pop(topic.topic, None)
                        continue
                    end = row.last_stable_offset if self._read_committed else row.high_watermark
                    if end > asked.asked.get(pair, end):
                        grown.add(pair)
                        if pair in self._waiting.of:
                            self._waiting.ends[pair] = end
        self._tell(wrong)
        self._tell(grown, only_behind=True)

    def _tell(self, pairs: set[TopicPartition], *, only_behind: bool = False) -> None:
        """Tells the readers of these partitions. only_behind: of these, those that are before a known end."""
        to_wake: list[_Reader] = []
        with self._lock:
            ends = self._waiting.ends
            for pair in pairs:
                end = ends.get(pair, 0)
                for key in list(self._waiting.of.get(pair, ())):
                    if only_behind and self._waiting.readers[key].positions[pair] >= end:
                        continue
                    reader = self._waiting.take(key)
                    if reader is not None:
                        to_wake.append(reader)
        for reader in to_wake:
            try:
                reader.tell()
            except Exception as error:
                log.debug("a reader cannot be told: %s", error)

    def _tell_all(self) -> None:
        """After a failure of its own, the lookout begins anew."""
        for asked in self._asked:
            self._cluster.forget(asked.connection)
        self._asked = []
        with self._lock:
            pairs = set(self._waiting.of)
        self._tell(pairs)
