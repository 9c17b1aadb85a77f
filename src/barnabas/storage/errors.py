"""Errors of the storage."""

from __future__ import annotations

import errno
import os
from typing import Final

ONE_LOG_ERRNOS: Final = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP)
"""Errors of a single file or folder, not of the disk."""


WHAT_HELPS: Final = {
    os.strerror(errno.EACCES): "let the broker's user read and write there",
    os.strerror(errno.EPERM): "let the broker's user read and write there",
    os.strerror(errno.ENOSPC): "make room on the disk",
    os.strerror(errno.EDQUOT): "raise the quota of the broker's user",
    os.strerror(errno.EROFS): "mount the file system writable",
    os.strerror(errno.ENOTDIR): "name a folder in log.dirs",
    os.strerror(errno.ENOENT): "see that the folder is there or can be made, or name another in log.dirs",
    os.strerror(errno.ENAMETOOLONG): "name a folder in log.dirs",
    os.strerror(errno.ELOOP): "name a folder in log.dirs",
    os.strerror(errno.EMFILE): "raise the limit of open files",
}


def what_helps(reason: str) -> str:
    """What an operator should do about a system error, given its text."""
    return next((advice for text, advice in WHAT_HELPS.items() if text in reason), "repair the disk")


class StorageError(Exception):
    """An operation on the log failed; the message says on which file and what to do."""


class LogDirOffline(StorageError):
    """A log dir cannot be read or written any more: the disk is full, gone, or not accessible.

    Its partitions are offline until the broker is restarted with a healthy dir.
    """

    def __init__(self, log_dir: str | os.PathLike[str], error: OSError | StorageError | str) -> None:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        # Our own errors say what to do.
        advice = (
            "" if isinstance(error, StorageError) else f"; {what_helps(reason)} and start the broker again"
        )
        super().__init__(f"log dir {os.fspath(log_dir)} is offline: {reason}{advice}")
        self.log_dir = os.fspath(log_dir)
        self.error = error


class LogUnreadable(LogDirOffline):
    """One log cannot be read; its partition is offline, the others in the dir are not affected."""

    def __init__(self, folder: str | os.PathLike[str], error: BaseException | str) -> None:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        path = os.fspath(folder)
        StorageError.__init__(
            self,
            f"log {path} cannot be read: {reason}; see what is wrong with its files and start the broker again",
        )
        self.log_dir = os.path.dirname(path)
        self.error = reason


class LogDirLocked(StorageError):
    """Another broker runs on the log dir."""


class CorruptIndex(StorageError):
    """An index file has invalid contents; it can be rebuilt from the log."""


class CorruptCheckpoint(StorageError):
    """A checkpoint or snapshot file is malformed."""


class OffsetOutOfRange(StorageError):
    """The offset is below the log's start or beyond its end."""


class WrongLogDir(StorageError):
    """The log dir belongs to another cluster or broker."""


class LogDirUnknown(StorageError):
    """The named dir is not one of log.dirs."""


class PartitionUnknown(StorageError):
    """This broker has no log of the partition."""


class NameTooLong(StorageError):
    """The topic's name leaves no room for the suffix of a folder's name."""


def concerns_one_log(error: Exception) -> bool:
    """Whether the error concerns only one log's files, or is a bug triggered by them, and is not a failure of the disk."""
    if not isinstance(error, LogDirOffline):
        return True
    return isinstance(error.error, OSError) and error.error.errno in ONE_LOG_ERRNOS


def is_own_fault(error: LogDirOffline, folder: str) -> bool:
    """Whether a write failed because the log's folder was tampered with, not because of the disk."""
    if isinstance(error, LogUnreadable):
        return True
    if not isinstance(error.error, OSError) or error.error.errno not in (errno.ENOENT, *ONE_LOG_ERRNOS):
        return False
    return os.access(os.path.dirname(folder), os.W_OK | os.X_OK)
