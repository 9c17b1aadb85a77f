"""kafka-dump-log (DumpLogSegments): what segment and index files hold."""

from __future__ import annotations

import mmap
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.cli.errors import EXIT_FAILED, EXIT_OK
from barnabas.cli.kafka.common import ToolError, checked, parse
from barnabas.cli.kafka.parser import Opt, Tool
from barnabas.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    check_batch,
    read_header,
    read_records,
)
from barnabas.records.compression import Codec

INDEX_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
CONTROL: Final = struct.Struct(">hh")
MARKERS: Final = {0: "ABORT", 1: "COMMIT"}

TOOL: Final = Tool(
    "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
    "corrupt log segment.",
    (
        Opt("files", "The files to dump, separated by commas.", "String: file1, file2, ..."),
        Opt("print-data-log", "Print the records, too."),
        Opt("deep-iteration", "Look at each record instead of the batches."),
        Opt("skip-record-metadata", "Print the payload without the record's metadata."),
        Opt("index-sanity-check", "Check an index without printing it."),
        Opt("verify-index-only", "Check an index against its log without printing it."),
        Opt("max-bytes", "Read at most this much of each log.", "Integer: size"),
        Opt("max-message-size", "Of old tools.", "Integer: size", old=True),
        Opt("value-decoder-class", "Of old tools.", "String: class", optional=True, old=True),
        Opt("key-decoder-class", "Of old tools.", "String: class", optional=True, old=True),
        Opt("help", "Print usage information."),
        Opt("version", "Display the version."),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Print the files; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "files"), parsed)
    for name in parsed.text("files").split(","):
        path = Path(name.strip())
        print(f"Dumping {path}")
        match path.suffix:
            case ".log":
                records = "print-data-log" in parsed or "deep-iteration" in parsed
                dump_log(
                    path, records, "skip-record-metadata" in parsed, parsed.number("max-bytes", sys.maxsize)
                )
            case ".index":
                quiet = "index-sanity-check" in parsed or "verify-index-only" in parsed
                dump_index(path, INDEX_ENTRY, "offset: {} position: {}", quiet)
            case ".timeindex":
                quiet = "index-sanity-check" in parsed or "verify-index-only" in parsed
                dump_index(path, TIME_ENTRY, "timestamp: {} offset: {}", quiet)
            case _:
                print(f"Ignoring unknown file {path}", file=sys.stderr)
                return EXIT_FAILED
    return EXIT_OK


def base_offset(path: Path) -> int:
    """The first offset that a segment file's name says. Raises ToolError."""
    if not path.stem.isdigit():
        raise ToolError(f"{path} is not named as a segment: 20 digits and .log, .index or .timeindex")
    return int(path.stem)


def dump_index(path: Path, entry: struct.Struct, line: str, quiet: bool) -> None:
    """Entries of an offset or time index; offsets are stored relative to the segment's first."""
    base = base_offset(path)
    data = path.read_bytes()
    before: tuple[int, ...] | None = None
    for first, second in entry.iter_unpack(data[: len(data) - len(data) % entry.size]):
        offset_first = entry is INDEX_ENTRY
        row = (first + base, second) if offset_first else (first, second + base)
        if before is not None and row[0] <= before[0] and not any((first, second)):
            return  # the rest of a preallocated index is zeros
        before = row
        if not quiet:
            print(line.format(*row))
    if quiet:
        print(f"{path} passed sanity check.")


def batches(view: memoryview, size_bytes: int) -> Iterator[tuple[int, BatchHeader | None]]:
    """Positions and headers of the batches; a None header at the end tells of bytes that are no batch."""
    position = 0
    while position + HEADER_BYTES <= size_bytes:
        header = read_header(view, position)
        if header.batch_length <= 0 or position + LOG_OVERHEAD + header.batch_length > size_bytes:
            yield position, None
            return
        yield position, header
        position += LOG_OVERHEAD + header.batch_length
    if position < size_bytes:
        yield position, None


def dump_log(path: Path, with_records: bool, skip_metadata: bool, limit_bytes: int) -> None:
    """Batches of a segment, with their records if asked for."""
    print(f"Log starting offset: {base_offset(path)}")
    size = min(path.stat().st_size, limit_bytes)
    if not size:
        return
    with path.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            for position, header in batches(view, size):
                if header is None:
                    left = size - position
                    print(f"Found {left} invalid bytes at the end of {path.name}", file=sys.stderr)
                    return
                print(batch_line(view, position, header))
                if with_records:
                    dump_records(view, position, header, skip_metadata)
        finally:
            view.release()


def batch_line(view: memoryview, position: int, header: BatchHeader) -> str:
    """A batch as Kafka's tool prints it."""
    valid = True
    try:
        check_batch(view, position)
    except CorruptBatch:
        valid = False
    last_sequence = header.last_sequence if header.producer_id >= 0 and header.base_sequence >= 0 else -1
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {flag(header.is_transactional)} isControl: {flag(header.is_control)} "
        f"deleteHorizonMs: {horizon(header)} position: {position} {time_text(header, header.max_timestamp)} "
        f"size: {LOG_OVERHEAD + header.batch_length} magic: {header.magic} "
        f"compresscodec: {Codec(header.codec).name.lower()} crc: {header.crc & 0xFFFFFFFF} isvalid: {flag(valid)}"
    )


def flag(value: bool) -> str:
    """A boolean as Java prints it."""
    return "true" if value else "false"


def horizon(header: BatchHeader) -> str:
    """The delete horizon, which the cleaner keeps in the base timestamp."""
    has = header.attributes & 0x40
    return f"OptionalLong[{header.base_timestamp}]" if has else "OptionalLong.empty"


def time_text(header: BatchHeader, timestamp_ms: int) -> str:
    """A timestamp with its type."""
    return f"{'LogAppendTime' if header.attributes & 0x08 else 'CreateTime'}: {timestamp_ms}"


def dump_records(view: memoryview, position: int, header: BatchHeader, skip_metadata: bool) -> None:
    """The records of one batch, each with the bar that Kafka's tool puts before it."""
    batch = view[position : position + LOG_OVERHEAD + header.batch_length]
    try:
        records = list(read_records(batch))
    except (CorruptBatch, ValueError) as error:
        print(f"| cannot be decoded: {error}")
        return
    finally:
        batch.release()
    for i, record in enumerate(records):
        sequence = header.base_sequence + i if header.base_sequence >= 0 else -1
        print(record_line(header, record, sequence, skip_metadata))


def record_line(header: BatchHeader, record: Any, sequence: int, skip_metadata: bool) -> str:
    """One record as Kafka's tool prints it."""
    if header.is_control and record.key is not None and len(record.key) >= CONTROL.size:
        _, kind = CONTROL.unpack_from(record.key)
        epoch = struct.unpack_from(">i", record.value or b"\0" * 6, 2)[0]
        payload = f" endTxnMarker: {MARKERS.get(kind, kind)} coordinatorEpoch: {epoch}"
    else:
        payload = "" if record.key is None else f" key: {text(record.key)}"
        payload += f" payload: {text(record.value)}" if record.value is not None else ""
    if skip_metadata:
        return f"|{payload}"
    keys = ",".join(name for name, _ in record.headers)
    return (
        f"| offset: {record.offset} {time_text(header, record.timestamp)} keySize: {length(record.key)} "
        f"valueSize: {length(record.value)} sequence: {sequence} headerKeys: [{keys}]{payload}"
    )


def length(data: bytes | None) -> int:
    """Bytes in data, -1 for null."""
    return -1 if data is None else len(data)


def text(data: Any) -> str:
    """Bytes as text; what is not UTF-8 is replaced, as Java does."""
    return bytes(data or b"").decode("utf-8", "replace")
