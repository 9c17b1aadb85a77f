"""What the agent remembers between runs: how far each file was shipped.

One JSON file per cluster and topic, replaced atomically and fsynced. A file is known by
(device, inode), and what was read of it is verified by two digests: of its first bytes and of the
bytes just before the position. So a reused inode or a truncated file begins anew, while a file
that an editor replaced or that moved to another disk goes on where it was. The topic's id is part
of the state's name: a topic that was deleted and created again is shipped into from the start.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.cli.errors import CliError

DIGEST_BYTES: Final = 1024
"""How much of a file's head, and of what lies before the position, identifies it."""
FORMAT: Final = 1


@dataclass(slots=True)
class Entry:
    """One file: who it is and how far its lines were acknowledged. Positions are bytes."""

    path: str
    device: int
    inode: int
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    """Tells this file's records from those of others in the topic; stays when the file is renamed."""
    position: int = 0
    lines: int = 0
    head_bytes: int = 0
    head_digest: str = ""
    tail_digest: str = ""

    def verifies(self, descriptor: int, size_bytes: int) -> bool:
        """Whether the open file holds the bytes that were read when this entry was written."""
        if self.position == 0:
            return True
        if size_bytes < self.position:
            return False
        head = digest(descriptor, 0, self.head_bytes)
        return head == self.head_digest and tail_digest(descriptor, self.position) == self.tail_digest

    def advance(self, descriptor: int, position: int, lines: int) -> None:
        """Everything before `position` is acknowledged, `lines` more lines."""
        self.position = position
        self.lines += lines
        if self.head_bytes < DIGEST_BYTES:
            self.head_bytes = min(position, DIGEST_BYTES)
            self.head_digest = digest(descriptor, 0, self.head_bytes)
        self.tail_digest = tail_digest(descriptor, position)


def digest(descriptor: int, start: int, size_bytes: int) -> str:
    """A short digest of a range of an open file."""
    return hashlib.blake2b(os.pread(descriptor, size_bytes, start), digest_size=12).hexdigest()


def tail_digest(descriptor: int, position: int) -> str:
    """Digest of the bytes that end at `position`."""
    size = min(position, DIGEST_BYTES)
    return digest(descriptor, position - size, size)


@dataclass(slots=True)
class State:
    """The state file of one topic. Opened by one agent at a time."""

    path: Path
    lock: int
    entries: list[Entry] = field(default_factory=list)
    clean: bool = True
    """Whether the last run ended with everything it sent acknowledged and written down."""
    since_ms: int = 0
    """No record beyond the positions was sent before this time (ms since the epoch)."""

    def claim(self, path: str, descriptor: int, taken: set[str]) -> Entry:
        """The entry of an open file; a new one when it was never seen. `taken`: ids in use by open files."""
        status = os.fstat(descriptor)
        free = [entry for entry in self.entries if entry.id not in taken]
        for entry in free:
            if (entry.device, entry.inode) == (status.st_dev, status.st_ino):
                if entry.verifies(descriptor, status.st_size):
                    entry.path = path
                    return entry
                break
        for entry in free:
            # The same bytes in another inode. Short files resemble each other, so the name must agree.
            alike = entry.position >= DIGEST_BYTES or (entry.path == path and entry.position > 0)
            if alike and entry.verifies(descriptor, status.st_size) and not still_there(entry):
                entry.path, entry.device, entry.inode = path, status.st_dev, status.st_ino
                return entry
        made = Entry(path, status.st_dev, status.st_ino)
        self.entries.append(made)
        return made

    def save(self, clean: bool, since_ms: int) -> None:
        """Write the state so that a crash leaves the old or the new one, whole."""
        self.clean, self.since_ms = clean, since_ms
        kept = {
            "format": FORMAT,
            "clean": clean,
            "since_ms": since_ms,
            "files": [asdict(e) for e in self.entries],
        }
        temporary = self.path.with_suffix(".tmp")
        with temporary.open("w", encoding="utf-8", errors="surrogateescape") as out:
            json.dump(kept, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def forget_gone(self, open_ids: set[str]) -> None:
        """Drop the entries of files that are no more, so that the state does not grow for ever."""
        self.entries = [entry for entry in self.entries if entry.id in open_ids or Path(entry.path).exists()]

    def close(self) -> None:
        """Let another agent have the state."""
        os.close(self.lock)


def still_there(entry: Entry) -> bool:
    """Whether the entry's own file still lies at its path with the bytes that were read."""
    try:
        descriptor = os.open(entry.path, os.O_RDONLY)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        same = (status.st_dev, status.st_ino) == (entry.device, entry.inode)
        return same and entry.verifies(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def default_folder() -> Path:
    """Where state is kept when --state is not given."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "barnabas" / "agent"


def open_state(folder: Path, name: str) -> State:
    """The state called `name`, locked. Raises CliError when another agent has it or it cannot be read."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise CliError(
            f"cannot keep state in {folder}: {error.strerror}; name another folder with --state"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise CliError(
            f"another agent already ships into this topic with the state in {folder}; stop it, or give it "
            "all the files, or name another folder with --state"
        ) from None
    path = folder / f"{name}.json"
    state = State(path, lock)
    if path.exists():
        fill(state)
    return state


def fill(state: State) -> None:
    """Read the state file. Raises CliError when it is damaged."""
    try:
        with state.path.open(encoding="utf-8", errors="surrogateescape") as source:
            read: dict[str, Any] = json.load(source)
        if read["format"] != FORMAT:
            raise ValueError(f"format {read['format']}")
        state.entries = [Entry(**entry) for entry in read["files"]]
        state.clean, state.since_ms = read["clean"], read["since_ms"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CliError(f"cannot read the state {state.path}: {error}; --reset begins anew") from None
