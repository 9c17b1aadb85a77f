from libc.stdint cimport uint8_t

from barnabas.pipelines.direct.values cimport Room, Value

cdef class LineReader:
    cdef bint combined
    cdef bint read(self, const uint8_t* p, Py_ssize_t n, Value* values, Room* room) noexcept
