"""The checks of a producer's batch before a partition accepts it, and its conversion to what the topic's options demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.partitions.odd_batches import numbers_above, refusal_of
from barnabas.config.option import LONG_MAX
from barnabas.records.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    TimestampType,
    check_batch,
    patch_max_timestamp,
    recompress,
    records_block,
)
from barnabas.records.batch_header import RECORD_BYTES_MIN
from barnabas.records.compression import Codec
from barnabas.records.walk import faults
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.storage.config import LogConfig

CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
CODEC_MAX: Final = int(Codec.ZSTD)
QUICK_BYTES_MAX: Final = 2 << 10
"""Batches up to this size are unpacked and packed again at once; larger ones may take the loop more than a millisecond."""


class RecordsRefused(ApiError):
    """A batch is refused because of some of its records."""

    def __init__(self, code: ErrorCode, message: str, numbers: list[int]) -> None:
        """numbers: the positions of these records in the batch, counted from 0."""
        super().__init__(code, message)
        self.numbers = numbers


class NotPrepared(ApiError):
    """The topic demands something of the records that takes longer than a turn of the loop may: their schemas are looked up
    (api/schema_checks.py), or they are unpacked and packed again. See api/preparing.py."""

    def __init__(self, topic: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"the records for {topic} were not prepared for it")


def checked(records: memoryview | None, topic: str, config: LogConfig) -> tuple[BatchHeader, memoryview]:
    """(header, bytes) of the single whole batch that a produce request must contain. Raises ApiError."""
    if not records:
        raise ApiError(ErrorCode.INVALID_RECORD, "the request holds no record batch for this partition")
    try:
        header = check_batch(records)
    except CorruptBatch as error:
        raise refusal_of(records, error) from None
    if header.base_offset:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the batch names base offset {header.base_offset}; a producer's begins at 0, the broker places it",
        )
    _require_size(header.batch_length + LOG_OVERHEAD, topic, config)
    if header.attributes & CODEC_MASK > CODEC_MAX:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch names compression codec {header.attributes & CODEC_MASK}; 0 to 4 are known",
        )
    record_count = header.record_count
    if record_count <= 0 or header.last_offset_delta != record_count - 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the batch says {record_count} records and a last offset delta of {header.last_offset_delta}",
        )
    if (
        not header.attributes & CODEC_MASK
        and record_count * RECORD_BYTES_MIN > header.size_bytes - HEADER_BYTES
    ):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the batch says {record_count} records; its {header.size_bytes} bytes cannot hold so many",
        )
    return header, records


def _require_size(size_bytes: int, topic: str, config: LogConfig) -> None:
    if size_bytes > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size_bytes} bytes; max.message.bytes of {topic} is {config.max_message_bytes}",
        )
    require_fits_segment(size_bytes, topic, config)


def require_fits_segment(size_bytes: int, topic: str, config: LogConfig) -> None:
    """Raises ApiError RECORD_LIST_TOO_LARGE for a batch that no segment can hold."""
    if size_bytes > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size_bytes} bytes; segment.bytes of {topic} is {config.segment_bytes}",
        )


def takes_long(header: BatchHeader, config: LogConfig) -> bool:
    """Whether `converted` may hold up the loop: a few kilobytes may unpack to many megabytes."""
    packed, wanted = header.attributes & CODEC_MASK, CODECS.get(config.compression_type)
    is_repacked = wanted is not None and packed != wanted
    return (
        is_repacked or bool(packed and _looks_into_records(config))
    ) and header.size_bytes > QUICK_BYTES_MAX


def converted(
    records: memoryview, header: BatchHeader, topic: str, config: LogConfig, now_ms: int
) -> memoryview:
    """The batch in the topic's codec, its records as the topic's options demand them (with keys, not too old). May run in a
    thread. Raises ApiError."""
    try:
        _check_records(records, header, config, now_ms)
        codec = CODECS.get(config.compression_type)
        if codec is None or header.attributes & CODEC_MASK == codec:
            return records
        packed = memoryview(bytearray(recompress(records, 0, codec, config.level_of(codec))))
    except CorruptBatch as error:
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"the records of the batch cannot be read: {error}"
        ) from error
    _require_size(len(packed), topic, config)
    return packed


def stamped(
    records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> tuple[BatchHeader, int]:
    """(header, time) of a converted batch, which gets the broker's time here if the topic wants that; else `time` is -1.
    Raises ApiError."""
    append_time_ms = -1
    if config.log_append_time:
        append_time_ms = now_ms
        patch_max_timestamp(records, 0, TimestampType.LOG_APPEND_TIME, now_ms)
    elif header.max_timestamp - now_ms > config.timestamp_after_max_ms:
        raise too_far_ahead(records, check_batch(records), config, now_ms)
    return check_batch(records), append_time_ms


def _looks_into_records(config: LogConfig) -> bool:
    """Whether an option demands something of single records."""
    # Kafka's default is the greatest number: nothing is too old.
    return config.compact or (not config.log_append_time and config.timestamp_before_max_ms < LONG_MAX)


def _check_records(records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Check what the options demand of single records. Raises RecordsRefused, CorruptBatch. Only if there is such an option,
    the batch is unpacked and its records are walked over."""
    if not _looks_into_records(config):
        return
    # Negative when there is no limit: nothing is older.
    oldest_ms = -1 if config.log_append_time else now_ms - config.timestamp_before_max_ms
    block = records_block(records, 0, header)
    keyless, old = faults(block, header.record_count, header.base_timestamp, config.compact, oldest_ms)
    if keyless:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD, "a compacted topic takes no record without a key", keyless
        )
    if old:
        raise RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP,
            "a timestamp is older than message.timestamp.before.max.ms allows, which is "
            f"{config.timestamp_before_max_ms}",
            old,
        )


def too_far_ahead(records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> RecordsRefused:
    """The error for a batch with a timestamp that is later than the topic allows."""
    allowed_ms = config.timestamp_after_max_ms
    return RecordsRefused(
        ErrorCode.INVALID_TIMESTAMP,
        f"a timestamp lies {header.max_timestamp - now_ms} ms ahead of the broker's clock; "
        f"message.timestamp.after.max.ms allows {allowed_ms}",
        numbers_above(records, header, now_ms + allowed_ms),
    )
