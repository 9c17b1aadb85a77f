"""Reads whole lines from growing files, and notices when a file is truncated or has other contents.

Which files are followed, and until when, is decided in `watcher.py`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from barnabas.agent.events import Framed
from barnabas.agent.state import DIGEST_BYTES, HEAD_BYTES_MIN, Entry, bytes_before, digest

CHUNK_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 64 << 20
"""A line longer than this is left out, so that memory stays bounded."""
CLOSED: Final = -1
MAGICS: Final = (
    (b"\x1f\x8b", "zcat"),
    (b"BZh", "bzcat"),
    (b"\xfd7zXZ\0", "xzcat"),
    (b"\x28\xb5\x2f\xfd", "zstdcat"),
    (b"\x04\x22\x4d\x18", "lz4cat"),
)
BZIP2_BLOCK: Final = b"1AY&SY"


@dataclass(slots=True)
class Piece:
    """Consecutive lines of one file, without their newlines. `end` is the position after the last one.

    block: instead of `lines`, all their bytes with the newlines; block_lines: how many they are. framed: how values are made
    of these; None: they are the lines.

    lines may be empty: bytes were read, but no line is complete. tail: the bytes before `end`, up to DIGEST_BYTES of
    them. too_long: 1 when a line before these was left out; start_tail: the bytes before `start` in that case.

    positions: where each of the lines begins, when they do not follow each other: some were left out, or joined to one
    record. ends: where each ends. keys: of each record. refused: lines that are no records, see `Refusal`.
    """

    lines: list[bytes]
    start: int
    end: int
    tail: bytes
    too_long: int = 0
    start_tail: bytes = b""
    positions: list[int] | None = None
    ends: list[int] | None = None
    keys: list[bytes | None] | None = None
    refused: tuple[Refusal, ...] = ()
    block: bytes = b""
    block_lines: int = 0
    framed: Framed | None = None

    def cut_apart(self) -> None:
        """Have `lines` instead of a block."""
        self.lines = self.block.split(b"\n")
        self.lines.pop()
        self.block = b""

    @property
    def count(self) -> int:
        """How many lines, or records, these are."""
        return self.block_lines if self.block else len(self.lines)


class Refusal(NamedTuple):
    """A line that is not made a record, and why."""

    position: int
    data: bytes
    reason: str


class Truncated(Exception):
    """The file no longer has the bytes that were read; it is read from the beginning."""


class Compressed(Exception):
    """The file holds no text; its argument is the command that unpacks it."""


@dataclass(slots=True, eq=False)
class Followed:
    """One file. `position` is where the next unread line begins; the position of the entry lags behind."""

    path: str
    descriptor: int
    entry: Entry
    position: int
    partial: list[bytes] = field(default_factory=list)
    """Bytes after `position` that have no newline yet; empty for a line that is too long."""
    partial_bytes: int = 0
    first: bytes = b""
    """The file's first bytes, up to DIGEST_BYTES."""
    last: bytes = b""
    """The bytes before `read_position`, up to DIGEST_BYTES: they tell a regrown file from a grown one."""
    owes_newline: bool = False
    """The last line was sent without its newline; the newline, when it comes, is not another line."""
    moved: bool = False
    """The name belongs to another file now."""
    grew_at: float = field(default_factory=time.monotonic)
    seen_mtime_ns: int = 0
    outstanding: int = 0
    """Pieces that are not acknowledged yet; the descriptor stays open for them."""
    dropped: bool = False
    """The file was truncated: later acknowledgements do not concern its present bytes."""
    closing: bool = False
    is_copy: bool | None = None
    """Whether another followed file is being copied here (copytruncate); None when that was not looked at."""
    held_at: float = 0.0
    """Since when the copy waits for its original to be truncated."""
    is_archive: bool = False
    """An unnamed file with the unpacked contents of a compressed file."""
    cut_at: int | None = None
    """The bytes that were read beyond this position are in no file any more: the entry stops here. See copies.py."""
    cut_tail: bytes = b""
    newline: bytes = b"\n"
    """What ends a line: two bytes in UTF-16, at an even position."""
    is_replaced: bool = False
    """Other bytes than those that the entry knows were found when the file was opened: it was truncated just then."""
    packed_bytes: int = 0
    """The size of the compressed file of which the descriptor has the contents; 0 for other files."""

    @classmethod
    def at_entry(cls, path: str, descriptor: int, entry: Entry, newline: bytes = b"\n") -> Followed:
        """A file that goes on where its entry says."""
        followed = cls(path, descriptor, entry, entry.position, newline=newline)
        # The bytes that are compared from now on are those that are here now, whatever the caller saw a moment ago. Of a
        # file that was seen when it had a few bytes only, more of the beginning is known now.
        first = os.pread(descriptor, DIGEST_BYTES, 0)
        followed.last = bytes_before(descriptor, entry.position)
        followed.is_replaced = (
            digest(first[: entry.head_bytes]) != entry.head_digest if entry.head_bytes else False
        ) or (bool(entry.position) and digest(followed.last) != entry.tail_digest)
        if entry.head_bytes and not followed.is_replaced:
            followed.first = first
            entry.note_head(first)
        followed.owes_newline = bool(followed.last) and not followed.last.endswith(newline)
        return followed

    @property
    def read_position(self) -> int:
        """Where the next byte is read."""
        return self.position + self.partial_bytes

    def as_read(self) -> Entry:
        """An entry for what was read, not only for what was acknowledged."""
        if self.is_replaced:
            return replace(self.entry)
        entry = Entry(self.path, self.entry.device, self.entry.inode, self.entry.id)
        entry.advance(self.read_position, 0, self.first, self.last)
        return entry

    def go_on_in(self, path: str, descriptor: int) -> Followed:
        """The rest of this file in another file, to which an editor or a rotation has copied it."""
        if self.is_replaced:
            return Followed.at_entry(path, descriptor, self.entry, self.newline)
        rest = Followed(
            path,
            descriptor,
            self.entry,
            self.position,
            [*self.partial],
            self.partial_bytes,
            newline=self.newline,
        )
        rest.first, rest.last, rest.owes_newline, rest.is_copy = (
            self.first,
            self.last,
            self.owes_newline,
            False,
        )
        size = os.fstat(descriptor).st_size
        if size < self.read_position:
            # The copy was made before the last lines were read here: it has nothing new, and no other file has them.
            rest.partial, rest.partial_bytes, rest.position, rest.owes_newline = [], 0, size, False
            rest.first = self.first = self.first[:size]
            rest.last = self.cut_tail = bytes_before(descriptor, size)
            self.cut_at = size
            self.entry.cut(size, self.first, self.cut_tail)
        return rest

    def note_head(self) -> bool:
        """Whether the entry knows the first bytes of the file, by which the next run will recognize it. Raises OSError."""
        # A file that waits, for example because the state cannot be written, has more to be recognized by after a while.
        is_known = self.entry.head_bytes >= HEAD_BYTES_MIN or bool(
            self.entry.head_bytes and self.read_position
        )
        if is_known or self.is_replaced or (self.descriptor == CLOSED and not self.reopen()):
            return bool(self.entry.head_bytes)
        first = os.pread(self.descriptor, DIGEST_BYTES, 0)
        if first.startswith(self.first):
            self.first = first
            self.entry.note_head(first)
        return bool(self.first)

    def read(self, as_block: bool = False) -> Piece | None:
        """The next lines; None when there is nothing new. Raises Truncated, Compressed, OSError.

        as_block: the lines are not cut apart.

        The read that brings the new bytes also compares bytes that were read before, and then the file's beginning is
        compared: so a file that is truncated and rewritten in between is noticed.
        """
        if self.descriptor == CLOSED and not self.reopen():
            return None
        if self.is_replaced:
            raise Truncated
        status, at = os.fstat(self.descriptor), self.read_position
        if status.st_size == at and status.st_mtime_ns == self.seen_mtime_ns:
            return None
        back = len(self.last)
        data = os.pread(self.descriptor, back + CHUNK_BYTES, at - back)
        if data[:back] != self.last or not self.begins_as_before(self.descriptor):
            raise Truncated
        self.seen_mtime_ns = status.st_mtime_ns
        data = data[back:]
        if not data:
            return None
        self.grew_at = time.monotonic()
        if len(self.first) < DIGEST_BYTES and at <= DIGEST_BYTES:
            self.first = (self.last + data[:DIGEST_BYTES])[:DIGEST_BYTES]
        return self.cut(data, at, as_block)

    def cut(self, data: bytes, at: int, as_block: bool = False) -> Piece:
        """Make lines of the bytes that begin at the read position `at`. Raises Compressed."""
        before = self.last
        self.last = joined_tail(before, data)
        newline, width = self.newline, len(self.newline)
        if self.owes_newline:
            self.owes_newline = False
            if data.startswith(newline):
                self.position += width
                before, data, at = joined_tail(before, newline), data[width:], at + width
        whole_bytes = self.last_newline(data, at) + width
        if whole_bytes < width:
            self.partial_bytes += len(data)
            if self.partial_bytes <= LINE_BYTES_MAX:
                self.partial.append(data)
            else:
                self.partial.clear()
            return Piece([], self.position, self.position, before)
        self.require_text()
        start, start_tail = self.position, b""
        too_long = int(self.is_too_long())
        whole, rest = data[:whole_bytes], data[whole_bytes:]
        end = at + whole_bytes
        tail = joined_tail(before, whole)
        if too_long:
            long_bytes = len(split_lines(whole, newline, at)[0]) + width
            start, start_tail, whole = (
                at + long_bytes,
                joined_tail(before, whole[:long_bytes]),
                whole[long_bytes:],
            )
        block = b"".join([*self.partial, whole])
        self.partial = [rest] if rest else []
        self.partial_bytes, self.position = len(rest), end
        if as_block:
            count = block.count(newline)
            return Piece([], start, end, tail, too_long, start_tail, block=block, block_lines=count)
        lines = split_lines(block, newline, start)
        lines.pop()
        return Piece(lines, start, end, tail, too_long, start_tail)

    def last_newline(self, data: bytes, at: int) -> int:
        """Where in the data, which begins at the position `at`, the last newline is; negative if there is none."""
        newline_at = data.rfind(self.newline)
        while newline_at >= 0 and (at + newline_at) % len(self.newline):
            newline_at = data.rfind(self.newline, 0, newline_at + 1)
        return newline_at if newline_at >= 0 else -len(self.newline)

    def is_too_long(self) -> bool:
        """Whether the line at `position` is left out."""
        return self.partial_bytes > LINE_BYTES_MAX

    def require_text(self) -> None:
        """Raises Compressed before the first line of a file that is no text is taken."""
        if self.position:
            return
        for magic, command in MAGICS:
            if self.first.startswith(magic) and (magic != b"BZh" or self.first[4:10] == BZIP2_BLOCK):
                raise Compressed(command)

    def has_more(self) -> bool:
        """Whether there are bytes that were not read."""
        return self.descriptor != CLOSED and os.fstat(self.descriptor).st_size > self.read_position

    def begins_as_before(self, descriptor: int) -> bool:
        """Whether a file begins with the bytes with which this one began."""
        return not self.first or os.pread(descriptor, len(self.first), 0) == self.first

    def holds_what_was_read(self, descriptor: int) -> bool:
        """Whether a file has the bytes that were read from this one, judged by both ends of these bytes."""
        return bytes_before(descriptor, self.read_position) == self.last and self.begins_as_before(descriptor)

    def take_partial(self) -> Piece | None:
        """The last line although it has no newline; None when there is none. Raises Compressed."""
        if not self.partial_bytes or self.descriptor == CLOSED:
            return None
        self.require_text()
        too_long = int(self.is_too_long())
        start, end = self.position, self.read_position
        line = b"".join(self.partial)
        self.partial, self.partial_bytes, self.position = [], 0, end
        self.owes_newline = True
        return Piece([], end, end, self.last, too_long) if too_long else Piece([line], start, end, self.last)

    # --- the descriptor ----------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Whether the descriptor may be closed for a while: no lines are being sent, and the name still belongs to
        this file.
        """
        return self.descriptor != CLOSED and not (self.outstanding or self.moved or self.closing)

    def is_read_archive(self) -> bool:
        """Whether these are the contents of a compressed file, which do not grow, and everything was read."""
        if not self.is_archive or self.descriptor == CLOSED:
            return False
        return self.read_position >= os.fstat(self.descriptor).st_size

    def park(self) -> None:
        """Close the descriptor until the file changes."""
        os.close(self.descriptor)
        self.descriptor = CLOSED

    def reopen(self) -> bool:
        """Open a parked file again when it has changed; False when it has not, or the name belongs to another file."""
        try:
            status = os.stat(self.path)
            if (status.st_dev, status.st_ino) != (self.entry.device, self.entry.inode):
                return False
            if status.st_size == self.read_position and status.st_mtime_ns == self.seen_mtime_ns:
                return False
            self.open(self.path)
        except FileNotFoundError:
            return False
        return True

    def open(self, path: str) -> None:
        """Open a parked file under this name. Raises OSError."""
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the descriptor as soon as nothing is outstanding."""
        self.closing = True
        if not self.outstanding and self.descriptor != CLOSED:
            self.park()

    def acknowledged(self, piece: Piece) -> None:
        """Everything up to the piece's end has arrived: move the entry there."""
        if not self.dropped:
            end, tail = piece.end, piece.tail
            if self.cut_at is not None and end >= self.cut_at:
                end, tail = self.cut_at, self.cut_tail
            self.entry.advance(end, piece.count, self.first, tail)
        self.outstanding -= 1
        if self.closing:
            self.close()


def begin_at_end(entry: Entry, descriptor: int, newline: bytes) -> None:
    """Leave out the lines that a file has; a line that is not complete yet belongs to those that come."""
    end = os.fstat(descriptor).st_size
    width = len(newline)
    while end:
        start = max(end - CHUNK_BYTES, 0)
        data = os.pread(descriptor, end - start, start)
        newline_at = data.rfind(newline)
        while newline_at >= 0 and (start + newline_at) % width:
            newline_at = data.rfind(newline, 0, newline_at + width - 1)
        if newline_at >= 0:
            end = start + newline_at + width
            break
        end = start
    entry.advance(end, 0, os.pread(descriptor, min(end, DIGEST_BYTES), 0), bytes_before(descriptor, end))


def split_lines(data: bytes, newline: bytes, at: int) -> list[bytes]:
    """The lines of data that begin at the position `at`; the last one has no newline."""
    lines = data.split(newline)
    if len(newline) == 1:
        return lines
    whole: list[bytes] = []
    begun = b""
    for line in lines:
        begun += line
        if (at + len(begun)) % len(newline):
            begun += newline  # two halves of other characters
        else:
            whole.append(begun)
            at, begun = at + len(begun) + len(newline), b""
    return [*whole, begun] if begun else whole


def joined_tail(before: bytes, data: bytes) -> bytes:
    """The last DIGEST_BYTES of `before` and `data` together."""
    return data[-DIGEST_BYTES:] if len(data) >= DIGEST_BYTES else (before + data)[-DIGEST_BYTES:]


assert DIGEST_BYTES <= CHUNK_BYTES
