"""The compiled walk through a segment does what the plain one does, on whole and on damaged bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from barnabas.cores.partition import PartitionCore
from barnabas.records.batch import Record, build_batch, empty_batch, patch, read_header
from barnabas.records.compression import Codec
from barnabas.records.control import build_marker
from barnabas.records.message_set import build_message_set
from barnabas.storage import compaction, scan
from barnabas.storage.batch_table import BatchTable
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.cleaning import copying
from barnabas.storage.cleaning.cleaner import LogCleaner
from barnabas.storage.config import LogConfig
from barnabas.storage.files import LogFile
from barnabas.storage.formats import Damaged, FoundBatch
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import open_log, recover_segment
from barnabas.storage.segments.segment import Segment
from tests.unit.storage import reference_scan
from tests.unit.storage.building import T0_MS, files, remove_all_doomed

T = TypeVar("T")
SEEDS = range(40)
CODECS = [Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD]


class Producing:
    """Batches of all kinds, one after another, as a log could hold them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.offset = self.random.choice([0, 1000, 5_000_000_000])
        self.epoch = 0
        self.sequences: dict[int, tuple[int, int]] = {}  # producer id -> (epoch, next sequence)
        self.open: set[int] = set()

    def data(self, count: int) -> bytes:
        return b"".join(self.batch() for _ in range(count))

    def batch(self) -> bytes:
        if self.random.random() < 0.1:
            self.offset += self.random.randrange(50)  # a gap that compaction left
        if self.random.random() < 0.05:
            self.epoch += self.random.randrange(1, 3)
        kind = self.random.random()
        if kind < 0.1:
            return self.old_format()
        if kind < 0.2 and self.sequences:
            return self.marker(self.random.choice(sorted(self.sequences)))
        producer = self.random.choice([-1, -1, 7, 8, 1 << 40])
        return self.records(producer)

    def records(self, producer: int) -> bytes:
        count = self.random.choice([1, 1, 1, 2, 5])
        rows = [self.record(self.offset + i) for i in range(count)]
        epoch, sequence, transactional = -1, -1, False
        if producer >= 0:
            epoch, sequence = self.sequences.get(producer, (0, 0))
            if producer not in self.open and self.random.random() < 0.1:
                epoch, sequence = epoch + 1, 0
            transactional = producer in self.open or self.random.random() < 0.3
            if transactional:
                self.open.add(producer)
            self.sequences[producer] = (epoch, sequence + count)
        batch = build_batch(
            rows,
            codec=self.random.choice(CODECS),
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        if self.random.random() < 0.05:
            batch = empty_batch(read_header(batch))
        return self.placed(batch, count)

    def record(self, offset: int) -> Record:
        key = b"k%d" % self.random.randrange(12) if self.random.random() < 0.9 else None
        value = None if self.random.random() < 0.1 else b"v" * self.random.randrange(40)
        return Record(offset, T0_MS + self.random.randrange(2000), key, value)

    def marker(self, producer: int) -> bytes:
        self.open.discard(producer)
        epoch = self.sequences[producer][0]
        batch = build_marker(
            commit=self.random.random() < 0.5, coordinator_epoch=0, producer_id=producer,
            producer_epoch=epoch, timestamp=T0_MS,
        )  # fmt: skip
        return self.placed(batch, 1)

    def placed(self, batch: bytes, count: int) -> bytes:
        data = bytearray(batch)
        patch(data, 0, self.offset, self.epoch)
        self.offset += count
        return bytes(data)

    def old_format(self) -> bytes:
        count = self.random.choice([1, 3])
        magic = self.random.choice([0, 1])
        codec = self.random.choice([Codec.NONE, Codec.GZIP])
        rows = [self.record(self.offset + i) for i in range(count)]
        self.offset += count
        return build_message_set(rows, magic=magic, codec=codec)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Some bytes flipped, some cut off, some gone from the middle."""
    out = bytearray(data)
    for _ in range(draw.randrange(4)):
        if out and draw.random() < 0.7:
            out[draw.randrange(len(out))] ^= 1 << draw.randrange(8)
    if out and draw.random() < 0.3:
        at = draw.randrange(len(out))
        del out[at : at + draw.randrange(80)]
    if draw.random() < 0.5:
        del out[len(out) - draw.randrange(60) :]
    return bytes(out)


def outcome(function: Callable[[], T]) -> T | tuple[str, int, str]:
    try:
        return function()
    except Damaged as damage:
        return ("damaged", damage.position, str(damage))


def drained(batches: Iterator[tuple[FoundBatch, memoryview]]) -> list[object]:
    seen: list[object] = []
    try:
        seen += [(batch, bytes(view)) for batch, view in batches]
    except Damaged as damage:
        seen.append(str(damage))
    return seen


def small_pieces(monkeypatch: pytest.MonkeyPatch, draw: random.Random) -> None:
    """So that batches lie across the pieces in which a file is read."""
    monkeypatch.setattr(scan, "SCAN_BYTES", draw.choice([64, 100, 333, 1 << 18]))
    monkeypatch.setattr(scan, "LOOK_BYTES", draw.choice([64, 150, 8192]))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_batches_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    producing = Producing(seed)
    data = damaged(producing.data(30), producing.random)
    (tmp_path / "log").write_bytes(data)
    file = LogFile(str(tmp_path / "log"))
    small_pieces(monkeypatch, producing.random)
    end = len(data)
    assert drained(scan.scan(file, 0, end)) == drained(reference_scan.walk(data, 0, end))
    boundaries = [batch.position for batch, _ in _whole(data)] or [0]
    for _ in range(30):
        start, limit = producing.random.choice(boundaries), producing.random.randrange(end + 1)
        offset = producing.offset - producing.random.randrange(80)
        assert outcome(lambda: scan.first_from(file, start, end, offset)) == outcome(  # noqa: B023
            lambda: reference_scan.first_from(data, start, end, offset)  # noqa: B023
        )
        assert outcome(lambda: scan.boundary_before(file, start, limit)) == outcome(  # noqa: B023
            lambda: reference_scan.boundary_before(data, start, limit)  # noqa: B023
        )


def _whole(data: bytes) -> Iterator[tuple[FoundBatch, memoryview]]:
    try:
        yield from reference_scan.walk(data, 0, len(data))
    except Damaged:
        return


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    producing = Producing(seed)
    base = producing.offset
    data = producing.data(120)
    if seed % 4:
        data = damaged(data, producing.random)
    if seed % 5 == 0:
        data += reference_scan_first(data)  # whole batches, but offsets that were there already
    (tmp_path / f"{base:020d}.log").write_bytes(data)
    small_pieces(monkeypatch, producing.random)
    cores = PartitionCore(base), PartitionCore(base)
    segment = Segment(str(tmp_path), base, len(data), 1 << 20, interval=200)
    want = reference_scan.recover(data, base, 200, cores[1])
    end_offset, cut = recover_segment(segment, cores[0])
    if seed % 4 and (end_offset, segment.size_bytes) != want[:2]:
        return  # the plain way ends where a length is damaged, and believes every base offset; see test_damage.py
    assert (end_offset, segment.size_bytes, cut is not None) == want[:3]
    assert [segment.offset_index.entry(i) for i in range(len(segment.offset_index))] == want.entries
    assert [segment.time_index.entry(i) for i in range(len(segment.time_index))] == want.times
    assert segment.damaged == want.damaged
    assert [entry.first_offset for entry in segment.txn_index.entries] == want.aborted
    assert state(cores[0]) == state(cores[1])


def reference_scan_first(data: bytes) -> bytes:
    return next((bytes(view) for _, view in _whole(data)), b"")


def state(core: PartitionCore) -> list[object]:
    producers = [
        (
            producer.producer_id,
            producer.epoch,
            producer.coordinator_epoch,
            producer.last_timestamp,
            producer.txn_first_offset,
            producer.batches,
        )
        for producer in core.producers
    ]
    seen: list[object] = [sorted(producers), core.epochs.entries(), core.last_stable_offset]
    return [*seen, core.producers.ongoing, core.producers.unreplicated]


@pytest.mark.parametrize("seed", SEEDS)
def test_compaction_by_tables_equals_that_batch_by_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The segments that come out are the same to the byte when no batch is taken for a plain one."""
    producing = Producing(seed)
    small_pieces(monkeypatch, producing.random)
    base = producing.offset
    chunks = [producing.data(producing.random.randrange(5, 40)) for _ in range(3)]
    map_bytes = producing.random.choice([24 * 8, 24 * 100])
    results = []
    for by_tables in (True, False):
        folder = tmp_path / f"t-{int(by_tables)}"
        folder.mkdir()
        log = _compacted(folder, base, chunks)
        with monkeypatch.context() as patched:
            if not by_tables:
                patched.setattr(compaction, "keep_plain", lambda table, first, *_: (first, 0, 0))
                patched.setattr(compaction, "OffsetMap", BatchByBatch)
            for now_ms in (T0_MS + 3000, T0_MS + 4000, T0_MS + 10**9):
                run = LogCleaner(
                    lambda: {TopicPartition("t", 0): log},  # noqa: B023
                    dedupe_buffer_bytes=map_bytes,
                    secret=lambda: bytes(16),
                )
                run.run(now_ms)
                remove_all_doomed(log)
                log.first_dirty_offset = min(log.first_dirty_offset, log.log_end_offset)
        stats = run.last_stats
        results.append((files(folder), stats, run.uncleanable))
    assert results[0] == results[1]


class BatchByBatch(compaction.OffsetMap):
    """Takes no batch for a plain one."""

    def put_plain(self, table: BatchTable, first: int, from_offset: int) -> int:
        return first


def _compacted(folder: Path, base: int, chunks: list[bytes]) -> Log:
    """A log of one segment for each chunk and an active one, whose clock stands at T0."""
    for chunk in chunks:
        first = next(_whole(chunk))[0]
        (folder / f"{first.base_offset if chunk is not chunks[0] else base:020d}.log").write_bytes(chunk)
    config = LogConfig(
        cleanup_policy=("compact",),
        index_interval_bytes=200,
        min_cleanable_dirty_ratio=0.0,
        segment_bytes=4000,
    )
    log = open_log(str(folder), config, T0_MS, clean=False)
    log.core.advance_high_watermark(log.log_end_offset)
    for producer in list(log.core.producers.ongoing.values()):
        epoch = log.core.producers.get(producer)
        assert epoch is not None
        marker = bytearray(
            build_marker(
                commit=False, coordinator_epoch=0, producer_id=producer, producer_epoch=epoch.epoch,
                timestamp=T0_MS,
            )
        )  # fmt: skip
        patch(marker, 0, log.log_end_offset, 0)
        log.append(marker, read_header(marker), 0, T0_MS)
    log.core.advance_high_watermark(log.log_end_offset)
    log.roll(T0_MS)
    return log


def test_a_plain_log_is_compacted_without_a_look_at_single_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the speed of small batches rests on."""
    looked_at: list[object] = []
    rows = [Record(i, T0_MS, b"k%d" % (i % 7), b"v") for i in range(500)]
    data = bytearray()
    for row in rows:
        batch = bytearray(build_batch([row]))
        patch(batch, 0, row.offset, 0)
        data += batch
    (tmp_path / "t-0").mkdir()
    log = _compacted(tmp_path / "t-0", 0, [bytes(data)])
    monkeypatch.setattr(copying.Copy, "_batch", lambda self, seen, *_: looked_at.append(seen))
    LogCleaner(lambda: {TopicPartition("t", 0): log}).run(T0_MS)
    assert not looked_at
