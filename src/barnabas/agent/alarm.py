"""Linux's inotify beside polling: a new file is opened at once, and idle files cost nothing.

What inotify does not say (on network file systems, after too many events) the next full round finds: it only makes the
agent faster. So a file that lives for less than a second is not missed where inotify works.
"""

from __future__ import annotations

import contextlib
import glob
import os
import select
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

FULL_SECONDS: Final = 5.0
"""How often everything is looked at although nothing was heard."""


@dataclass(slots=True, eq=False)
class Alarm:
    """Watches folders. changed: paths of files that were written to since they were read. has_new: names came or went."""

    source: Any
    changed: set[str] = field(default_factory=set)
    has_new: bool = True
    is_lost: bool = False
    """Events were lost: everything may have changed."""
    _folders: dict[int, str] = field(default_factory=dict)
    _watched: dict[str, int] = field(default_factory=dict)

    def watch(self, patterns: Iterable[str]) -> None:
        """Watch the folders in which files with these names may appear; those that are watched already stay so."""
        from inotify_simple import flags

        wanted = (
            flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE | flags.MODIFY | flags.ONLYDIR
        )
        for pattern in patterns:
            folder = os.path.dirname(os.path.abspath(pattern))
            folders = glob.glob(folder, recursive=True) if glob.has_magic(folder) else [folder]
            for path in folders:
                path = os.path.abspath(path)
                if path in self._watched:
                    continue
                with contextlib.suppress(OSError):  # it is polled instead
                    number = self.source.add_watch(path, wanted)
                    self._folders[number], self._watched[path] = path, number

    def wait(self, seconds: float) -> None:
        """Wait until something happens, with a time limit, and note what it was."""
        try:
            ready, _, _ = select.select([self.source], [], [], seconds)
        except OSError:
            return
        if ready:
            self._note()

    def _note(self) -> None:
        from inotify_simple import flags

        for event in self.source.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW:
                self.is_lost = self.has_new = True
                continue
            folder = self._folders.get(event.wd)
            if event.mask & flags.IGNORED:
                self._folders.pop(event.wd, None)
                if folder is not None and self._watched.get(folder) == event.wd:
                    del self._watched[folder]
                self.has_new = True
                continue
            if folder is not None and event.name:
                self.changed.add(f"{folder}/{event.name}" if folder != "/" else f"/{event.name}")
            if not event.mask & flags.MODIFY:
                self.has_new = True

    def close(self) -> None:
        """Watch no more."""
        self.source.close()


def new_alarm() -> Alarm | None:
    """An alarm; None where there is no inotify."""
    try:
        from inotify_simple import INotify

        return Alarm(INotify())
    except (ImportError, OSError, AttributeError):
        return None
