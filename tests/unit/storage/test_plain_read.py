"""The compiled way to find a reader's batches returns what the other way returns, or leaves it to that."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.records.batch import batches
from barnabas.records.units import Offset
from barnabas.storage.config import LogConfig
from barnabas.storage.files import FileSlice
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log, open_log
from barnabas.storage.plain_read import plain_range
from barnabas.storage.segments.segment import EmptySlice, Nothing, Segment
from tests.unit.storage.building import T0_MS, append, read_all, remove_all_doomed, rows
from tests.unit.storage.cleaning import COMPACT, clean, put

SEEDS = range(4)
KEPT = LogConfig(segment_bytes=6000, index_interval_bytes=300)


def filled(folder: Path, chance: random.Random, *, compacted: bool) -> Log:
    """A log of several segments; if compacted, with gaps and with batches that have no record left."""
    log = create_log(str(folder), COMPACT if compacted else KEPT, T0_MS)
    for number in range(120):
        if compacted:
            put(
                log,
                *(
                    (b"%d" % chance.randrange(12), b"x" * chance.randrange(60))
                    for _ in range(chance.randrange(1, 5))
                ),
            )
        else:
            append(log, rows(chance.randrange(1, 9), size=chance.choice((8, 40, 400)), at_ms=T0_MS + number))
    if compacted:
        clean(log)
        remove_all_doomed(log)
    return log


@contextmanager
def without_it() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Segment, "read_plain", lambda *_: None)
        yield


def said(found: FileSlice | EmptySlice | Nothing) -> object:
    if isinstance(found, EmptySlice):
        return "empty", said(found.slice)
    return (found.position, found.size) if isinstance(found, FileSlice) else found


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_both_ways_return_the_same(tmp_path: Path, seed: int, compacted: bool, reopened: bool) -> None:
    chance = random.Random(seed)
    log = filled(tmp_path / "t-0", chance, compacted=compacted)
    if reopened:
        log.close()
        log = open_log(str(tmp_path / "t-0"), log.config, T0_MS, clean=True)
        log.core.advance_high_watermark(log.log_end_offset)
        read_all(log)  # what has been read once is known to be intact
    served = 0
    for segment in log.segments:
        for offset in range(segment.base_offset, segment.base_offset + 700, 7):
            for max_bytes in (chance.randrange(1, 400), chance.randrange(400, 9000), 1 << 40):
                asked = {
                    "at_least_one": chance.random() < 0.5,
                    "upper_offset": None,
                    "skip_empty": chance.random() < 0.8,
                }
                served += segment.read_plain(Offset(offset), max_bytes) is not None
                fast = said(segment.read(Offset(offset), max_bytes, **asked))
                with without_it():
                    assert said(segment.read(Offset(offset), max_bytes, **asked)) == fast
    assert served > 50


@pytest.mark.parametrize("seed", SEEDS)
def test_an_index_that_fits_no_batch_is_not_believed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = filled(tmp_path / "t-0", chance, compacted=False)
    wanted = read_all(log)
    for segment in log.segments:
        entries = segment.offset_index.entries
        for _ in range(3 if entries else 0):
            entries[chance.randrange(len(entries))] ^= 1 << chance.randrange(8)
    assert read_all(log, max_bytes=3000) == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_that_are_no_batches(tmp_path: Path, seed: int) -> None:
    """Whatever the file holds, the range lies in it and begins with a batch that may hold the offset."""
    chance = random.Random(seed)
    log = filled(tmp_path / "t-0", chance, compacted=False)
    segment = log.segments[0]
    size = segment.size_bytes
    path = tmp_path / "damaged"
    for _ in range(300):
        data = bytearray(Path(segment.path(".log")).read_bytes())
        for _ in range(chance.randrange(1, 40)):
            data[chance.randrange(len(data))] = chance.choice((0, 2, 0x7F, 0xFF, chance.randrange(256)))
        path.write_bytes(data)
        with path.open("rb") as damaged:
            entries = bytearray(
                chance.randbytes(8 * chance.randrange(5))
                if chance.random() < 0.3
                else segment.offset_index.entries
            )
            offset, max_bytes = chance.randrange(300), chance.choice((0, 1, 100, 3000, 1 << 62))
            byte_range = plain_range(entries, 0, damaged.fileno(), size, offset, max_bytes)
            if byte_range is not None:
                begin, start, end = byte_range
                assert 0 <= begin <= start < end <= size
                assert end - start <= max_bytes
                assert next(batches(bytes(data[start:end])))[1].next_offset > offset


def test_a_file_that_ends_early(tmp_path: Path) -> None:
    """A read beyond its end finds no header, and says so."""
    log = filled(tmp_path / "t-0", random.Random(1), compacted=False)
    segment = log.segments[0]
    with Path(segment.path(".log")).open("rb") as file:
        assert plain_range(bytearray(), 0, file.fileno(), segment.size_bytes + 1, 1 << 30, 1000) is None
    assert plain_range(bytearray(), 0, -1, segment.size_bytes, 0, 1000) is None


def test_index_entries_that_lie_far_apart_are_left_to_the_other_way(tmp_path: Path) -> None:
    """Which knows where the last batches lie: walking to them would hold up the loop."""
    log = create_log(str(tmp_path / "t-0"), LogConfig(index_interval_bytes=1 << 30), T0_MS)
    for number in range(600):
        append(log, rows(1, size=300, at_ms=T0_MS + number))
    segment = log.segments[0]
    assert segment.read_plain(Offset(50), 1000) is not None
    assert segment.read_plain(Offset(590), 1000) is None
    part = segment.read(Offset(590), 1000, at_least_one=True, upper_offset=None)
    assert isinstance(part, FileSlice)
    assert part.position == segment.tail_positions[590]
