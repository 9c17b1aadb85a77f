"""A disk that may fill up, fail, be slow, lie about syncs, and lose unsynced data in a power cut.

The files are real (in memory: /dev/shm), so that everything that reads them works as usual. What a process does to
them passes through `os`, whose functions are replaced while `installed()` is active. SQLite's own calls do not pass
through it: its files are assumed to be as durable as it claims.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.sim.loop import Killed
from barnabas.storage.dirs.log_dir import LOCK_FILE

PAGE_BYTES: Final = 512
"""The unit that a disk writes completely or not at all. Real disks have 4096; small logs need small pages to be torn."""
SPARED: Final = "znodes."
PATCHED: Final = (
    "open", "close", "pwrite", "write", "fsync", "fdatasync", "ftruncate", "truncate", "replace", "rename",
    "unlink", "mkdir", "rmdir", "pread", "preadv",
)  # fmt: skip


@dataclass(slots=True)
class Trouble:
    """The current behaviour of the disk; probabilities are per operation."""

    full: bool = False
    """No file can grow: ENOSPC."""
    error_chance: float = 0.0
    """EIO from writes and syncs."""
    read_error_chance: float = 0.0
    short_chance: float = 0.0
    """A write that writes only a part."""
    slow_chance: float = 0.0
    slow_s: float = 0.2
    lies: bool = False
    """Syncs are acknowledged but not carried out."""


class SimDisk:
    """The disks of one host: everything below `root`."""

    def __init__(self, root: Path, chance: random.Random, spend: Callable[[float], None]) -> None:
        """spend(seconds): called with the time that a slow operation takes."""
        self.root = str(root)
        self.trouble = Trouble()
        self.trouble_of: dict[str, Trouble] = {}
        """By path prefix: for troubles of one dir among several."""
        self.watch_power = False
        """Whether syncs are recorded, which `cut_power` needs."""
        self.dead = False
        """The process has ended: operations that it still performs have no effect."""
        self.kill_after = -1
        """The process is killed after this many modifying operations, in the middle of one; -1: never."""
        self.on_killed: Callable[[], None] = lambda: None
        self.operations = 0
        self.happened: dict[str, int] = {}
        """How often each fault has occurred."""
        self.databases: list[sqlite3.Connection] = []
        self.locks: set[int] = set()
        """Descriptors of the lock files that the process holds."""
        self._chance = chance
        self.spend = spend
        self._contents: dict[int, bytes] = {}
        """The durable contents of each file, by identity: inodes are reused, identities are not."""
        self._names: dict[int, dict[str, int]] = {}
        """The durable names in each folder."""
        self._identity: dict[int, int] = {}
        self._next_identity = 0
        self._at_work = False
        root.mkdir(parents=True, exist_ok=True)

    # --- the process's operations ----------------------------------------------------------------------

    def before(self, name: str, path: str) -> None:
        """Called before an operation that modifies something. Raises OSError, Killed."""
        if self._at_work:
            return
        if self.dead:
            raise Killed
        self.operations += 1
        if self.kill_after >= 0:
            self.kill_after -= 1
            if self.kill_after < 0:
                self._note("killed in the middle")
                self.dead = True
                self.on_killed()
                raise Killed
        trouble = self._trouble_at(path)
        if trouble.slow_chance and self._chance.random() < trouble.slow_chance:
            self._note("slow")
            self.spend(self._chance.random() * trouble.slow_s)
        if trouble.full and name in ("pwrite", "write", "create", "mkdir"):
            self._note("full")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if trouble.error_chance and self._chance.random() < trouble.error_chance:
            self._note("error")
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def before_read(self, path: str) -> None:
        if self.dead:
            raise Killed
        trouble = self._trouble_at(path)
        if trouble.read_error_chance and self._chance.random() < trouble.read_error_chance:
            self._note("read error")
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def bytes_to_write(self, path: str, count: int) -> int:
        """How many of `count` bytes a write accepts."""
        trouble = self._trouble_at(path)
        if count > 1 and trouble.short_chance and self._chance.random() < trouble.short_chance:
            self._note("short write")
            return self._chance.randrange(1, count)
        return count

    def _trouble_at(self, path: str) -> Trouble:
        for prefix, trouble in self.trouble_of.items():
            if path.startswith(prefix):
                return trouble
        return self.trouble

    def _note(self, fault: str) -> None:
        self.happened[fault] = self.happened.get(fault, 0) + 1

    def synced(self, fd: int, path: str) -> None:
        """A sync was requested and is real, unless the disk lies."""
        if not self.watch_power:
            return
        if self._trouble_at(path).lies:
            self._note("lie")
            return
        status = os.fstat(fd)
        identity = self._identify(status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            self._names[identity] = self._entries(path)
        else:
            self._contents[identity] = _content(fd)

    def created(self, inode: int) -> None:
        """A new file or folder, which may have the inode of a deleted one."""
        self._identity.pop(inode, None)

    def _identify(self, inode: int) -> int:
        known = self._identity.get(inode)
        if known is None:
            self._next_identity += 1
            known = self._identity[inode] = self._next_identity
        return known

    def _entries(self, path: str) -> dict[str, int]:
        return {entry.name: self._identify(entry.inode()) for entry in os.scandir(path)}

    def release(self) -> None:
        """The process has ended: close its databases and lock files. Uncommitted transactions are lost."""
        for database in self.databases:
            database.close()
        self.databases.clear()
        for fd in list(self.locks):
            os.close(fd)
        self.locks.clear()

    # --- power -----------------------------------------------------------------------------------------

    def cut_power(self) -> None:
        """Cut the power: unsynced data is lost, to an extent that depends on the seed.

        A file keeps what was synced, or everything, or a torn part of what was written since; a folder has the names that
        were synced, or the current ones.
        """
        self._at_work = True
        try:
            self._cut_power()
        finally:
            self._at_work = False
        self._note("power cut")

    def _cut_power(self) -> None:
        here = self._paths_now()
        contents: dict[str, bytes | None] = {}
        self._restore(
            self._identify(os.stat(self.root).st_ino), self.root, here, contents, self._chance.random() < 0.5
        )
        spared = {
            path: Path(path).read_bytes()
            for path in here.values()
            if os.path.basename(path).startswith(SPARED)
        }
        _empty(self.root)
        for path, data in {**contents, **spared}.items():
            target = Path(path)
            if data is None:
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        self.forget_the_past()

    def replace(self) -> None:
        """The disk is replaced by an empty one, while no process uses it."""
        self._at_work = True
        try:
            _empty(self.root)
        finally:
            self._at_work = False
        self.forget_the_past()
        self._note("replaced")

    def _paths_now(self) -> dict[int, str]:
        """The path of each existing file and folder, by identity."""
        here = {}
        for folder, folders, files in os.walk(self.root):
            for name in (*folders, *files):
                path = os.path.join(folder, name)
                here[self._identify(os.stat(path).st_ino)] = path
        return here

    def forget_the_past(self) -> None:
        """Everything now on the disk is durable, because it is what a power cut has left behind."""
        self._contents.clear()
        self._names.clear()
        self._identity.clear()
        if not self.watch_power:
            return
        for folder, _, files in os.walk(self.root):
            self._names[self._identify(os.stat(folder).st_ino)] = self._entries(folder)
            for name in files:
                path = Path(folder, name)
                self._contents[self._identify(path.stat().st_ino)] = path.read_bytes()

    def _restore(
        self, folder: int, path: str, here: dict[int, str], contents: dict[str, bytes | None], harsh: bool
    ) -> None:
        """Add to `contents` what the disk has below `path`; None for a folder."""
        names = self._names.get(folder, {})
        path_now = self.root if path == self.root else here.get(folder)
        if not harsh and path_now is not None and self._chance.random() < 0.5:
            names = self._entries(path_now)
        for name in sorted(name for name in names if not name.startswith(SPARED)):
            identity, target = names[name], os.path.join(path, name)
            now = here.get(identity)
            if identity in self._names or (now is not None and os.path.isdir(now)):
                contents[target] = None
                self._restore(identity, target, here, contents, harsh)
                continue
            kept = self._contents.get(identity, b"")
            if not harsh and now is not None:
                kept = self._torn(kept, Path(now).read_bytes())
            contents[target] = kept

    def _torn(self, synced: bytes, written: bytes) -> bytes:
        """Possible contents of a file of which `synced` is durable and `written` was in the cache."""
        fate = self._chance.random()
        if fate < 0.3 or synced == written:
            return synced
        if fate < 0.6:
            return written
        size_bytes = self._chance.randrange(
            min(len(synced), len(written)), max(len(synced), len(written)) + 1
        )
        pages = bytearray(size_bytes)
        for at in range(0, size_bytes, PAGE_BYTES):
            source = written if self._chance.random() < 0.5 else synced
            part = source[at : min(at + PAGE_BYTES, size_bytes)]
            pages[at : at + len(part)] = part
        return bytes(pages)


def _content(fd: int) -> bytes:
    with open(f"/proc/self/fd/{fd}", "rb", buffering=0) as file:
        return file.read()


def _empty(folder: str) -> None:
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


# ----------------------------------------------------------------------------------------------- installing


class Disks:
    """The disks of a simulation, found by path and descriptor."""

    def __init__(self) -> None:
        self.disks: list[SimDisk] = []
        self.files: dict[int, tuple[SimDisk, str]] = {}
        self.real: dict[str, Any] = {name: getattr(os, name) for name in PATCHED}

    def at(self, path: Any) -> SimDisk | None:
        text = path if isinstance(path, str) else os.fspath(path) if isinstance(path, os.PathLike) else ""
        for disk in self.disks:
            if text.startswith(disk.root):
                return disk
        return None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the functions of `os` that modify files, within a `with` block."""
        for name in PATCHED:
            setattr(os, name, getattr(self, f"_{name}"))
        connect = sqlite3.connect
        sqlite3.connect = self._connecting(connect)
        try:
            yield
        finally:
            sqlite3.connect = connect
            for name in PATCHED:
                setattr(os, name, self.real[name])
            self.files.clear()

    def _connecting(self, connect: Any) -> Any:
        def noting(path: str, *args: Any, **options: Any) -> sqlite3.Connection:
            database: sqlite3.Connection = connect(path, *args, **options)
            disk = self.at(path)
            if disk is not None:
                disk.databases.append(database)
            return database

        return noting

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        disk = self.at(path)
        if disk is None or dir_fd is not None or SPARED in str(path):
            fd: int = self.real["open"](path, flags, mode, dir_fd=dir_fd)
            return fd
        if disk.dead:
            raise Killed
        fresh = bool(flags & os.O_CREAT) and not os.path.exists(path)
        if fresh:
            disk.before("create", path)
        fd = self.real["open"](path, flags, mode)
        if fresh:
            disk.created(os.fstat(fd).st_ino)
        self.files[fd] = (disk, path)
        if os.path.basename(path) == LOCK_FILE:
            disk.locks.add(fd)
        return fd

    def _close(self, fd: int) -> None:
        place = self.files.pop(fd, None)
        if place is not None:
            place[0].locks.discard(fd)
        self.real["close"](fd)

    def _pwrite(self, fd: int, data: Any, position: int) -> int:
        place = self.files.get(fd)
        if place is not None:
            disk, path = place
            disk.before("pwrite", path)
            count = len(data)
            taken = disk.bytes_to_write(path, count)
            if taken < count:
                data = memoryview(data)[:taken]
        written: int = self.real["pwrite"](fd, data, position)
        return written

    def _write(self, fd: int, data: Any) -> int:
        place = self.files.get(fd)
        if place is not None:
            place[0].before("write", place[1])
        written: int = self.real["write"](fd, data)
        return written

    def _pread(self, fd: int, count: int, position: int) -> bytes:
        place = self.files.get(fd)
        if place is not None:
            place[0].before_read(place[1])
        data: bytes = self.real["pread"](fd, count, position)
        return data

    def _preadv(self, fd: int, buffers: Any, position: int, *flags: int) -> int:
        place = self.files.get(fd)
        if place is not None:
            place[0].before_read(place[1])
        count: int = self.real["preadv"](fd, buffers, position, *flags)
        return count

    def _sync(self, name: str, fd: int) -> None:
        place = self.files.get(fd)
        if place is None:
            self.real[name](fd)
            return
        disk, path = place
        disk.before(name, path)
        disk.synced(fd, path)

    def _fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def _fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def _ftruncate(self, fd: int, size: int) -> None:
        place = self.files.get(fd)
        if place is not None:
            place[0].before("ftruncate", place[1])
        self.real["ftruncate"](fd, size)

    def _truncate(self, path: Any, size: int) -> None:
        self._check("truncate", path)
        self.real["truncate"](path, size)

    def _replace(self, source: Any, target: Any, **dir_fds: Any) -> None:
        self._check("replace", target)
        self.real["replace"](source, target, **dir_fds)
        self._follow(source, target)

    def _rename(self, source: Any, target: Any, **dir_fds: Any) -> None:
        self._check("rename", target)
        self.real["rename"](source, target, **dir_fds)
        self._follow(source, target)

    def _follow(self, source: Any, target: Any) -> None:
        """Update the paths of open descriptors of a renamed path, and of those below it."""
        if self.at(target) is None:
            return
        below = f"{source}/"
        for fd, (owner, path) in self.files.items():
            if path == source or path.startswith(below):
                self.files[fd] = (owner, f"{target}{path[len(source) :]}")

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is None:
            self._check("unlink", path)
        self.real["unlink"](path, dir_fd=dir_fd)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._check("mkdir", path)
        self.real["mkdir"](path, mode, dir_fd=dir_fd)
        disk = self.at(path)
        if disk is not None:
            disk.created(os.stat(path).st_ino)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self.real["rmdir"](path, dir_fd=dir_fd)

    def _check(self, name: str, path: Any) -> None:
        disk = self.at(path)
        if disk is not None:
            disk.before(name, path)
