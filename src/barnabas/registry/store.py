"""The topic `_schemas`: read by a thread of its own, appended to by the writer, replayed on the event loop.

All records enter the state through `Store._take`, in the order of the log: those of other instances, and the writer's
own, which are replayed as soon as their append is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient, NewTopic
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.fetching import OffsetOutOfRange
from barnabas.client.options import ClientOptions
from barnabas.records.batch import Record, batches, build_batch, records_of
from barnabas.registry.records import BadRecord, Entry, decode
from barnabas.registry.state import Context, State
from barnabas.wire.errors import ErrorCode

log = logging.getLogger("barnabas.registry")

FETCH_BYTES_MAX: Final = 512 << 10
PAUSE_S: Final = 1.0
RECORD_OVERHEAD_BYTES: Final = 1024
LARGEST_DEFAULT: Final = 1_048_588

FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class Fenced(Exception):
    """Another instance has become the writer."""


class TooLarge(Exception):
    """The broker rejects a batch of this size."""


class Found(NamedTuple):
    """A record of the log. entry: None if it is to be skipped."""

    offset: int
    raw_key: bytes | None
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """replication: the replication factor of a new topic; -1: the brokers' default."""

    topic: str = "_schemas"
    replication: int = -1


class Store:
    """The state, and the thread that reads the topic. Public methods may be called on the event loop only."""

    def __init__(self, client: ClientOptions, options: StoreOptions) -> None:
        self.client = client
        self.options = options
        self.state = State()
        self.trouble: str | None = "the topic has not been read yet"
        self.record_bytes_max = LARGEST_DEFAULT
        self.cluster_id = ""
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.beginnings = 0
        """How often reading the topic has begun again from its start; offsets from before then are invalid."""
        self.begun_again: Callable[[], None] = lambda: None
        """Called on the event loop when reading begins again; the state is incomplete until all has been read."""
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._follow, name="registry reader", daemon=True)

    async def start(self) -> None:
        """Create the topic if it does not exist, and read all of it. Raises ClientError."""
        self._loop = asyncio.get_running_loop()
        end = await asyncio.to_thread(self._prepare)
        self._thread.start()
        await self.wait_for(end, self.beginnings)
        self.trouble = None

    async def stop(self) -> None:
        """End the reader's thread."""
        self._stopping.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, 10)

    async def wait_for(self, offset: int, beginnings: int) -> None:
        """Wait until all before `offset` has been replayed. Raises ClientError if reading begins again meanwhile.

        beginnings: the value of `beginnings` before the offset was looked up."""
        if beginnings != self.beginnings:
            raise self._begins_elsewhere()
        if self.state.next_offset >= offset:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((offset, reached))
        await reached

    def take_own(self, entries: Sequence[Entry], base_offset: int, beginnings: int) -> bool:
        """Replay the writer's own records, just appended; False if they have to be read from the log instead.

        beginnings: the value of `beginnings` when the records were made."""
        if beginnings != self.beginnings or base_offset != self.state.next_offset:
            return False
        found = [Found(base_offset + index, None, entry) for index, entry in enumerate(entries)]
        self._take(found, base_offset + len(entries))
        return True

    def _take(self, found: Sequence[Found], next_offset: int) -> None:
        state = self.state
        for record in found:
            if record.offset < state.next_offset or record.entry is None:
                continue
            try:
                state.replay(record.entry, record.raw_key)
            except BadRecord as error:
                log.error("record cannot be read", extra={"offset": record.offset, "reason": str(error)})
            except Exception:
                log.exception("a record met a bug and is skipped", extra={"offset": record.offset})
        state.next_offset = max(state.next_offset, next_offset)
        if self._waiters:
            waiting, self._waiters = self._waiters, []
            for offset, reached in waiting:
                if offset > state.next_offset:
                    self._waiters.append((offset, reached))
                elif not reached.done():
                    reached.set_result(None)

    # --- the reader's thread ------------------------------------------------------------------------

    def _prepare(self) -> int:
        """Create the topic if it does not exist, check it, and return its end offset. Raises ClientError."""
        name = self.options.topic
        with BlockingClient(self.client) as client:
            if name not in client.describe([name]):
                configs = {"cleanup.policy": "compact"}
                client.create_topics([NewTopic(name, 1, self.options.replication, configs)], exist_ok=True)
            found = client.topic_configs(name)
            policy = found.get("cleanup.policy") or ""
            if "compact" not in policy or "delete" in policy:
                raise ClientError(
                    f"topic {name} has cleanup.policy={policy}, which would delete schemas; set it to compact with "
                    f"`barnabas config set topic {name} cleanup.policy=compact`"
                )
            if len(client.partitions(name)) != 1:
                raise ClientError(
                    f"topic {name} has more than one partition; schemas must be in a single one"
                )
            self.record_bytes_max = int(found.get("max.message.bytes") or LARGEST_DEFAULT)
            self.cluster_id = client.cluster.cluster_id or ""
            start = client.list_offsets({(name, 0): EARLIEST})[name, 0].offset
            self.state.next_offset = start
            return client.list_offsets({(name, 0): LATEST})[name, 0].offset

    def _follow(self) -> None:
        offset = self.state.next_offset
        client = BlockingClient(self.client)
        while not self._stopping.is_set():
            try:
                piece = client.fetch_raw(self.options.topic, 0, offset, max_bytes=FETCH_BYTES_MAX)
                found = list(_decoded(piece.records, offset))
                if found or piece.next_offset > offset:
                    self._hand_over(found, piece.next_offset)
                    offset = piece.next_offset
                self._note_trouble(None)
            except OffsetOutOfRange as error:
                # The topic was created anew, or records at its start were deleted: all that was read is discarded.
                log.error(
                    "topic recreated or truncated: reading all of it again", extra={"reason": str(error)}
                )
                offset = max(error.log_start, 0)
                self._call(self._begin_again, offset)
            except ClientError as error:
                self._note_trouble(str(error))
                log.warning("topic cannot be read", extra={"reason": str(error)})
                client.close()
                self._stopping.wait(PAUSE_S)
            except Exception as error:
                self._note_trouble(f"{type(error).__name__}: {error}")
                log.exception("reader failed")
                self._stopping.wait(PAUSE_S)
        client.close()

    def _hand_over(self, found: list[Found], next_offset: int) -> None:
        """Pass records to the event loop and wait until they are replayed, so that no more pile up there."""
        taken = threading.Event()

        def take() -> None:
            self._take(found, next_offset)
            taken.set()

        self._call(take)
        while not taken.wait(1.0):
            if self._stopping.is_set():
                return

    def _call(self, work: object, *arguments: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(work, *arguments)  # type: ignore[arg-type]
        except RuntimeError:  # the loop has ended
            self._stopping.set()

    def _begin_again(self, offset: int) -> None:
        """Empty the state, except for the highest ids, since records of other topics contain them; end all waiting."""
        fresh = State()
        fresh.next_offset = offset
        for name, id_max in self.state.ids_given().items():
            fresh.contexts.setdefault(name, Context()).id_max = id_max
        self.state.__dict__.update(fresh.__dict__)
        self.beginnings += 1
        waiting, self._waiters = self._waiters, []
        for _, reached in waiting:
            if not reached.done():
                reached.set_exception(self._begins_elsewhere())
        self.begun_again()

    def _begins_elsewhere(self) -> ClientError:
        return ClientError(f"topic {self.options.topic} was recreated or truncated, and is being read again")

    def _note_trouble(self, reason: str | None) -> None:
        if self._loop is not None and (reason is None) != (self.trouble is None):
            self.trouble = reason


def _decoded(buffer: memoryview, start: int) -> list[Found]:
    made = []
    for position, header in batches(buffer):
        if header.is_control:
            continue
        for record in records_of(buffer, position, header):
            if record.offset < start:
                continue
            try:
                made.append(Found(record.offset, record.key, decode(record.key, record.value)))
            except BadRecord as error:
                log.error("record cannot be read", extra={"offset": record.offset, "reason": str(error)})
    return made


class Writer:
    """Appends with a producer epoch: once a later writer has begun, the broker rejects all batches of this one.

    The producer id belongs to a transactional id that all instances of a group share, so each new writer gets a higher
    epoch of the same producer; the partition learns that epoch from its first record. No transactions are used.
    Not thread-safe; every method may block.
    """

    def __init__(self, client: ClientOptions, topic: str, transactional_id: str) -> None:
        self.client = BlockingClient(client)
        self.topic = topic
        self.transactional_id = transactional_id
        self._producer_id = -1
        self._epoch = -1
        self._sequence = 0

    def begin(self) -> None:
        """Obtain a new epoch. Raises ClientError."""
        self._producer_id, self._epoch = self.client.init_producer_id(self.transactional_id)
        self._sequence = 0

    def append(self, entries: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Append keys and values as one batch, and return its first offset. Raises Fenced, TooLarge, ClientError.

        After ClientError, the batch may or may not have been appended: call `begin` before appending again.
        """
        now_ms = int(time.time() * 1000)
        rows = [Record(0, now_ms, key, value) for key, value in entries]
        batch = build_batch(
            rows, producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=self._sequence
        )
        try:
            offset = self.client.produce_raw(self.topic, 0, batch)
        except BrokerError as error:
            if error.code in FENCED:
                raise Fenced(str(error)) from error
            if error.code in TOO_LARGE:
                raise TooLarge(str(error)) from error
            raise
        self._sequence += len(rows)
        return offset

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
