"""Compaction that is interrupted: by a crash, a power cut, damage, retention, readers and failures."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.storage.cleaning.cleaner import RETRY_MS
from barnabas.storage.files import fsync_dir
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log, open_log
from tests.unit.storage.building import T0_MS, files, read_all, remove_all_doomed
from tests.unit.storage.cleaning import COMPACT, NAME, clean, cleaner_of, new_log, pairs, put
from tests.unit.storage.power import PowerCut


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return new_log(tmp_path)


class Crash(BaseException):
    """The power goes, as far as a test can tell."""


def test_a_crash_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(folder: Path) -> Log:
        log = create_log(str(folder), COMPACT, T0_MS)
        for i in range(90):
            put(log, (b"k%d" % (i % 7), b"v" * 60), (b"once-%d" % i, None if i % 2 else b"x"))
        log.roll(T0_MS)
        log.flush()
        return log

    whole = build(tmp_path / "w-0")
    old = pairs(whole)
    clean(whole, roll=False)
    new = pairs(whole)
    assert len(new) < len(old)

    real: dict[str, Callable[..., Any]] = {
        name: getattr(os, name) for name in ("replace", "unlink", "open", "ftruncate", "fsync")
    }
    outcomes = set()
    for point in range(200):
        log = build(tmp_path / f"c{point}-0")
        left = [point]

        def fails(name: str, left: list[int] = left) -> Callable[..., Any]:
            def call(*args: Any, **names: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise Crash
                return real[name](*args, **names)

            return call

        crashed = False
        with monkeypatch.context() as patched:
            for name in real:
                patched.setattr(os, name, fails(name))
            try:
                clean(log, roll=False)
            except Crash:
                crashed = True
        after = open_log(log.folder, COMPACT, T0_MS, clean=False, recovery_point=log.recovery_point)
        assert after.log_end_offset == 180
        got = pairs(after)
        left_over = [n for n in files(log.folder) if n.endswith((".swap", ".cleaned", ".deleted"))]
        assert not left_over
        outcomes.add("new" if got == new else "old" if got == old else "part")
        if got not in (old, new):
            # Several new segments are put in one after another: each old segment or its replacement.
            assert set(new) <= set(got) <= set(old)
            assert got == sorted(got)
        if not crashed:
            break
    assert {"old", "new"} <= outcomes
    assert not crashed


def test_retention_in_the_middle_of_a_pass_ends_it(log: Log) -> None:
    log.set_config(replace(COMPACT, cleanup_policy=("compact", "delete"), retention_bytes=5000))
    for i in range(200):
        put(log, (b"k%d" % (i % 3), b"v" * 100))
    cleaner = cleaner_of(log)
    for count, step in enumerate(cleaner.steps(T0_MS)):
        step.work()
        if count == 1:
            assert log.delete_old_segments(T0_MS) > 0
        step.commit()
    assert not cleaner.uncleanable
    assert not [name for name in files(log.folder) if name.endswith(".cleaned")]
    start = log.log_start_offset
    assert start > 0
    assert read_all(log)[0].offset == start
    log.set_config(COMPACT)
    assert cleaner.run(T0_MS)
    assert len({record.key for record in read_all(log)}) == 3


def test_a_damaged_segment_is_not_rewritten(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    for i in range(20):
        put(log, (b"k", b"%d" % i))
    log.roll(T0_MS)
    with open(log.segments[0].path(".log"), "r+b") as file:
        file.seek(65)
        file.write(b"\xff\xff")
    before = files(log.folder)
    cleaner = cleaner_of(log)
    with caplog.at_level(logging.ERROR):
        cleaner.run(T0_MS)
    assert "checksum" in cleaner.uncleanable[NAME]
    assert files(log.folder) == before


def test_readers_in_the_middle_of_a_segment_are_not_disturbed(log: Log) -> None:
    for i in range(60):
        put(log, (b"k", b"%d" % i))
    part = log.read(10, 1 << 20)
    assert part is not None
    before = part.read()
    clean(log)
    remove_all_doomed(log)
    assert part.read() == before


def test_a_power_cut_at_any_step_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """Between any two halves of steps, on a disk that keeps only what was synced."""
    config = replace(COMPACT, segment_bytes=1500)
    outcomes = set()
    for halves in range(100):
        folder = tmp_path / f"d{halves}"
        with PowerCut(folder) as power:
            log = create_log(str(folder / "t-0"), config, T0_MS)
            for i in range(60):
                put(log, (b"k%d" % (i % 4), b"v" * 60), (b"once-%d" % (i % 20), b"x"))
            log.roll(T0_MS)
            log.flush()
            fsync_dir(folder)
            old = pairs(log)
            left = halves
            with closing(cleaner_of(log).steps(T0_MS)) as steps:
                for step in steps:
                    for half in (step.work, step.commit):
                        if left > 0:
                            half()
                        left -= 1
                    if left <= 0:
                        break
                if left <= 0:
                    power.cut()
            after = open_log(str(folder / "t-0"), config, T0_MS, clean=False, recovery_point=120)
            got = pairs(after)
            assert after.log_end_offset == 120
            assert {key: value for _, key, value in got} == {key: value for _, key, value in old}
            assert got == sorted(got)
            outcomes.add(len(got))
        if left > 0:
            break
    assert left > 0
    assert {len(old), 24} <= outcomes


@pytest.mark.parametrize("taken", ["retention", "truncation"])
def test_what_goes_during_a_swap_does_not_come_back(tmp_path: Path, taken: str) -> None:
    """The new segment is called `.swap` already, which a restart would put in the old ones' place."""
    config = replace(COMPACT, cleanup_policy=("compact", "delete"), retention_bytes=3000)
    log = create_log(str(tmp_path / "t-0"), config, T0_MS)
    for i in range(200):
        put(log, (b"k%d" % i, b"v" * 40))
    steps = cleaner_of(log).steps(T0_MS)
    for step in steps:
        step.work()
        step.commit()
        if log.swap is not None:
            break
    if taken == "retention":
        assert log.delete_old_segments(T0_MS) > 0
    else:
        log.truncate_to(2, T0_MS)
    wanted = pairs(log)
    for step in steps:
        step.work()
        step.commit()
    assert pairs(log) == wanted
    again = open_log(log.folder, config, T0_MS, clean=False)
    assert pairs(again) == wanted


def damage_swap(log: Log, damage: Callable[[bytes], bytes]) -> Path:
    """A copy of the log's folder at the moment when the new segment is called `.swap`, which is damaged there."""
    copied = log.folder + "9"
    with closing(cleaner_of(log).steps(T0_MS)) as steps:
        for step in steps:
            step.work()
            step.commit()
            if log.swap is not None:
                shutil.copytree(log.folder, copied)
                break
    (path,) = Path(copied).glob("*.log.swap")
    path.write_bytes(damage(path.read_bytes()))
    return path


@pytest.mark.parametrize("kind", ["zeros", "flipped", "cut", "empty"])
@pytest.mark.parametrize("doomed", [False, True])
def test_a_damaged_swap_gives_the_old_segments_back(
    log: Log, kind: str, doomed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(90):
        put(log, (b"k%d" % (i % 40), b"v" * 60))
    log.roll(T0_MS)
    log.flush()
    wanted = pairs(log)
    damages: dict[str, Callable[[bytes], bytes]] = {
        "zeros": lambda data: bytes(len(data)),
        "flipped": lambda data: data[:500] + bytes([data[500] ^ 4]) + data[501:],
        "cut": lambda data: data[:-30],
        "empty": lambda data: b"",
    }
    path = damage_swap(log, damages[kind])
    folder = str(path.parent)
    if doomed:
        base = path.name[:20]
        for suffix in (".log", ".index", ".timeindex"):
            os.rename(os.path.join(folder, base + suffix), os.path.join(folder, base + suffix + ".deleted"))
    again = open_log(folder, COMPACT, T0_MS, clean=False)
    assert pairs(again) == wanted
    assert path.with_name(path.name + ".damaged").exists()
    assert "interrupted compaction left a damaged segment; the old ones are taken back" in caplog.messages


def test_a_cleaner_that_fails_in_its_set_up_tries_again(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(T0_MS)
    cleaner = cleaner_of(log)
    with monkeypatch.context() as patched:
        patched.setattr(Log, "aborted_transactions", lambda *_: 1 / 0)
        assert not cleaner.run(T0_MS)
        assert not cleaner.run(T0_MS + RETRY_MS)
    assert [record.exc_info is not None for record in caplog.records if "tried again" in record.message] == [
        True
    ]
    assert not cleaner.run(T0_MS + RETRY_MS + 1)
    assert cleaner.run(T0_MS + 2 * RETRY_MS)
    assert pairs(log) == [(1, b"a", b"2")]
