"""Decides which files are followed: those that the patterns match, and those that were renamed since, to their end.

A file stays open while it is followed, so lines written to it after a rename still arrive. It is closed when its name
belongs to another file, it has not grown for a while, and no process has it open for writing any more.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import glob
import os
import re
import resource
import stat
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.agent.copies import (
    UNREADABLE,
    Rest,
    find_rest,
    is_named_after,
    is_recognizable,
    looks_copied,
    waits_for_truncation,
)
from barnabas.agent.files import CLOSED, Followed, begin_at_end
from barnabas.agent.missed import find_missed, unpack_missed, without_rotations
from barnabas.agent.state import (
    EDITOR_BACKUPS,
    HEAD_BYTES_MIN,
    Entry,
    State,
    find_inode,
)
from barnabas.agent.unpacking import is_packed, unpack
from barnabas.agent.writers import written_files
from barnabas.terminal.errors import CliError

SILENT_SECONDS: Final = 10.0
"""How long a renamed or deleted file is watched at least: its writer may not have reopened the log yet."""
UNKNOWN_SECONDS: Final = 3600.0
UNKNOWN_DELETED_SECONDS: Final = 300.0
"""How long a file that does not grow is watched if its writers cannot be seen; a deleted file takes room on the disk.
"""
SPARE_DESCRIPTORS: Final = 128
"""Descriptors for connections to brokers and everything else."""
DESCRIPTORS_MAX: Final = 8192
FORGET_SECONDS: Final = 60.0
MISSED_SECONDS: Final = 10.0
PARKED_AT_ONCE: Final = 64

FileKey = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Looks:
    """Which files are followed, and how. exclude: paths that are left out.

    at_end: files that are there at the first start begin with what is written from then on. older_s: a file that was
    not written for so long is left out, unless it was followed before. idle_s: a file that has not grown for so long is
    closed until it does. unpacks: compressed files are read, once.
    """

    exclude: tuple[re.Pattern[str], ...] = ()
    at_end: bool = False
    older_s: float | None = None
    idle_s: float | None = None
    unpacks: bool = False
    newline: bytes = b"\n"


@dataclass(slots=True)
class Watcher:
    """All the files that the patterns match, with those that were renamed since."""

    patterns: list[str]
    state: State
    open_files: dict[FileKey, Followed] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    """Paths that were not followed, so that each is reported once."""
    notes: list[str] = field(default_factory=list)
    left_out: dict[FileKey, int] = field(default_factory=dict)
    """Files without text, and when they were last written: another file may get the inode."""
    open_max: int = field(default_factory=lambda: raise_descriptor_limit() - SPARE_DESCRIPTORS)
    room: int = 0
    """How many more files may be opened."""
    looked_at_writers: float = 0.0
    forgot_at: float = field(default_factory=time.monotonic)
    looked_at: float = 0.0
    """When files that no run has seen were looked for."""
    waiting: deque[tuple[str, Path, FileKey]] = field(default_factory=deque)
    """Archives that no run has seen: the log, the name, and which file it is. They are unpacked one after the other, since
    all of them together may need more room than there is.
    """
    has_unread: bool = False
    """Whether a file that no run has seen could not be read; then it is looked for again."""
    resumed: bool = False
    holds_copies: bool = True
    """Whether a file that looks like a copy waits for its original to be truncated; not if the run ends sooner."""
    by_path: dict[str, Followed] = field(default_factory=dict)
    """The files that are where the patterns look, as of the last scan."""
    looks: Looks = field(default_factory=Looks)

    from_before: set[str] = field(default_factory=set)
    """Ids of the files that earlier runs have seen."""

    def __post_init__(self) -> None:
        self.from_before = {entry.id for entry in self.state.entries}

    def scan(self) -> None:
        """Open new files, and mark those whose name belongs to another file now."""
        paths_by_key: dict[FileKey, str] = {}
        for path in self.matching():
            try:
                status = os.stat(path)
            except OSError:
                continue
            key = (status.st_dev, status.st_ino)
            paths_by_key.setdefault(key, path)
            if self.left_out.get(key, status.st_mtime_ns) != status.st_mtime_ns:
                del self.left_out[key]
        for key, followed in self.open_files.items():
            if key in paths_by_key:
                # A rename that the patterns still match is the same file under a new name.
                followed.path = followed.entry.path = paths_by_key[key]
            elif not followed.moved:
                self.on_moved(key, followed)
            followed.moved = key not in paths_by_key
        fresh = [key for key in paths_by_key if key not in self.open_files and key not in self.left_out]
        for i, key in enumerate(fresh):
            if i % (SPARE_DESCRIPTORS // 2) == 0:
                self.park_idle()
            self.follow(key, paths_by_key[key])
        self.left_out = {key: written_at for key, written_at in self.left_out.items() if key in paths_by_key}
        if not self.resumed:
            self.resumed = True
            self.resume_rotated()
            self.follow_missed()
        self.park_idle()
        self.by_path = {
            followed.path: followed for followed in self.open_files.values() if not followed.moved
        }
        if time.monotonic() - self.forgot_at > FORGET_SECONDS:
            self.forget_gone()
        waits = self.state.looked_for_missed or self.waiting
        if not waits and time.monotonic() - self.looked_at > MISSED_SECONDS:
            self.follow_missed()

    def matching(self) -> list[str]:
        """Absolute paths of the regular files that the patterns match, in a stable order."""
        paths: dict[str, None] = {}
        for pattern in self.patterns:
            # A name with brackets is taken literally if such a file exists.
            is_name = not glob.has_magic(pattern) or os.path.exists(pattern)
            for name in [pattern] if is_name else sorted(glob.glob(pattern, recursive=True)):
                path = os.path.abspath(name)
                if any(pattern.search(path) for pattern in self.looks.exclude):
                    continue
                try:
                    status = os.stat(path)
                except OSError:
                    continue
                mode = status.st_mode
                if stat.S_ISREG(mode):
                    if not self.is_too_old(status):
                        paths[path] = None
                elif not stat.S_ISDIR(mode):
                    self.skip(path, f"{path} is {kind_of(mode)} and left out; only files are followed")
        return list(paths)

    def is_too_old(self, status: os.stat_result) -> bool:
        """Whether a file has not been written for so long that it is not worth a beginning."""
        older_s, key = self.looks.older_s, (status.st_dev, status.st_ino)
        if older_s is None or time.time() - status.st_mtime <= older_s or key in self.open_files:
            return False
        return not any((entry.device, entry.inode) == key for entry in self.state.entries)

    def on_moved(self, key: FileKey, followed: Followed) -> None:
        """The name belongs to another file: the unread part must be read from where the file is now."""
        if followed.descriptor != CLOSED:
            return
        renamed = find_inode(Path(followed.path).parent, key)
        try:
            if renamed is not None:
                followed.open(str(renamed))
        except OSError as error:
            self.notes.append(f"cannot read {renamed} to its end: {error.strerror}")

    def follow(self, key: FileKey, path: str) -> None:
        """Open a file at the position in the state."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self.skip(path, f"cannot read {path}: {error.strerror}")
            return
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != key:
            os.close(descriptor)  # rotated between stat and open; the next scan sees it
            return
        if self.looks.unpacks and is_packed(descriptor):
            self.follow_packed(key, path, descriptor)
            return
        if self.replace(key, path, descriptor):
            return
        taken = {followed.entry.id for followed in self.open_files.values()}
        entry = self.state.claim(path, descriptor, taken)
        if self.looks.at_end and not self.resumed and not entry.position and not entry.head_bytes:
            begin_at_end(entry, descriptor, self.looks.newline)
        self.open_files[key] = Followed.at_entry(path, descriptor, entry, self.looks.newline)

    def follow_packed(self, key: FileKey, path: str, descriptor: int) -> None:
        """Read the contents of a compressed file, unless an earlier run has read them to the end."""
        status = os.fstat(descriptor)
        taken = {followed.entry.id for followed in self.open_files.values()}
        for entry in self.state.entries:
            if (entry.device, entry.inode) == key and entry.packed_bytes == status.st_size:
                os.close(descriptor)
                entry.path = path
                self.left_out[key] = status.st_mtime_ns
                return
        try:
            contents = unpack(descriptor, self.state.path.parent)
        except UNREADABLE as error:
            self.left_out[key] = status.st_mtime_ns  # it is looked at again when it was written to
            self.skip(path, f"cannot unpack {path}: {error}; it is read when it is whole")
            return
        finally:
            os.close(descriptor)
        claimed = self.state.claim_packed(path, key, contents, taken)
        if claimed is None:
            os.close(contents)
            return
        followed = Followed.at_entry(path, contents, claimed, self.looks.newline)
        followed.packed_bytes = status.st_size
        self.open_files[key] = followed

    def unpacked(self) -> list[FileKey]:
        """Compressed files of which everything was read."""
        return [
            key
            for key, followed in self.open_files.items()
            if followed.packed_bytes
            and followed.descriptor != CLOSED
            and followed.read_position >= os.fstat(followed.descriptor).st_size
        ]

    def leave_unpacked(self, key: FileKey) -> None:
        """Everything that a compressed file holds has arrived: it is not looked at again."""
        followed = self.open_files[key]
        followed.entry.packed_bytes = followed.packed_bytes
        with contextlib.suppress(OSError):
            self.left_out[key] = os.stat(followed.path).st_mtime_ns
        self.close(key)

    def replace(self, key: FileKey, path: str, descriptor: int) -> bool:
        """Whether this file is a followed file that an editor rewrote; if so, it is continued at the same position."""
        for old_key, old in self.open_files.items():
            if not old.moved or old.path != path or old.descriptor == CLOSED or not old.read_position:
                continue
            if os.fstat(descriptor).st_size < old.read_position or not old.holds_what_was_read(descriptor):
                continue
            kept = find_inode(Path(path).parent, old_key)
            if kept is not None and not kept.name.endswith(EDITOR_BACKUPS):
                continue  # this is a rotation, and the lines only look alike
            old.entry.device, old.entry.inode = key
            del self.open_files[old_key]
            self.open_files[key] = old.go_on_in(path, descriptor)
            old.close()
            return True
        return False

    def resume_rotated(self) -> None:
        """At the start: read files to their end that were rotated since the last run, wherever they are now."""
        taken = {followed.entry.id for followed in self.open_files.values()}
        for entry in list(self.state.entries):
            if entry.id in taken or not entry.head_bytes or not self.is_ours(entry.path):
                continue
            opened = self.find_entry(entry)
            if opened is None:
                continue
            descriptor, is_archive, _ = opened
            if os.fstat(descriptor).st_size == entry.position:
                os.close(descriptor)
                continue
            self.add_rest(Followed.at_entry(entry.path, descriptor, entry, self.looks.newline), is_archive)

    def follow_missed(self) -> None:
        """At the start: read files that were written and rotated since the last run, so that no run has seen them."""
        state, patterns = self.state, [*map(os.path.abspath, self.patterns)]
        self.has_unread, self.looked_at = False, time.monotonic()
        if state.written_ns is not None:
            seen = [entry.path for entry in state.entries if entry.id in self.from_before]
            logs = dict.fromkeys(path for path in seen if self.is_ours(path))
            if not self.looks.at_end:
                known = [*map(os.path.abspath, state.patterns)]
                logs |= dict.fromkeys(f.path for f in self.open_files.values() if matches(f.path, known))
            for log in without_rotations(logs):
                self.follow_missed_of(log, state.written_ns)
        state.patterns = tuple(patterns)
        state.looked_for_missed = not (self.waiting or self.has_unread)

    def follow_missed_of(self, log: str, since_ns: int, when: str = "while no agent ran") -> None:
        """As `follow_missed`, for one log that was rotated after the time `since_ns`."""
        entries, folder = self.state.entries, self.state.path.parent
        known = {*self.open_files, *self.left_out, *(key for _, _, key in self.waiting)}
        for path, key, descriptor in find_missed(log, since_ns, known, entries, folder, self.on_unread):
            self.notes.append(f"{path} was written and rotated {when}; reading it from its start")
            if descriptor == CLOSED:
                self.waiting.append((log, path, key))
            else:
                self.add_missed(log, descriptor, is_archive=False)
        if self.waiting or self.has_unread:  # whoever runs next has to look from this time on
            self.state.looked_for_missed = False
            self.state.written_ns = min(since_ns, self.state.written_ns or since_ns)
        self.unpack_next()

    def add_missed(self, log: str, descriptor: int, *, is_archive: bool) -> None:
        """Read a file that no run has seen from its start."""
        entry = Entry(log, 0, 0)
        self.state.entries.append(entry)
        self.add_rest(Followed.at_entry(log, descriptor, entry, self.looks.newline), is_archive)

    def unpack_next(self) -> None:
        """Follow the next archive that waits, unless another one is being read."""
        if not self.waiting or any(followed.is_archive for followed in self.open_files.values()):
            return
        log, path, key = self.waiting.popleft()
        now_at = find_inode(path.parent, key)  # it may have been renamed meanwhile
        try:
            if now_at is not None:
                self.add_missed(log, unpack_missed(now_at, self.state.path.parent), is_archive=True)
        except UNREADABLE as error:
            self.on_unread(path, error)
        self.state.looked_for_missed = not (self.waiting or self.has_unread)

    def on_unread(self, path: Path, error: Exception) -> None:
        """A file that was rotated while no agent ran cannot be read. When there is room on the disk again, it can."""
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EMFILE, errno.EACCES):
            self.has_unread = True
            why = f"{error.strerror}; it is read when that is mended"
        else:
            why = f"{error}; its lines are left out"
        self.skip(str(path), f"cannot read {path}, which was rotated before it was read: {why}")

    def find_entry(self, entry: Entry) -> Rest | None:
        """The file of an entry; None when it is gone."""
        key = (entry.device, entry.inode)
        path = None if key in self.open_files else find_inode(Path(entry.path).parent, key)
        if path is not None:
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                status = os.fstat(descriptor)
                if entry.verifies(descriptor, status.st_size):
                    return Rest(descriptor, False, status.st_mtime_ns)
                os.close(descriptor)
        if not entry.position and entry.head_bytes < HEAD_BYTES_MIN:
            return None
        for copy_key, copy in self.open_files.items():
            if self.is_unread_copy(copy, entry.path) and entry.verifies(
                copy.descriptor, os.fstat(copy.descriptor).st_size
            ):
                self.hand_over(
                    copy_key, Followed.at_entry(copy.path, copy.descriptor, entry, self.looks.newline)
                )
                return None
        return self.find_rest(entry)

    def find_rest(self, entry: Entry) -> Rest | None:
        """As `find_entry`, among the files that are not followed."""
        others = [other for other in self.state.entries if other.id != entry.id]
        return find_rest(
            entry, entry.path, self.open_files, others, self.state.path.parent, self.notes.append
        )

    def add_rest(self, rest: Followed, is_archive: bool) -> None:
        """Follow the rest of a file that was rotated to where the patterns do not look."""
        status = os.fstat(rest.descriptor)
        rest.moved, rest.is_archive = True, is_archive
        # An archive is found by its content; the file that was compressed is gone.
        rest.entry.device, rest.entry.inode = (0, 0) if is_archive else (status.st_dev, status.st_ino)
        self.open_files[(status.st_dev, status.st_ino)] = rest

    def is_unread_copy(self, copy: Followed, path: str) -> bool:
        """Whether a file may be a copy of the one at `path` of which nothing was read yet."""
        return (
            not copy.read_position
            and copy.descriptor != CLOSED
            and os.path.dirname(copy.path) == os.path.dirname(path)
            and is_named_after(os.path.basename(copy.path), os.path.basename(path))
        )

    def hand_over(self, key: FileKey, rest: Followed) -> None:
        """A followed file of which nothing was read is in fact the rest of another."""
        copy = self.open_files[key]
        self.state.entries.remove(copy.entry)
        rest.moved, rest.entry.path = copy.moved, copy.path
        rest.entry.device, rest.entry.inode = key
        self.open_files[key] = rest

    def is_ours(self, path: str) -> bool:
        """Whether a path of an earlier run is among those that this run follows."""
        return matches(path, map(os.path.abspath, self.patterns))

    def skip(self, path: str, message: str) -> None:
        """Leave out a file, and report that once."""
        if path not in self.skipped:
            self.skipped.add(path)
            self.notes.append(message)

    def leave_out(self, key: FileKey, command: str) -> None:
        """A file is not text: forget it."""
        followed = self.open_files[key]
        self.skip(
            followed.path,
            f"{followed.path} is compressed and left out; ship it with `{command} {followed.path} | barnabas produce`",
        )
        self.left_out[key] = os.fstat(followed.descriptor).st_mtime_ns
        self.state.entries.remove(followed.entry)
        followed.dropped = True
        self.close(key)

    def restart(self, key: FileKey) -> None:
        """A truncated file is read from the beginning, as another file in the state. A copy may have the rest of what
        it held. Copies that were made since have what the file held between two truncations.
        """
        old = self.open_files[key]
        entry = Entry(old.path, *key)
        fresh = Followed(old.path, os.dup(old.descriptor), entry, 0, newline=old.newline)
        fresh.moved = old.moved
        self.open_files[key] = self.by_path[old.path] = fresh
        rest, copied_ns = self.go_on_in_copy(old)
        self.state.entries.append(entry)
        where = f"; the rest of what it held is in {rest}" if rest else ""
        self.notes.append(f"{old.path} was truncated or written anew; reading it from its start{where}")
        if not rest:
            old.dropped = True
            self.state.entries.remove(old.entry)
        old.close()
        if rest:
            self.follow_missed_of(old.path, copied_ns, "between two truncations")

    def go_on_in_copy(self, old: Followed) -> tuple[str, int]:
        """Read the rest of what a truncated file held from the copy that was made before; a description of it, or
        nothing, and when it was made.
        """
        if old.is_archive or not is_recognizable(old):
            return "", 0
        for key, copy in self.open_files.items():
            if self.is_unread_copy(copy, old.path) and looks_copied(copy, old):
                self.hand_over(key, old.go_on_in(copy.path, copy.descriptor))
                return copy.path, os.fstat(copy.descriptor).st_mtime_ns
        opened = self.find_rest(old.as_read())
        if opened is None:
            return "", 0
        descriptor, is_archive, written_ns = opened
        self.add_rest(old.go_on_in(old.path, descriptor), is_archive)
        return "an archive of it" if is_archive else "a copy of it", written_ns

    def close(self, key: FileKey) -> None:
        """Stop following a file; its descriptor is closed once its lines are acknowledged."""
        self.open_files.pop(key).close()

    def close_all(self) -> None:
        """Stop following; acknowledgements that are still to come have no meaning any more."""
        for followed in self.open_files.values():
            followed.dropped, followed.outstanding = True, 0
            followed.close()
        self.open_files.clear()

    def is_held(self, followed: Followed) -> bool:
        """Whether a file must not be read yet, because it looks like a copy of another that is being made."""
        return self.holds_copies and waits_for_truncation(followed, self.by_path)

    def finished(self) -> list[FileKey]:
        """Archives that were read to the end, and renamed files that have not grown for a while and that no process writes
        to any more.
        """
        return [*(key for key, file in self.open_files.items() if file.is_read_archive()), *self.silent()]

    def silent(self) -> list[FileKey]:
        """As `finished`, without archives."""
        now = time.monotonic()
        silent = {
            key: followed
            for key, followed in self.open_files.items()
            if followed.moved and not followed.is_archive and now - followed.grew_at > SILENT_SECONDS
        }
        if not silent or now - self.looked_at_writers < SILENT_SECONDS:
            return []
        self.looked_at_writers = now
        written, sees_all = written_files()
        return [
            key
            for key, followed in silent.items()
            if key not in written and (sees_all or now - followed.grew_at > patience_of(followed))
        ]

    def park_idle(self, at_least: int = 0) -> None:
        """If there are too many open files, close those that have not grown for longest."""
        self.room = self.open_max - sum(file.descriptor != CLOSED for file in self.open_files.values())
        if self.looks.idle_s is not None:
            self.park_silent(time.monotonic() - self.looks.idle_s)
        excess = max(-self.room, at_least)
        if excess <= 0:
            return
        idle = sorted(
            (followed for followed in self.open_files.values() if followed.is_idle()),
            key=lambda followed: followed.grew_at,
        )
        for followed in idle[:excess]:
            followed.park()
            self.room += 1

    def park_silent(self, since: float) -> None:
        """Close files that have not grown since this time."""
        for followed in self.open_files.values():
            if followed.is_idle() and followed.grew_at < since:
                followed.park()
                self.room += 1

    def has_room(self, followed: Followed) -> bool:
        """Whether a file is open, or may be opened without taking the descriptors that connections need."""
        if followed.descriptor != CLOSED or self.room > 0:
            return True
        self.park_idle(at_least=PARKED_AT_ONCE)
        return self.room > 0

    def forget_gone(self) -> None:
        """Drop the state of files that no longer exist; not while it tells which archives have been read."""
        self.forgot_at = time.monotonic()
        if not self.state.looked_for_missed:
            return
        followed = self.open_files.values()
        self.state.forget_gone({file.entry.id for file in followed}, {file.path for file in followed})


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path is one of these names or matches one of these patterns."""
    return any(path == pattern or fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def patience_of(followed: Followed) -> float:
    """How long a file that does not grow is kept if its writers cannot be seen."""
    if followed.descriptor == CLOSED:
        return SILENT_SECONDS
    return UNKNOWN_SECONDS if os.fstat(followed.descriptor).st_nlink else UNKNOWN_DELETED_SECONDS


def raise_descriptor_limit() -> int:
    """Raise the limit of open files of this process as far as allowed; the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return wanted if soft == resource.RLIM_INFINITY else soft


def kind_of(mode: int) -> str:
    """What a path is that is neither a file nor a folder."""
    return "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"


def require_files(patterns: Iterable[str], may_come: bool = False) -> list[str]:
    """The plain names that do not exist. Raises CliError for a name that is no file, or that does not exist and may
    not be waited for.
    """
    missing = []
    for pattern in patterns:
        if not os.path.exists(pattern):
            if glob.has_magic(pattern):
                continue
            if may_come and os.path.isdir(os.path.dirname(pattern) or "."):
                missing.append(pattern)
                continue
            raise CliError(f"{pattern}: no such file; quote a pattern to wait for files that are yet to come")
        mode = os.stat(pattern).st_mode
        if stat.S_ISDIR(mode):
            raise CliError(f"{pattern} is a folder; name its files, for example '{Path(pattern) / '*.log'}'")
        if not stat.S_ISREG(mode):
            raise CliError(
                f"{pattern} is {kind_of(mode)}, not a file; `barnabas produce TOPIC < {pattern}` reads it once"
            )
    return missing
