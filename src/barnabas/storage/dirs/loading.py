"""Opens all logs of one log dir when a broker starts, in threads if they must be scanned."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, NamedTuple

from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.dirs.log_dir import CLEAN_SHUTDOWN_FILE, LogDir, log_folders
from barnabas.storage.dirs.opening import Opening
from barnabas.storage.errors import CorruptCheckpoint, LogUnreadable, concerns_one_log
from barnabas.storage.files import remove_quietly
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import Mended, open_log

log = logging.getLogger("barnabas.storage")

LOGS_PER_TASK: Final = 4
LOGS_PER_TASK_CLEAN: Final = 64


class Loaded(NamedTuple):
    """A partition's log, or why it cannot be opened. topic_id: None for topics that are older than topic ids."""

    name: TopicPartition
    log: Log | LogUnreadable
    topic_id: uuid.UUID | None


class _Offsets(NamedTuple):
    """The contents of the dir's checkpoints, by partition."""

    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    cleaned: dict[TopicPartition, int]


def load_dir(
    log_dir: LogDir, now_ms: int, config_of: Callable[[str], LogConfig], new_pool: Callable[[], Executor]
) -> list[Loaded]:
    """Open every log of a dir; sets `clean` and `had_logs` of the dir, and removes its clean-shutdown marker.

    config_of: topic name -> its options. Raises OSError and StorageError if the whole dir is unusable.
    """
    log_dir.clean = os.path.exists(log_dir.file(CLEAN_SHUTDOWN_FILE))
    folders = log_folders(log_dir.path)
    log_dir.had_logs = bool(folders)
    offsets = _Offsets(
        log_dir.read_offsets(checkpoints.RECOVERY_POINTS),
        log_dir.read_offsets(checkpoints.LOG_STARTS),
        log_dir.read_offsets(checkpoints.HIGH_WATERMARKS),
        log_dir.read_offsets(checkpoints.CLEANER_OFFSETS),
    )
    # From here on a crash must be recognized as one.
    remove_quietly(log_dir.file(CLEAN_SHUTDOWN_FILE))

    mended = Mended()
    rows = [(os.path.join(log_dir.path, folder), name) for folder, name in folders.items()]
    # Handing over a log to a thread costs as much as opening an empty one, so logs are handed over in groups. After a crash
    # groups are small, so that logs which take long to scan do not wait for each other.
    step = LOGS_PER_TASK_CLEAN if log_dir.clean else LOGS_PER_TASK
    configs: dict[str, LogConfig] = {}

    def config_once(topic: str) -> LogConfig:
        known = configs.get(topic)
        return configs.setdefault(topic, config_of(topic)) if known is None else known

    def load_some(at: int) -> list[Loaded]:
        return [
            _load(folder, name, now_ms, config_once, log_dir.clean, offsets, mended)
            for folder, name in rows[at : at + step]
        ]

    opening, loaded = Opening(log_dir.path, len(rows)), []
    with new_pool() as pool:
        for part in pool.map(load_some, range(0, len(rows), step)):
            loaded += part
            opening.opened(len(part))
    mended.tell(log_dir.path, len(rows), clean=log_dir.clean)
    return loaded


def _load(
    folder: str,
    name: TopicPartition,
    now_ms: int,
    config_of: Callable[[str], LogConfig],
    clean: bool,
    offsets: _Offsets,
    mended: Mended,
) -> Loaded:
    try:
        opened = open_log(
            folder,
            config_of(name.topic),
            now_ms,
            clean=clean,
            recovery_point=offsets.recovery_points.get(name, 0),
            log_start_offset=offsets.log_starts.get(name, 0),
            high_watermark=offsets.high_watermarks.get(name, 0),
            mended=mended,
        )
    except Exception as error:
        if not concerns_one_log(error):
            raise
        log.error(
            "log cannot be opened; its partition is offline",
            extra={"folder": folder, "reason": f"{type(error).__name__}: {error}"},
            exc_info=error,
        )
        return Loaded(name, LogUnreadable(folder, getattr(error, "error", error)), None)
    opened.first_dirty_offset = min(offsets.cleaned.get(name, 0), opened.log_end_offset)
    try:
        topic_id = checkpoints.read_topic_id(folder)
    except CorruptCheckpoint as error:
        log.warning("topic id is lost", extra={"log": folder, "reason": str(error)})
        topic_id = None
    return Loaded(name, opened, topic_id)
