"""The history's file: coarser with age, bounded, and what happens when it is killed, cut, damaged or full."""

from __future__ import annotations

import itertools
import math
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.monitor.history.packing import NAN, TIERS, fold, pack, unpack
from barnabas.monitor.history.store import FILE, History, HistoryError, Series

MB = 1 << 20
HOUR_S, DAY_S = 3600, 86_400
START_S = 1_700_006_400  # a multiple of every span
LAG = Series.of("group_lag", cluster="blue", group="billing")


def write_minutes(history: History, start_s: int, minutes: int, *more: Series) -> None:
    for minute in range(minutes):
        values = {LAG: float(minute), **{series: float(i) for i, series in enumerate(more)}}
        history.write(start_s + minute * 60, values)


def test_rows_are_packed_and_folded() -> None:
    values = [1.5, NAN, -3.0, math.inf, 1e300]
    assert [v for v in unpack(pack(values)) if v == v] == [1.5, -3.0, math.inf, 1e300]
    assert len(pack([7.0] * 60)) < 40
    means, peaks = fold([1.0, 3.0, NAN, NAN, 5.0], [2.0, 9.0, NAN, NAN, 5.0], 2)
    assert (means[0], peaks[0], means[2], peaks[2]) == (2.0, 9.0, 5.0, 5.0)
    assert math.isnan(means[1])
    for bad in (b"", b"nonsense", pack(values)[:-6]):
        with pytest.raises(ValueError, match="row of"):
            unpack(bad) if bad else unpack(b"\x00")


def test_spans_fit_into_each_other() -> None:
    for finer, coarser in itertools.pairwise(TIERS):
        assert coarser.span_s % finer.span_s == 0
        assert coarser.step_s % finer.step_s == 0
        assert coarser.keep_s > finer.keep_s >= coarser.span_s


def test_what_was_written_is_read_before_and_after_it_is_packed(tmp_path: Path) -> None:
    history = History(tmp_path, 10 * MB)
    write_minutes(history, START_S, 90)
    want = [(START_S + i * 60, float(i)) for i in range(90)]
    for _ in range(2):
        points = history.read(LAG, START_S, START_S + 2 * HOUR_S)
        assert [(point.at_s, point.mean) for point in points] == want
        history.tidy(START_S + 90 * 60)
    assert [p.at_s for p in history.read(LAG, START_S + 600, START_S + 720)] == [START_S + 600, START_S + 660]
    assert history.read(Series.of("none"), START_S, START_S + HOUR_S) == []
    assert history.names() == [LAG]
    history.close()


def test_values_become_coarser_with_age_and_go_after_fifteen_days(tmp_path: Path) -> None:
    history = History(tmp_path, 100 * MB)
    for day in range(17):
        for minute in range(0, 1440, 10):
            at_s = START_S + day * DAY_S + minute * 60
            history.write(at_s, {LAG: 100.0 if minute % 30 == 0 else 40.0})
        history.tidy(START_S + (day + 1) * DAY_S)
    now_s = START_S + 17 * DAY_S
    points = history.read(LAG, 0, now_s)
    assert now_s - 15 * DAY_S - 16 * HOUR_S <= points[0].at_s <= now_s - 15 * DAY_S + 16 * HOUR_S
    oldest = [p for p in points if p.at_s < now_s - 5 * DAY_S]
    assert {b.at_s - a.at_s for a, b in itertools.pairwise(oldest)} == {TIERS[2].step_s}
    assert all(point.peak == 100.0 and point.mean == 60.0 for point in oldest)
    newest = [p for p in points if p.at_s >= now_s - DAY_S]
    assert {b.at_s - a.at_s for a, b in itertools.pairwise(newest)} == {600}
    history.close()


def test_the_oldest_go_when_the_file_is_full_of_what_it_may_hold(tmp_path: Path) -> None:
    size = 256 * 1024
    history = History(tmp_path, size)
    many = [Series.of("topic_bytes", cluster="blue", topic=f"t{i}") for i in range(300)]
    for hour in range(12):
        write_minutes(history, START_S + hour * HOUR_S, 60, *many)
        history.tidy(START_S + (hour + 1) * HOUR_S)
        assert history.size_bytes() <= size
    points = history.read(LAG, 0, START_S + DAY_S)
    assert START_S < points[0].at_s <= points[-1].at_s == START_S + 12 * HOUR_S - 60
    assert (tmp_path / FILE).stat().st_size <= 2 * size
    history.close()


def test_two_do_not_write_one_file(tmp_path: Path) -> None:
    history = History(tmp_path, MB)
    with pytest.raises(HistoryError, match="another process writes"):
        History(tmp_path, MB)
    history.close()
    History(tmp_path, MB).close()


WRITER = """
import sys
from pathlib import Path
from barnabas.monitor.history.store import History, Series
history = History(Path(sys.argv[1]), 1 << 20)
for i in range(1_000_000):
    history.write({start} + i * 60, {{Series.of("n"): float(i)}})
    if i % 60 == 0:
        history.tidy({start} + i * 60)
    print(i, flush=True)
"""


def test_a_process_that_is_killed_loses_nothing_that_was_written(tmp_path: Path) -> None:
    script = WRITER.format(start=START_S)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    last = 0
    for line in process.stdout:
        last = int(line)
        if last >= 130:
            break
    os.kill(process.pid, signal.SIGKILL)
    last = max([last, *(int(line) for line in process.stdout.read().splitlines())])
    process.stdout.close()
    process.wait()
    history = History(tmp_path, MB)
    points = history.read(Series.of("n"), 0, START_S + 1_000_000 * 60)
    assert [point.mean for point in points][: last + 1] == [float(i) for i in range(last + 1)]
    history.close()


@pytest.mark.parametrize("harm", ["cut", "torn", "nonsense"])
def test_a_damaged_file_is_moved_aside(tmp_path: Path, harm: str) -> None:
    history = History(tmp_path, MB)
    for hour in range(3):
        write_minutes(history, START_S + hour * HOUR_S, 60)
        history.tidy(START_S + (hour + 1) * HOUR_S)
    history.close()
    path = tmp_path / FILE
    whole = path.read_bytes()
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "torn": whole[:4096] + bytes(8192) + whole[12288:],
            "nonsense": b"x" * 5000,
        }[harm]
    )
    history = History(tmp_path, MB)
    write_minutes(history, START_S + DAY_S, 2)
    assert len(history.read(LAG, START_S + DAY_S, START_S + 2 * DAY_S)) == 2
    assert (tmp_path / f"{FILE}.damaged-1").exists()
    history.close()


def test_a_full_disk_costs_what_cannot_be_written_and_no_more(tmp_path: Path) -> None:
    history = History(tmp_path, 100 * MB)
    write_minutes(history, START_S, 3)
    many = [Series.of("topic_bytes", topic=f"t{i}") for i in range(3000)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / f"{FILE}-wal").stat().st_size + 8192, hard))
    try:
        with pytest.raises(HistoryError, match=r"cannot be written"):
            history.write(START_S + 600, dict.fromkeys(many, 1.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert len(history.read(LAG, START_S, START_S + HOUR_S)) == 3
    history.write(START_S + 660, dict.fromkeys(many, 1.0))
    assert len(history.read(many[-1], START_S, START_S + HOUR_S)) == 1
    history.close()
