"""A segment's files: their names, which of them are open, what is known of them. See segment.py."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from barnabas.records.units import Offset, Position
from barnabas.storage.append_state import SegmentState
from barnabas.storage.files import OPEN_FILES, LogFile, remove_quietly
from barnabas.storage.segments.checked import Checked
from barnabas.storage.segments.index import OffsetIndex, TimeIndex
from barnabas.storage.segments.key_index import KeyIndex
from barnabas.storage.segments.txn_index import TxnIndex

log = logging.getLogger("barnabas.storage")

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
KEY_INDEX_SUFFIX: Final = ".keyindex"
KINDS: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, KEY_INDEX_SUFFIX)
"""A segment's files; the last two may be missing."""
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

OFFSETS_IN_SEGMENT_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = Offset((1 << 63) - 1)
TAIL_BATCHES: Final = 1024
UNKNOWN_MS: Final = -2


class SegmentFiles(SegmentState):
    """See the module."""

    __slots__ = (
        "__weakref__",
        "_checked",
        "base_offset",
        "created_ms",
        "damaged",
        "first_timestamp",
        "folder",
        "gap_noted",
        "is_end_checked",
        "is_joined",
        "key_index",
        "may_be_sparse",
        "offset_index",
        "overlaps",
        "suffix",
        "time_index",
        "trusted_from",
        "txn_index",
    )

    def __init__(
        self,
        folder: str,
        base_offset: int,
        size_bytes: int,
        index_bytes_max: int,
        *,
        interval: int = 4096,
        suffix: str = "",
    ) -> None:
        """interval: bytes of log between two index entries written by this class."""
        self.folder = folder
        self.interval = interval
        self.base_offset = Offset(base_offset)
        self.suffix = suffix
        self.size_bytes = size_bytes
        self.file: LogFile | None = None
        self.offset_index = OffsetIndex(self.path(INDEX_SUFFIX), base_offset, index_bytes_max)
        self.time_index = TimeIndex(self.path(TIME_INDEX_SUFFIX), base_offset, index_bytes_max)
        self.txn_index = TxnIndex(self.path(TXN_INDEX_SUFFIX))
        self.key_index = KeyIndex(self.path(KEY_INDEX_SUFFIX), base_offset)
        self.bytes_since_entry = 0
        self.created_ms = 0
        self.first_timestamp = -1
        self._max_timestamp = UNKNOWN_MS
        self._offset_of_max_timestamp: int = base_offset
        # Base offsets and positions of the last appended batches, for readers at the tail.
        self.tail_offsets: list[Offset] = []
        self.tail_positions: list[Position] = []
        # Whether there may be batches without records, as left by compaction.
        self.may_be_sparse = size_bytes > 0
        # Below this position, only ranges that have been checked are known to be intact.
        self.trusted_from = size_bytes
        self._checked = Checked()
        self.damaged: dict[int, int] = {}
        # Whether a reader has already logged that no segment contains the offsets after this one.
        self.gap_noted = False
        # Whether its end was checked because offsets before the next segment are missing.
        self.is_end_checked = False
        # Whether it is known that the previous segment does not contain this segment's offsets.
        self.is_joined = False
        # Base offsets of next segments whose offsets this segment contains as well. They were examined and nothing was
        # set aside, so they are not examined again.
        self.overlaps: tuple[int, ...] = ()

    def path(self, kind: str) -> str:
        """The path of the segment's file of one kind (`.log`, `.index`, ...)."""
        return os.path.join(self.folder, f"{self.base_offset:020d}{kind}{self.suffix}")

    def paths(self) -> list[str]:
        return [self.path(kind) for kind in KINDS]

    def open(self) -> LogFile:
        """The open file. Raises OSError."""
        file = self.file
        if file is None:
            file = self.file = LogFile(self.path(LOG_SUFFIX))
            OPEN_FILES.opened(self)
        return file

    def start_indexes(self) -> None:
        self.offset_index.start_empty()
        self.time_index.start_empty()
        self.key_index.drop()

    def _rename_indexes(self, paths: list[str]) -> None:
        self.offset_index.path, self.time_index.path, self.txn_index.path, self.key_index.path = paths

    def relocate(self, folder: str) -> None:
        """The folder has been renamed."""
        self.folder = folder
        self._rename_indexes(self.paths()[1:])

    def change_suffix(self, suffix: str) -> None:
        """Rename the existing files; indexes first, so that a `.log` never lacks one."""
        old = self.paths()
        self.suffix = suffix
        new = self.paths()
        for before, after in reversed(list(zip(old, new, strict=True))):
            if os.path.exists(before):
                os.replace(before, after)
        self._rename_indexes(new[1:])

    def sync(self) -> None:
        """Flush the file and the indexes to disk. Raises OSError. Any thread."""
        file = self.open()  # kept in a variable: another thread may make the segment close it
        os.fdatasync(file.fd)
        self.offset_index.write(sync=True)
        self.time_index.write(sync=True)
        self.txn_index.sync()

    def set_aside(self) -> str:
        """Rename the `.log` to `.log.damaged` and remove the rest; returns the new name. Raises OSError."""
        self.file = None
        path = self.path(LOG_SUFFIX)
        target, number = path + ".damaged", 1
        while os.path.exists(target):
            number += 1
            target = f"{path}.{number}.damaged"
        os.replace(path, target)
        for left in self.paths()[1:]:
            remove_quietly(left)
        return target

    def delete_files(self) -> None:
        """Remove all existing files. Raises OSError."""
        self.file = None
        for path in self.paths():
            remove_quietly(path)

    def note_damage(self, position: int, size: int, reason: str) -> None:
        if position not in self.damaged:
            self.damaged[position] = size
            log.error(
                "damaged batch is not served",
                extra={"file": self.path(LOG_SUFFIX), "position": position, "bytes": size, "reason": reason},
            )

    def __repr__(self) -> str:
        return f"Segment({Path(self.path(LOG_SUFFIX)).name}, {self.size_bytes} bytes)"
