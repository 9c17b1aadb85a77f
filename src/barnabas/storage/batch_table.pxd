# cython: language_level=3
"""The part of a table of batches that other compiled modules use; see batch_table.pyx."""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

cdef struct Row:
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp   # -1 if the batch has no records
    int64_t producer_id
    int64_t at              # where the batch begins in the table's bytes
    int64_t size
    int32_t leader_epoch
    int32_t record_count
    int16_t attributes
    int8_t magic
    bint intact
    bint kept               # set by compaction.keep_plain
    bint telling            # set by BatchTable.telling

cdef class BatchTable:
    cdef Row* rows
    cdef Py_ssize_t capacity
    cdef Py_ssize_t count
    cdef const uint8_t[::1] data
    cdef object bytes
    cdef readonly int64_t start
    cdef readonly int64_t end
    cdef readonly int64_t needed
    cdef readonly object damage
    cdef int make_room(self) except -1
    cdef int verify_rows(self) except -1
    cdef bint is_confirmed(self, Py_ssize_t i) noexcept nogil
