"""Files: open files that close when they are no longer used, slices of them, atomic replacement."""

from __future__ import annotations

import errno
import os
import resource
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import Final, Protocol

NO_WAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
"""The flag with which a read fails instead of waiting for the disk; 0 where the system has none."""
SENDFILE_STEP_BYTES: Final = 1 << 20
CUT_WHILE_SENT: Final = "a log segment was cut while it was being sent"

READABLE: Final = 0o644
"""What a file in a log dir may allow at most: others never write."""
PRIVATE: Final = 0o600


class LogFile:
    """An open segment file. It closes when the last slice of it is gone, so that a fetch in progress survives the
    roll, deletion or replacement of the segment that it reads."""

    __slots__ = ("fd",)

    def __init__(self, path: str, *, create: bool = False, write: bool = True) -> None:
        """Opens for reading and, by default, writing. Raises OSError."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC
        self.fd = open_new(path, flags) if create else os.open(path, flags)

    def __del__(self) -> None:
        fd = getattr(self, "fd", -1)
        if fd >= 0:
            try:
                os.close(fd)
            except OSError:
                pass  # nothing can be done about an error while closing


class Holder(Protocol):
    """Keeps a file open between uses, and opens it again after it was closed."""

    file: LogFile | None


class OpenFiles:
    """Limits how many segments keep their file open: those opened longest ago must close it first.

    Otherwise thousands of active partitions would use up the process's file descriptors. The limit is half of
    them; the rest is for sockets.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit or max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2, 16)
        self._holders: deque[weakref.ref[Holder]] = deque()
        self._lock = threading.Lock()

    def opened(self, holder: Holder) -> None:
        """`holder` has just opened its file."""
        with self._lock:
            self._holders.append(weakref.ref(holder))
            if len(self._holders) > self.limit:
                for _ in range(max(self.limit // 8, 1)):
                    oldest = self._holders.popleft()()
                    if oldest is not None and oldest is not holder:
                        oldest.file = None


OPEN_FILES = OpenFiles()


class FileSlice:
    """`size` bytes at `position` of an open file; the file stays open as long as the slice lives."""

    __slots__ = ("_file", "fd", "position", "size")

    def __init__(self, file: LogFile, position: int, size: int) -> None:
        self._file = file
        self.fd = file.fd
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes; fewer only if the file was truncated meanwhile. Raises OSError."""
        data = os.pread(self.fd, self.size, self.position)
        while len(data) < self.size:
            more = os.pread(self.fd, self.size - len(data), self.position + len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, target: memoryview) -> None:
        """Fill `target`, which must be as long as the slice.

        Raises OSError, also if the file was truncated meanwhile: the slice's length may have been sent already, so the
        connection must be closed.
        """
        done = os.preadv(self.fd, [target], self.position)
        while done < self.size:
            more = os.preadv(self.fd, [target[done:]], self.position + done)
            if not more:
                raise OSError(errno.EIO, CUT_WHILE_SENT)
            done += more

    def send_to(self, socket_fd: int, begin: int = 0) -> int:
        """Send what begins at `begin` by one `sendfile` call, at most a megabyte; returns how many bytes the socket
        accepted.

        Raises OSError: BlockingIOError if it accepts none, and as `read_into` if the file was truncated.
        """
        count = min(self.size - begin, SENDFILE_STEP_BYTES)
        sent = os.sendfile(socket_fd, self.fd, self.position + begin, count)
        if sent == 0:
            raise OSError(errno.EIO, CUT_WHILE_SENT)
        return sent

    def is_cached(self) -> bool:
        """Whether the slice seems to be in memory: its first and last byte are, and what lies between came with them."""
        if not NO_WAIT:
            return False
        try:
            for position in (self.position, self.position + self.size - 1):
                os.preadv(self.fd, [bytearray(1)], position, NO_WAIT)
        except OSError:  # it would have to wait for the disk, or this file system cannot say
            return False
        return True

    def part(self, begin: int, end: int) -> FileSlice:
        """The part of the slice from `begin` to `end` (or to its end)."""
        return FileSlice(self._file, self.position + begin, min(end, self.size) - begin)

    def after(self, count: int) -> FileSlice:
        """The rest of the slice after its first `count` bytes."""
        return FileSlice(self._file, self.position + count, self.size - count)


def pwrite_all(fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
    """Write all of `data`; after a short write (the disk is filling up) it continues until it is done or fails."""
    written = os.pwrite(fd, data, position)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(view):
        written += os.pwrite(fd, view[written:], position + written)


def fsync_dir(path: str | os.PathLike[str]) -> None:
    """Make creations and renames in a directory durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_new(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file, which is created if it is not there, as open to others as the folder that holds it. Raises OSError.

    The log dir decides (`log.dirs.permissions` when it is made, and whoever changes it afterwards), so that a dir that
    others may read on purpose stays readable, and one that is closed holds nothing that is open.
    """
    mode = os.stat(os.path.dirname(path) or ".").st_mode & READABLE | PRIVATE
    return os.open(path, flags | os.O_CREAT, mode)


def make_folder(path: str) -> None:
    """Make a folder, unless it is there, as open to others as the folder that holds it. Raises OSError."""
    if not os.path.isdir(path):
        os.mkdir(path, os.stat(os.path.dirname(path) or ".").st_mode & 0o777)


def write_atomically(path: str | os.PathLike[str], data: bytes, *, sync: bool = True) -> None:
    """Replace `path` with a file that contains `data`: readers, and restarts after a crash, see the old or the new one."""
    target = os.fspath(path)
    temporary = target + ".tmp"
    fd = open_new(temporary, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        pwrite_all(fd, data, 0)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, target)
    if sync:
        fsync_dir(os.path.dirname(target) or ".")


def remove_quietly(path: str | Path) -> bool:
    """Remove a file; False if it did not exist."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True
