"""Shows what is damaged in the log dir of a stopped broker, and repairs it as the broker's next start would. Unless
it is to repair them, it only reads the partitions' folders.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.dirs.log_dir import LogDir, folder_name, parse_folder_name
from barnabas.storage.logs.recovery import open_log
from barnabas.storage.segments.damage import DAMAGED, MISPLACED, check
from barnabas.storage.segments.segment import LOG_SUFFIX, OFFSET_MAX

DAMAGED_SUFFIX: Final = ".damaged"
RESULTS: Final = {DAMAGED: "not served", MISPLACED: "base offset repaired"}

# Topics' options are not known here; they only matter for gaps, which compaction may have made.
CONFIG: Final = LogConfig(cleanup_policy=("compact", "delete"))


def partitions_in(log_dir: str, wanted: Iterable[str]) -> list[TopicPartition]:
    """The partitions whose folders are in a log dir, or those that `wanted` names as `topic` or `topic-0`. Raises
    OSError.
    """
    names = set(wanted)
    partitions = [parse_folder_name(entry.name) for entry in os.scandir(log_dir) if entry.is_dir()]
    chosen = [name for name in partitions if name and (not names or {name.topic, str(name)} & names)]
    return sorted(chosen)


def findings(log_dir: str, name: TopicPartition) -> Iterator[dict[str, Any]]:
    """One row for each damaged place of a partition, and for each file that was set aside. Raises OSError."""
    folder = os.path.join(log_dir, folder_name(name))
    files = sorted(os.listdir(folder))
    bases = [int(file[:20]) for file in files if file[20:] == LOG_SUFFIX and file[:20].isdecimal()]
    for base, following in zip(bases, [*bases[1:], OFFSET_MAX], strict=True):
        path = os.path.join(folder, f"{base:020d}{LOG_SUFFIX}")
        if base > OFFSET_MAX:
            yield _row(name, path, 0, os.path.getsize(path), "not a segment", "no offset is so high")
            continue
        size = os.path.getsize(path)
        for place in check(path, size, base, following, compacted=True):
            row = _row(name, path, place.position, place.size_bytes, RESULTS[place.kind], place.reason)
            if (
                following < OFFSET_MAX or place.position + place.size_bytes < size
            ):  # otherwise their end is unknown
                row |= {"first_offset": place.first_offset, "last_offset": place.last_offset}
            yield row
    for file in files:
        if file.endswith(DAMAGED_SUFFIX):
            path = os.path.join(folder, file)
            yield _row(name, path, 0, os.path.getsize(path), "set aside", "by an earlier start")


def _row(name: TopicPartition, path: str, position: int, size: int, what: str, reason: str) -> dict[str, Any]:
    return {
        "partition": str(name), "file": path, "position": position, "bytes": size, "result": what, "reason": reason,
    }  # fmt: skip


def mend(log_dir: str, names: Iterable[TopicPartition], now_ms: int) -> None:
    """Do to the partitions what a start after an unclean stop would do. Raises StorageError, OSError."""
    locked = LogDir(os.path.abspath(log_dir))
    locked.lock()
    try:
        starts = locked.read_offsets(checkpoints.LOG_STARTS)
        for name in names:
            folder = os.path.join(locked.path, folder_name(name))
            start = starts.get(name, 0)
            open_log(folder, CONFIG, now_ms, clean=False, log_start_offset=start).close()
    finally:
        locked.unlock()


def remove_set_aside(log_dir: str, names: Iterable[TopicPartition]) -> int:
    """Removes the files that were set aside; how many. Raises OSError."""
    count = 0
    for name in names:
        folder = os.path.join(log_dir, folder_name(name))
        for file in os.listdir(folder):
            if file.endswith(DAMAGED_SUFFIX):
                os.unlink(os.path.join(folder, file))
                count += 1
    return count
