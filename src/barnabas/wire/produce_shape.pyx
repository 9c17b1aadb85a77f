# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The shape of one producer's requests: which bytes they share, where the rest lies, and the answer that fits them.

A request with one batch for one partition of one topic consists of a prefix, the same in all of them (client id, acks,
time-out, topic), then the partition, the length of the batch, the batch, and in flexible versions three empty tags.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from barnabas.wire.big_endian cimport big16, big32, put_big16, put_big32, put_big64

cdef enum:
    PREFIX_AT = 8           # behind API key, version and correlation id
    CORRELATION_AT = 4      # in a request behind key and version, in an answer behind its size
    TAGS_BYTES = 3
    VARINT_BYTES_MAX = 5
    UP_TO_TIME_BYTES = 22   # of an answer's numbers: partition, error code, base offset, time of the append
    UP_TO_START_BYTES = 30  # ... and, from version 5 on, log start offset


cdef class ProduceShape:
    """See the module."""

    def __init__(self, int16_t version, bytes prefix, bint flexible, bytes before, bytes after, bint with_start):
        """prefix: of the requests, from behind the correlation id on. before, after: an answer's bytes around its numbers,
        `before` with room for size and correlation id. with_start: the log start offset is among the numbers."""
        self.version = version
        self.prefix = prefix
        self.flexible = flexible
        self.before = before
        self.after = after
        self.with_start = with_start

    cdef bint find(self, const uint8_t* data, Py_ssize_t size, int32_t* index, Py_ssize_t* at, Py_ssize_t* end) noexcept:
        """Whether a frame is a request of this shape; if so, its partition and where the batch lies."""
        cdef Py_ssize_t position = PREFIX_AT + len(self.prefix)
        cdef uint64_t length
        if size < position + 8 or <int16_t>big16(data + 2) != self.version:
            return False
        if memcmp(data + PREFIX_AT, PyBytes_AS_STRING(self.prefix), len(self.prefix)) != 0:
            return False
        index[0] = <int32_t>big32(data + position)
        position += 4
        if self.flexible:
            size -= TAGS_BYTES
            if not read_length(data, &position, size, &length):
                return False
            if data[size] or data[size + 1] or data[size + 2]:
                return False
        else:
            length = big32(data + position)
            position += 4
        at[0] = position
        end[0] = size
        return length == <uint64_t>(size - position)

    def split(self, frame):
        """(partition, the batch's bytes) of a request of this shape, which are a view of `frame`; else None."""
        cdef Py_buffer view
        cdef Py_ssize_t at, end
        cdef int32_t index
        PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
        try:
            if not self.find(<const uint8_t*>view.buf, view.len, &index, &at, &end):
                return None
        finally:
            PyBuffer_Release(&view)
        return index, frame[at:end]

    cpdef bytes answer(
        self, int32_t correlation_id, int32_t index, int16_t error_code, int64_t base_offset, int64_t append_time_ms,
        int64_t start,
    ):
        """The whole answer to the request with a correlation id."""
        cdef Py_ssize_t before = len(self.before), after = len(self.after)
        cdef Py_ssize_t numbers = UP_TO_START_BYTES if self.with_start else UP_TO_TIME_BYTES
        cdef Py_ssize_t size = before + numbers + after
        answer = PyBytes_FromStringAndSize(NULL, size)
        cdef uint8_t* data = <uint8_t*>PyBytes_AS_STRING(answer)
        memcpy(data, PyBytes_AS_STRING(self.before), before)
        put_big32(data, <uint32_t>(size - 4))
        put_big32(data + CORRELATION_AT, <uint32_t>correlation_id)
        memcpy(data + before + numbers, PyBytes_AS_STRING(self.after), after)
        data += before
        put_big32(data, <uint32_t>index)
        put_big16(data + 4, <uint16_t>error_code)
        put_big64(data + 6, base_offset)
        put_big64(data + 14, append_time_ms)
        if self.with_start:
            put_big64(data + 22, start)
        return answer


cdef bint read_length(const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, uint64_t* length) noexcept nogil:
    """A compact length: an unsigned varint of the length plus one. False where it is cut off, too long or null."""
    cdef int shift
    cdef uint8_t byte
    length[0] = 0
    for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
        if at[0] >= end:
            return False
        byte = data[at[0]]
        at[0] += 1
        length[0] |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            if length[0] == 0:
                return False
            length[0] -= 1
            return True
    return False
