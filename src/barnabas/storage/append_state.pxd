# cython: language_level=3
"""What compiled modules see of a log and its active segment; see append_state.pyx."""

from libc.stdint cimport int64_t

from barnabas.cores.partition_offsets cimport PartitionOffsets

cdef class SegmentState:
    cdef public int64_t size_bytes
    cdef public int64_t interval
    cdef public int64_t bytes_since_entry
    cdef public int64_t _max_timestamp
    cdef public int64_t _offset_of_max_timestamp
    cdef public object file
    cdef public list tail_offsets
    cdef public list tail_positions

cdef class LogState:
    cdef public PartitionOffsets core
    cdef public object config
    cdef public SegmentState _active
    cdef public int64_t _size_limit
    cdef public int64_t _offset_limit
    cdef public int64_t _roll_after
    cdef public int64_t recovery_point
