# cython: language_level=3
"""Zigzag varints, for all compiled modules."""

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef inline bint read_varint(const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, int64_t* value) noexcept nogil:
    """Read the varint at `at`, and move `at` behind it; False if it is cut off or has more than ten bytes."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at[0] < end and shift <= 63:
        byte = data[at[0]]
        at[0] += 1
        raw |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            return True
        shift += 7
    return False
