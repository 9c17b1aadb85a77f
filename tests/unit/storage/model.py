"""A log beside a dictionary: random steps, and after each the two must tell the same.

The seed says everything: `run(seed, steps, folder)` does the same again.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

from barnabas.records.batch import CorruptBatch, Record, batches, check_batch, read_records
from barnabas.records.compression import Codec
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.cleaning.cleaner import LogCleaner
from barnabas.storage.config import LogConfig
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log, open_log
from tests.unit.storage.building import T0_MS, append, read_all, remove_all_doomed

CONFIG = LogConfig(
    segment_bytes=3000,
    index_interval_bytes=150,
    segment_ms=60_000,
    segment_jitter_ms=5_000,
    retention_ms=400_000,
    retention_bytes=60_000,
    file_delete_delay_ms=500,
)


class Model:
    """What must be true, in the plainest form: `records` by offset, and the two ends."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.batches: dict[int, int] = {}
        """First offset -> last offset."""
        self.start = 0
        self.end = 0

    def visible(self, offset: int) -> list[Record]:
        return [self.records[o] for o in sorted(self.records) if o >= max(offset, self.start)]

    def cut(self, end: int) -> None:
        self.end = end
        self.records = {o: r for o, r in self.records.items() if o < end}
        self.batches = {first: last for first, last in self.batches.items() if first < end}

    def whole_below(self, offset: int) -> int:
        """`offset`, or the start of the batch that it would cut."""
        return next((first for first, last in self.batches.items() if first < offset <= last), offset)


class Run:
    """One seeded run."""

    def __init__(self, seed: int, folder: Path, config: LogConfig = CONFIG) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.config = config
        self.now_ms = T0_MS
        self.model = Model()
        self.sequences: dict[int, int] = {}
        self.tombstones_seen: dict[int, int] = {}
        self.log: Log = create_log(str(folder), config, self.now_ms)
        self.steps = {
            self.append: 40,
            self.read: 20,
            self.look_up_time: 8,
            self.truncate: 1,
            self.advance_start: 1,
            self.retention: 3,
            self.flush: 2,
            self.reopen_clean: 2,
            self.kill: 2,
            self.tear: 2,
            self.lose_indexes: 1,
            self.wait: 4,
        }
        if config.compact:
            self.steps[self.compact] = 6

    def go(self, steps: int) -> None:
        kinds, weights = list(self.steps), list(self.steps.values())
        for _ in range(steps):
            self.random.choices(kinds, weights)[0]()
            assert self.log.log_end_offset == self.model.end
            assert self.log.log_start_offset == self.model.start
            self.log.core.check()
        self.check_all()

    # --- steps --------------------------------------------------------------------------------------

    def append(self) -> None:
        rng = self.random
        rows = []
        for i in range(rng.randint(1, 6)):
            key = rng.choice([None, b"a", b"b", b"c", b"k%d" % rng.randrange(40)])
            value = None if rng.random() < 0.1 else rng.randbytes(rng.choice([0, 5, 40, 300]))
            at_ms = self.now_ms + rng.randint(-20_000, 0)
            rows.append(Record(i, at_ms, key, value, (("h", b"v"),) if rng.random() < 0.1 else ()))
        if self.config.compact:
            rows = [row._replace(key=row.key or b"none") for row in rows]
        producer_id = rng.choice([-1, 1, 2])
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        base = append(
            self.log,
            rows,
            codec=rng.choice(list(Codec)),
            epoch=self.log.core.leader_epoch
            if self.model.end and rng.random() < 0.95
            else self.log.core.leader_epoch + 1,
            now_ms=self.now_ms,
            producer_id=producer_id,
            sequence=sequence,
        )
        assert base == self.model.end
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(rows)
        self.model.batches[base] = base + len(rows) - 1
        for i, row in enumerate(rows):
            self.model.records[base + i] = row._replace(offset=base + i)
        self.model.end = base + len(rows)

    def read(self) -> None:
        offset = self.random.randint(self.model.start, self.model.end)
        max_bytes = self.random.choice([1, 100, 500, 5000, 1 << 20])
        upper = self.random.choice([None, None, self.random.randint(offset, self.model.end)])
        part = self.log.read(offset, max_bytes, upper_offset=upper)
        wanted = self.model.visible(offset)
        if upper is not None:
            # An upper offset lies at a batch's start in life; a batch that it would cut is left out whole.
            whole = self.model.whole_below(upper)
            wanted = [record for record in wanted if record.offset < whole]
        if part is None:
            assert not wanted
            return
        data = part.read()
        got = [record for record in read_records(data) if record.offset >= offset]
        assert got == wanted[: len(got)]
        count = sum(1 for _ in batches(data))
        assert count > 0
        assert sum(header.size_bytes for _, header in batches(data)) == part.size
        assert part.size <= max_bytes or count == 1

    def look_up_time(self) -> None:
        at_ms = self.now_ms - self.random.randint(-1000, 500_000)
        wanted = next(((r.timestamp, r.offset) for r in self.model.visible(0) if r.timestamp >= at_ms), None)
        assert self.log.offset_for_timestamp(at_ms) == wanted
        newest = max(((r.timestamp, -r.offset) for r in self.model.visible(0)), default=None)
        assert self.log.max_timestamp() == (None if newest is None else (newest[0], -newest[1]))

    def truncate(self) -> None:
        if self.model.end - self.model.start < 2:
            return
        offset = self.random.randint(self.model.start, self.model.end)
        self.log.truncate_to(offset, self.now_ms)
        if offset < self.model.end:
            self.model.batches = {first: last for first, last in self.model.batches.items() if last < offset}
            # In a gap that compaction has left, the end is that of the last batch below it.
            end = self.log.log_end_offset
            assert max(self.model.batches.values(), default=-1) < end <= offset
            self.model.cut(end)
            self.model.start = min(self.model.start, self.model.end)
        self.forget_sequences()

    def advance_start(self) -> None:
        offset = self.random.randint(self.model.start, self.model.end)
        self.log.advance_log_start(offset)
        self.model.start = offset

    def retention(self) -> None:
        before = self.model.start
        self.log.delete_old_segments(self.now_ms)
        start = self.log.log_start_offset
        assert start >= before
        expired = [r for r in self.model.visible(before) if r.offset < start]
        assert self.config.delete or not expired
        assert (
            all(self.now_ms - r.timestamp > CONFIG.retention_ms for r in expired)
            or self.log.size_bytes >= CONFIG.retention_bytes - CONFIG.segment_bytes
        )
        self.model.start = start
        remove_all_doomed(self.log)

    def flush(self) -> None:
        assert self.log.flush() == self.model.end

    def reopen_clean(self) -> None:
        self.log.close()
        self.reopen(clean=True)

    def kill(self) -> None:
        self.reopen(clean=False)

    def tear(self) -> None:
        """A crash that loses the end of the active segment, somewhere in what was not flushed."""
        active = self.log.active
        floor = 0
        if self.log.recovery_point > active.base_offset:
            place = active.locate(self.log.recovery_point)
            floor = (
                active.size_bytes if place is None else place if isinstance(place, int) else place.position
            )
        size = self.random.randint(floor, active.size_bytes)
        path = active.path(".log")
        os.truncate(path, size)
        if self.random.random() < 0.3 and size < active.size_bytes:
            with open(path, "ab") as file:
                file.write(self.random.choice([bytes(100), self.random.randbytes(100)]))
        end = active.base_offset
        data = Path(path).read_bytes()
        try:
            # Zeros may by chance be just what was cut off: what counts is what is whole on the disk.
            for position, _ in batches(data):
                end = check_batch(data, position).next_offset
        except CorruptBatch:
            pass
        self.model.cut(end)
        self.model.start = min(self.model.start, end)
        self.reopen(clean=False)

    def lose_indexes(self) -> None:
        self.log.close()
        for name in os.listdir(self.folder):
            if name.endswith("index") and self.random.random() < 0.5:
                if self.random.random() < 0.5:
                    os.unlink(self.folder / name)
                else:
                    size = os.path.getsize(self.folder / name)
                    (self.folder / name).write_bytes(self.random.randbytes(size))
        self.reopen(clean=True)

    def wait(self) -> None:
        self.now_ms += self.random.choice([10, 1000, 30_000])

    # --- compaction ---------------------------------------------------------------------------------

    def compact(self) -> None:
        """One pass; then the log must hold what it held, less what a newer record of the same key made old."""
        before = self.model.visible(0)
        clean_to = self.log.first_dirty_offset
        cleaner = LogCleaner(
            lambda: {TopicPartition("t", 0): self.log},
            dedupe_buffer_bytes=24 * self.random.choice([30, 1000]),
            secret=lambda: self.random.randbytes(16),
        )
        if not cleaner.run(self.now_ms):
            return
        assert not cleaner.uncleanable
        end = self.log.first_dirty_offset
        assert end >= clean_to
        after = read_all(self.log)
        offsets = {record.offset for record in after}
        assert after == [record for record in before if record.offset in offsets]
        newest: dict[bytes | None, int] = {r.key: r.offset for r in before if r.offset < end}
        for record in before:
            if record.offset >= end:
                assert record.offset in offsets
            elif record.offset != newest[record.key]:
                assert record.offset not in offsets, "a record that a newer one has made old"
            elif record.value is not None:
                assert record.offset in offsets, "the newest record of its key"
            elif record.offset not in offsets:
                first_seen = self.tombstones_seen[record.offset]
                assert self.now_ms >= first_seen + self.config.delete_retention_ms, (
                    "a tombstone went too early"
                )
            else:
                self.tombstones_seen.setdefault(record.offset, self.now_ms)
        self.model.records = {record.offset: record for record in after}
        self.take_batches()

    def take_batches(self) -> None:
        """Which batches there are, from the files; their records have been compared."""
        self.model.batches = {}
        for segment in self.log.segments:
            for _, header in batches(Path(segment.path(".log")).read_bytes()):
                self.model.batches[header.base_offset] = header.last_offset

    # --- help ---------------------------------------------------------------------------------------

    def reopen(self, *, clean: bool) -> None:
        recovery_point = self.log.recovery_point
        first_dirty = self.log.first_dirty_offset
        if not clean and self.random.random() < 0.3:
            recovery_point = 0
        self.log = open_log(
            str(self.folder),
            replace(self.config),
            self.now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.model.start,
            high_watermark=self.model.end,
        )
        self.log.core.advance_high_watermark(self.log.log_end_offset)
        self.log.first_dirty_offset = min(first_dirty, self.log.log_end_offset)
        self.tombstones_seen = {o: at for o, at in self.tombstones_seen.items() if o < self.model.end}
        self.forget_sequences()

    def forget_sequences(self) -> None:
        """Takes the producers' numbers as the log knows them, after what it knows was checked to be true."""
        for producer_id in list(self.sequences):
            producer = self.log.core.producers.get(producer_id)
            if producer is None or not producer.batches:
                continue  # unknown again: any number is taken, and a producer goes on with its own
            assert producer.last_offset < self.model.end
            assert (producer.last_sequence + 1) <= self.sequences[producer_id]
            self.sequences[producer_id] = producer.last_sequence + 1

    def check_all(self) -> None:
        assert read_all(self.log, max_bytes=self.random.choice([1, 1000, 100_000])) == self.model.visible(0)


COMPACTED = replace(
    CONFIG, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.1, delete_retention_ms=50_000
)


def run(seed: int, steps: int, folder: Path, config: LogConfig = CONFIG) -> Run:
    """Runs and returns the run for further looks; a failure names the seed."""
    one = Run(seed, folder, config)
    try:
        one.go(steps)
    except BaseException:
        print(f"seed {seed}, {steps} steps")
        raise
    return one
