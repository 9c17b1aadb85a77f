from libc.stdint cimport uint8_t

from barnabas.pipelines.direct.values cimport Room, Value

cdef class SeparatedReader:
    cdef Py_ssize_t count
    cdef int kinds[256]
    cdef uint8_t separator, quote, escape
    cdef bint empty_is_null
    cdef bint read(self, const uint8_t* p, Py_ssize_t n, Value* values, Room* room) noexcept
    cdef bint take(
        self, const uint8_t* p, Py_ssize_t n, bint in_quotes, Py_ssize_t number, Value* value
    ) noexcept
