"""Finds the unread rest of a truncated file in the copy that was made of it before.

logrotate's `copytruncate` copies a log and then truncates it; `compress` compresses a rotated file and removes it.
Lines that were not read by then are in the copy or in the archive. It is recognized by its name, which begins like
that of the log, and by the bytes at both ends of what was read.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.agent.files import CHUNK_BYTES, CLOSED, Followed, joined_tail
from barnabas.agent.state import DIGEST_BYTES, HEAD_BYTES_MIN, Entry, digest

COPYING_SECONDS: Final = 10.0
"""How long after its last growth a file that looks like a copy waits for its original to be truncated."""
COPYING_SECONDS_MAX: Final = 60.0
ARCHIVES: Final[dict[str, Callable[[Path], Any]]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
UNREADABLE: Final = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""The exceptions that unpacking an archive may raise; OSError for a damaged one, too."""


class Rest(NamedTuple):
    """An open file that holds what was read of another, and perhaps more. written_ns: when it was written last."""

    descriptor: int
    is_archive: bool
    written_ns: int


def is_named_after(name: str, log: str) -> bool:
    """Whether rotation may have given this name to a file called `log`: a.log.1, a.log-20260101, a-20260101.log."""
    if name == log:
        return False
    stem, suffix = os.path.splitext(log)
    plain = name.removesuffix(os.path.splitext(name)[1]) if name.endswith(tuple(ARCHIVES)) else name
    if name.startswith(log):
        return True
    return (
        bool(suffix)
        and plain.endswith(suffix)
        and plain[: len(stem) + 1] in (f"{stem}-", f"{stem}.", f"{stem}_")
    )


def rotated_from(path: str) -> Iterator[Path]:
    """The files beside `path` that rotation may have made of it, newest first."""
    log = Path(path)
    rotated: list[tuple[int, Path]] = []
    with contextlib.suppress(OSError), os.scandir(log.parent) as items:
        for item in items:
            if not is_named_after(item.name, log.name):
                continue
            with contextlib.suppress(OSError):
                status = item.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    rotated.append((status.st_mtime_ns, log.parent / item.name))
    for _, file in sorted(rotated, reverse=True):
        yield file


def find_rest(
    entry: Entry,
    path: str,
    known: Container[tuple[int, int]],
    others: Iterable[Entry],
    folder: Path,
    report: Callable[[str], None],
) -> Rest | None:
    """The file that holds what was acknowledged of `entry` and perhaps more.

    known: (device, inode) of files that are followed already. others: what was read of other files.
    folder: where an archive may be unpacked to. report: called with what went wrong.
    """
    archives = []
    for file in rotated_from(path):
        if file.suffix in ARCHIVES:
            archives.append(file)
            continue
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        status = os.fstat(descriptor)
        is_known = (status.st_dev, status.st_ino) in known or is_of_any(others, descriptor, status)
        if not is_known and entry.verifies(descriptor, status.st_size):
            return Rest(descriptor, False, status.st_mtime_ns)
        os.close(descriptor)
    for file in archives:
        try:
            written_ns = os.stat(file).st_mtime_ns
            unpacked = unpack_somewhere(file, entry, folder)
        except UNREADABLE as error:
            report(f"cannot unpack {file}: {error}; lines in it that were not shipped yet are left out")
            continue
        if unpacked is not None:
            return Rest(unpacked, True, written_ns)
    return None


def is_of_any(entries: Iterable[Entry], descriptor: int, status: os.stat_result) -> bool:
    """Whether an open file is the one of an entry. The inode alone does not tell: that of a file that was removed,
    for example because it was compressed, is used again at once.
    """
    return any(
        (entry.device, entry.inode) == (status.st_dev, status.st_ino)
        and bool(entry.head_bytes)
        and entry.verifies(descriptor, status.st_size)
        for entry in entries
    )


def unpack_somewhere(archive: Path, entry: Entry, folder: Path) -> int | None:
    """As `unpack_rest`; if the folder's disk is full, there may be room where temporary files are kept."""
    try:
        return unpack_rest(archive, entry, folder)
    except UNREADABLE:
        return unpack_rest(archive, entry, None)


def unpack_rest(archive: Path, entry: Entry, folder: Path | None) -> int | None:
    """An unnamed file with the unpacked bytes from before the entry's position on, at their positions.

    None when the archive holds another file. Raises one of UNREADABLE.
    """
    with ARCHIVES[archive.suffix](archive) as source:
        first = source.read(DIGEST_BYTES)
        if digest(first[: entry.head_bytes]) != entry.head_digest:
            return None
        at, last = len(first), first
        while at < entry.position:
            data = source.read(min(CHUNK_BYTES, entry.position - at))
            if not data:
                return None
            at, last = at + len(data), joined_tail(last, data)
        # The first piece may reach beyond the position: the part before it is compared, all of it is kept.
        before = first[: entry.position] if entry.position <= len(first) else last
        if entry.position and digest(before[-DIGEST_BYTES:]) != entry.tail_digest:
            return None
        with tempfile.TemporaryFile(dir=folder) as out:
            out.write(first)
            out.seek(at - len(last))
            out.write(last)
            while data := source.read(CHUNK_BYTES):
                out.write(data)
            out.flush()
            return os.dup(out.fileno())


def looks_copied(followed: Followed, original: Followed) -> bool:
    """Whether a file has the same bytes as the other, as far as it goes: it is, or is becoming, a copy."""
    if original.descriptor == CLOSED or not is_recognizable(original):
        return False
    size = os.fstat(followed.descriptor).st_size
    if not size:
        return False
    if original.is_replaced:
        return original.entry.verifies(followed.descriptor, size)
    if size >= original.read_position:
        return original.holds_what_was_read(followed.descriptor)
    first = os.pread(followed.descriptor, DIGEST_BYTES, 0)
    if not original.first.startswith(first):
        return False
    start = max(size - DIGEST_BYTES, 0)
    end = os.pread(followed.descriptor, size - start, start)
    # Once the original is truncated, only the beginning can be compared.
    return os.pread(original.descriptor, len(end), start) == end or not original.begins_as_before(
        original.descriptor
    )


def is_recognizable(followed: Followed) -> bool:
    """Whether a file can be told from others by what was read of it, or by its beginning if nothing was read."""
    if followed.read_position:
        return True
    return max(len(followed.first), followed.entry.head_bytes) >= HEAD_BYTES_MIN


def originals_of(path: str, by_path: Mapping[str, Followed]) -> list[Followed]:
    """The followed files of which rotation may have made this one, judged by their names."""
    folder, name = os.path.split(path)
    suffix = os.path.splitext(name)[1]
    names = {name[:i] for i in range(1, len(name))} | {name[:i] + suffix for i in range(1, len(name))}
    followed = (by_path.get(os.path.join(folder, log)) for log in names if is_named_after(name, log))
    return [original for original in followed if original is not None and not original.moved]


def waits_for_truncation(followed: Followed, by_path: Mapping[str, Followed]) -> bool:
    """Whether a file of which nothing was read is a copy whose original is about to be truncated.

    Sending it would double the original's lines. If the original is not truncated, this is a file of its own.
    """
    if followed.is_copy is False or followed.read_position or followed.descriptor == CLOSED:
        return False
    originals = originals_of(followed.path, by_path)
    status, now = os.fstat(followed.descriptor), time.monotonic()
    if not originals or not status.st_size:
        return bool(originals)
    if followed.is_copy is None:
        followed.is_copy, followed.held_at, followed.grew_at = True, now, now
    if status.st_mtime_ns != followed.seen_mtime_ns:
        followed.seen_mtime_ns, followed.grew_at = status.st_mtime_ns, now
    waited_long = now - followed.grew_at > COPYING_SECONDS or now - followed.held_at > COPYING_SECONDS_MAX
    if waited_long or not any(looks_copied(followed, original) for original in originals):
        followed.is_copy = False
    return followed.is_copy
