"""The two sparse indexes of a segment, in Kafka's formats.

`.index`: entries of (offset - base offset int32, position int32): the last offset of a batch, and where that batch
starts. `.timeindex`: entries of (timestamp int64, offset - base offset int32): no record up to that offset has a
later timestamp. Big-endian, sorted, one entry per `index.interval.bytes` of log.

Entries are appended in memory and written to the file at flush, roll and close. After a crash the segments above the
recovery point are scanned anyway, and their indexes are rebuilt.
"""

from __future__ import annotations

import os
import struct
from operator import le, lt
from typing import Final

from barnabas.records.units import Offset, Position
from barnabas.storage.entries import count_up_to
from barnabas.storage.errors import CorruptIndex
from barnabas.storage.files import open_new, pwrite_all

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_INT64: Final = struct.Struct(">q")
BEGINNING: Final = Position(0)


def _columns(entry: struct.Struct, entries: bytearray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rows = tuple(zip(*entry.iter_unpack(entries), strict=True))
    return (rows[0], rows[1]) if rows else ((), ())


def _grows(values: tuple[int, ...], *, strictly: bool = True) -> bool:
    """Whether no value is negative, and each is above its predecessor."""
    return not values or (values[0] >= 0 and all(map(lt if strictly else le, values, values[1:])))


class _Index:
    """The common part of both indexes: entries of a fixed size, loaded on first use."""

    __slots__ = ("_entries", "_written_bytes", "base_offset", "max_bytes", "path")
    entry_bytes: int

    def __init__(self, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self.base_offset = Offset(base_offset)
        self.max_bytes = max_bytes - max_bytes % self.entry_bytes
        self._entries: bytearray | None = None
        self._written_bytes = 0

    def _load(self) -> bytearray:
        """Read the file. Raises CorruptIndex, FileNotFoundError."""
        with open(self.path, "rb") as file:
            entries = bytearray(file.read())
        if len(entries) % self.entry_bytes:
            raise CorruptIndex(f"{self.path} has {len(entries)} bytes, no multiple of {self.entry_bytes}")
        # Kafka preallocates the active segment's indexes: zeros at the end are unused space, not entries.
        used = len(entries.rstrip(b"\0"))
        end = used + -used % self.entry_bytes
        del entries[end:]
        self._entries = entries
        self._written_bytes = end
        self._check(entries)
        return entries

    def _check(self, entries: bytearray) -> None:
        raise NotImplementedError

    @property
    def entries(self) -> bytearray:
        loaded = self._entries
        return loaded if loaded is not None else self._load()

    def __len__(self) -> int:
        return len(self.entries) // self.entry_bytes

    @property
    def is_full(self) -> bool:
        return len(self.entries) >= self.max_bytes

    @property
    def room_entries(self) -> int:
        return (self.max_bytes - len(self.entries)) // self.entry_bytes

    def exists(self) -> bool:
        return self._entries is not None or os.path.exists(self.path)

    def start_empty(self) -> None:
        """Drop all entries; the file is emptied by the next `write`."""
        self._entries = bytearray()
        self._written_bytes = -1

    def create_file(self) -> None:
        """Create the file of an index without entries, if it does not exist. Raises OSError."""
        if self._written_bytes < 0:
            fd = open_new(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_size:
                    # Only if needed: ext4 flushes a file that was truncated to zero when it is closed.
                    os.ftruncate(fd, 0)
            finally:
                os.close(fd)
            self._written_bytes = 0

    def write(self, *, sync: bool = False) -> None:
        """Write new entries to the file. Raises OSError.

        Called from flush threads while entries are being appended: those appended meanwhile are written by the next call.
        """
        entries = self._entries
        if entries is None:
            return
        size, written = len(entries), self._written_bytes
        if size == written and not sync:
            return
        fd = open_new(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            start = max(written, 0)
            if start < size:
                pwrite_all(fd, bytes(entries[start:size]), start)
            if (
                os.fstat(fd).st_size != size
            ):  # asked first: with thousands of logs to close, truncating costs seconds
                os.ftruncate(fd, size)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        self._written_bytes = size

    def unload(self) -> None:
        """Free the memory; the file must be up to date."""
        if self._entries is not None and self._written_bytes == len(self._entries):
            self._entries = None

    def _cut(self, count: int) -> None:
        entries = self.entries
        size = count * self.entry_bytes
        if size < len(entries):
            # Create a new object instead of using `del`: a flush thread may be copying the old one.
            self._entries = entries[:size]
            self._written_bytes = min(self._written_bytes, size)
            if os.path.exists(self.path):
                os.truncate(self.path, max(self._written_bytes, 0))


class OffsetIndex(_Index):
    """Offset -> position."""

    __slots__ = ()
    entry_bytes = 8

    def _check(self, entries: bytearray) -> None:
        offsets, positions = _columns(_OFFSET_ENTRY, entries)
        if not (_grows(offsets) and _grows(positions)):
            self._entries = None
            raise CorruptIndex(f"the entries of {self.path} are not in order")

    def entry(self, slot: int) -> tuple[Offset, Position]:
        """(offset, position) of one entry."""
        delta, position = _OFFSET_ENTRY.unpack_from(self.entries, slot * 8)
        return Offset(self.base_offset + delta), position

    def append(self, offset: Offset, position: Position) -> None:
        """Add an entry; both numbers must be greater than those of the last one."""
        entries = self._entries
        if entries is None:
            entries = self._load()
        entries += _OFFSET_ENTRY.pack(offset - self.base_offset, position)

    def lookup(self, offset: Offset) -> tuple[Offset, Position]:
        """(offset, position) of the last entry at or before `offset`; (base offset, 0) if there is none."""
        entries = self.entries
        delta = offset - self.base_offset
        slot = count_up_to(entries, 8, 0, 4, delta)
        return self.entry(slot - 1) if slot else (self.base_offset, BEGINNING)

    def lookup_position(self, position: Position) -> Position:
        """The greatest indexed position at or before `position`, 0 if there is none."""
        slot = count_up_to(self.entries, 8, 4, 4, position)
        return self.entry(slot - 1)[1] if slot else BEGINNING

    def next_position(self, position: Position) -> Position | None:
        """The smallest indexed position after `position`."""
        entries = self.entries
        slot = count_up_to(entries, 8, 4, 4, position)
        return self.entry(slot)[1] if slot < len(entries) // 8 else None

    def last(self) -> tuple[Offset, Position]:
        """The last entry; (base offset, 0) if there is none."""
        count = len(self)
        return self.entry(count - 1) if count else (self.base_offset, BEGINNING)

    def truncate_to(self, offset: Offset) -> None:
        """Remove the entries at or above `offset`."""
        entries = self.entries
        delta = offset - 1 - self.base_offset
        self._cut(count_up_to(entries, 8, 0, 4, delta))


class TimeIndex(_Index):
    """Timestamp -> offset."""

    __slots__ = ()
    entry_bytes = 12

    def _check(self, entries: bytearray) -> None:
        timestamps, offsets = _columns(_TIME_ENTRY, entries)
        if not (_grows(timestamps) and _grows(offsets, strictly=False)):
            self._entries = None
            raise CorruptIndex(f"the entries of {self.path} are not in order")

    def entry(self, slot: int) -> tuple[int, Offset]:
        """(timestamp, offset) of one entry."""
        timestamp, delta = _TIME_ENTRY.unpack_from(self.entries, slot * 12)
        return timestamp, Offset(self.base_offset + delta)

    def last(self) -> tuple[int, Offset]:
        """The last entry; (-1, base offset) if there is none."""
        count = len(self)
        return self.entry(count - 1) if count else (-1, self.base_offset)

    def peek_last(self) -> tuple[int, Offset]:
        """`last` without loading the file, because retention needs it for every segment. Raises like `entries`."""
        if self._entries is not None:
            return self.last()
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            tail = os.pread(file.fileno(), 12, size - 12) if size >= 12 and size % 12 == 0 else b""
        if len(tail) < 12 or not any(tail):
            return self.last()  # empty, damaged, or preallocated by Kafka
        timestamp, delta = _TIME_ENTRY.unpack(tail)
        return timestamp, Offset(self.base_offset + delta)

    def maybe_append(self, timestamp: int, offset: Offset) -> None:
        """Add an entry if its timestamp is above the last one; -1 means no timestamp."""
        if timestamp < 0:
            return
        entries = self._entries
        if entries is None:
            entries = self._load()
        if entries and timestamp <= _INT64.unpack_from(entries, len(entries) - 12)[0]:
            return
        entries += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> tuple[int, Offset]:
        """(timestamp, offset) of the last entry at or before `timestamp`; (-1, base offset) if there is none.

        Records up to that offset have no later timestamp than `timestamp`.
        """
        slot = count_up_to(self.entries, 12, 0, 8, timestamp)
        return self.entry(slot - 1) if slot else (-1, self.base_offset)

    def truncate_to(self, offset: Offset) -> None:
        """Remove the entries at or above `offset`."""
        entries = self.entries
        delta = offset - 1 - self.base_offset
        self._cut(count_up_to(entries, 12, 8, 4, delta))
