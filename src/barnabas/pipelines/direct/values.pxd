"""Values of one record while a program works on it, and the Arrow columns that they are written to."""

from libc.stdint cimport int64_t, uint8_t

from barnabas.records.columnar cimport Buffer

cpdef enum SlotType:
    TEXT
    INT
    LONG
    DOUBLE
    BOOLEAN
    TIME

# TIME counts microseconds since 1970, in UTC. BOOLEAN is 0 or 1.

cdef struct Value:
    bint there            # false: null
    const uint8_t* start  # of TEXT, in UTF-8
    Py_ssize_t length
    int64_t whole         # of INT, LONG, BOOLEAN, TIME
    double real           # of DOUBLE


cdef struct Room:
    # Memory for texts that are made of one record.
    uint8_t* at
    uint8_t* end


cdef enum:
    TEXT_BYTES_MAX = 40  # of a value that is not TEXT

cdef class Column:
    cdef readonly Buffer offsets, data
    cdef Buffer bits
    cdef readonly Py_ssize_t rows, null_count
    cdef Py_ssize_t kept_rows, kept_nulls, kept_bytes
    cdef int mark(self, bint there) except -1
    cdef void keep(self) noexcept
    cdef void unwind(self) noexcept


cdef inline bint is_digit(uint8_t c) noexcept nogil:
    return c >= c'0' and c <= c'9'


cdef int text_class(const uint8_t* p, Py_ssize_t n) noexcept nogil
cdef Py_ssize_t write_text(uint8_t* out, const Value* value, int kind) noexcept
cdef void put_escaped(Buffer buffer, const uint8_t* p, Py_ssize_t n) noexcept nogil
cdef bint whole_of(const uint8_t* p, Py_ssize_t n, Py_ssize_t digits_max, int64_t* out) noexcept nogil
cdef bint real_of(const uint8_t* p, Py_ssize_t n, double* out) noexcept nogil
cdef bint time_of_iso(const uint8_t* p, Py_ssize_t n, int64_t* micros) noexcept nogil
cdef bint time_of_log(const uint8_t* p, Py_ssize_t n, int64_t* micros) noexcept nogil
