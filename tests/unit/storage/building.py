"""Batches and logs for the storage tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from barnabas.records.batch import Record, batches, build_batch, check_batch, patch, read_records
from barnabas.records.compression import Codec
from barnabas.storage.config import LogConfig
from barnabas.storage.logs.log import Log

T0_MS = 1_700_000_000_000


def remove_all_doomed(log: Log) -> None:
    """Removes the renamed files as if their delay were over."""
    log.remove_doomed(0)
    log.remove_doomed(1 << 62)


def rows(count: int, *, at_ms: int = T0_MS, size: int = 20, start: int = 0) -> list[Record]:
    return [
        Record(start + i, at_ms + i, b"key-%d" % i, (b"%08d" % (start + i)).ljust(size, b"."))
        for i in range(count)
    ]


def append(
    log: Log,
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    epoch: int = 0,
    now_ms: int = T0_MS,
    producer_id: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> int:
    """Appends as a leader does; returns the base offset."""
    batch = bytearray(
        build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
    )
    header = check_batch(batch)
    patch(batch, 0, log.log_end_offset, epoch)
    base_offset = log.append(memoryview(batch), header, epoch, now_ms)
    log.core.advance_high_watermark(log.log_end_offset)
    return base_offset


def read_all(log: Log, offset: int | None = None, *, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from `offset` on, by fetches of `max_bytes`, as a consumer would."""
    offset = log.log_start_offset if offset is None else offset
    got: list[Record] = []
    while True:
        part = log.read(offset, max_bytes)
        if part is None:
            return got
        data = part.read()
        got += [record for record in read_records(data) if record.offset >= offset]
        following = max(header.next_offset for _, header in batches(data))
        assert following > offset, "a reader must get on"
        offset = following


def files(folder: str | Path) -> dict[str, bytes]:
    return {name: Path(folder, name).read_bytes() for name in sorted(os.listdir(folder))}


SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)
