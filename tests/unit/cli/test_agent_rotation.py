"""Rotation and the agent: what was not read yet is found in copies and archives, and nothing is taken for another file."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
from pathlib import Path

import pytest

from barnabas.agent import copies, writers
from barnabas.agent.copies import is_named_after
from barnabas.agent.files import Followed, Truncated
from barnabas.agent.missed import without_rotations
from barnabas.agent.state import State, open_state
from barnabas.agent.watcher import Watcher, require_files
from barnabas.terminal.errors import CliError

LINES = [b"%06d a line of a log" % i for i in range(300)]


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state", "topic")


def watching(state: State, *patterns: str) -> Watcher:
    watcher = Watcher(list(patterns), state)
    watcher.scan()
    return watcher


def next_run(state: State, *patterns: str, clean: bool = False) -> Watcher:
    """What a run finds after the one of this state has ended, cleanly or by a kill."""
    state.save(clean, {})
    state.close()
    return watching(open_state(state.path.parent, state.path.stem), *patterns)


def killed(state: State, *patterns: str) -> Watcher:
    """What a run finds after one that was killed; its state is what was saved last."""
    state.close()
    return watching(open_state(state.path.parent, state.path.stem), *patterns)


def killed_after_saving(watcher: Watcher) -> Watcher:
    """As `next_run`, with the patterns of this one."""
    return next_run(watcher.state, *watcher.patterns)


def note_heads(watcher: Watcher) -> None:
    """As the agent does before it reads."""
    for followed in watcher.open_files.values():
        followed.note_head()


def pack(path: Path, name: str = "") -> None:
    """As logrotate does: the archive keeps the time of the file."""
    status, archive = path.stat(), path.with_name(name or f"{path.name}.gz")
    archive.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(archive, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()


def make_older(state: State, *others: Path) -> None:
    """Files that are written from now on are newer than the state and the others, whatever the clock's grain."""
    for path in (state.path, *others):
        os.utime(path, (1e9, 1e9))


def ship(watcher: Watcher) -> list[bytes]:
    """One round as the agent makes it: everything is read and acknowledged, what was truncated begins anew."""
    lines: list[bytes] = []
    for _ in range(3):
        for key, followed in list(watcher.open_files.items()):
            followed.note_head()
            if watcher.open_files.get(key) is not followed or watcher.is_held(followed):
                continue
            try:
                lines += read_to_end(followed)
            except Truncated:
                watcher.restart(key)
        leave_finished(watcher)
        while watcher.waiting:
            ((key, followed),) = ((key, f) for key, f in watcher.open_files.items() if f.is_archive)
            followed.note_head()
            lines += read_to_end(followed)
            leave_finished(watcher)
    return lines


def leave_finished(watcher: Watcher) -> None:
    """As the agent does after each round."""
    for key in watcher.finished():
        watcher.close(key)
    watcher.unpack_next()


def read_to_end(followed: Followed) -> list[bytes]:
    lines = []
    while (piece := followed.read()) is not None:
        followed.outstanding += 1
        followed.acknowledged(piece)
        lines += piece.lines
    return lines


def write(path: Path, lines: list[bytes], mode: str = "ab") -> None:
    with path.open(mode) as out:
        out.write(b"".join(line + b"\n" for line in lines))


def copy_and_truncate(log: Path, copy: Path) -> None:
    copy.write_bytes(log.read_bytes())
    os.truncate(log, 0)


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("suffix", ["", *PACKERS])
def test_copytruncate_loses_nothing_that_is_in_the_copy(
    tmp_path: Path, state: State, suffix: str, is_killed: bool
) -> None:
    log, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    write(log, LINES[:100])
    watcher = watching(state, str(log))
    assert ship(watcher) == LINES[:100]
    write(log, LINES[100:200])
    copy_and_truncate(log, copy)
    if suffix:
        copy.with_name(copy.name + suffix).write_bytes(PACKERS[suffix](copy.read_bytes()))
        copy.unlink()
    write(log, LINES[200:])
    if is_killed:
        watcher = next_run(state, str(log))
    assert sorted(ship(watcher)) == LINES[100:]
    assert ship(next_run(watcher.state, str(log))) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_copy_that_the_pattern_matches_doubles_nothing(
    tmp_path: Path, state: State, is_killed: bool
) -> None:
    log, copy, pattern = tmp_path / "a.log", tmp_path / "a.log.1", str(tmp_path / "a.log*")
    write(log, LINES[:100])
    watcher = watching(state, pattern)
    assert ship(watcher) == LINES[:100]
    copy.touch()
    watcher.scan()
    assert ship(watcher) == []
    write(log, LINES[100:200])
    copy.write_bytes(log.read_bytes())
    assert ship(watcher) == LINES[100:200]  # from the log itself; the copy waits
    write(log, LINES[200:250])
    copy.write_bytes(log.read_bytes())
    os.truncate(log, 0)
    write(log, LINES[250:])
    if is_killed:
        watcher = next_run(state, pattern)
    assert sorted(ship(watcher)) == LINES[200:]
    assert ship(next_run(watcher.state, pattern)) == []


def test_what_was_read_after_the_copy_was_made_is_not_shipped_from_it_again(
    tmp_path: Path, state: State
) -> None:
    log, copy, pattern = tmp_path / "a.log", tmp_path / "a.log.1", str(tmp_path / "a.log*")
    write(log, LINES[:100])
    watcher = watching(state, pattern)
    assert ship(watcher) == LINES[:100]
    copy.write_bytes(log.read_bytes())
    write(log, LINES[100:110])
    watcher.scan()
    assert ship(watcher) == LINES[100:110]
    os.truncate(log, 0)
    assert ship(watcher) == []
    assert ship(next_run(state, pattern)) == []


def test_a_copy_whose_original_stays_is_a_file_of_its_own(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, pattern = tmp_path / "a.log", str(tmp_path / "a.log*")
    write(log, LINES)
    watcher = watching(state, pattern)
    assert ship(watcher) == LINES
    (tmp_path / "a.log.saved").write_bytes(log.read_bytes())
    watcher.scan()
    assert ship(watcher) == []
    monkeypatch.setattr(copies, "COPYING_SECONDS", -1.0)
    assert ship(watcher) == LINES


@pytest.mark.parametrize("read", [0, 100])
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_file_that_was_rotated_while_no_agent_ran_is_read_to_its_end(
    tmp_path: Path, state: State, read: int, is_packed: bool
) -> None:
    log, old = tmp_path / "a.log", tmp_path / "a.log.1"
    write(log, LINES[: read or 1])
    watcher = watching(state, str(log))
    if read:
        assert ship(watcher) == LINES[:read]
    else:
        (followed,) = watcher.open_files.values()
        followed.note_head()
    write(log, LINES[read or 1 : 200])
    log.rename(old)
    write(log, LINES[200:])
    if is_packed:
        (tmp_path / "a.log.1.gz").write_bytes(gzip.compress(old.read_bytes()))
        old.unlink()
    again = next_run(state, str(log))
    assert sorted(ship(again)) == LINES[read:]
    assert ship(next_run(again.state, str(log))) == []


@pytest.mark.parametrize("how", ["running", "full disk", "killed", "killed at the start of the next run"])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("pattern", ["a.log", "a.lo*[!z]"])
def test_a_copy_is_read_from_its_start_if_nothing_was_read_before_the_truncation(
    tmp_path: Path, state: State, how: str, is_packed: bool, pattern: str
) -> None:
    log, copy, pattern = tmp_path / "a.log", tmp_path / "a.log.1", str(tmp_path / pattern)
    write(log, LINES[:1])
    watcher = watching(state, pattern)
    note_heads(watcher)
    if how != "full disk":
        state.save(False, {})
    write(log, LINES[1:100])
    if how == "killed at the start of the next run":
        watcher = killed(state, pattern)
    copy_and_truncate(log, copy)
    if is_packed:
        pack(copy)
    write(log, LINES[100:])
    if how == "killed":
        watcher = killed(state, pattern)
    watcher.scan()
    assert sorted(ship(watcher)) == LINES
    assert ship(next_run(watcher.state, pattern)) == []


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_copy_gets_the_inode_of_an_older_one_that_was_compressed(
    tmp_path: Path, state: State, is_killed: bool
) -> None:
    log, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    write(log, LINES[:100])
    watcher = watching(state, str(log))
    assert ship(watcher) == LINES[:100]
    write(log, LINES[100:150])
    copy_and_truncate(log, copy)
    write(log, LINES[150:160])
    assert sorted(ship(watcher)) == LINES[100:160]
    inode = copy.stat().st_ino
    for key, followed in list(watcher.open_files.items()):
        if followed.moved:
            watcher.close(key)  # nobody has written it for a while
    # delaycompress: the old copy is compressed, and a new one is made. The entry of the old one is still in the state.
    (tmp_path / "a.log.2.gz").write_bytes(gzip.compress(copy.read_bytes()))
    write(log, LINES[160:200])
    copy.write_bytes(log.read_bytes())
    assert copy.stat().st_ino == inode
    os.truncate(log, 0)
    write(log, LINES[200:])
    if is_killed:
        watcher = killed_after_saving(watcher)
    assert sorted(ship(watcher)) == LINES[160:]
    assert ship(next_run(watcher.state, str(log))) == []


def test_a_truncation_while_the_file_is_opened(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    write(log, LINES[:100])
    watcher = watching(state, str(log))
    assert ship(watcher) == LINES[:100]
    write(log, LINES[100:200])
    descriptor = os.open(log, os.O_RDONLY)
    (entry,) = state.entries
    assert entry.verifies(descriptor, log.stat().st_size)
    copy_and_truncate(log, tmp_path / "a.log.1")
    watcher.open_files = {(entry.device, entry.inode): Followed.at_entry(str(log), descriptor, entry)}
    write(log, LINES[200:])
    assert sorted(ship(watcher)) == LINES[100:]


@pytest.mark.parametrize("seen", ["never", "empty", "begun", "read"])
@pytest.mark.parametrize("how", ["create", "copytruncate"])
@pytest.mark.parametrize("packed", [0, 1, 2])
def test_two_rotations_while_no_agent_ran(
    tmp_path: Path, state: State, seen: str, how: str, packed: int
) -> None:
    log, other = tmp_path / "a.log", tmp_path / "b.log"
    older, old = tmp_path / "a.log.2", tmp_path / "a.log.1"
    write(other, LINES[:1])
    write(tmp_path / "a.log.3", LINES[200:])  # from before
    patterns = [str(log), str(other)]
    if seen != "never":
        write(log, LINES[:10] if seen in ("begun", "read") else [])
    watcher = watching(state, *patterns)
    shipped = ship(watcher) if seen != "begun" else []
    note_heads(watcher)
    state.save(False, {})
    make_older(state, tmp_path / "a.log.3")
    write(log, LINES[:100] if seen in ("never", "empty") else LINES[10:100])
    for begin, end in ((100, 200), (200, 300)):
        if old.exists():
            old.rename(older)
        if how == "create":
            log.rename(old)
        else:
            copy_and_truncate(log, old)
        write(log, LINES[begin:end])
    for path in (older, old)[:packed]:
        pack(path)
    again = killed(state, *patterns)
    shipped += ship(again)
    assert sorted(shipped) == sorted([LINES[0], *LINES])
    state = again.state
    state.save(False, {})
    make_older(state)
    assert ship(killed(state, *patterns)) == []


@pytest.mark.parametrize(("packed", "matched"), [(0, False), (1, False), (3, False), (0, True)])
def test_a_log_that_is_truncated_several_times_between_two_looks(
    tmp_path: Path, state: State, packed: int, matched: bool
) -> None:
    """By copytruncate: what it held in between is only in copies. matched: the pattern matches them, too."""
    log, names = tmp_path / "a.log", [tmp_path / f"a.log.{number}" for number in (3, 2, 1)]
    before = [b"a line from before, number %d" % number for number in range(9)]
    write(tmp_path / "a.log.4", before)
    os.utime(tmp_path / "a.log.4", (1e9, 1e9))
    watcher = watching(state, f"{log}*" if matched else str(log))
    shipped = ship(watcher)
    write(log, LINES[:10])
    watcher.scan()
    shipped += ship(watcher)
    write(log, LINES[10:100])
    for number, copy in enumerate(names):
        copy_and_truncate(log, copy)
        os.utime(copy, (2e9 + number, 2e9 + number))
        write(log, LINES[100 + 50 * number : 150 + 50 * number])
    for path in names[:packed]:
        pack(path)
    watcher.scan()
    for _ in range(2):
        shipped += ship(watcher)
        watcher.scan()
    assert sorted(shipped) == sorted([*before[: 9 * matched], *LINES[:250]])
    assert ship(next_run(watcher.state, *watcher.patterns)) == []


def test_archives_that_no_run_has_seen_are_unpacked_one_after_the_other(tmp_path: Path, state: State) -> None:
    """All of them together may need more room than there is. Each run but the last is killed when it has read one."""
    log = tmp_path / "a.log"
    write(log, LINES[:10])
    watcher = watching(state, str(log))
    shipped = ship(watcher)
    watcher.state.save(False, {})
    make_older(watcher.state)
    for number in range(4):
        write(log, LINES[50 * number + 10 : 50 * number + 60])
        log.rename(rotated := tmp_path / f"a.log.{9 - number}")
        pack(rotated)
    write(log, LINES[210:])
    watcher = killed(watcher.state, str(log))
    for _ in range(3):
        (archive,) = (followed for followed in watcher.open_files.values() if followed.is_archive)
        note_heads(watcher)
        shipped += read_to_end(archive)
        watcher.forget_gone()
        watcher = next_run(watcher.state, str(log))
    shipped += ship(watcher)
    assert sorted(shipped) == LINES
    assert watcher.state.looked_for_missed
    assert ship(next_run(watcher.state, str(log))) == []


def test_an_archive_that_finds_no_room_is_read_later(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, unpack = tmp_path / "a.log", copies.unpack_rest
    watcher = watching(state, str(log))
    state.save(False, {})
    make_older(state)
    write(log, LINES[:100])
    pack(log, "a.log.1.gz")
    write(log, LINES[100:])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(copies, "unpack_rest", full)
    watcher = killed(state, str(log))
    assert ship(watcher) == LINES[100:]
    assert "No space left on device; it is read when" in watcher.notes[0]
    watcher = next_run(watcher.state, str(log))  # its state is newer than the archive
    assert ship(watcher) == []
    monkeypatch.setattr(copies, "unpack_rest", unpack)
    watcher.looked_at = -1e9
    watcher.scan()
    assert ship(watcher) == LINES[:100]
    assert ship(next_run(watcher.state, str(log))) == []


def test_what_is_not_missed(tmp_path: Path, state: State) -> None:
    """Copies that people make, files of other logs, and what was read already."""
    log, new = tmp_path / "app", tmp_path / "new.log"
    write(log, LINES[:100])
    watcher = watching(state, str(log))
    assert ship(watcher) == LINES[:100]
    state.save(False, {})
    make_older(state)
    write(tmp_path / "application.log", LINES)
    write(tmp_path / "app.save", LINES)
    write(tmp_path / "app.2", LINES[:50])  # a copy of what is there
    write(tmp_path / "app.3.gz", LINES)  # no archive
    write(tmp_path / "new.log.1", LINES)  # of a log that was not asked for when it was written
    write(new, LINES[:1])
    again = killed(state, str(log), str(new))
    assert ship(again) == LINES[:1]
    assert [note for note in again.notes if "app.3.gz" in note]


def test_a_rotation_before_its_new_file_is_there(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    write(log, LINES[:100])
    ship(watching(state, str(log)))
    write(log, LINES[100:])
    log.rename(tmp_path / "a.log.1")
    assert require_files([str(log)], may_come=True) == [str(log)]
    again = next_run(state, str(log))
    assert ship(again) == LINES[100:]
    with pytest.raises(CliError, match="no such file"):
        require_files([str(tmp_path / "no folder" / "a.log")], may_come=True)


def test_files_of_equal_lines_are_told_apart_after_a_rotation(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    write(log, [b"alive"] * 1000)
    assert len(ship(watching(state, str(log)))) == 1000
    log.rename(tmp_path / "a.log.1")
    write(log, [b"alive"] * 1500)
    assert len(ship(next_run(state, str(log)))) == 1500


@pytest.mark.parametrize("kept_as", ["a.log~", "a.log.bak"])
def test_an_editor_that_keeps_a_backup(tmp_path: Path, state: State, kept_as: str) -> None:
    log = tmp_path / "a.log"
    write(log, LINES[:200])
    watcher = watching(state, str(log))
    ship(watcher)
    log.rename(tmp_path / kept_as)
    write(log, LINES)
    watcher.scan()
    assert ship(watcher) == LINES[200:]


def test_an_inode_that_is_used_again_before_anything_was_acknowledged(tmp_path: Path, state: State) -> None:
    """The next run would leave out what the first file's records have at the same positions."""
    log = tmp_path / "a.log"
    write(log, [b"sent, then the agent was killed"])
    (first,) = watching(state, str(log)).open_files.values()
    first.note_head()
    write(log, [b"another file with this inode, of as many bytes"], "wb")
    (second,) = next_run(state, str(log)).open_files.values()
    assert second.entry.id != first.entry.id


def test_what_is_acknowledged_after_a_truncation_says_nothing_about_the_new_bytes(
    tmp_path: Path, state: State
) -> None:
    log = tmp_path / "a.log"
    write(log, LINES[:100])
    (followed,) = watching(state, str(log)).open_files.values()
    followed.note_head()
    piece = followed.read()
    assert piece is not None
    write(log, LINES[100:], "wb")  # more than before
    followed.outstanding += 1
    followed.acknowledged(piece)
    assert ship(next_run(state, str(log))) == LINES[100:]


def test_a_run_that_is_killed_at_once_is_no_clean_one(tmp_path: Path, state: State) -> None:
    state.save(True, {0: 5})
    state.close()
    killed = open_state(state.path.parent, state.path.stem)
    assert killed.clean
    os.close(killed.lock)
    assert not open_state(state.path.parent, state.path.stem).clean


def test_in_a_container_the_writers_of_others_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "INITIAL_PID_NAMESPACE", "pid:[1]")
    assert writers.written_files()[1] is False


@pytest.mark.parametrize(
    ("name", "log", "expected"),
    [
        ("a.log.1", "a.log", True),
        ("a.log-20260101.gz", "a.log", True),
        ("a-20260101.log", "a.log", True),
        ("a.1.log.gz", "a.log", True),
        ("a.log", "a.log", False),
        ("a.log", "a.log.1", False),
        ("b.log", "a.log", False),
        ("all.log", "a.log", False),
    ],
)
def test_names_of_rotated_files(name: str, log: str, expected: bool) -> None:
    assert is_named_after(name, log) is expected


def test_rotated_files_that_a_pattern_matches_are_no_logs_of_their_own() -> None:
    """Else a start behind thousands of them would look at each for the sake of each."""
    logs = ["/x/a.log", "/x/b.log", "/x/c.log.1", "/y/a.log.1", "/x/a.log.save"]
    rotated = [
        "/x/a.log.1",
        "/x/a.log.12.gz",
        "/x/a-20260101.log",
        "/x/a-20260101.log.gz",
        "/x/b.log.2026-11-28_10-11-12",
    ]
    assert without_rotations([*rotated, *logs]) == logs
