# cython: language_level=3
"""What compiled modules see of the times of requests; see timing.pyx."""

from libc.stdint cimport int64_t

cdef enum:
    BUCKETS = 256

cdef class Histogram:
    cdef int64_t _counts[BUCKETS]
    cdef double _recent[BUCKETS]
    cdef readonly int64_t count
    cdef readonly int64_t sum
    cpdef void add(self, int64_t value, int64_t times=*) noexcept

cdef class RequestStats:
    cdef readonly str name
    cdef readonly Histogram total, queue, local, remote, throttle, response_queue, response_send, size
    cdef readonly dict errors
    cdef int64_t _versions[64]
    cdef int64_t _counted
    cdef object _times
    cdef bint _waits
    cpdef int64_t begin_quick(self) noexcept
    cdef int64_t next_weight(self) noexcept
    cpdef Timing quick(
        self, int64_t begun_us, int64_t requests, int version, int64_t size_bytes, topics=*
    )

cdef class Timing:
    cdef readonly RequestStats stats
    cdef readonly object topics
    cdef int64_t _begun, _handling, _returned, _finished, _answered, _flushing, _throttle_us
    cdef int64_t _times
    cdef bint _is_quick
    cdef int64_t local_us(self) noexcept
    cdef int64_t remote_us(self) noexcept
    cdef settle(self, int64_t sent, connection)
