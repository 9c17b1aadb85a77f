"""What can go wrong on the disk."""

from __future__ import annotations

import os


class StorageError(Exception):
    """The log on disk cannot do what was asked; the message says which file and what to do."""


class LogDirOffline(StorageError):
    """A log dir cannot be read or written any more: the disk is full, gone, or not ours.

    The partitions in it are offline until the broker starts again with a healthy dir.
    """

    def __init__(self, log_dir: str | os.PathLike[str], error: OSError | str) -> None:
        reason = error.strerror or str(error) if isinstance(error, OSError) else error
        super().__init__(
            f"log dir {os.fspath(log_dir)} is offline: {reason}; mend the disk and start the broker again"
        )
        self.log_dir = os.fspath(log_dir)
        self.error = error


class LogDirLocked(StorageError):
    """Another broker runs on the log dir."""


class CorruptIndex(StorageError):
    """An index file does not hold what an index can hold; it can be rebuilt from the log."""


class CorruptCheckpoint(StorageError):
    """A checkpoint or snapshot file is not in its format."""


class OffsetOutOfRange(StorageError):
    """The offset lies below the log's start or past its end."""


class WrongLogDir(StorageError):
    """The log dir belongs to another cluster or broker."""


class LogDirUnknown(StorageError):
    """A dir that is not one of log.dirs was named."""


class PartitionUnknown(StorageError):
    """This broker has no log of the partition."""


class NameTooLong(StorageError):
    """The topic's name leaves no room for what a folder's name must say beside it."""
