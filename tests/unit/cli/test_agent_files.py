"""The agent's files and its memory of them: growth, rotation, truncation, restarts."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.agent import files
from barnabas.agent import watcher as watcher_module
from barnabas.agent.files import Compressed, Followed, Truncated
from barnabas.agent.state import State, open_state
from barnabas.agent.watcher import Watcher, require_files
from barnabas.terminal.errors import CliError


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state", "topic")


def only(watcher: Watcher) -> Followed:
    (followed,) = watcher.open_files.values()
    return followed


def ship(followed: Followed) -> list[bytes]:
    """Read everything and acknowledge it."""
    lines: list[bytes] = []
    while (piece := followed.read()) is not None:
        followed.outstanding += 1
        followed.acknowledged(piece)
        lines += piece.lines
    return lines


def reopen(state: State, *patterns: str) -> Watcher:
    """The next run: the state is saved, closed and read again."""
    state.save(True, {})
    state.close()
    again = open_state(state.path.parent, state.path.stem)
    watcher = Watcher(list(patterns), again)
    watcher.scan()
    return watcher


def test_lines_byte_for_byte_and_partial_ones_wait(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"one\r\n\n\xff\xfe\npart")
    watcher = Watcher([str(log)], state)
    watcher.scan()
    followed = only(watcher)
    assert ship(followed) == [b"one\r", b"", b"\xff\xfe"]
    assert followed.read() is None
    with log.open("ab") as out:
        out.write(b"ial\nx")
    assert ship(followed) == [b"partial"]
    last = followed.take_partial()
    assert last is not None
    assert (last.lines, last.end) == ([b"x"], log.stat().st_size)


def test_positions_survive_a_restart(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"1\n2\n")
    watcher = Watcher([str(log)], state)
    watcher.scan()
    ship(only(watcher))
    log.write_bytes(b"1\n2\n3\n")
    followed = only(reopen(state, str(log)))
    assert followed.entry.lines == 2
    assert ship(followed) == [b"3"]


def test_rename_and_new_file(tmp_path: Path, state: State) -> None:
    log, pattern = tmp_path / "a.log", str(tmp_path / "a.log*")
    log.write_bytes(b"1\n")
    watcher = Watcher([pattern], state)
    watcher.scan()
    ship(only(watcher))
    log.rename(tmp_path / "a.log.1")
    with (tmp_path / "a.log.1").open("ab") as late:
        late.write(b"late\n")
    log.write_bytes(b"new\n")
    watcher.scan()
    assert sorted(line for followed in watcher.open_files.values() for line in ship(followed)) == [
        b"late",
        b"new",
    ]
    again = reopen(state, pattern)
    assert [ship(followed) for followed in again.open_files.values()] == [[], []]


def test_a_renamed_file_outside_the_pattern_is_read_to_its_end(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"1\n")
    watcher = Watcher([str(log)], state)
    watcher.scan()
    old = only(watcher)
    ship(old)
    log.rename(tmp_path / "old")
    with (tmp_path / "old").open("ab") as late:
        late.write(b"late\n")
    log.write_bytes(b"new\n")
    watcher.scan()
    assert old.moved
    assert not watcher.finished()
    assert ship(old) == [b"late"]
    assert len(watcher.open_files) == 2


@pytest.mark.parametrize("regrown", [b"x\n", b"other lines, more than before\n"])
def test_truncation(tmp_path: Path, state: State, regrown: bytes) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"first line\n")
    watcher = Watcher([str(log)], state)
    watcher.scan()
    assert ship(only(watcher)) == [b"first line"]
    log.write_bytes(regrown)  # same inode, other bytes
    with pytest.raises(Truncated):
        only(watcher).read()
    (key,) = watcher.open_files
    watcher.restart(key)
    assert ship(only(watcher)) == [regrown[:-1]]
    assert "truncated" in watcher.notes[0]
    assert ship(only(reopen(state, str(log)))) == []


def test_truncated_between_runs(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"first line\n")
    watcher = Watcher([str(log)], state)
    watcher.scan()
    ship(only(watcher))
    log.write_bytes(b"quite another line\n")
    assert ship(only(reopen(state, str(log)))) == [b"quite another line"]


def test_an_editor_that_replaces_the_file(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"1\n2\n")
    watcher = Watcher([str(log)], state)
    watcher.scan()
    ship(only(watcher))
    fresh = tmp_path / "fresh"
    fresh.write_bytes(b"1\n2\n3\n")
    os.replace(fresh, log)
    assert ship(only(reopen(state, str(log)))) == [b"3"]


def test_two_files_with_the_same_lines_are_both_shipped(tmp_path: Path, state: State) -> None:
    data = b"".join(b"line %d\n" % i for i in range(1000))
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(data)
    watcher = Watcher([str(tmp_path / "*.log")], state)
    watcher.scan()
    assert [len(ship(followed)) for followed in watcher.open_files.values()] == [1000, 1000]


def test_state_is_locked(tmp_path: Path, state: State) -> None:
    with pytest.raises(CliError, match="another agent"):
        open_state(state.path.parent, "topic")


def test_damaged_state(tmp_path: Path) -> None:
    (tmp_path / "topic.json").write_text("{")
    with pytest.raises(CliError, match="--reset"):
        open_state(tmp_path, "topic")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_left_out_even_if_empty_at_first(
    tmp_path: Path, state: State, pack: Callable[[bytes], bytes]
) -> None:
    log = tmp_path / "a.log.1"
    log.touch()
    watcher = Watcher([str(tmp_path / "a*")], state)
    watcher.scan()
    assert only(watcher).read() is None
    log.write_bytes(pack(random.Random(1).randbytes(5000)))
    with pytest.raises(Compressed, match="cat"):
        only(watcher).read()
    watcher.leave_out(next(iter(watcher.open_files)), "zcat")
    watcher.scan()
    assert not watcher.open_files
    assert not state.entries
    assert len(watcher.notes) == 1


def test_a_long_line_is_one_line_and_a_longer_one_is_left_out_whole(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LINE_BYTES_MAX", 3 << 20)
    log = tmp_path / "a.log"
    long, too_long = b"l" * (2 << 20), b"t" * (9 << 20)
    log.write_bytes(b"one\n" + long + b"\n" + too_long + b"\ntwo\n" + too_long)
    watcher = Watcher([str(log)], state)
    watcher.scan()
    followed, pieces = only(watcher), []
    while (piece := followed.read()) is not None:
        pieces.append(piece)
    last = followed.take_partial()
    assert last is not None
    pieces.append(last)
    assert [line for piece in pieces for line in piece.lines] == [b"one", long, b"two"]
    assert sum(piece.too_long for piece in pieces) == 2
    assert pieces[-1].end == log.stat().st_size


def test_a_file_written_anew_in_the_same_size_is_noticed(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"first line\n")
    watcher = Watcher([str(log)], state)
    watcher.scan()
    assert ship(only(watcher)) == [b"first line"]
    log.write_bytes(b"other line\n")
    os.utime(log, ns=(1, 1))
    with pytest.raises(Truncated):
        only(watcher).read()


def test_an_editor_that_replaces_a_followed_file(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"1\n2\n")
    watcher = Watcher([str(log)], state)
    watcher.scan()
    ship(only(watcher))
    fresh = tmp_path / "fresh"
    fresh.write_bytes(b"1\n2\n3\n")
    os.replace(fresh, log)
    watcher.scan()
    assert ship(only(watcher)) == [b"3"]
    assert ship(only(reopen(state, str(log)))) == []


def test_a_rotation_to_a_file_that_begins_alike_is_no_editor(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"same\n")
    watcher = Watcher([str(log)], state)
    watcher.scan()
    ship(only(watcher))
    log.rename(tmp_path / "a.log.1")
    log.write_bytes(b"same\nmore\n")
    watcher.scan()
    assert [ship(followed) for followed in watcher.open_files.values()] == [[], [b"same", b"more"]]


def test_two_files_that_begin_alike_are_two(tmp_path: Path, state: State) -> None:
    """The first was shipped and is gone; the second has the same lines, more of them, and another name."""
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_bytes(b"the same line\n" * 200)
    watcher = Watcher([str(tmp_path / "*.log")], state)
    watcher.scan()
    ship(only(watcher))
    second.write_bytes(b"the same line\n" * 300)
    first.unlink()
    assert len(ship(only(reopen(state, str(tmp_path / "*.log"))))) == 300


def test_a_file_renamed_between_runs_is_read_to_its_end(tmp_path: Path, state: State) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"1\n")
    watcher = Watcher([str(log)], state)
    watcher.scan()
    ship(only(watcher))
    with log.open("ab") as out:
        out.write(b"last\n")
    log.rename(tmp_path / "a.log.1")
    log.write_bytes(b"new\n")
    again = reopen(state, str(log))
    assert sorted(line for followed in again.open_files.values() for line in ship(followed)) == [
        b"last",
        b"new",
    ]


def test_a_renamed_file_is_left_when_nobody_writes_it(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    command = "import sys, time; out = open(sys.argv[1], 'a'); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", command, str(log)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        watcher = Watcher([str(log)], state)
        watcher.scan()
        log.rename(tmp_path / "old")
        watcher.scan()
        monkeypatch.setattr(watcher_module, "SILENT_SECONDS", -1.0)
        assert watcher.finished() == []
        writer.kill()
    monkeypatch.setattr(watcher_module, "UNKNOWN_SECONDS", 0.0)
    assert watcher.finished() == list(watcher.open_files)


def test_more_files_than_descriptors(tmp_path: Path, state: State) -> None:
    for i in range(20):
        (tmp_path / f"{i:02}.log").write_bytes(b"%d\n" % i)
    watcher = Watcher([str(tmp_path / "*.log")], state, open_max=5)
    watcher.scan()
    assert sorted(line for file in watcher.open_files.values() for line in ship(file)) == sorted(
        b"%d" % i for i in range(20)
    )
    watcher.scan()
    assert sum(file.descriptor >= 0 for file in watcher.open_files.values()) == 5
    for i in range(20):
        with (tmp_path / f"{i:02}.log").open("ab") as out:
            out.write(b"more\n")
    (tmp_path / "00.log").rename(tmp_path / "renamed")
    watcher.scan()
    assert [line for file in watcher.open_files.values() for line in ship(file)] == [b"more"] * 20


def test_the_state_forgets_files_that_are_gone(tmp_path: Path, state: State) -> None:
    watcher = Watcher([str(tmp_path / "*.log")], state)
    for i in range(30):
        log = tmp_path / f"{i}.log"
        log.write_bytes(b"1\n")
        watcher.scan()
        ship(only(watcher))
        watcher.close(next(iter(watcher.open_files)))
        log.unlink()
    watcher.forget_gone()
    assert state.entries == []


def test_a_topic_made_anew_keeps_the_ids_of_the_files(tmp_path: Path) -> None:
    old = open_state(tmp_path, "t-0123456789ab", "t", "c")
    (tmp_path / "a.log").write_bytes(b"1\n")
    watcher = Watcher([str(tmp_path / "a.log")], old)
    watcher.scan()
    ship(only(watcher))
    old.save(True, {0: 1})
    old.close()
    new = open_state(tmp_path, "t-ba9876543210", "t", "c")
    assert [(entry.id, entry.position) for entry in new.entries] == [(old.entries[0].id, 0)]
    assert (new.clean, new.starts) == (False, {})
    assert [path.name for path in tmp_path.glob("t-*")] == ["t-ba9876543210.lock"]


def test_odd_names(tmp_path: Path, state: State) -> None:
    brackets, pipe = tmp_path / "a[1].log", tmp_path / "pipe"
    brackets.write_bytes(b"1\n")
    os.mkfifo(pipe)
    watcher = Watcher([str(brackets), str(tmp_path / "p*")], state)
    watcher.scan()
    assert ship(only(watcher)) == [b"1"]
    assert "is a pipe" in watcher.notes[0]
    with pytest.raises(CliError, match="is a pipe"):
        require_files([str(pipe)])


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no such file"):
        require_files([str(tmp_path / "no.log")])
    with pytest.raises(CliError, match="is a folder"):
        require_files([str(tmp_path)])
    require_files([str(tmp_path / "*.log")])
