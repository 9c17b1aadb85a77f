"""What the agent remembers between runs: how far each file was sent.

One JSON file per cluster and topic, replaced atomically and fsynced. A file is known by (device, inode), and what
was read of it is verified by two digests: of its first bytes and of the bytes just before the position. So a reused
inode or a truncated file is read from the beginning. Another inode under the same name is the same file if it has the
bytes that were read: an editor replaced it, or it was restored. The topic's id is part of the state's name: a topic
that was deleted and created again is filled from the start, under the same file ids, so that lines that the new topic
already has are recognized.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from barnabas.terminal.errors import CliError

DIGEST_BYTES: Final = 1024
"""How many bytes of a file's beginning, and before the position, identify it."""
FORMAT: Final = 3
HEAD_BYTES_MIN: Final = 16
"""Fewer first bytes do not distinguish files."""
EDITOR_BACKUPS: Final = ("~", ".bak", ".orig")
"""Names under which editors keep a file that they have replaced. Under every other name the file was rotated."""


@dataclass(slots=True)
class Entry:
    """One file: who it is and how far its lines were acknowledged. Positions are bytes."""

    path: str
    device: int
    inode: int
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    """Distinguishes this file's records from those of others in the topic; is kept when the file is renamed."""
    position: int = 0
    lines: int = 0
    head_bytes: int = 0
    head_digest: str = ""
    tail_digest: str = ""
    packed_bytes: int = 0
    """The size of a compressed file that was read to its end; its positions are those of its contents."""

    def verifies(self, descriptor: int, size_bytes: int) -> bool:
        """Whether the open file holds the bytes that were read when this entry was written."""
        if size_bytes < max(self.position, self.head_bytes):
            return False
        head = os.pread(descriptor, self.head_bytes, 0)
        return (not self.head_bytes or digest(head) == self.head_digest) and (
            not self.position or digest(bytes_before(descriptor, self.position)) == self.tail_digest
        )

    def advance(self, position: int, lines: int, first: bytes, tail: bytes) -> None:
        """Everything before `position` is acknowledged, `lines` more lines; `tail` are the bytes before it.

        These are the bytes that were read, not the file's present contents: it may have been truncated meanwhile.
        """
        self.position = position
        self.lines += lines
        self.note_head(first)
        self.tail_digest = digest(tail)

    def cut(self, size_bytes: int, first: bytes, tail: bytes) -> None:
        """The file is shorter than what was read of it."""
        self.head_bytes, self.head_digest = len(first), digest(first)
        if self.position > size_bytes:
            self.position, self.tail_digest = size_bytes, digest(tail)

    def note_head(self, first: bytes) -> None:
        """The file begins with these bytes, up to DIGEST_BYTES of them."""
        if len(first) > self.head_bytes:
            self.head_bytes, self.head_digest = len(first), digest(first)


def digest(data: bytes) -> str:
    """A short digest."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def bytes_before(descriptor: int, position: int) -> bytes:
    """The bytes of an open file that end at `position`, up to DIGEST_BYTES of them."""
    size = min(position, DIGEST_BYTES)
    return os.pread(descriptor, size, position - size)


@dataclass(slots=True)
class State:
    """The state file of one topic. Opened by one agent at a time."""

    path: Path
    lock: int
    entries: list[Entry] = field(default_factory=list)
    clean: bool = False
    """Whether the last run ended with all its lines acknowledged and noted in the state."""
    starts: dict[int, int] = field(default_factory=dict)
    """By partition: no record beyond the positions lies before this offset. A partition that is missing: 0."""
    topic: str = ""
    cluster: str = ""
    input: str = ""
    """The name of the input in the configuration; empty for `agent tail`."""
    patterns: tuple[str, ...] = ()
    """What the last run followed."""
    written_ns: int | None = None
    """When the state was saved last by an earlier run; None if there was none. Files that were rotated since may be unknown.
    """
    looked_for_missed: bool = True
    """Whether these files were looked for; if they cannot be read yet, the next run looks from the same time on."""
    saved: set[str] = field(default_factory=set)
    """Ids of the entries that are on the disk with the first bytes of their files. No line of a file is sent before
    that: the next run must know to which file a record belongs.
    """

    @property
    def marker(self) -> Path:
        """An empty file that means: the last run ended cleanly. The next run removes it, which is possible on a full
        disk.
        """
        return self.path.with_suffix(".clean")

    def claim(self, path: str, descriptor: int, taken: set[str]) -> Entry:
        """The entry of an open file; a new one when it was never seen. `taken`: ids in use by open files."""
        status = os.fstat(descriptor)
        free = [entry for entry in self.entries if entry.id not in taken]
        for entry in free:
            is_same = (entry.device, entry.inode) == (status.st_dev, status.st_ino)
            if is_same and entry.verifies(descriptor, status.st_size):
                entry.path = path
                return entry
        for entry in free:
            if entry.path == path and entry.position and entry.verifies(descriptor, status.st_size):
                kept = find_inode(Path(path).parent, (entry.device, entry.inode))
                # If two files only look alike, rotation has left the old one in the folder.
                if kept is None or kept.name.endswith(EDITOR_BACKUPS):
                    entry.device, entry.inode = status.st_dev, status.st_ino
                    return entry
        new_entry = Entry(path, status.st_dev, status.st_ino)
        self.entries.append(new_entry)
        return new_entry

    def claim_packed(self, path: str, key: tuple[int, int], descriptor: int, taken: set[str]) -> Entry | None:
        """The entry of a compressed file, of which the descriptor has the contents; None while another open file is
        the one that was compressed.

        The contents may have been shipped before they were compressed.
        """
        size = os.fstat(descriptor).st_size
        for entry in self.entries:
            is_known = (entry.device, entry.inode) == key
            if not is_known and not (entry.position and entry.head_bytes >= HEAD_BYTES_MIN):
                continue
            if not entry.verifies(descriptor, size):
                continue
            if not is_known and find_inode(Path(entry.path).parent, (entry.device, entry.inode)) is not None:
                continue  # both are there; they only look alike
            if entry.id in taken:
                return None
            entry.path, (entry.device, entry.inode) = path, key
            return entry
        new_entry = Entry(path, *key)
        self.entries.append(new_entry)
        return new_entry

    def save(self, clean: bool, starts: dict[int, int]) -> None:
        """Write the state so that a crash leaves the old or the new one, whole. Raises OSError."""
        self.starts = starts
        kept = {
            "format": FORMAT,
            "topic": self.topic,
            "cluster": self.cluster,
            "input": self.input,
            "patterns": self.patterns,
            "since": None if self.looked_for_missed else self.written_ns,
            "starts": starts,
            "files": [asdict(entry) for entry in self.entries],
        }
        temporary = self.path.with_suffix(".tmp")
        try:
            with temporary.open("w", encoding="utf-8", errors="surrogateescape") as out:
                json.dump(kept, out, indent=1)
                out.flush()
                os.fsync(out.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()  # an incomplete file would only fill the disk
            raise
        temporary.replace(self.path)
        self.saved = {entry.id for entry in self.entries if entry.head_bytes}
        if clean:
            self.marker.touch()
        sync_folder(self.path.parent)

    def begin(self) -> None:
        """Note that a run has begun: until it ends cleanly, it is not known what it has sent. Raises OSError."""
        self.clean = self.marker.exists()
        if self.clean:
            self.marker.unlink()
            sync_folder(self.path.parent)

    def forget_gone(self, open_ids: set[str], open_paths: set[str]) -> None:
        """Drop the entries of files that no longer exist, so that the state does not grow for ever."""
        self.entries = [
            entry for entry in self.entries if entry.id in open_ids or is_needed(entry, open_paths)
        ]

    def close(self) -> None:
        """Release the state for another agent."""
        os.close(self.lock)


def sync_folder(folder: Path) -> None:
    """Sync what was created, renamed and removed in a folder. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_inode(folder: Path, key: tuple[int, int]) -> Path | None:
    """The file of a folder that is this (device, inode), whatever its name; None when it is not there."""
    try:
        with os.scandir(folder) as items:
            for item in items:
                if item.inode() == key[1]:
                    status = item.stat(follow_symlinks=False)
                    if (status.st_dev, status.st_ino) == key:
                        return folder / item.name
    except OSError:
        return None
    return None


def is_needed(entry: Entry, open_paths: set[str]) -> bool:
    """Whether the file of an entry that is not open may be continued later."""
    folder = Path(entry.path).parent
    if not folder.is_dir():
        return True  # not mounted at the moment, perhaps
    if find_inode(folder, (entry.device, entry.inode)) is not None:
        return True
    # The name belongs to another file. If that file is followed, it has its own entry.
    return os.path.exists(entry.path) and entry.path not in open_paths


def default_folder() -> Path:
    """Where state is kept when --state is not given."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "barnabas" / "agent"


def open_state(folder: Path, name: str, topic: str = "", cluster: str = "", input: str = "") -> State:
    """The state called `name`, locked. Raises CliError when another agent has it or it cannot be read.

    topic, cluster, input: when there is no such state yet, but one of an earlier topic of this name, the files keep
    their ids.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        state = State(
            folder / f"{name}.json",
            lock_state(folder / f"{name}.lock"),
            topic=topic,
            cluster=cluster,
            input=input,
        )
        state.begin()
    except BlockingIOError:
        raise CliError(
            f"another agent already ships into this topic with the state in {folder}; stop it, or give it "
            "all the files, or name another folder with --state"
        ) from None
    except OSError as error:
        raise CliError(
            f"cannot keep state in {folder}: {error.strerror}; name another folder with --state"
        ) from None
    if state.path.exists():
        fill(state, state.path)
    elif topic:
        take_over(state)
    return state


def lock_state(path: Path) -> int:
    """The descriptor of a lock that ends with the process. Raises BlockingIOError when another has it, OSError."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise
    return lock


def take_over(state: State) -> None:
    """Begin with the file ids of a topic of the same name that is gone, at position 0, and remove its state.

    An agent that was running when the topic was created again has sent lines to the new topic under these ids;
    reading the end of the topic finds them.
    """
    for path in state.path.parent.glob(f"{glob.escape(state.topic)}-????????????.json"):
        try:
            lock = lock_state(path.with_suffix(".lock"))
        except OSError:
            continue  # another agent's
        try:
            old = State(path, lock)
            fill(old, path)
            if (old.topic, old.cluster, old.input) != (state.topic, state.cluster, state.input):
                continue
            state.entries += [replace(entry, position=0, lines=0, tail_digest="") for entry in old.entries]
            state.clean = False
            old.marker.unlink(missing_ok=True)
            path.unlink()
            path.with_suffix(".lock").unlink()
        except (CliError, OSError):
            continue
        finally:
            os.close(lock)


def fill(state: State, path: Path) -> None:
    """Read a state file. Raises CliError when it is damaged."""
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as source:
            read: dict[str, Any] = json.load(source)
        if read["format"] not in (1, 2, FORMAT):
            raise ValueError(f"format {read['format']}")
        state.entries = [Entry(**entry) for entry in read["files"]]
        # Format 1 had a time instead of offsets; without offsets the whole topic is read once.
        starts = read.get("starts", {})
        state.starts = {int(part): offset for part, offset in starts.items()}
        state.topic, state.cluster = read.get("topic", state.topic), read.get("cluster", state.cluster)
        state.input = read.get("input", state.input)
        state.patterns = tuple(read.get("patterns", ()))
        state.written_ns = read.get("since") or os.stat(path).st_mtime_ns
        state.saved = {entry.id for entry in state.entries if entry.head_bytes}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CliError(f"cannot read the state {path}: {error}; --reset begins anew") from None
