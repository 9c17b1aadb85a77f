"""The contents of segment files as text lines, in the manner of Kafka's dump tool.

    dump = Dump(DumpOptions(deep=True))
    for line in dump.lines("t-0/00000000000000000000.log"): print(line)
    for line in dump.problems(): print(line, file=sys.stderr)

Reads `.log`, `.index`, `.timeindex`, `.txnindex` and `.snapshot` files, Barnabas' or Kafka's, in every message format.
Raises StorageError for a file that cannot be read at all; damage inside a file is described in the lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barnabas.records.batch import (
    BatchHeader,
    CorruptBatch,
    Record,
    TimestampType,
    add_sequence,
    read_header,
)
from barnabas.records.compression import Codec
from barnabas.records.control import ControlType, control_type, read_marker
from barnabas.records.units import LeaderEpoch, Offset, ProducerEpoch
from barnabas.storage.errors import CorruptCheckpoint, CorruptIndex, StorageError
from barnabas.storage.files import LogFile
from barnabas.storage.formats import records_in, verify
from barnabas.storage.logs import producer_snapshot
from barnabas.storage.scan import ANY_OFFSET, Damaged, FoundBatch, first_from, scan
from barnabas.storage.segments import txn_index
from barnabas.storage.segments.index import OffsetIndex, TimeIndex

Decoder = Callable[[Record], tuple[str | None, str | None]]
"""A record -> the texts of its key and its payload; None for one that is not shown."""

NO_LIMIT: Final = 1 << 62
_PREFIX: Final = "|"


def plain_text(record: Record) -> tuple[str | None, str | None]:
    """Key and value as UTF-8."""
    return (
        None if record.key is None else record.key.decode("utf-8", "replace"),
        None if record.value is None else record.value.decode("utf-8", "replace"),
    )


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """deep: show records, not only batches. print_data: also keys and payloads, by `decoder`. verify_only: compare an index
    with its log instead of printing it. sanity_only: only check whether a start would rebuild it."""

    deep: bool = False
    print_data: bool = False
    skip_record_metadata: bool = False
    verify_only: bool = False
    sanity_only: bool = False
    max_bytes: int = NO_LIMIT
    decoder: Decoder = plain_text


def is_index_to_come(file: Path) -> bool:
    """Whether this is an index that is not there because its segment has no records; Kafka creates it with the segment."""
    log = file.with_suffix(".log")
    return (
        file.suffix in (".index", ".timeindex")
        and not file.exists()
        and log.exists()
        and log.stat().st_size == 0
    )


class Dump:
    """Dumps files one after the other, and collects inconsistencies."""

    def __init__(self, options: DumpOptions | None = None) -> None:
        self._options = options or DumpOptions()
        self._index_mismatches: dict[str, list[tuple[int, int]]] = {}
        self._time_mismatches: dict[str, list[tuple[int, int]]] = {}
        self._time_disorder: dict[str, list[tuple[int, int]]] = {}
        self._not_found: dict[str, list[tuple[int, int]]] = {}
        self._gaps: dict[str, list[tuple[int, int]]] = {}

    def use(self, options: DumpOptions) -> None:
        """Use other options from here on."""
        self._options = options

    def lines(self, path: str | os.PathLike[str]) -> Iterator[str]:
        """The lines for one file. Raises StorageError, OSError."""
        file = Path(path)
        yield f"Dumping {file}"
        if is_index_to_come(file):
            if file.suffix == ".index":
                yield f"{file} is empty."
            return
        match file.suffix:
            case ".log":
                yield from self._log(file)
            case ".index":
                yield from self._offset_index(file)
            case ".timeindex":
                yield from self._time_index(file)
            case ".txnindex":
                yield from self._txn_index(file)
            case ".snapshot":
                yield from self._snapshot(file)
            case _:
                raise StorageError(
                    f"{file} is none of .log, .index, .timeindex, .txnindex and .snapshot files"
                )

    def problems(self) -> Iterator[str]:
        """The inconsistencies in all files so far, as Kafka's tool prints them to stderr."""
        for file, mismatches in self._index_mismatches.items():
            yield f"Mismatches in :{file}"
            yield from (f"  Index offset: {index}, log offset: {log}" for index, log in mismatches)
        for file, mismatches in self._time_mismatches.items():
            yield f"Found timestamp mismatch in :{file}"
            yield from (f"  Index timestamp: {index}, log timestamp: {log}" for index, log in mismatches)
        for file, mismatches in self._time_disorder.items():
            yield f"Found out of order timestamp in :{file}"
            yield from (
                f"  Index timestamp: {index}, Previously indexed timestamp: {before}"
                for index, before in mismatches
            )
        for mismatches in self._not_found.values():
            yield "The following indexed offsets are not found in the log."
            yield from (f"Indexed offset: {index}, found log offset: {log}" for index, log in mismatches)
        for file, mismatches in self._gaps.items():
            yield f"Non-consecutive offsets in {file}"
            yield from (f"  {first} is followed by {second}" for first, second in mismatches)

    # --- logs ---------------------------------------------------------------------------------------

    def _log(self, file: Path) -> Iterator[str]:
        yield f"Log starting offset: {_base_offset(file)}"
        size = min(file.stat().st_size, self._options.max_bytes)
        opened = LogFile(str(file), write=False)
        end = 0
        last_offset = -1
        try:
            for batch, view in scan(opened, 0, size):
                end = batch.position + batch.size_bytes
                header, problem = _header(batch, view)
                yield _batch_line(batch, header, view, problem is None)
                if not self._options.deep and not self._options.print_data:
                    continue
                if problem is not None:
                    yield f"{_PREFIX} cannot be decoded: {problem}"
                    continue
                for line, offset in self._records(header, view):
                    yield line
                    if last_offset >= 0 and offset != last_offset + 1:
                        self._gaps.setdefault(str(file.absolute()), []).append((last_offset, offset))
                    last_offset = offset
        except Damaged as damage:
            yield f"Found an impossible batch, {damage}"
        if end < size and self._options.max_bytes == NO_LIMIT:
            yield f"Found {size - end} invalid bytes at the end of {file.name}"

    def _records(self, header: BatchHeader, view: memoryview) -> Iterator[tuple[str, int]]:
        sequence = header.base_sequence
        try:
            for record in records_in(view, header):
                if sequence >= 0:
                    sequence = add_sequence(header.base_sequence, record.offset - header.base_offset)
                yield self._record_line(header, record, sequence), record.offset
        except CorruptBatch as error:
            yield f"{_PREFIX} cannot be decoded: {error}", header.last_offset

    def _record_line(self, header: BatchHeader, record: Record, sequence: int) -> str:
        options = self._options
        parts = []
        if not options.skip_record_metadata:
            parts.append(
                f"offset: {record.offset} {_time_type(header)}: {record.timestamp} "
                f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
            )
            if header.magic == 2:
                names = ",".join(name for name, _ in record.headers)
                parts.append(f"sequence: {sequence} headerKeys: [{names}]")
            if header.is_control and header.magic == 2:
                parts.append(_control_text(record))
        if options.print_data and not (header.is_control and header.magic == 2):
            key, payload = options.decoder(record)
            if key is not None:
                parts.append(f"key: {key}")
            if payload is not None:
                parts.append(f"payload: {payload}")
        return f"{_PREFIX} {' '.join(parts)}"

    # --- indexes ------------------------------------------------------------------------------------

    def _offset_index(self, file: Path) -> Iterator[str]:
        index = OffsetIndex(str(file), _base_offset(file), 1 << 31)
        opened = LogFile(str(file.with_suffix(".log")), write=False)
        size = os.fstat(opened.fd).st_size
        if not _loaded(index):
            yield f"{file} is damaged: {_why(index)}"
            return
        if len(index) == 0:
            yield f"{file} is empty."
            return
        if self._options.sanity_only:
            yield f"{file} passed sanity check."
            return
        for slot in range(len(index)):
            offset, position = index.entry(slot)
            batch = _batch_at(opened, position, size)
            if batch is None or batch.last_offset != offset:
                log_offset = -1 if batch is None else batch.last_offset
                self._index_mismatches.setdefault(str(file.absolute()), []).append((offset, log_offset))
            if not self._options.verify_only:
                yield f"offset: {offset} position: {position}"

    def _time_index(self, file: Path) -> Iterator[str]:
        base = _base_offset(file)
        times = TimeIndex(str(file), base, 1 << 31)
        offsets = OffsetIndex(str(file.with_suffix(".index")), base, 1 << 31)
        opened = LogFile(str(file.with_suffix(".log")), write=False)
        size = os.fstat(opened.fd).st_size
        if not _loaded(times):
            yield f"{file} is damaged: {_why(times)}"
            return
        if self._options.sanity_only:
            yield f"{file} passed sanity check."
            return
        use_offsets = _loaded(offsets)
        before = -1
        for slot in range(len(times)):
            timestamp, offset = times.entry(slot)
            position = offsets.lookup(offset)[1] if use_offsets else 0
            self._check_time_entry(str(file.absolute()), opened, position, size, timestamp, offset)
            if before >= timestamp:
                self._time_disorder.setdefault(str(file.absolute()), []).append((timestamp, before))
            if not self._options.verify_only:
                yield f"timestamp: {timestamp} offset: {offset}"
            before = timestamp

    def _check_time_entry(
        self, name: str, opened: LogFile, position: int, size: int, timestamp: int, offset: Offset
    ) -> None:
        try:
            batch = first_from(opened, position, size, offset)
        except Damaged:
            batch = None
        if batch is None or batch.last_offset != offset:
            log_offset = -1 if batch is None else batch.last_offset
            self._not_found.setdefault(name, []).append((offset, log_offset))
            return
        greatest = -1
        for _, view in scan(opened, batch.position, batch.position + batch.size_bytes):
            header, problem = _header(batch, view)
            if problem is None:
                greatest = max((record.timestamp for record in records_in(view, header)), default=-1)
        if greatest != timestamp:
            self._time_mismatches.setdefault(name, []).append((timestamp, greatest))

    def _txn_index(self, file: Path) -> Iterator[str]:
        try:
            entries = txn_index.decode(file.read_bytes())
        except CorruptIndex as error:
            yield f"{file} is damaged: {error}"
            return
        for entry in entries:
            yield (
                f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
                f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
            )

    def _snapshot(self, file: Path) -> Iterator[str]:
        try:
            rows = producer_snapshot.read(str(file))
        except CorruptCheckpoint as error:
            yield f"{file} is damaged: {error}"
            return
        for row in rows:
            line = (
                f"producerId: {row.producer_id} producerEpoch: {row.producer_epoch} "
                f"coordinatorEpoch: {row.coordinator_epoch} "
                f"currentTxnFirstOffset: {_optional(row.current_txn_first_offset)} "
                f"lastTimestamp: {row.timestamp} "
            )
            if row.last_offset >= 0:
                first = row.last_sequence
                if first >= 0:
                    first = (first - row.offset_delta) & 0x7FFFFFFF
                line += (
                    f"firstSequence: {first} lastSequence: {row.last_sequence} lastOffset: {row.last_offset} "
                    f"offsetDelta: {row.offset_delta} timestamp: {row.timestamp}"
                )
            yield line


# ------------------------------------------------------------------------------------------------- help


def _base_offset(file: Path) -> int:
    stem = file.name.split(".")[0]
    if not stem.isdecimal():
        raise StorageError(f"{file} is not named as a segment: 20 digits, a dot and what it is")
    return int(stem)


def _header(batch: FoundBatch, view: memoryview) -> tuple[BatchHeader, str | None]:
    """(header, why the batch is invalid or None)."""
    try:
        return verify(view), None
    except CorruptBatch as error:
        if batch.magic == 2 and len(view) >= 61:
            return read_header(view), str(error)
        return (
            BatchHeader(
                batch.base_offset,
                len(view) - 12,
                LeaderEpoch(-1),
                batch.magic,
                0,
                0,
                0,
                -1,
                -1,
                -1,
                ProducerEpoch(-1),
                -1,
                0,
            ),
            str(error),
        )


def _batch_line(batch: FoundBatch, header: BatchHeader, view: memoryview, valid: bool) -> str:
    if header.magic == 2:
        what = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.partition_leader_epoch} "
            f"isTransactional: {_java(header.is_transactional)} isControl: {_java(header.is_control)} "
            f"deleteHorizonMs: {_optional(header.delete_horizon_ms)}"
        )
        crc = header.crc
    else:
        what = f"offset: {batch.last_offset}"
        crc = int.from_bytes(view[12:16], "big")
    number = header.attributes & 7
    codec = Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown({number})"
    return (
        f"{what} position: {batch.position} {_time_type(header)}: {header.max_timestamp} "
        f"size: {batch.size_bytes} magic: {header.magic} compresscodec: {codec} crc: {crc} isvalid: {_java(valid)}"
    )


def _control_text(record: Record) -> str:
    try:
        marker = read_marker(record)
        if marker is not None:
            name = "COMMIT" if marker.commit else "ABORT"
            return f"endTxnMarker: {name} coordinatorEpoch: {marker.coordinator_epoch}"
        kind: ControlType = control_type(record)
    except CorruptBatch as error:
        return f"controlType: damaged ({error})"
    number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
    return f"controlType: {kind.name}({number})"


def _time_type(header: BatchHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    if header.timestamp_type == TimestampType.LOG_APPEND_TIME:
        return "LogAppendTime"
    return "CreateTime"


def _batch_at(opened: LogFile, position: int, size: int) -> FoundBatch | None:
    try:
        return first_from(opened, position, size, ANY_OFFSET) if 0 <= position < size else None
    except Damaged:
        return None


def _loaded(index: OffsetIndex | TimeIndex) -> bool:
    try:
        return index.entries is not None
    except (CorruptIndex, FileNotFoundError):
        return False


def _why(index: OffsetIndex | TimeIndex) -> str:
    try:
        return str(len(index))
    except (CorruptIndex, FileNotFoundError) as error:
        return str(error)


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None or value < 0 else f"OptionalLong[{value}]"


def _java(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
