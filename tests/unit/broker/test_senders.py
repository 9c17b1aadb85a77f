"""Who sends a large slice of the log: the loop or a sender thread."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from barnabas.broker.net.senders import LOOP_SENDS_BYTES, Senders
from barnabas.storage.files import FileSlice, LogFile

SIZE = 1 << 20
HERE, THERE = 10, 11
"""Two sockets."""


@pytest.fixture
def item(tmp_path: Path) -> FileSlice:
    path = tmp_path / "segment"
    path.write_bytes(bytes(SIZE))
    return FileSlice(LogFile(str(path)), 0, SIZE)


def made(monkeypatch: pytest.MonkeyPatch, cores: int) -> Senders:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    loop = asyncio.new_event_loop()
    loop.close()  # no thread is started here
    return Senders(loop)


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_the_loop_serves_a_single_reader(
    monkeypatch: pytest.MonkeyPatch, item: FileSlice, cores: int
) -> None:
    senders = made(monkeypatch, cores)
    assert [senders.note_large_slice(HERE, item, sent) for sent in (0, 0, LOOP_SENDS_BYTES)] == [False] * 3


def test_threads_serve_several_readers_where_there_are_cores(
    monkeypatch: pytest.MonkeyPatch, item: FileSlice
) -> None:
    senders = made(monkeypatch, 8)
    assert [senders.note_large_slice(fd, item, 0) for fd in (HERE, THERE, HERE)] == [False, True, True]


def test_with_few_cores_the_loop_sends_so_much_in_a_turn_and_leaves_the_rest_to_threads(
    monkeypatch: pytest.MonkeyPatch, item: FileSlice
) -> None:
    senders = made(monkeypatch, 2)
    turn = [0, LOOP_SENDS_BYTES - 1, LOOP_SENDS_BYTES]
    assert [
        senders.note_large_slice(fd, item, sent) for fd, sent in zip((HERE, THERE, HERE), turn, strict=True)
    ] == [
        False,
        False,
        True,
    ]


def test_threads_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch, item: FileSlice) -> None:
    senders = made(monkeypatch, 2)
    monkeypatch.setattr(FileSlice, "is_cached", lambda _: False)
    assert [senders.note_large_slice(fd, item, 0) for fd in (HERE, THERE)] == [False, True]


def test_what_was_just_written_is_in_memory(item: FileSlice) -> None:
    assert item.is_cached()


def test_what_was_dropped_from_memory_is_not_there_until_it_is_read(item: FileSlice) -> None:
    os.fdatasync(item.fd)
    os.posix_fadvise(item.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if item.is_cached():
        pytest.skip("this file system keeps everything in memory")
    assert item.read() == bytes(SIZE)
    assert item.is_cached()
