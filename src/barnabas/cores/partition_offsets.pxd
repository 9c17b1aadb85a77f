# cython: language_level=3
"""What compiled modules see of a partition's offsets; see partition_offsets.pyx."""

from libc.stdint cimport int64_t

cdef class PartitionOffsets:
    cdef public int64_t log_start_offset
    cdef public int64_t log_end_offset
    cdef public int64_t high_watermark
    cdef public object epochs
    cdef public object producers
