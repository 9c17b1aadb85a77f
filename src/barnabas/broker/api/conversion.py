"""Conversion between record formats for clients older than 0.11: off the loop, in bounded memory, counted.

The log holds only format 2. Records of old producers are converted before they are appended; records for old consumers
are converted after they are read (records/message_set_convert.py does the work). Newer clients never need this.

One thread converts, so that only one conversion's memory is in use at a time, and the loop keeps running beside it. Small
pieces are converted directly on the loop, because handing them to the thread costs more than the conversion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from barnabas.records.batch import CorruptBatch
from barnabas.records.message_set import InvalidMessageSet, UnsupportedCodec
from barnabas.records.message_set_convert import (
    Converted,
    InvalidTimestamp,
    MessageTooLarge,
    convert_down,
    convert_up,
)
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.storage.files import FileSlice

INLINE_BYTES_MAX: Final = 4096
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
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, size_bytes: int, work: Callable[[], T]) -> T:
        """The result of `work`, which handles about `size_bytes` of records."""
        if size_bytes <= INLINE_BYTES_MAX:
            return work()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "conversion")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def count(self, who: Converting, records: int, size_bytes: int) -> None:
        """Count one more conversion for a client."""
        if who not in self.counts and len(self.counts) >= CLIENTS_MAX:
            who = Converting(REST, "", who.direction)
        count = self.counts.setdefault(who, Count())
        count.requests += 1
        count.records += records
        count.bytes += size_bytes

    def close(self) -> None:
        """End the conversion thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


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
