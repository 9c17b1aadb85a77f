"""The checks of a producer's batch before a partition accepts it, and its conversion to what the topic's options demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.partitions.odd_batches import alone, refusal_of
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
    record_slices,
)
from barnabas.records.batch_header import RECORD_BYTES_MIN, BatchTooLarge
from barnabas.records.compression import Codec, OverLimit
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
QUICK_UNPACKED_BYTES_MAX: Final = 32 << 10
"""Batches up to these sizes are unpacked and packed again at once; larger ones may take the loop more than a millisecond."""


class RecordsRefused(ApiError):
    """A batch is refused because of some of its records."""

    def __init__(self, code: ErrorCode, message: str, numbers: list[int]) -> None:
        """numbers: the positions of these records in the batch, counted from 0; of very many, only the first."""
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
    if header.size_bytes != len(records):
        records = alone(records, header.size_bytes)
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


def must_convert(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether `converted` has something to do: the batch must be packed again, or its records must be looked into."""
    wanted = CODECS.get(config.compression_type)
    return (
        (wanted is not None and header.attributes & CODEC_MASK != wanted)
        or _looks_into_records(config)
        or is_too_far_ahead(header, config, now_ms)
    )


def converted(
    records: memoryview,
    header: BatchHeader,
    topic: str,
    config: LogConfig,
    now_ms: int,
    *,
    may_take_long: bool = True,
) -> memoryview:
    """The batch in the topic's codec, its records as the topic's options demand them (with keys, of a suitable time).
    Otherwise as it is. May run in a thread. Raises ApiError.

    may_take_long: if not, NotPrepared is raised for a batch that is large, or unpacks to many bytes.
    """
    if not must_convert(header, config, now_ms):
        return records
    packed_with, codec = header.attributes & CODEC_MASK, CODECS.get(config.compression_type)
    must_pack = codec is not None and packed_with != codec
    limit_bytes: int | None = None  # unpacked piece by piece, however large: Kafka has no limit either
    # To walk over a megabyte that is not packed takes a millisecond.
    if not may_take_long and (packed_with or must_pack):
        limit_bytes = QUICK_UNPACKED_BYTES_MAX
        if header.size_bytes > QUICK_BYTES_MAX:
            raise NotPrepared(topic)
    try:
        _check_records(records, header, config, now_ms, limit_bytes)
        if not must_pack:
            return records
        assert codec is not None
        packed = recompress(
            records,
            0,
            codec,
            config.level_of(codec),
            unpacked_bytes_max=limit_bytes,
            packed_bytes_max=config.max_message_bytes,
        )
    except OverLimit:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"packed with {config.compression_type}, as {topic} demands, the batch has more than {config.max_message_bytes} "
            "bytes, which is max.message.bytes",
        ) from None
    except CorruptBatch as error:
        if isinstance(error, BatchTooLarge) and not may_take_long:
            raise NotPrepared(topic) from None
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"the records of the batch cannot be read: {error}"
        ) from error
    _require_size(len(packed), topic, config)
    return memoryview(bytearray(packed))


def stamped(records: memoryview, config: LogConfig, now_ms: int) -> tuple[BatchHeader, int]:
    """(header, time) of a converted batch, which gets the broker's time here if the topic wants that; else `time` is -1."""
    append_time_ms = -1
    if config.log_append_time:
        append_time_ms = now_ms
        patch_max_timestamp(records, 0, TimestampType.LOG_APPEND_TIME, now_ms)
    return check_batch(records), append_time_ms


def is_too_far_ahead(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether the newest record has a time that is later than the topic allows."""
    return not config.log_append_time and header.max_timestamp - now_ms > config.timestamp_after_max_ms


def _looks_into_records(config: LogConfig) -> bool:
    """Whether an option demands something of single records."""
    # Kafka's default is the greatest number: nothing is too old.
    return config.compact or (not config.log_append_time and config.timestamp_before_max_ms < LONG_MAX)


def _check_records(
    records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, limit_bytes: int | None
) -> None:
    """Check what the options demand of single records. Raises RecordsRefused, CorruptBatch. Only if there is such an option,
    the batch is unpacked and its records are walked over."""
    is_ahead = is_too_far_ahead(header, config, now_ms)
    if not is_ahead and not _looks_into_records(config):
        return
    # Negative when there is no limit: nothing is older.
    oldest_ms = -1 if config.log_append_time else now_ms - config.timestamp_before_max_ms
    newest_ms = now_ms + config.timestamp_after_max_ms if is_ahead else LONG_MAX
    pieces = record_slices(records, 0, header, limit_bytes)
    keyless, old, new = faults(
        pieces, header.record_count, header.base_timestamp, config.compact, oldest_ms, newest_ms
    )
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
    if is_ahead:
        raise RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP,
            f"a timestamp lies {header.max_timestamp - now_ms} ms ahead of the broker's clock; "
            f"message.timestamp.after.max.ms allows {config.timestamp_after_max_ms}",
            new,
        )
