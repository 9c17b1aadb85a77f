"""Logs of deleted topics that can still be restored: renamed folders beside the others.

A folder is called `topic-0.bin<topic id>-stray`: Kafka's brokers, too, leave folders with that suffix alone. What the log
dir's checkpoints say of a log stands in a file inside it once the log has been closed. Without that file the broker died
meanwhile, and the log is scanned when it is restored.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.dirs.log_dir import FOLDER_NAME_MAX, STRAY_SUFFIX, folder_name
from barnabas.storage.errors import CorruptCheckpoint, LogDirOffline
from barnabas.storage.files import fsync_dir, remove_quietly, write_atomically
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import open_log

log = logging.getLogger("barnabas.storage")

OFFSETS_FILE: Final = "barnabas-bin.json"
_FOLDER: Final = re.compile(r".*-(\d+)\.bin([0-9a-f]{32})" + STRAY_SUFFIX)


class BinnedLog(NamedTuple):
    """A log in the bin."""

    topic_id: uuid.UUID
    partition: int


def bin_folder_name(name: TopicPartition, topic_id: uuid.UUID) -> str:
    """The folder of a log in the bin. A long topic name is cut, so that the partition can be read from it."""
    tail = f"-{name.partition}.bin{topic_id.hex}{STRAY_SUFFIX}"
    return name.topic[: FOLDER_NAME_MAX - len(tail)] + tail


class Keeper(Protocol):
    """The owner of the logs that are in service: the log manager, whose methods these are."""

    def take_out(self, name: TopicPartition) -> Log | None: ...
    def put_in(self, name: TopicPartition, opened: Log, topic_id: uuid.UUID) -> None: ...
    def take_offline(self, log_dir: str, error: BaseException | str) -> list[TopicPartition]: ...


class Bin:
    """The logs that this broker holds of deleted topics. `lay`, `close`, `take` and `bring_back` are the way of a log: those
    that do more than rename run in threads."""

    def __init__(self, manager: Keeper) -> None:
        self._manager = manager
        self._folders: dict[BinnedLog, str] = {}
        self._lock = threading.Lock()
        self._at_work = threading.Lock()
        """Held while files are opened, closed or removed: a topic may be restored before its logs have been closed."""

    def scan(self, log_dirs: Iterable[str]) -> None:
        """Find what earlier runs have put there. Raises OSError."""
        folders: dict[BinnedLog, str] = {}
        for log_dir in log_dirs:
            for entry in os.scandir(log_dir):
                match = _FOLDER.fullmatch(entry.name)
                if match is not None and entry.is_dir():
                    folders[BinnedLog(uuid.UUID(match[2]), int(match[1]))] = entry.path
        with self._lock:
            self._folders.update(folders)

    @property
    def topic_ids(self) -> set[uuid.UUID]:
        """The topics of which logs are held."""
        with self._lock:
            return {partition.topic_id for partition in self._folders}

    def lay(self, topic: str, partition: int, topic_id: uuid.UUID) -> Log | None:
        """Take the log of a deleted topic out of service and rename its folder; `close` has to follow, in any thread.

        None if there is no such log. Raises LogDirOffline.
        """
        name = TopicPartition(topic, partition)
        gone = self._manager.take_out(name)
        if gone is None:
            return None
        try:
            gone.relocate(os.path.join(gone.log_dir, bin_folder_name(name, topic_id)))
        except LogDirOffline as error:
            self._manager.take_offline(gone.log_dir, error)
            raise
        with self._lock:
            self._folders[BinnedLog(topic_id, partition)] = gone.folder
        return gone

    def close(self, gone: Log) -> None:
        """Write what is not on the disk yet of a log in the bin, and close its files. Any thread."""
        with self._at_work:
            self._close(gone)

    def _close(self, gone: Log) -> None:
        if not os.path.isdir(gone.folder):
            return  # restored or removed meanwhile
        try:
            gone.close()
            offsets = {
                "log_start": gone.log_start_offset,
                "high_watermark": gone.core.high_watermark,
                "first_dirty": gone.first_dirty_offset,
            }
            write_atomically(os.path.join(gone.folder, OFFSETS_FILE), json.dumps(offsets).encode())
            fsync_dir(gone.log_dir)
        except (OSError, LogDirOffline) as error:
            self._manager.take_offline(gone.log_dir, error)

    def take(
        self, topic: str, topic_id: uuid.UUID, config: LogConfig, now_ms: int
    ) -> dict[TopicPartition, Log]:
        """Rename the folders of a topic's logs to this name, and open them. Any thread. Raises LogDirOffline."""
        with self._at_work:
            return self._take(topic, topic_id, config, now_ms)

    def _take(
        self, topic: str, topic_id: uuid.UUID, config: LogConfig, now_ms: int
    ) -> dict[TopicPartition, Log]:
        with self._lock:
            folders = {
                binned: folder for binned, folder in self._folders.items() if binned.topic_id == topic_id
            }
        taken: dict[TopicPartition, Log] = {}
        for partition, folder in folders.items():
            name = TopicPartition(topic, partition.partition)
            target = os.path.join(os.path.dirname(folder), folder_name(name))
            try:
                if os.path.isdir(target):
                    _set_aside(target)
                os.rename(folder, target)
                fsync_dir(os.path.dirname(target))
                taken[name] = _opened(target, config, now_ms)
            except OSError as error:
                raise LogDirOffline(os.path.dirname(folder), error) from error
            with self._lock:
                self._folders.pop(partition, None)
        return taken

    def bring_back(self, topic_id: uuid.UUID, taken: Mapping[TopicPartition, Log]) -> None:
        """Put the logs into service that `take` has opened."""
        for name, opened in taken.items():
            self._manager.put_in(name, opened, topic_id)

    def remove(self, topic_ids: Iterable[uuid.UUID]) -> None:
        """Remove the logs of topics that cannot be restored any more. Any thread."""
        for folder in self._forget(topic_ids):
            with self._at_work:
                shutil.rmtree(folder, ignore_errors=True)

    def _forget(self, topic_ids: Iterable[uuid.UUID]) -> list[str]:
        gone = set(topic_ids)
        with self._lock:
            folders = [folder for partition, folder in self._folders.items() if partition.topic_id in gone]
            self._folders = {
                partition: at for partition, at in self._folders.items() if partition.topic_id not in gone
            }
        return folders

    def sizes(self) -> Mapping[uuid.UUID, int]:
        """The bytes that the logs of each topic take."""
        with self._lock:
            folders = list(self._folders.items())
        sizes: dict[uuid.UUID, int] = {}
        for partition, folder in folders:
            size = 0
            with contextlib.suppress(FileNotFoundError):
                size = sum(entry.stat().st_size for entry in os.scandir(folder))
            sizes[partition.topic_id] = sizes.get(partition.topic_id, 0) + size
        return sizes


def _opened(folder: str, config: LogConfig, now_ms: int) -> Log:
    path = os.path.join(folder, OFFSETS_FILE)
    try:
        with open(path, "rb") as file:
            offsets = json.loads(file.read())
        start, watermark, dirty = (int(offsets[n]) for n in ("log_start", "high_watermark", "first_dirty"))
        clean = True
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        start = watermark = dirty = 0
        clean = False
    opened = open_log(
        folder, config, now_ms, clean=clean, log_start_offset=start, high_watermark=watermark
    )  # fmt: skip
    opened.first_dirty_offset = min(dirty, opened.log_end_offset)
    remove_quietly(path)
    return opened


def _set_aside(folder: str) -> None:
    """A folder is in the way that holds no log of a topic: it is kept under another name."""
    with contextlib.suppress(CorruptCheckpoint):
        log.warning(
            "a folder was in the way of a restored log",
            extra={"folder": folder, "topic_id": str(checkpoints.read_topic_id(folder))},
        )
    os.rename(folder, f"{folder}.{uuid.uuid4().hex}{STRAY_SUFFIX}")
