"""Compares a copied partition with its source, range by range, by counts and checksums of what is stored.

Batches are compared by their checksums, without unpacking them. With a source before Kafka 0.11 records are compared, since
the copy has them in batches of its own. The first difference is named by its offset.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, NamedTuple, TypeAlias

from barnabas.client.cluster import Cluster
from barnabas.client.fetching import Reader
from barnabas.records.batch import MAGIC_POS, batches
from barnabas.records.units import Offset

FETCH_BYTES: Final = 4 << 20
Pieces: TypeAlias = Iterator["Piece"]


class Piece(NamedTuple):
    """A batch, or a record where the formats differ. last: its last offset. mark: a checksum of what it holds."""

    first: int
    last: int
    records: int
    mark: int


@dataclass(slots=True)
class Range:
    """Offsets from `first` to `last`, what both sides hold there, and from which offset on they differ (-1: nowhere)."""

    first: int
    last: int
    source_records: int = 0
    copied_records: int = 0
    source_sum: int = 0
    copied_sum: int = 0
    differs_from: int = -1

    def as_json(self) -> dict[str, int | str | None]:
        """As `mirror verify --json` and the console show it; checksums in hexadecimal."""
        return {
            "first": self.first,
            "last": self.last,
            "source_records": self.source_records,
            "copied_records": self.copied_records,
            "source_checksum": f"{self.source_sum:08x}",
            "copied_checksum": f"{self.copied_sum:08x}",
            "differs_from": self.differs_from if self.differs_from >= 0 else None,
        }


def compare(theirs: Pieces, ours: Pieces, first: int, end: int, step: int) -> Iterator[Range]:
    """Ranges of `step` offsets (a batch counts where it begins) from `first` to before `end`. Ends with the first one that
    differs.
    """
    current = Range(first, min(first + step, end) - 1)
    for theirs_piece, ours_piece in zip_longest(theirs, ours):
        begin = min(piece.first for piece in (theirs_piece, ours_piece) if piece is not None)
        while begin > current.last and current.last < end - 1:
            yield current
            current = Range(current.last + 1, min(current.last + 1 + step, end) - 1)
        if theirs_piece is not None:
            current.source_records += theirs_piece.records
            current.source_sum = _add(current.source_sum, theirs_piece)
        if ours_piece is not None:
            current.copied_records += ours_piece.records
            current.copied_sum = _add(current.copied_sum, ours_piece)
        if theirs_piece != ours_piece:
            current.differs_from = max(begin, first)
            break
    yield current


def _add(total: int, piece: Piece) -> int:
    return zlib.crc32(b"%d %d %d" % (piece.first, piece.last, piece.mark), total)


def batches_of(cluster: Cluster, topic: str, partition: int, first: Offset, end: Offset) -> Pieces:
    """The batches with offsets from `first` to before `end`. Raises ClientError."""
    reader = Reader(cluster, topic, partition, read_committed=False, max_bytes=FETCH_BYTES)
    for fetched in reader.read(first, end):
        for position, header in batches(fetched.records):
            last = header.base_offset + header.last_offset_delta
            if header.base_offset >= end:
                return
            if last >= first:
                batch = fetched.records[position : position + header.size_bytes]
                yield Piece(header.base_offset, last, header.record_count, zlib.crc32(batch[MAGIC_POS:]))
