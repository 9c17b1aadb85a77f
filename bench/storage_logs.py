"""Logs made on disk, and what cleaning or recovering one of them costs in a process of its own.

    python -m bench.storage_logs '{"do": "clean", "folder": ...}'

prints one line of JSON. A process of its own, because peak memory is that of a whole process.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from barnabas.records.batch import ATTRIBUTES_POS, CRC_POS, build_batch, patch, recompress
from barnabas.records.checksum import crc32c
from barnabas.records.compression import Codec
from bench.requests import BenchError

KEY: Final = b"k" * 12
SEQUENCE_POS: Final = 53
BASE_TIMESTAMP_MS: Final = 1_700_000_000_000
SEGMENT_BYTES: Final = 64 << 20
CHILD_TIMEOUT_S: Final = 300


@dataclass(frozen=True)
class Shape:
    """What a log is made of. keys: how many different ones, 0 for one of its own for each record."""

    batch_records: int
    value_bytes: int
    keys: int = 0
    codec: Codec = Codec.NONE
    producer_id: int = -1

    @property
    def name(self) -> str:
        count = "1 record" if self.batch_records == 1 else f"{self.batch_records} records"
        size = "1 KB" if self.value_bytes == 1000 else f"{self.value_bytes} B"
        codec = "" if self.codec == Codec.NONE else f", {self.codec.name.lower()}"
        producer = ", idempotent" if self.producer_id >= 0 else ""
        return f"batches of {count} of {size}{codec}{producer}"


class _Row:
    """What `build_batch` asks of a record."""

    headers = ()

    def __init__(self, timestamp: int, value: bytes) -> None:
        self.timestamp, self.key, self.value = timestamp, KEY, value


def make_log(folder: Path, shape: Shape, total_bytes: int) -> int:
    """Segments of `total_bytes` and an empty active one -> the number of records.

    Each batch is the same one with other keys and offsets: building records one by one would take longer than
    what is measured.
    """
    folder.mkdir(parents=True)
    offset = written = 0
    while written < total_bytes:
        with (folder / f"{offset:020d}.log").open("wb", buffering=1 << 20) as file:
            size = 0
            for batch in _batches(shape, offset):
                file.write(batch)
                size += len(batch)
                offset += shape.batch_records
                if size >= SEGMENT_BYTES or written + size >= total_bytes:
                    break
            written += size
    (folder / f"{offset:020d}.log").touch()
    return offset


def _batches(shape: Shape, offset: int) -> Iterator[bytearray]:
    # Half noise, half text: compresses by about two, as real payloads do.
    noise_bytes = shape.value_bytes // 2
    rows = [
        _Row(BASE_TIMESTAMP_MS, os.urandom(noise_bytes) + b"." * (shape.value_bytes - noise_bytes))
        for _ in range(shape.batch_records)
    ]
    numbered = shape.producer_id >= 0
    plain = bytearray(
        build_batch(
            rows,
            producer_id=shape.producer_id,
            producer_epoch=0 if numbered else -1,
            base_sequence=0 if numbered else -1,
        )
    )
    places = []
    at = plain.find(KEY)
    while at >= 0:
        places.append(at)
        at = plain.find(KEY, at + len(KEY))
    from_attributes = memoryview(plain)[ATTRIBUTES_POS:]
    while True:
        for i, place in enumerate(places):
            number = offset + i if not shape.keys else (offset + i) * 7919 % shape.keys
            plain[place : place + len(KEY)] = b"%012d" % number
        if numbered:
            struct.pack_into(">i", plain, SEQUENCE_POS, offset & 0x7FFFFFFF)
        struct.pack_into(">I", plain, CRC_POS, crc32c(from_attributes))
        batch = plain if shape.codec == Codec.NONE else bytearray(recompress(plain, 0, shape.codec))
        patch(batch, 0, offset, 0)
        yield batch
        offset += shape.batch_records


def measure(**asked: Any) -> dict[str, Any]:
    """Runs this module in a process of its own. Raises BenchError."""
    command = [sys.executable, "-m", "bench.storage_logs", json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_TIMEOUT_S)
    try:
        result: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise BenchError(f"{asked['do']} ended with {done.returncode}: {done.stderr[-600:]}") from None
    return result


# --- in the child


def _peak_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def clean(folder: str, map_bytes: int) -> dict[str, Any]:
    """Passes of the cleaner until nothing is dirty any more."""
    from barnabas.storage.checkpoints import TopicPartition
    from barnabas.storage.cleaning.cleaner import LogCleaner
    from barnabas.storage.config import LogConfig
    from barnabas.storage.logs.recovery import open_log

    now_ms = int(time.time() * 1000)
    config = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log = open_log(folder, config, now_ms, clean=True)
    log.core.advance_high_watermark(log.log_end_offset)
    size_bytes = log.size_bytes
    before_mb = _peak_mb()
    cleaner = LogCleaner(lambda: {TopicPartition("t", 0): log}, dedupe_buffer_bytes=map_bytes)
    passes = 0
    began, cpu = time.perf_counter(), time.process_time()
    while cleaner.run(now_ms):
        passes += 1
        if cleaner.uncleanable:
            raise BenchError(str(cleaner.uncleanable))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "bytes": size_bytes, "seconds": seconds, "cpu_seconds": cpu, "passes": passes, "before_mb": before_mb,
        "peak_mb": _peak_mb(), "left_bytes": log.size_bytes,
    }  # fmt: skip


def recover(folder: str) -> dict[str, Any]:
    """Opens the log as after a crash that left no recovery point."""
    from barnabas.storage.config import LogConfig
    from barnabas.storage.logs.recovery import open_log

    began, cpu = time.perf_counter(), time.process_time()
    log = open_log(folder, LogConfig(), int(time.time() * 1000), clean=False)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {
        "bytes": log.size_bytes, "seconds": seconds, "cpu_seconds": cpu, "end_offset": log.log_end_offset,
        "peak_mb": _peak_mb(),
    }  # fmt: skip


if __name__ == "__main__":
    words = json.loads(sys.argv[1])
    print(json.dumps({"clean": clean, "recover": recover}[words.pop("do")](**words)))
