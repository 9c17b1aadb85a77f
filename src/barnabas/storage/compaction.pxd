# cython: language_level=3
"""How records are walked through and their keys are hashed, for other compiled modules; see compaction.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef struct Record:
    Py_ssize_t start       # position of the length
    Py_ssize_t fields      # position of the timestamp delta, after length and attributes
    Py_ssize_t rest        # position of the offset delta, after the timestamp delta
    Py_ssize_t end
    int64_t timestamp_delta
    int64_t offset_delta
    const uint8_t* key
    Py_ssize_t key_bytes   # -1 for null
    bint has_value

cdef uint64_t load64(const uint8_t* data) noexcept nogil
cdef void siphash128(const uint8_t* data, Py_ssize_t size, uint64_t k0, uint64_t k1, uint64_t* out) noexcept nogil
cdef bint next_record(const uint8_t* data, Py_ssize_t* at, Py_ssize_t size, Record* record) noexcept nogil
