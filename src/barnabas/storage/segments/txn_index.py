"""The `.txnindex` of a segment: the aborted transactions whose markers are in the segment.

Entries of 34 bytes: version int16 (0), producer id int64, first offset int64, last offset int64 (of the
marker), last stable offset int64 (after the abort). Appended to the file at once: aborts are rare.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from typing import Final

from barnabas.cores.producers import CompletedTxn
from barnabas.storage.errors import CorruptIndex
from barnabas.storage.files import open_new, pwrite_all, remove_quietly

_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size


def encode(entry: CompletedTxn) -> bytes:
    return _ENTRY.pack(0, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)


def decode(data: bytes) -> list[CompletedTxn]:
    """The entries of an index. Raises CorruptIndex for a wrong length or version."""
    if len(data) % ENTRY_BYTES:
        raise CorruptIndex(f"a transaction index of {len(data)} bytes is no multiple of {ENTRY_BYTES}")
    entries = []
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
        if version != 0:
            raise CorruptIndex(f"version {version} in a transaction index; this release knows 0")
        entries.append(CompletedTxn(producer_id, first, last, stable, True))
    return entries


def _last_offset(entry: CompletedTxn) -> int:
    return entry.last_offset


class TxnIndex:
    """One segment's aborted transactions; the file exists only when there are some."""

    __slots__ = ("_entries", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._entries: list[CompletedTxn] | None = None

    @property
    def entries(self) -> list[CompletedTxn]:
        """All entries. Raises CorruptIndex, OSError."""
        if self._entries is None:
            try:
                with open(self.path, "rb") as file:
                    self._entries = decode(file.read())
            except FileNotFoundError:
                self._entries = []
        return self._entries

    def append(self, entry: CompletedTxn) -> None:
        """Add an aborted transaction; it is written at once."""
        entries = self.entries
        fd = open_new(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            pwrite_all(fd, encode(entry), len(entries) * ENTRY_BYTES)
        finally:
            os.close(fd)
        entries.append(entry)

    def collect(self, fetch_offset: int, upper_offset: int) -> tuple[list[CompletedTxn], bool]:
        """(transactions that overlap [fetch_offset, upper_offset), whether no later segment can add any)."""
        transactions = []
        entries = self.entries
        for slot in range(bisect_left(entries, fetch_offset, key=_last_offset), len(entries)):
            entry = entries[slot]
            if entry.first_offset < upper_offset:
                transactions.append(entry)
            if entry.last_stable_offset >= upper_offset:
                return transactions, True
        return transactions, False

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose marker is at or above `offset`."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) != len(self.entries):
            self._entries = kept
            os.truncate(self.path, len(kept) * ENTRY_BYTES)

    def start_empty(self) -> None:
        """Drop all entries and remove the file."""
        remove_quietly(self.path)
        self._entries = []

    def sync(self) -> None:
        """Flush the entries to disk, if there are any. Raises OSError."""
        if self._entries:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
