"""Random damage to the files of random logs, beside a model of what must survive it.

Whatever was whole and can be told by its own checksum is served afterwards at its own offset, or lies in a file whose
name ends in `.damaged`. Nothing is served that was never written, and no offset that a clean stop has noted is given
out a second time. A failing seed does the same again: `DAMAGE_SEED=123 pytest tests/unit/storage/test_damage.py`.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.records.batch import Record, batches
from barnabas.records.compression import Codec
from barnabas.storage.config import LogConfig
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log, open_log
from barnabas.storage.segments.damage import check, views
from tests.unit.storage.building import T0_MS, append, read_all

SEEDS = [int(seed) for seed in os.environ.get("DAMAGE_SEED", "").split(",") if seed] or range(
    int(os.environ.get("DAMAGE_SEEDS", "300"))
)


class Stored(NamedTuple):
    """A batch as it was written."""

    file: str
    position: int
    data: bytes
    base_offset: int
    records: list[Record]


class Case:
    """A log, what is in it, and one kind of damage."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.config = LogConfig(
            segment_bytes=self.random.choice([400, 1200, 5000, 100_000]),
            index_interval_bytes=self.random.choice([50, 300, 4096]),
        )
        log = create_log(str(folder), self.config, T0_MS)
        self.recovery_point = 0
        self.records: dict[int, Record] = {}
        for number in range(self.random.randrange(3, 60)):
            self._append(log, number)
            if self.random.random() < 0.05:
                self.recovery_point = log.flush()
        self.end = log.log_end_offset
        self.clean = self.random.random() < 0.5
        if self.clean:
            log.close()
            self.recovery_point = log.recovery_point
        self.stored = self._stored(log)
        self.files = {path.name: path.read_bytes() for path in self.folder.glob("*.log")}

    def _append(self, log: Log, number: int) -> None:
        rng = self.random
        rows = [
            Record(i, T0_MS + number, b"k%d" % i, rng.randbytes(rng.choice([0, 10, 80])))
            for i in range(rng.randrange(1, 5))
        ]
        producer = rng.choice([-1, -1, 1])
        known = log.core.producers.get(1)
        sequence = -1 if producer < 0 else known.last_sequence + 1 if known else 0
        base = append(
            log,
            rows,
            codec=rng.choice([Codec.NONE, Codec.NONE, Codec.ZSTD]),
            epoch=number // 20,
            producer_id=producer,
            sequence=sequence,
        )
        self.records |= {base + i: row._replace(offset=base + i) for i, row in enumerate(rows)}

    def _stored(self, log: Log) -> list[Stored]:
        batches_stored = []
        for segment in log.segments:
            data = Path(segment.path(".log")).read_bytes()
            for position, header in batches(data):
                rows = [self.records[o] for o in range(header.base_offset, header.next_offset)]
                whole = data[position : position + header.size_bytes]
                batches_stored.append(
                    Stored(Path(segment.path(".log")).name, position, whole, header.base_offset, rows)
                )
        return batches_stored

    # --- damage -------------------------------------------------------------------------------------

    def some(self, suffix: str) -> Path:
        """A file of a kind, not an empty one if there is another."""
        paths = sorted(self.folder.glob(f"*{suffix}")) or sorted(self.folder.glob("*.log"))
        full = [path for path in paths if path.stat().st_size]
        return self.random.choice(full or paths)

    def flip_a_bit(self, suffix: str = ".log") -> None:
        path = self.some(suffix)
        data = bytearray(path.read_bytes())
        if data:
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            path.write_bytes(data)

    def flip_in_a_header(self) -> None:
        """Where the checksum does not look: base offset, length, leader epoch, magic."""
        batch = self.random.choice(self.stored)
        path = self.folder / batch.file
        data = bytearray(path.read_bytes())
        data[batch.position + self.random.randrange(17)] ^= 1 << self.random.randrange(8)
        path.write_bytes(data)

    def overwrite(self) -> None:
        path = self.some(".log")
        data = bytearray(path.read_bytes())
        start = self.random.randrange(len(data))
        size = self.random.choice([1, 8, 64, 512])
        junk = self.random.choice([bytes(size), b"\xff" * size, self.random.randbytes(size)])
        data[start : start + size] = junk[: len(data) - start]
        path.write_bytes(data)

    def cut(self) -> None:
        path = self.some(".log")
        os.truncate(path, self.random.randrange(path.stat().st_size + 1))

    def extend(self) -> None:
        path = self.some(".log")
        whole = self.random.choice(self.stored).data
        with path.open("ab") as file:
            file.write(self.random.choice([bytes(100), self.random.randbytes(100), whole, whole[:-5]]))

    def lose(self) -> None:
        path = self.some(".log")
        if self.random.random() < 0.5:
            path.unlink()
        else:
            path.write_bytes(b"")

    def put_a_stale_segment(self) -> None:
        base = self.random.choice([self.random.randrange(1, self.end + 1), 99999999999999999999])
        target = self.folder / f"{base:020d}.log"
        if not target.exists():
            batch = self.random.choice(self.stored)
            data = bytearray(batch.data)
            if base <= self.end:
                # Left from before a truncation: batches at their offsets, fewer than there are now.
                data = bytearray(b"".join(b.data for b in self.stored if b.base_offset >= base)[: len(data)])
            target.write_bytes(data)

    def spoil_what_is_beside(self) -> None:
        names = [n for n in os.listdir(self.folder) if not n.endswith(".log")]
        for name in self.random.sample(names, self.random.randint(0, len(names))):
            path = self.folder / name
            size = path.stat().st_size
            junk = self.random.choice([b"", bytes(size), self.random.randbytes(size), b"0\n1\n7 7\n"])
            path.write_bytes(junk) if self.random.random() < 0.7 else path.unlink()

    # --- what must be so afterwards -----------------------------------------------------------------

    def whole(self) -> list[Stored]:
        """The batches of which nothing that a checksum covers has changed, and which say where they end."""
        batches_left = []
        for batch in self.stored:
            path = self.folder / batch.file
            data = path.read_bytes() if path.exists() else b""
            end = batch.position + len(batch.data)
            if data[batch.position + 8 : end] != batch.data[8:]:
                continue
            before = data[: batch.position] == self.files[batch.file][: batch.position]
            if self.flipped_bits(batch) <= 1 or before:
                batches_left.append(batch)  # else nothing is left that says where it belongs
        return batches_left

    def flipped_bits(self, batch: Stored) -> int:
        """How many bits of a batch's base offset are others now."""
        data = (self.folder / batch.file).read_bytes()
        return (int.from_bytes(data[batch.position :][:8]) ^ batch.base_offset).bit_count()

    def open(self, *, clean: bool) -> Log:
        return open_log(str(self.folder), self.config, T0_MS, clean=clean, recovery_point=self.recovery_point)


DAMAGES = (
    Case.flip_a_bit,
    Case.flip_in_a_header,
    Case.overwrite,
    Case.cut,
    Case.extend,
    Case.lose,
    Case.put_a_stale_segment,
    Case.spoil_what_is_beside,
    lambda case: case.flip_a_bit(".index"),
    lambda case: case.flip_a_bit(".timeindex"),
)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_whole_survives(tmp_path: Path, seed: int) -> None:
    survive(seed, tmp_path / "t-0")


@pytest.mark.soak
def test_what_was_whole_survives_many_times(tmp_path: Path) -> None:
    for seed in range(1000, 11_000):
        survive(seed, tmp_path / f"t-{seed}")


def unreadable(log: Log) -> set[int]:
    """The offsets that a check of the log names."""
    return {
        offset
        for view in views(log.segments, log.log_end_offset)
        for place in check(
            view.path, view.size_bytes, view.segment.base_offset, view.ceiling, compacted=False
        )
        if place.records
        for offset in range(place.first_offset, place.last_offset + 1)
    }


def survive(seed: int, folder: Path) -> None:
    """Builds the seed's log, damages it, opens it twice, and compares."""
    case = Case(seed, folder)
    damage = case.random.choice(DAMAGES)
    only_an_offset = damage is Case.flip_in_a_header
    damage(case)
    whole = case.whole()
    # Of one whose base offset is badly damaged nothing tells the end where it is the last one of an unclean log.
    least_end = max((b.records[-1].offset + 1 for b in whole if case.flipped_bits(b) <= 1), default=0)
    log = case.open(clean=case.clean)
    for attempt in range(2):
        served = read_all(log, max_bytes=case.random.choice([1, 300, 1 << 20]))
        offsets = [record.offset for record in served]
        assert offsets == sorted(set(offsets))
        assert all(case.records.get(record.offset) == record for record in served), (
            "served as written or not at all"
        )
        named = unreadable(log)
        assert log.log_end_offset <= case.end + 10, "no offset is believed that is far from all others"
        gone = set(range(log.log_start_offset, log.log_end_offset)) - set(offsets)
        assert named == gone, f"seed {seed}: what is not served is named: {sorted(named ^ gone)}"
        aside = b"".join(path.read_bytes() for path in sorted(case.folder.glob("*.damaged")))
        for batch in whole:
            is_served = {record.offset for record in batch.records} <= set(offsets)
            assert is_served or (not only_an_offset and batch.data[12:] in aside), (
                f"seed {seed}: {batch.file} byte {batch.position}, offsets {batch.base_offset}.. are lost"
            )
        end = log.log_end_offset
        assert end >= least_end
        if case.clean:
            assert end == case.end, "an offset that was given out is not given out again"
        log.offset_for_timestamp(T0_MS + 5)
        log.max_timestamp()
        if attempt == 0:
            case.records[end] = Record(end, T0_MS, b"new", b"new")
            append(log, [Record(0, T0_MS, b"new", b"new")])
            case.end = log.log_end_offset
            log.close()
            case.recovery_point = log.recovery_point
            case.clean = True
            log = case.open(clean=True)
    shutil.rmtree(case.folder)
