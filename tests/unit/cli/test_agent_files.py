"""The agent's files and its memory of them: growth, rotation, truncation, restarts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.cli.agent.files import Followed, Truncated, Watcher, require_files
from barnabas.cli.agent.state import State, open_state
from barnabas.cli.errors import CliError


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
    state.save(True, 0)
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
    assert not old.is_over()
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


def test_compressed_files_are_left_out(tmp_path: Path, state: State) -> None:
    (tmp_path / "a.log.1.gz").write_bytes(b"\x1f\x8bxxxx")
    watcher = Watcher([str(tmp_path / "*")], state)
    watcher.scan()
    watcher.scan()
    assert not watcher.open_files
    assert len(watcher.notes) == 1


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no such file"):
        require_files([str(tmp_path / "no.log")])
    with pytest.raises(CliError, match="is a folder"):
        require_files([str(tmp_path)])
    require_files([str(tmp_path / "*.log")])
