# cython: language_level=3
"""What compiled modules see of plain appends; see plain_append.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.storage.append_state cimport LogState

cdef class PartitionState:
    cdef public LogState log
    cdef public object offline
    cdef public bint is_leader
    cdef public int32_t leader_epoch
    cdef public object _surroundings
    cdef public object _replicas
    cdef public object _flushing
    cdef public list _pending
    cdef public dict waiters
    cdef public int64_t bytes_in            # of producers
    cdef public int64_t produce_requests
    cdef public int64_t failed_produces
    cdef public int64_t bytes_out           # to consumers
    cdef public int64_t fetch_requests      # of consumers
    cdef public int64_t failed_fetches
    cdef public int64_t replicated_in
    cdef public int64_t replicated_out
    cdef int64_t append_plain(self, uint8_t* data, Py_ssize_t size, bint acks_all, bint zstd_allowed) except -2
    cdef bint is_plain(self, bint acks_all) except -1
    cdef bint write(self, uint8_t* data, Py_ssize_t size, int64_t position) except -1
