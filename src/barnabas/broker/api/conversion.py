"""Conversion between record formats for clients older than 0.11: off the loop, in bounded memory, counted.

The log holds only format 2. Records of old producers are converted before they are appended; records for old consumers
are converted after they are read (records/message_set_convert.py does the work). Newer clients never need this.

Whatever else unpacks a client's records is done here too (compacted topics, searches by time). A few threads work, and the
loop keeps running beside them. A client, that is a user at an address, has one piece of work under way at a time, however
many connections it opens, so that it neither takes all threads nor all memory. Small pieces that are not packed are
converted directly on the loop, because handing them to a thread costs more than the conversion.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from barnabas.records.batch import CODEC_MASK, CorruptBatch
from barnabas.records.message_set import InvalidMessageSet, UnsupportedCodec, messages
from barnabas.records.message_set_convert import (
    Converted,
    InvalidTimestamp,
    MessageTooLarge,
    convert_down,
    convert_up,
)
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.net.connection import Connection
    from barnabas.storage.files import FileSlice

INLINE_BYTES_MAX: Final = 4096
THREADS: Final = 4
UNFOLDED_BYTES_MAX: Final = 1 << 27
"""The size up to which one request's message set, or one stored batch, may be decompressed."""
CLIENTS_MAX: Final = 1000
"""How many client ids are counted separately. Clients can invent any number of ids; the rest are counted together."""

T = TypeVar("T")


class Converting(NamedTuple):
    """Whose records are converted, and in which direction: `up` for producers, `down` for consumers."""

    client_id: str
    software: str
    direction: str

    @classmethod
    def by(cls, client_id: str | None, software: tuple[str, str], direction: str) -> Converting:
        """software: name and version."""
        return cls(client_id or "", " ".join(software).strip(), direction)


REST: Final = "(other clients)"


@dataclass(slots=True)
class _Turn:
    """Who may work for one client. users: how many hold the lock or wait for it."""

    lock: asyncio.Lock
    users: int = 0


@dataclass(slots=True)
class Count:
    """What conversion has cost so far."""

    requests: int = 0
    records: int = 0
    bytes: int = 0
    """Size of the converted data."""


class Conversions:
    """Runs conversions and counts them per client. One per broker; all calls come from the broker's loop."""

    def __init__(self) -> None:
        self.counts: dict[Converting, Count] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._turns: dict[tuple[str, str], _Turn] = {}

    async def run(
        self, size_bytes: int, work: Callable[[], T], whose: Connection, *, packed: bool = False
    ) -> T:
        """The result of `work`, which handles about `size_bytes` of records.

        packed: whether they are compressed: a few bytes may unpack to many megabytes.
        """
        if size_bytes <= INLINE_BYTES_MAX and not packed:
            return work()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "conversion")
        async with self._turn_of((whose.principal, whose.plain_host)):
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    @contextlib.asynccontextmanager
    async def _turn_of(self, client: tuple[str, str]) -> AsyncIterator[None]:
        """Wait until the client has no other work under way, first come, first served."""
        turn = self._turns.setdefault(client, _Turn(asyncio.Lock()))
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[client]

    def count(self, who: Converting, records: int, size_bytes: int) -> None:
        """Count one more conversion for a client."""
        if who not in self.counts and len(self.counts) >= CLIENTS_MAX:
            who = Converting(REST, "", who.direction)
        count = self.counts.setdefault(who, Count())
        count.requests += 1
        count.records += records
        count.bytes += size_bytes

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def batches_of(message_set: bytes, max_batch_bytes: int) -> tuple[list[bytes], int]:
    """A producer's message set as record batches, and the number of records in them. Raises ApiError."""
    try:
        return convert_up(message_set, max_batch_bytes=max_batch_bytes, limit_bytes=UNFOLDED_BYTES_MAX)
    except InvalidTimestamp as error:
        raise ApiError(ErrorCode.INVALID_TIMESTAMP, str(error)) from None
    except InvalidMessageSet as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
    except MessageTooLarge as error:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{error} by max.message.bytes") from None
    except CorruptBatch as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    except UnsupportedCodec as error:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None


def is_packed(message_set: bytes) -> bool:
    """Whether a message of a set is compressed. Only small sets are looked at: large ones go to a thread anyway."""
    if len(message_set) > INLINE_BYTES_MAX:
        return True
    try:
        return any(message.attributes & CODEC_MASK for _, message in messages(message_set))
    except CorruptBatch:
        return False


def message_set_of(stored: FileSlice | bytes, magic: int, from_offset: int, max_bytes: int) -> Converted:
    """Stored batches as a message set for an old consumer. Raises ApiError; blocks while it reads."""
    try:
        return convert_down(
            stored if isinstance(stored, bytes) else stored.read(),
            magic=magic,
            from_offset=from_offset,
            max_bytes=max_bytes,
            limit_bytes=UNFOLDED_BYTES_MAX,
        )
    except CorruptBatch as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    except UnsupportedCodec as error:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, str(error)) from None
    except OSError as error:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None


def known_to_old_clients(code: int) -> int:
    """The code that Kafka gives to clients that do not know error 56: one that makes them look for the leader again."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code == ErrorCode.KAFKA_STORAGE_ERROR else code
