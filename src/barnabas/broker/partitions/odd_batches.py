"""The errors for record bytes that are not exactly one valid batch: the same as Kafka's."""

from __future__ import annotations

import struct
from typing import Final

from barnabas.records.batch import LOG_OVERHEAD, MAGIC_POS, CorruptBatch
from barnabas.wire.errors import ApiError, ErrorCode

LENGTH: Final = struct.Struct(">i")
LENGTH_POS: Final = 8
LENGTH_MIN: Final = 14
"""Bytes after the length field in the smallest message of the oldest format."""


def refusal_of(records: memoryview, error: CorruptBatch) -> ApiError:
    """The error for bytes that are not a batch, or a batch with a wrong checksum."""
    if not _is_whole(records):
        return ApiError(ErrorCode.INVALID_RECORD, f"the record batch is cut off: {error}")
    length = LENGTH.unpack_from(records, LENGTH_POS)[0]
    if length >= LENGTH_MIN and records[MAGIC_POS] in (0, 1):
        return ApiError(
            ErrorCode.INVALID_RECORD,
            f"a message of magic {records[MAGIC_POS]}; since version 3 produce requests hold record batches of magic 2",
        )
    return ApiError(ErrorCode.CORRUPT_MESSAGE, str(error))


def alone(records: memoryview, size_bytes: int) -> memoryview:
    """The first batch, of `size_bytes`, without a few meaningless bytes behind it. Raises ApiError if these bytes may be
    another batch, or a part of one, which would be lost."""
    if len(records) - size_bytes < LOG_OVERHEAD:
        return records[:size_bytes]
    if LENGTH.unpack_from(records, size_bytes + LENGTH_POS)[0] < LENGTH_MIN:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the bytes after the batch of {size_bytes} bytes are not another batch",
        )
    raise ApiError(
        ErrorCode.INVALID_RECORD, "a produce request holds exactly one record batch for a partition"
    )


def _is_whole(records: memoryview) -> bool:
    """Whether there are as many bytes as the batch claims; also True if it claims an impossible number."""
    if len(records) < LOG_OVERHEAD:
        return False
    length: int = LENGTH.unpack_from(records, LENGTH_POS)[0]
    return length < LENGTH_MIN or LOG_OVERHEAD + length <= len(records)
