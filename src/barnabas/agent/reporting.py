"""What the state folder says about agents: which files were shipped how far. It is read while agents run."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from barnabas.agent.state import Entry, State, fill, lock_state
from barnabas.terminal.errors import CliError


@dataclass(frozen=True, slots=True)
class FileStatus:
    """How far one file was shipped. size: None if it is gone. All in bytes."""

    path: str
    position: int
    records: int
    size: int | None

    @property
    def behind(self) -> int:
        """How much of it is not acknowledged."""
        return max((self.size or 0) - self.position, 0)


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One state: what goes into one topic. input: empty for `agent tail`. runs: an agent has it open."""

    topic: str
    input: str
    runs: bool
    written_at: float
    files: tuple[FileStatus, ...]


def statuses(folder: Path) -> Iterator[TopicStatus]:
    """What the folder knows, by topic. Raises CliError."""
    if not folder.is_dir():
        raise CliError(f"{folder}: no such folder; no agent has kept its positions there")
    for path in sorted(folder.glob("*.json")):
        state = State(path, -1)
        try:
            fill(state, path)
        except CliError:
            if not path.exists():
                continue  # the topic was created again
            raise
        with contextlib.suppress(OSError, json.JSONDecodeError):
            yield TopicStatus(
                state.topic,
                state.input,
                is_locked(path.with_suffix(".lock")),
                path.stat().st_mtime,
                tuple(status_of(entry) for entry in state.entries),
            )


def is_locked(path: Path) -> bool:
    """Whether an agent runs with a state."""
    try:
        os.close(lock_state(path))
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def status_of(entry: Entry) -> FileStatus:
    """The status of one file. The size of a compressed file is not that of its contents."""
    try:
        stat = os.stat(entry.path)
    except OSError:
        return FileStatus(entry.path, entry.position, entry.lines, None)
    is_same = (stat.st_dev, stat.st_ino) == (entry.device, entry.inode)
    size = entry.position if entry.packed_bytes else stat.st_size
    return FileStatus(entry.path, entry.position, entry.lines, size if is_same else None)
