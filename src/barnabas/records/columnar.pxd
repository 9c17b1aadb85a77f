"""What both directions of the batch codec share: a growing buffer, and big-endian numbers."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from barnabas.records.batch_layout cimport HEADER_BYTES, OVERHEAD_BYTES

cdef enum:
    OK = 0
    BAD_RECORD = -1
    NO_MEMORY = -2
    STOP = 1


cdef class Buffer:
    cdef uint8_t* data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t capacity


cdef int reserve(Buffer buffer, Py_ssize_t more) noexcept nogil


cdef inline void put(Buffer buffer, const uint8_t* source, Py_ssize_t count) noexcept nogil:
    """Append bytes, for which room has been reserved."""
    memcpy(buffer.data + buffer.size, source, count)
    buffer.size += count


cdef inline void put_i32(Buffer buffer, int32_t value) noexcept nogil:
    (<int32_t*> (buffer.data + buffer.size))[0] = value
    buffer.size += 4


cdef inline void put_i64(Buffer buffer, int64_t value) noexcept nogil:
    (<int64_t*> (buffer.data + buffer.size))[0] = value
    buffer.size += 8


cdef inline uint32_t load_u32(const uint8_t* p) noexcept nogil:
    return (<uint32_t> p[0] << 24) | (<uint32_t> p[1] << 16) | (<uint32_t> p[2] << 8) | p[3]


cdef inline uint64_t load_u64(const uint8_t* p) noexcept nogil:
    return (<uint64_t> load_u32(p) << 32) | load_u32(p + 4)


cdef inline void store_u16(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t> (value >> 8)
    p[1] = <uint8_t> value


cdef inline void store_u32(uint8_t* p, uint32_t value) noexcept nogil:
    store_u16(p, value >> 16)
    store_u16(p + 2, value & 0xFFFF)


cdef inline void store_u64(uint8_t* p, uint64_t value) noexcept nogil:
    store_u32(p, <uint32_t> (value >> 32))
    store_u32(p + 4, <uint32_t> value)
