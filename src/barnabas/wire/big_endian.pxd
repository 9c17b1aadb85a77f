# cython: language_level=3
"""Integers in the protocol's byte order, for all compiled modules."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef inline uint16_t big16(const uint8_t* at) noexcept nogil:
    return <uint16_t>((at[0] << 8) | at[1])


cdef inline uint32_t big32(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int64_t big64(const uint8_t* at) noexcept nogil:
    return <int64_t>((<uint64_t>big32(at) << 32) | big32(at + 4))


cdef inline void put_big16(uint8_t* at, uint16_t value) noexcept nogil:
    at[0] = <uint8_t>(value >> 8)
    at[1] = <uint8_t>value


cdef inline void put_big32(uint8_t* at, uint32_t value) noexcept nogil:
    put_big16(at, <uint16_t>(value >> 16))
    put_big16(at + 2, <uint16_t>value)


cdef inline void put_big64(uint8_t* at, int64_t value) noexcept nogil:
    put_big32(at, <uint32_t>(<uint64_t>value >> 32))
    put_big32(at + 4, <uint32_t>value)
