"""Files that grow: reading whole lines, following rotation, noticing truncation.

A file stays open while it is followed, so lines written to it after a rename still arrive. It is
left when its name leads to another file and it has been silent for a while.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.cli.agent.state import DIGEST_BYTES, Entry, State, tail_digest
from barnabas.cli.errors import CliError

CHUNK_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 64 << 20
"""A line longer than this is cut off the file as one refused line, so that memory stays bounded."""
SILENT_SECONDS: Final = 10.0
"""How long a renamed or deleted file is still watched: its writer may not have reopened yet."""
GZIP_MAGIC: Final = b"\x1f\x8b"


@dataclass(slots=True)
class Piece:
    """Consecutive lines of one file, without their newlines. `end` is the position after the last one."""

    lines: list[bytes]
    start: int
    end: int


@dataclass(slots=True)
class Followed:
    """One open file. `position` is where the next unread line begins; the entry's own lags behind."""

    path: str
    descriptor: int
    entry: Entry
    position: int
    partial: list[bytes] = field(default_factory=list)
    """Bytes after `position` that have no newline yet."""
    partial_bytes: int = 0
    tail: str = ""
    """Digest of what lies before `read_position` when it was read: tells a regrown file from a grown one."""
    owes_newline: bool = False
    """The last line was taken without its newline; the newline itself is no further line."""
    moved: bool = False
    """The name leads elsewhere now."""
    grew_at: float = field(default_factory=time.monotonic)
    outstanding: int = 0
    """Pieces that are not acknowledged yet; the descriptor stays open for them."""
    dropped: bool = False
    """Truncated: what is acknowledged from now on says nothing about the file's present bytes."""
    closing: bool = False

    @property
    def read_position(self) -> int:
        """Where the next byte is read."""
        return self.position + self.partial_bytes

    def read(self) -> Piece | None:
        """The next whole lines; None when there is nothing new. Raises Truncated."""
        size = os.fstat(self.descriptor).st_size
        at = self.read_position
        if size < at:
            raise Truncated
        if size == at:
            return None
        if at and self.tail and tail_digest(self.descriptor, at) != self.tail:
            raise Truncated
        data = os.pread(self.descriptor, CHUNK_BYTES, at)
        if not data:
            return None
        if self.owes_newline:
            self.owes_newline = False
            if data.startswith(b"\n"):
                self.position += 1
                self.tail = tail_digest(self.descriptor, at + 1)
                return self.read()
        self.grew_at = time.monotonic()
        self.remember_tail(data, at)
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            self.partial.append(data)
            self.partial_bytes += len(data)
            return self.take_partial() if self.partial_bytes > LINE_BYTES_MAX else None
        start, end = self.position, at + len(head) + 1
        lines = (b"".join([*self.partial, head])).split(b"\n")
        self.partial = [rest] if rest else []
        self.partial_bytes = len(rest)
        self.position = end
        return Piece(lines, start, end)

    def remember_tail(self, data: bytes, at: int) -> None:
        """Note the digest of what now lies before the read position."""
        self.tail = tail_digest(self.descriptor, at + len(data))

    def take_partial(self) -> Piece | None:
        """The last line although it has no newline; None when there is none."""
        if not self.partial_bytes:
            return None
        start, end = self.position, self.read_position
        line = b"".join(self.partial)
        self.partial, self.partial_bytes, self.position = [], 0, end
        self.owes_newline = True
        return Piece([line], start, end)

    def close(self) -> None:
        """Close the descriptor as soon as nothing is outstanding."""
        self.closing = True
        if not self.outstanding:
            os.close(self.descriptor)

    def acknowledged(self, piece: Piece) -> None:
        """Everything up to the piece's end has arrived: move the entry there."""
        if not self.dropped:
            self.entry.advance(self.descriptor, piece.end, len(piece.lines))
        self.outstanding -= 1
        if self.closing and not self.outstanding:
            os.close(self.descriptor)

    def is_over(self) -> bool:
        """Whether a moved file has been read to its end and has been silent for a while."""
        return self.moved and time.monotonic() - self.grew_at > SILENT_SECONDS


class Truncated(Exception):
    """The file holds other bytes than those that were read; it begins anew."""


@dataclass(slots=True)
class Watcher:
    """All the files that the patterns match, with those that were renamed since."""

    patterns: list[str]
    state: State
    open_files: dict[tuple[int, int], Followed] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    """Paths that were not followed, so that each is told of once."""
    notes: list[str] = field(default_factory=list)

    def scan(self) -> None:
        """Open files that are new, and mark those whose name leads elsewhere."""
        found: dict[tuple[int, int], str] = {}
        for path in matching(self.patterns):
            try:
                status = os.stat(path)
            except OSError:
                continue
            found.setdefault((status.st_dev, status.st_ino), path)
        for key, followed in self.open_files.items():
            if key in found:
                # A rename that the patterns still match is the same file under a new name.
                followed.path = followed.entry.path = found[key]
            followed.moved = key not in found
        for key, path in found.items():
            if key not in self.open_files:
                self.follow(key, path)

    def follow(self, key: tuple[int, int], path: str) -> None:
        """Open one file where the state says that it goes on."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.skip(path, f"cannot read {path}: {error.strerror}")
            return
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != key:
            os.close(descriptor)  # rotated between stat and open; the next scan sees it
            return
        if os.pread(descriptor, 2, 0) == GZIP_MAGIC:
            os.close(descriptor)
            self.skip(
                path, f"{path} is compressed and left out; ship it with `zcat {path} | barnabas produce`"
            )
            return
        taken = {followed.entry.id for followed in self.open_files.values()}
        entry = self.state.claim(path, descriptor, taken)
        followed = Followed(path, descriptor, entry, entry.position)
        if entry.position:
            followed.tail = tail_digest(descriptor, entry.position)
            followed.owes_newline = os.pread(descriptor, 1, entry.position - 1) != b"\n"
        self.open_files[key] = followed

    def skip(self, path: str, message: str) -> None:
        """Leave a file out, saying so once."""
        if path not in self.skipped:
            self.skipped.add(path)
            self.notes.append(message)

    def restart(self, key: tuple[int, int]) -> None:
        """A truncated file begins anew, as another file in the state."""
        old = self.open_files[key]
        self.notes.append(f"{old.path} was truncated; reading it from its start")
        entry = Entry(old.path, *key)
        self.state.entries.append(entry)
        self.open_files[key] = Followed(old.path, os.dup(old.descriptor), entry, 0)
        old.dropped = True
        self.state.entries.remove(old.entry)
        old.close()

    def close(self, key: tuple[int, int]) -> None:
        """Stop following a file; its descriptor is closed once its lines are acknowledged."""
        self.open_files.pop(key).close()


def matching(patterns: Iterable[str]) -> list[str]:
    """Absolute paths of the regular files that the patterns match, in a stable order."""
    found: dict[str, None] = {}
    for pattern in patterns:
        names = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]
        found |= dict.fromkeys(os.path.abspath(name) for name in names if os.path.isfile(name))
    return list(found)


def require_files(patterns: Iterable[str]) -> None:
    """Raises CliError for a plain name that is not there, or when nothing at all can be read."""
    for pattern in patterns:
        if glob.has_magic(pattern) or os.path.exists(pattern):
            if os.path.isdir(pattern):
                raise CliError(
                    f"{pattern} is a folder; name its files, for example '{Path(pattern) / '*.log'}'"
                )
            continue
        raise CliError(f"{pattern}: no such file; quote a pattern to wait for files that are yet to come")


assert DIGEST_BYTES <= CHUNK_BYTES
