# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Binary search in the entries of an index. Every fetch searches twice, so it costs more in Python than reading a header."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.wire.big_endian cimport big32, big64


def count_up_to(bytearray entries not None, Py_ssize_t entry_bytes, Py_ssize_t at, Py_ssize_t width, int64_t value):
    """How many entries have a number of at most `value`, which is big-endian, has `width` bytes (4 or 8) and stands `at` bytes
    after an entry's beginning. It must not decrease from one entry to the next."""
    if entry_bytes <= 0 or at < 0 or width not in (4, 8) or at + width > entry_bytes:
        raise ValueError(f"no number of {width} bytes at {at} in entries of {entry_bytes} bytes")
    return search(entries, entry_bytes, at, width, value)


cdef Py_ssize_t search(bytearray entries, Py_ssize_t entry_bytes, Py_ssize_t at, Py_ssize_t width, int64_t value) noexcept:
    """`count_up_to` for compiled callers, who know what they ask."""
    cdef const uint8_t* data = <const uint8_t*>PyByteArray_AS_STRING(entries) + at
    cdef Py_ssize_t low = 0, high = PyByteArray_GET_SIZE(entries) // entry_bytes, middle
    cdef int64_t entry
    while low < high:
        middle = (low + high) // 2
        entry = <int32_t>big32(data + middle * entry_bytes) if width == 4 else big64(data + middle * entry_bytes)
        if entry <= value:
            low = middle + 1
        else:
            high = middle
    return low
