"""A disk whose cache is lost with the power: only what was synced, under names that were synced, comes back.

Inside `with PowerCut(folder) as power:` syncs are noted (the real calls go through). `power.cut()` then puts the
folder into the state in which such a disk would show it: the harshest one that POSIX allows.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class PowerCut:
    """See the module. Watches one folder and those below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._contents: dict[int, bytes] = {}
        self._names: dict[str, dict[str, int]] = {}
        self._real = {name: getattr(os, name) for name in ("fsync", "fdatasync")}
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        for name in self._real:
            setattr(os, name, self._noting(name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def _noting(self, name: str) -> Any:
        def sync(fd: int) -> None:
            self._note(fd)
            self._real[name](fd)

        return sync

    def _note(self, fd: int) -> None:
        status = os.fstat(fd)
        path = os.readlink(f"/proc/self/fd/{fd}")
        if stat.S_ISDIR(status.st_mode):
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            with open(f"/proc/self/fd/{fd}", "rb") as file:
                self._contents[status.st_ino] = file.read()

    def cut(self) -> None:
        """The power goes and comes back."""
        contents = self._restored(str(self.folder))
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        for path, data in contents.items():
            target = Path(path)
            if data is None:
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        # What came back from the disk is on the disk.
        self._contents.clear()
        self._names.clear()
        for path, _, files in os.walk(self.folder):
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
            for name in files:
                self._contents[os.stat(os.path.join(path, name)).st_ino] = Path(path, name).read_bytes()

    def _restored(self, folder: str) -> dict[str, bytes | None]:
        contents: dict[str, bytes | None] = {}
        for name, inode in self._names.get(folder, {}).items():
            path = os.path.join(folder, name)
            if path in self._names or os.path.isdir(path):
                contents[path] = None
                contents.update(self._restored(path))
            else:
                contents[path] = self._contents.get(inode, b"")
        return contents
