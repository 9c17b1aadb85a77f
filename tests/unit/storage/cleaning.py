"""A log to be compacted, and short ways to fill it, compact it and look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from barnabas.records.batch import Record, check_batch, patch
from barnabas.records.control import build_marker
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.cleaning.cleaner import LogCleaner
from barnabas.storage.config import LogConfig
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log
from tests.unit.storage.building import T0_MS, append, read_all

COMPACT = LogConfig(
    segment_bytes=4000,
    index_interval_bytes=200,
    cleanup_policy=("compact",),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=10_000,
)


NAME = TopicPartition("t", 0)


def new_log(tmp_path: Path) -> Log:
    return create_log(str(tmp_path / "t-0"), COMPACT, T0_MS)


def put(log: Log, *pairs: tuple[bytes | None, bytes | None], **names: Any) -> int:
    """One batch of (key, value) pairs."""
    return append(log, [Record(i, T0_MS, key, value) for i, (key, value) in enumerate(pairs)], **names)


def cleaner_of(log: Log, keys: int = 10_000, **names: Any) -> LogCleaner:
    return LogCleaner(lambda: {NAME: log}, dedupe_buffer_bytes=24 * keys, **names)


def clean(log: Log, now_ms: int = T0_MS, *, roll: bool = True, **names: Any) -> LogCleaner:
    """Closes the active segment and runs one pass."""
    if roll:
        log.roll(now_ms)
    cleaner = cleaner_of(log, **names)
    cleaner.run(now_ms)
    assert not cleaner.uncleanable
    return cleaner


def pairs(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_all(log)]


def end_txn(log: Log, producer_id: int, *, commit: bool) -> None:
    batch = bytearray(
        build_marker(
            commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=T0_MS
        )
    )
    header = check_batch(batch)
    patch(batch, 0, log.log_end_offset, 0)
    log.append(batch, header, 0, T0_MS)
    log.core.advance_high_watermark(log.log_end_offset)
