"""Reading for share groups: finds batches by their headers, and the slice of the file that holds the locked records.

No record is decoded. Batches of aborted transactions and control batches are found by their headers and the
transaction index; for share groups the broker leaves them out, not the consumers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cores.group.share.partition import Acquired
from barnabas.records.batch import HEADER_BYTES, BatchHeader, read_header
from barnabas.records.units import Offset
from barnabas.storage.errors import LogDirOffline
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition
    from barnabas.cores.producers import CompletedTxn
    from barnabas.storage.files import FileSlice

LOOK_BYTES = 64 << 10


class Taken(NamedTuple):
    """What a member receives: whole batches, and which of their offsets are locked for it."""

    records: FileSlice
    acquired: tuple[Acquired, ...]


class Place(NamedTuple):
    """One batch's offsets, and the position of its bytes within the slice."""

    first: int
    last: int
    begin: int
    end: int


class Readable:
    """A slice of the log, from the batch that contains `offset` on."""

    def __init__(
        self, file_slice: FileSlice, offset: int, max_bytes: int, aborted: Sequence[CompletedTxn]
    ) -> None:
        self.offset = offset
        self.max_bytes = max_bytes
        self._slice = file_slice
        self._aborted: dict[int, list[CompletedTxn]] = {}
        for txn in aborted:
            self._aborted.setdefault(txn.producer_id, []).append(txn)
        self._places: list[Place] = []

    def __len__(self) -> int:
        return len(self._slice)

    def ranges(self, records_max: int) -> tuple[list[tuple[int, int]], int]:
        """(first, last) of the batches that consumers may see, and the offset up to which the log was read.

        Stops when the ranges hold `records_max` offsets.
        """
        count, read_to = 0, self.offset
        for place, header in self._headers():
            read_to = place.last + 1
            if header.is_control or self._is_aborted(header):
                continue
            self._places.append(place)
            count += place.last - max(place.first, self.offset) + 1
            if count >= records_max:
                break
        return [(max(place.first, self.offset), place.last) for place in self._places], read_to

    def _headers(self) -> Iterator[tuple[Place, BatchHeader]]:
        size, position = len(self._slice), 0
        chunk, chunk_at = b"", 0
        while position + HEADER_BYTES <= size:
            if position + HEADER_BYTES > chunk_at + len(chunk):
                chunk, chunk_at = self._slice.part(position, position + LOOK_BYTES).read(), position
                if len(chunk) < HEADER_BYTES:
                    return
            header = read_header(chunk, position - chunk_at)
            end = position + header.size_bytes
            if end > size:
                return
            yield Place(header.base_offset, header.last_offset, position, end), header
            position = end

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            txn.first_offset <= header.base_offset <= txn.last_offset
            for txn in self._aborted.get(header.producer_id, ())
        )

    def taken(self, acquired: tuple[Acquired, ...]) -> Taken:
        """The batches with at least one acquired offset, out of those that `ranges` has returned."""
        first, last = acquired[0].first, acquired[-1].last
        within = [place for place in self._places if place.last >= first and place.first <= last]
        return Taken(self._slice.part(within[0].begin, within[-1].end), acquired)


def readable(partition: Partition, offset: int, max_bytes: int, read_committed: bool) -> Readable | None:
    """The log from `offset` on, as far as consumers may see it; None if empty. Raises ApiError KAFKA_STORAGE_ERROR."""
    upper = partition.last_stable_offset if read_committed else partition.high_watermark
    if offset >= upper:
        return None
    try:
        batches = partition.log.read(Offset(offset), max_bytes, at_least_one=True, upper_offset=upper)
        if batches is None:
            return None
        aborted = partition.log.aborted_transactions(offset, upper, batches) if read_committed else []
    except LogDirOffline as error:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    return Readable(batches, offset, max_bytes, aborted)
