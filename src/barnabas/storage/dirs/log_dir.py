"""One log dir: its lock, its owner, its checkpoints, the names of its folders."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import uuid
from typing import Final

from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import MetaProperties, TopicPartition
from barnabas.storage.errors import CorruptCheckpoint, LogDirLocked, WrongLogDir
from barnabas.storage.files import open_new

log = logging.getLogger("barnabas.storage")

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
FOLDER_NAME_MAX: Final = 255


class LogDir:
    """One log dir."""

    __slots__ = ("checkpointed", "clean", "failure", "had_logs", "lock_fd", "meta", "mode", "offline", "path")

    def __init__(self, path: str, mode: int = 0o700) -> None:
        """mode: of the dir, if it has to be made; the mode of one that is there is left as it is."""
        self.path = path
        self.mode = mode
        self.lock_fd = -1
        self.clean = False
        self.had_logs = False
        self.meta: MetaProperties | None = None
        self.offline: str | None = None
        self.failure: BaseException | str | None = None
        """What `offline` is the text of."""
        self.checkpointed: dict[str, dict[TopicPartition, int]] = {}

    def file(self, name: str) -> str:
        """The path of a file in the dir."""
        return os.path.join(self.path, name)

    def lock(self) -> None:
        """Lock the dir for this process, and read its owner. Raises LogDirLocked, CorruptCheckpoint, OSError."""
        try:
            os.makedirs(self.path, self.mode, exist_ok=True)
        except FileExistsError:  # and it is no folder
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.path) from None
        fd = open_new(self.file(LOCK_FILE), os.O_RDWR | os.O_CLOEXEC)
        try:
            # The same kind of lock that Java uses, so that Kafka and Barnabas brokers exclude each other.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise LogDirLocked(
                f"log dir {self.path} is in use by another broker; stop it or choose another --data dir"
            ) from None
        self.lock_fd = fd
        self.meta = checkpoints.read_meta(self.path)

    def unlock(self) -> None:
        """Release the lock of the dir."""
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
            self.lock_fd = -1

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Mark a new dir as this broker's. Raises WrongLogDir if it belongs to another cluster or broker, OSError."""
        meta = self.meta
        if meta is not None:
            if meta.cluster_id is not None and meta.cluster_id != cluster_id:
                raise WrongLogDir(
                    f"{self.path} belongs to cluster {meta.cluster_id}, not to {cluster_id}; "
                    "choose another log dir"
                )
            if meta.node_id is not None and meta.node_id != node_id:
                raise WrongLogDir(
                    f"{self.path} belongs to node {meta.node_id}, not to {node_id}; set node.id or choose "
                    "another log dir"
                )
            if meta.cluster_id is not None and meta.node_id is not None:
                return
        directory_id = meta.directory_id if meta is not None and meta.directory_id else uuid.uuid4()
        self.meta = MetaProperties(cluster_id, node_id, directory_id)
        checkpoints.write_meta(self.path, self.meta)

    def read_offsets(self, file: str) -> dict[TopicPartition, int]:
        """A checkpoint; empty, with a log line, if it is damaged. Raises OSError."""
        path = self.file(file)
        try:
            return checkpoints.read_offsets(path)
        except CorruptCheckpoint as error:
            # Without recovery points everything must be scanned, in spite of a clean-shutdown marker.
            if file == checkpoints.RECOVERY_POINTS:
                self.clean = False
            log.warning("checkpoint is damaged and ignored", extra={"file": path, "reason": str(error)})
            return {}

    def write_offsets(self, file: str, offsets: dict[TopicPartition, int]) -> None:
        """Write a checkpoint, unless it has the same contents already. Raises OSError."""
        if self.checkpointed.get(file) != offsets:
            checkpoints.write_offsets(self.file(file), offsets)
            self.checkpointed[file] = offsets


def folder_name(name: TopicPartition) -> str:
    """The name of a partition's folder."""
    return f"{name.topic}-{name.partition}"


def parse_folder_name(folder: str) -> TopicPartition | None:
    """The partition whose log a folder contains; None for other folders, including those being deleted or moved."""
    topic, dash, number = folder.rpartition("-")
    if not dash or not topic or not number.isdecimal() or not number.isascii():
        return None
    return TopicPartition(topic, int(number))


def partition_of_future(folder: str) -> TopicPartition | None:
    """The partition that a `-future` folder is for."""
    stem, dot, _ = os.path.basename(folder)[: -len(FUTURE_SUFFIX)].rpartition(".")
    return parse_folder_name(stem) if dot else None


def log_folders(log_dir: str) -> dict[str, TopicPartition]:
    """The folders of logs in a log dir; the remains of deleted logs are removed. Raises OSError."""
    folders: dict[str, TopicPartition] = {}
    for entry in os.scandir(log_dir):
        if not entry.is_dir(follow_symlinks=True):
            continue
        if entry.name.endswith(DELETE_SUFFIX):
            shutil.rmtree(entry.path, ignore_errors=True)
            continue
        future = entry.name.endswith(FUTURE_SUFFIX)
        name = partition_of_future(entry.name) if future else parse_folder_name(entry.name)
        if name is not None:
            folders[entry.name] = name
    return folders


def fits_future_name(name: TopicPartition) -> bool:
    """Whether the folder for a move can contain the full name of the partition."""
    return len(folder_name(name)) + len(f".{uuid.UUID(int=0).hex}{FUTURE_SUFFIX}") <= FOLDER_NAME_MAX


def marked(name: TopicPartition, suffix: str) -> str:
    """A folder name that shows what is being done with the files: `topic-0.<random>-delete` and the like."""
    tail = f".{uuid.uuid4().hex}{suffix}"
    return folder_name(name)[: FOLDER_NAME_MAX - len(tail)] + tail
