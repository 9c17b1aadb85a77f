# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Where a reader's batches lie, for segments whose index and headers are in order: one index search and a few headers.

Every fetch asks this. Whatever is not in order (an index entry that fits no batch, older formats, a batch that is cut off)
is left to segment_checks.py, which finds out what is wrong, and mends it.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.records.batch_layout cimport COUNT_AT, HEADER_BYTES, LAST_DELTA_AT, LENGTH_AT, MAGIC_AT, OVERHEAD_BYTES
from barnabas.storage.entries cimport search
from barnabas.wire.big_endian cimport big32, big64

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* buffer, size_t count, int64_t offset)

cdef enum:
    WINDOW_BYTES = 4096     # read at a time: one header, or those of a few dozen small batches
    ENTRY_BYTES = 8         # of an index: a batch's last offset minus the segment's base offset, and its position
    POSITION_AT = 4
    MAGIC = 2
    WINDOWS_MAX = 16        # read for one answer: with few index entries, there are better ways to go far


cdef struct Window:
    int fd
    int64_t size            # of the file, as far as it is valid
    int64_t start           # where the window begins in the file
    int64_t have
    int reads
    uint8_t data[WINDOW_BYTES]


cdef struct Batch:
    int64_t size, first, last
    int32_t count


def plain_range(
    bytearray entries not None, int64_t base_offset, int fd, int64_t size_bytes, int64_t offset, int64_t max_bytes
):
    """(from, start, end): the batches in bytes [start, end) of a segment are what a reader gets from `offset` on.

    entries: the offset index. size_bytes: up to where the file is valid. The first batch has records; at most `max_bytes`
    are returned. `from` is the lowest byte at which a header was believed. None: something is not plain, the segment ends
    before `offset`, the first batch is larger than `max_bytes`, or index entries lie far apart.
    """
    cdef Window window
    cdef Batch batch
    cdef int64_t position, start, end, limit, low
    cdef bint has_batch
    window.fd, window.size, window.start, window.have, window.reads = fd, size_bytes, 0, 0, 0
    low = position_up_to(entries, 0, offset - base_offset)
    with nogil:
        position = low
        has_batch = header(&window, position, &batch) and base_offset <= batch.first and (low == 0 or batch.first <= offset)
        while has_batch and batch.last < offset:
            position += batch.size
            has_batch = following(&window, position, &batch)
        start, end = position, position + batch.size
        has_batch = has_batch and batch.count > 0 and batch.size <= max_bytes
    if not has_batch:
        return None
    if max_bytes >= size_bytes - start:
        return low, start, size_bytes
    limit = start + max_bytes
    position = position_up_to(entries, POSITION_AT, limit)
    with nogil:
        if position > start:
            has_batch = header(&window, position, &batch) and batch.first > offset
            end = position
        while has_batch and end < limit:
            has_batch = header(&window, end, &batch)
            if end + batch.size > limit:
                break
            end += batch.size
    return (low, start, end) if has_batch else None


cdef int64_t position_up_to(bytearray entries, Py_ssize_t at, int64_t value):
    """The position in the last entry whose number at byte `at` is not above `value`; 0 if there is none."""
    cdef const uint8_t* data = <const uint8_t*>PyByteArray_AS_STRING(entries)
    cdef Py_ssize_t count = search(entries, ENTRY_BYTES, at, 4, value)
    return <int32_t>big32(data + (count - 1) * ENTRY_BYTES + POSITION_AT) if count else 0


cdef bint following(Window* window, int64_t position, Batch* batch) noexcept nogil:
    """Replace `batch` by the one at `position`, which must continue its offsets."""
    cdef int64_t last = batch.last
    return header(window, position, batch) and batch.first > last


cdef bint header(Window* window, int64_t position, Batch* batch) noexcept nogil:
    """Whether a whole batch of the current format seems to begin at `position`; if so, what its header says."""
    cdef int64_t want = window.size - position
    cdef const uint8_t* data
    if position < 0 or want < HEADER_BYTES:
        return False
    if position < window.start or position + HEADER_BYTES > window.start + window.have:
        window.reads += 1
        if window.reads > WINDOWS_MAX:
            return False
        window.start, window.have = position, pread(window.fd, window.data, min(want, WINDOW_BYTES), position)
        if window.have < HEADER_BYTES:
            return False
    data = window.data + (position - window.start)
    batch.size = <int64_t>big32(data + LENGTH_AT) + OVERHEAD_BYTES
    batch.first = big64(data)
    batch.last = batch.first + <int32_t>big32(data + LAST_DELTA_AT)
    batch.count = <int32_t>big32(data + COUNT_AT)
    return data[MAGIC_AT] == MAGIC and HEADER_BYTES <= batch.size <= want and 0 <= batch.first <= batch.last
