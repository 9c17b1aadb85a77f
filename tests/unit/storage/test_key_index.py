"""The key index of segments: it finds every key, skips most segments without it, and follows what happens to the log."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.records.batch import Record
from barnabas.records.compression import Codec
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log, open_log
from barnabas.storage.segments import key_index
from barnabas.storage.segments.key_index import Builder
from barnabas.storage.segments.key_search import FoundKey, search
from tests.unit.storage.building import T0_MS, append, read_all, remove_all_doomed
from tests.unit.storage.cleaning import COMPACT, clean, new_log, put

SECRET = bytes(range(16))
CONFIG = replace(COMPACT, cleanup_policy=("delete",), segment_bytes=12_000, barnabas_key_index=True)


def filled(tmp_path: Path, batches: int = 300, codec: Codec = Codec.NONE) -> Log:
    """Batches of ten records with keys of their own, in several segments."""
    log = create_log(str(tmp_path / "t-0"), CONFIG, T0_MS)
    for number in range(batches):
        records = [Record(i, T0_MS, b"key-%d-%d" % (number, i), b"v" * 20) for i in range(10)]
        append(log, records, codec=codec)
    return log


def index(log: Log) -> None:
    """What the broker does in the background, in one go."""
    for segment in log.segments:
        segment_index = segment.key_index
        segment_index.load(segment.size_bytes)
        if segment_index.covered < segment.size_bytes:
            builder = Builder(
                segment.open(), segment_index.covered, segment.size_bytes, segment_index.secret or SECRET
            )
            built = builder.build(whole=segment is not log.segments[-1])
            segment_index.append(built, segment_index.generation, segment_index.secret or SECRET)


def ask(log: Log, key: bytes) -> FoundKey:
    return search(log.segments, log.log_end_offset, key)


def offsets_of(log: Log, key: bytes) -> list[int]:
    return [record.offset for record in read_all(log) if record.key == key]


def holds(answer: FoundKey, offset: int) -> bool:
    return any(first <= offset <= last for first, last in answer.ranges)


@pytest.fixture(autouse=True)
def _short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "STRETCH_BYTES", 4_000)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.GZIP])
def test_every_key_is_found_and_most_segments_are_skipped(tmp_path: Path, codec: Codec) -> None:
    log = filled(tmp_path, codec=codec)
    index(log)
    closed = len(log.segments) - 1
    assert closed >= 2
    for number in range(0, 300, 7):
        key = b"key-%d-3" % number
        answer = ask(log, key)
        (offset,) = offsets_of(log, key)
        assert holds(answer, offset)
        assert answer.segments == closed + 1
        assert answer.segments_skipped >= closed - 2
    foreign = [ask(log, b"foreign-%d" % number) for number in range(100)]
    closed_end = log.segments[-1].base_offset
    passed = sum(any(first < closed_end for first, _ in hits.ranges) for hits in foreign)
    assert passed < 20
    assert {hits.bytes_unindexed for hits in foreign} == {
        log.segments[-1].size_bytes - log.segments[-1].key_index.covered
    }


def test_without_an_index_everything_is_searched(tmp_path: Path) -> None:
    log = filled(tmp_path, 30)
    answer = ask(log, b"key-1-1")
    assert answer.ranges == [(0, log.log_end_offset - 1)]
    assert (answer.segments_skipped, answer.records_skipped) == (0, 0)


def test_a_cut_or_damaged_file_is_detected_and_built_again(tmp_path: Path) -> None:
    log = filled(tmp_path)
    index(log)
    path = Path(log.segments[0].key_index.path)
    whole = path.read_bytes()
    log.close()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 4
    for damaged in (whole[: len(whole) // 2], bytes(flipped), b"", b"BKEY", b"x" * 200):
        path.write_bytes(damaged)
        log = open_log(log.folder, CONFIG, T0_MS, clean=True)
        assert holds(ask(log, b"key-2-2"), 22)
        late = log.segments[1].base_offset - 1
        assert holds(ask(log, b"no such key"), late), "what is behind the damage has to be read"
        index(log)
        assert not holds(ask(log, b"no such key"), late) or damaged is flipped
        assert holds(ask(log, b"key-2-2"), 22)
        log.close()


def test_the_file_goes_with_its_segment(tmp_path: Path) -> None:
    log = filled(tmp_path)
    index(log)
    first = log.segments[0].key_index.path
    assert os.path.exists(first)
    log.set_config(replace(CONFIG, retention_bytes=1))
    assert log.delete_old_segments(T0_MS)
    assert not os.path.exists(first)
    assert os.path.exists(first + ".deleted")
    remove_all_doomed(log)
    assert not [name for name in os.listdir(log.folder) if name.startswith("0" * 20)]


def test_a_truncated_log_forgets_what_was_cut_off(tmp_path: Path) -> None:
    log = filled(tmp_path)
    index(log)
    cut = log.segments[1].base_offset + 15
    late = log.segments[1].key_index
    work, generation = Builder(log.segments[1].open(), 0, log.segments[1].size_bytes, SECRET), late.generation
    built = work.build(whole=True)
    log.truncate_to(cut, T0_MS)
    late.append(built, generation, SECRET)
    assert not os.path.exists(late.path), "what was built of the log before the cut is not added"
    append(log, [Record(0, T0_MS, b"another", b"v")])
    log.roll(T0_MS)
    index(log)
    assert holds(ask(log, b"another"), offsets_of(log, b"another")[0])


def test_after_a_crash_the_index_of_what_was_not_flushed_is_not_trusted(tmp_path: Path) -> None:
    log = filled(tmp_path)
    index(log)
    path = log.segments[0].key_index.path
    log.release()
    open_log(log.folder, CONFIG, T0_MS, clean=False, recovery_point=0)
    assert not os.path.exists(path)


def test_compaction_drops_the_index_of_the_segments_that_it_replaces(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(400):
        put(log, (b"key-%d" % (number % 50), b"v%d" % number), (b"once-%d" % number, b"v"))
    log.roll(T0_MS)
    index(log)
    clean(log)
    assert not os.path.exists(log.segments[0].key_index.path)
    index(log)
    for number in range(50):
        key = b"key-%d" % number
        assert all(holds(ask(log, key), offset) for offset in offsets_of(log, key))
    assert not holds(ask(log, b"foreign"), 0)
