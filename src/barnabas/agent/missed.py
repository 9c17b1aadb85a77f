"""Finds files that were written and rotated between two runs, so that no run saw them under the name it follows.

A log that is rotated twice while no agent runs leaves such a file, and so does one that appears and is rotated meanwhile.
Such a file was written after the state was saved last, its name is that of a log with a number or a date, and it is
neither the rest of a file that an earlier run has read nor a copy of the log that is there now.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.agent.copies import (
    ARCHIVES,
    UNREADABLE,
    is_named_after,
    is_of_any,
    rotated_from,
    unpack_somewhere,
)
from barnabas.agent.files import CLOSED
from barnabas.agent.state import DIGEST_BYTES, HEAD_BYTES_MIN, Entry, bytes_before, digest

ROTATED: Final = re.compile(r"[._-]\d[\d._T:-]*(\.gz|\.bz2|\.xz)?")
"""What rotation adds to a name. Names like a.log.save are given by people, for purposes of their own."""
WHOLE: Final = Entry("", 0, 0, head_digest=digest(b""))


class Missed(NamedTuple):
    """A file that no run has seen. key: device and inode. descriptor: CLOSED of an archive, whose contents take room."""

    path: Path
    key: tuple[int, int]
    descriptor: int


def is_rotation_of(name: str, log: str) -> bool:
    """Whether a name is that of a log with a number or a date: a.log.1, a.log-20260101.gz, a-20260101.log."""
    if name.startswith(log):
        return ROTATED.fullmatch(name[len(log) :]) is not None
    stem, suffix = os.path.splitext(log)
    plain = name.removesuffix(os.path.splitext(name)[1]) if name.endswith(tuple(ARCHIVES)) else name
    if not (suffix and name.startswith(stem) and plain.endswith(suffix)):
        return False
    return ROTATED.fullmatch(plain[len(stem) : len(plain) - len(suffix)]) is not None


def without_rotations(paths: Iterable[str]) -> list[str]:
    """Those that rotation has not made of another of them; patterns may match thousands of rotated files."""
    known = dict.fromkeys(paths)
    return [path for path in known if not any(log in known for log in _logs_of(path))]


def _logs_of(path: str) -> set[str]:
    """The paths of which rotation may have made this one, judged by the name."""
    folder, name = os.path.split(path)
    plain = name.removesuffix(os.path.splitext(name)[1]) if name.endswith(tuple(ARCHIVES)) else name
    suffix = os.path.splitext(plain)[1]
    starts = [name[:i] for i in range(1, len(name))]
    names = {*starts, *(start + suffix for start in starts)}
    return {os.path.join(folder, log) for log in names if is_rotation_of(name, log)}


def find_missed(
    log: str,
    since_ns: int,
    known: Collection[tuple[int, int]],
    entries: Iterable[Entry],
    folder: Path,
    report: Callable[[Path, Exception], None],
) -> list[Missed]:
    """The files that rotation has made of `log` after the time `since_ns` and that no run has seen, oldest first.

    Archives are unpacked for a look, one after the other, and closed again.

    known: (device, inode) of files that are followed. entries: what was read of files. folder: where archives are
    unpacked to. report: called with what cannot be read, and why.
    """
    folder_of_log, name = os.path.split(log)
    read = [*entries]
    seen = [
        entry
        for entry in read
        if entry.head_bytes >= HEAD_BYTES_MIN
        and os.path.dirname(entry.path) == folder_of_log
        and (entry.path == log or is_named_after(os.path.basename(entry.path), name))
    ]
    missed: list[Missed] = []
    for file in rotated_from(log):
        if not is_rotation_of(file.name, name):
            continue
        try:
            status = os.stat(file)
            if status.st_mtime_ns <= since_ns:
                break  # they come newest first
            if (status.st_dev, status.st_ino) in known or not status.st_size:
                continue
            is_archive = file.suffix in ARCHIVES
            descriptor = unpack_missed(file, folder) if is_archive else _open(file)
        except UNREADABLE as error:
            report(file, error)
            continue
        size = os.fstat(descriptor).st_size
        is_seen = any(entry.verifies(descriptor, size) for entry in seen)
        if is_seen or is_of_any(read, descriptor, status) or _is_copy_of(log, descriptor):
            os.close(descriptor)
        else:
            if is_archive:
                os.close(descriptor)
            missed.append(Missed(file, (status.st_dev, status.st_ino), CLOSED if is_archive else descriptor))
    return missed[::-1]


def unpack_missed(path: Path, folder: Path) -> int:
    """An open descriptor of what is in an archive. Raises one of UNREADABLE."""
    descriptor = unpack_somewhere(path, WHOLE, folder)
    assert descriptor is not None
    return descriptor


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _is_copy_of(log: str, descriptor: int) -> bool:
    """Whether a file holds what the log holds, as far as it goes."""
    try:
        original = _open(Path(log))
    except OSError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        return (
            size <= os.fstat(original).st_size
            and os.pread(descriptor, DIGEST_BYTES, 0) == os.pread(original, min(DIGEST_BYTES, size), 0)
            and bytes_before(descriptor, size) == bytes_before(original, size)
        )
    finally:
        os.close(original)
