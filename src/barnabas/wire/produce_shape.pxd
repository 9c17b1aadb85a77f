# cython: language_level=3
"""What compiled modules see of the shape of a producer's requests; see produce_shape.pyx."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

cdef class ProduceShape:
    cdef bytes prefix, before, after
    cdef int16_t version
    cdef bint flexible, with_start
    cdef bint find(self, const uint8_t* data, Py_ssize_t size, int32_t* index, Py_ssize_t* at, Py_ssize_t* end) noexcept
    cpdef bytes answer(
        self, int32_t correlation_id, int32_t index, int16_t error_code, int64_t base_offset, int64_t append_time_ms,
        int64_t start,
    )
