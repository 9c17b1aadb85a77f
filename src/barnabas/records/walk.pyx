# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Questions about a batch's records that are answered by walking over their bytes: no object is made for a record.

`block` is what `records_block` returns. What a producer wrote there was never looked at: every length is checked
against the record's end before it is used, and damage raises CorruptBatch.
"""

from libc.stdint cimport int64_t, uint8_t

from barnabas.records.batch import CorruptBatch
from barnabas.records.varint cimport read_varint

cdef struct Fields:
    int64_t timestamp_delta
    int64_t offset_delta
    bint has_key


cdef bint skip_bytes(const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, int64_t least) noexcept nogil:
    """Steps over a length and so many bytes; -1 stands for null where `least` allows it."""
    cdef int64_t size
    if not read_varint(data, at, end, &size) or size < least or size > end - at[0]:
        return False
    if size > 0:
        at[0] += <Py_ssize_t>size
    return True


cdef bint read_record(const uint8_t* data, Py_ssize_t* at, Py_ssize_t size, Fields* fields) noexcept nogil:
    """The record at `at`, which moves behind it; False when its fields do not fill its length."""
    cdef int64_t length, key_bytes, headers
    cdef Py_ssize_t end
    if not read_varint(data, at, size, &length) or length < 1 or length > size - at[0]:
        return False
    end = at[0] + <Py_ssize_t>length
    at[0] += 1  # attributes
    if not read_varint(data, at, end, &fields.timestamp_delta):
        return False
    if not read_varint(data, at, end, &fields.offset_delta):
        return False
    if not read_varint(data, at, end, &key_bytes) or key_bytes < -1 or key_bytes > end - at[0]:
        return False
    fields.has_key = key_bytes >= 0
    at[0] += <Py_ssize_t>key_bytes if key_bytes > 0 else 0
    if not skip_bytes(data, at, end, -1) or not read_varint(data, at, end, &headers) or headers < 0:
        return False
    while headers > 0:
        if not skip_bytes(data, at, end, 0) or not skip_bytes(data, at, end, -1):
            return False
        headers -= 1
    return at[0] == end


def faults(
    const uint8_t[::1] block, Py_ssize_t count, int64_t base_timestamp, bint keyed, int64_t oldest_ms,
):
    """(numbers of the records without a key, numbers of those older than `oldest_ms`) of a batch of `count` records.

    keyed: keys are asked for. oldest_ms: below zero nothing is too old; records without a time never are. Raises
    CorruptBatch.
    """
    cdef Py_ssize_t at = 0, size = block.shape[0], number
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef Fields fields
    cdef int64_t timestamp
    keyless = []
    old = []
    for number in range(count):
        if not read_record(data, &at, size, &fields):
            raise CorruptBatch(f"record {number} of {count} does not fit its length")
        if keyed and not fields.has_key:
            keyless.append(number)
        timestamp = base_timestamp + fields.timestamp_delta
        if 0 <= timestamp < oldest_ms:
            old.append(number)
    if at != size:
        raise CorruptBatch(f"{size - at} bytes lie behind the last of {count} records")
    return keyless, old


def first_at_or_after(
    const uint8_t[::1] block, Py_ssize_t count, int64_t base_timestamp, int64_t base_offset, int64_t timestamp,
    int64_t from_offset,
):
    """(timestamp, offset) of the first record at or after both; None when there is none. Raises CorruptBatch."""
    cdef Py_ssize_t at = 0, size = block.shape[0], number
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef Fields fields
    for number in range(count):
        if not read_record(data, &at, size, &fields):
            raise CorruptBatch(f"record {number} of {count} at offset {base_offset} does not fit its length")
        if base_timestamp + fields.timestamp_delta >= timestamp and base_offset + fields.offset_delta >= from_offset:
            return base_timestamp + fields.timestamp_delta, base_offset + fields.offset_delta
    return None


def greatest(
    const uint8_t[::1] block, Py_ssize_t count, int64_t base_timestamp, int64_t base_offset, int64_t from_offset
):
    """(timestamp, offset) of the first record with the greatest timestamp, from an offset on; None when there is none.
    Raises CorruptBatch."""
    cdef Py_ssize_t at = 0, size = block.shape[0], number
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef Fields fields
    cdef int64_t best = 0, best_offset = -1
    for number in range(count):
        if not read_record(data, &at, size, &fields):
            raise CorruptBatch(f"record {number} of {count} at offset {base_offset} does not fit its length")
        if base_offset + fields.offset_delta < from_offset:
            continue
        if best_offset < 0 or base_timestamp + fields.timestamp_delta > best:
            best = base_timestamp + fields.timestamp_delta
            best_offset = base_offset + fields.offset_delta
    return None if best_offset < 0 else (best, best_offset)
