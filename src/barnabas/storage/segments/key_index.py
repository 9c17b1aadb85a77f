"""The `.keyindex` of a segment: which stretches of the log may contain a key (`barnabas.key.index`).

The log is cut into stretches of about a megabyte, and for each there is a Bloom filter of its records' keys: whoever
looks for a key reads only the stretches whose filter lets it through, one in 300 of the others. The file is a cache:
it is built from the log in the background, only ever appended to, and removed where the log is cut or may have been.
What it does not cover has to be read.

    header   magic "BKEY", version int16, unused int16, base offset int64, secret of the hashes 16 bytes
    stretch  size of the filter uint32, CRC-32C uint32 of what follows, start and end position in the log int64,
             first and last offset int64, records int32, hashes int32, the filter; a filter of no bytes lets all through

One thread, the log's owner, appends and removes; any thread reads.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.records.batch import CorruptBatch, records_block
from barnabas.records.checksum import crc32c
from barnabas.storage.batch_table import BatchTable
from barnabas.storage.files import LogFile, open_new, pwrite_all, remove_quietly
from barnabas.storage.formats import Damaged, records_in
from barnabas.storage.key_filters import KeyCollector, may_have
from barnabas.storage.scan import tables

log = logging.getLogger("barnabas.storage")

STRETCH_BYTES: Final = 1 << 20
STRETCH_RECORDS: Final = 50_000
"""A stretch ends with the batch that reaches one of these."""
BITS_PER_KEY: Final = 12
HASHES: Final = 8
"""Three in a thousand foreign keys pass a filter."""
SECRET_BYTES: Final = 16
_HEADER: Final = struct.Struct(">4shhq16s")
_STRETCH: Final = struct.Struct(">IIqqqqii")
_CHECKED_FROM: Final = 8
_MAGIC: Final = b"BKEY"
_LOADING: Final = threading.Lock()
"""Held while a file is read and checked."""
_STATE: Final = threading.Lock()
"""Held for moments: what was read of a file is not taken over if the owner removes the file meanwhile."""


class Stretch(NamedTuple):
    """A part of a segment. begin, end: of its filter in the file."""

    start: int
    stop: int
    first_offset: int
    last_offset: int
    records: int
    hashes: int
    begin: int
    end: int


class Built(NamedTuple):
    """A stretch that is to be appended."""

    start: int
    stop: int
    first_offset: int
    last_offset: int
    records: int
    filter: bytes


class KeyIndex:
    """One segment's file; nothing is read before it is needed.

    generation: how often the index was removed; what was built of an earlier log is not appended. stuck_at: a position from
    which on the log cannot be read.
    """

    __slots__ = ("_base_offset", "_size", "covered", "generation", "path", "secret", "stuck_at")

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self._size = -1
        self.covered = 0
        self.secret = b""
        self.generation = 0
        self.stuck_at = -1

    def load(self, log_bytes: int) -> None:
        """Check the file, once: all checksums; what is cut off, damaged or of another log is not used. Raises OSError.

        Cost: reads the file, about a hundredth of the log. log_bytes: the segment's size.
        """
        with _LOADING:
            if self._size >= 0:
                return
            generation = self.generation
            try:
                with open(self.path, "rb") as file:
                    data = file.read()
            except FileNotFoundError:
                data = b""
            at, covered, secret = self._checked(data, log_bytes)
            if at < len(data):
                log.warning(
                    "key index is damaged from here on, and is built again",
                    extra={"file": self.path, "position": at},
                )
            with _STATE:
                if generation == self.generation:
                    self.secret, self.covered, self._size = secret, covered, at

    def _checked(self, data: bytes, log_bytes: int) -> tuple[int, int, bytes]:
        """(intact bytes, position up to which the log is covered, secret)."""
        if len(data) < _HEADER.size:
            return 0, 0, b""
        magic, version, _, base_offset, secret = _HEADER.unpack_from(data)
        if (magic, version, base_offset) != (_MAGIC, 1, self._base_offset):
            return 0, 0, b""
        at, covered = _HEADER.size, 0
        for stretch in _stretches(data, len(data)):
            body = memoryview(data)[at + _CHECKED_FROM : stretch.end]
            (checksum,) = struct.unpack_from(">I", data, at + 4)
            if stretch.start != covered or stretch.stop > log_bytes or crc32c(body) != checksum:
                break
            at, covered = stretch.end, stretch.stop
        return at, covered, secret

    def append(self, built: list[Built], generation: int, secret: bytes) -> None:
        """Add what was built; ignored if the index was removed or changed meanwhile. Raises OSError."""
        if generation != self.generation or not built or built[0].start != self.covered:
            return
        size = self._size
        out = bytearray()
        if size < _HEADER.size:
            size = 0
            out += _HEADER.pack(_MAGIC, 1, 0, self._base_offset, secret)
            self.secret = secret
        elif secret != self.secret:
            return
        for one in built:
            fields = (one.start, one.stop, one.first_offset, one.last_offset, one.records, HASHES)
            raw = _STRETCH.pack(len(one.filter), 0, *fields) + one.filter
            out += raw[:4] + struct.pack(">I", crc32c(memoryview(raw)[_CHECKED_FROM:])) + raw[_CHECKED_FROM:]
        fd = open_new(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            pwrite_all(fd, out, size)
            os.ftruncate(fd, size + len(out))
        finally:
            os.close(fd)
        self._size, self.covered = size + len(out), built[-1].stop

    def drop(self) -> None:
        """The log is cut, or may have been: remove the file. Raises OSError."""
        with _STATE:
            self.generation += 1
            self._size, self.covered, self.stuck_at = 0, 0, -1
        remove_quietly(self.path)

    def look_up(self, key: bytes, log_bytes: int) -> list[tuple[Stretch, bool]]:
        """Each covered stretch, and whether the key may be in it. Raises OSError. Any thread."""
        self.load(log_bytes)
        size, secret = self._size, self.secret
        if size <= _HEADER.size:
            return []
        try:
            with (
                open(self.path, "rb") as file,
                mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as data,
                memoryview(data) as view,
            ):
                return [
                    (one, may_have(view, one.begin, one.end, one.hashes, key, secret))
                    for one in _stretches(view, size)
                ]
        except (FileNotFoundError, ValueError):
            return []  # removed meanwhile, or cut by somebody else: the log is read instead


def _stretches(data: bytes | memoryview, size: int) -> Iterator[Stretch]:
    """The stretches in a file's first bytes, as far as they are whole."""
    at = _HEADER.size
    while at + _STRETCH.size <= size:
        length, _, start, stop, first, last, records, hashes = _STRETCH.unpack_from(data, at)
        begin = at + _STRETCH.size
        if begin + length > size or not start < stop or not 0 < hashes <= 64:
            return
        yield Stretch(start, stop, first, last, records, hashes, begin, begin + length)
        at = begin + length


class Builder:
    """Makes stretches of a segment from `start` on, which is the start of a batch. Any thread."""

    def __init__(self, file: LogFile, start: int, end: int, secret: bytes) -> None:
        self._file = file
        self._end = end
        self._keys = KeyCollector(secret)
        self._start = self._at = start
        self._first = self._last = -1
        self._opaque = False
        self.is_stuck = False

    def build(self, *, whole: bool) -> list[Built]:
        """The stretches up to the end. whole: also what is left then, for closed segments. Raises OSError."""
        stretches: list[Built] = []
        try:
            for table in tables(self._file, self._start, self._end, verified=True):
                row = 0
                while row < len(table):
                    row = self._add(table, row)
                    if self._is_full:
                        stretches.append(self._cut())
        except Damaged:
            self.is_stuck = True
        if whole and self._at > self._start:
            stretches.append(self._cut())
        return stretches

    @property
    def _is_full(self) -> bool:
        return self._at - self._start >= STRETCH_BYTES or self._keys.records >= STRETCH_RECORDS

    def _add(self, table: BatchTable, row: int) -> int:
        """Add some batches of a table; returns the next row."""
        after = self._keys.add_plain(table, row, len(table))
        if after == row:
            self._add_other(table, row)
            after = row + 1
        if self._first < 0:
            self._first = table.base_offset(row)
        self._last = max(self._last, table.last_offset(after - 1))
        self._at = table.end_of(after - 1)
        return after

    def _add_other(self, table: BatchTable, row: int) -> None:
        """A batch that is compressed, old or damaged; damaged ones are served to nobody."""
        if not table.is_intact(row):
            return
        header = table.header(row)
        try:
            if header.magic < 2:
                for record in records_in(table.view(row), header):
                    if record.key is not None:
                        self._keys.add_key(bytes(record.key))
            elif not header.is_control and header.record_count:
                block = records_block(table.view(row), 0, header)
                self._keys.add_block(block, header.record_count)
        except CorruptBatch:
            self._opaque = (
                True  # nobody has checked what a producer compressed: readers shall see it themselves
            )

    def _cut(self) -> Built:
        records = self._keys.records
        bits = self._keys.filter(BITS_PER_KEY, HASHES)
        stretch = Built(
            self._start, self._at, self._first, self._last, records, b"" if self._opaque else bits
        )
        self._start, self._first, self._last, self._opaque = self._at, -1, -1, False
        return stretch
