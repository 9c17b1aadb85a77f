from libc.stdint cimport uint8_t

from barnabas.pipelines.direct.values cimport Room, Value

cdef class ObjectReader:
    cdef list names, kinds_
    cdef Py_ssize_t count
    cdef const uint8_t* starts[256]
    cdef Py_ssize_t sizes[256]
    cdef int kinds[256]
    cdef Py_ssize_t expected
    cdef bint read(self, const uint8_t* p, Py_ssize_t n, Value* values, Room* room) noexcept
