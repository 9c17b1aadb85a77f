# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Encodes the buffers of Arrow columns as Avro records, without a Python object for a record or a value.

The reverse of avro_columns. A row that does not match the schema (null where a value is required, a number that is too
large, a text that is not a symbol of the enum) is left out and reported, so that the slow way can find out what is wrong.
The arrays to which columns are bound come from pyarrow, which has checked their offsets; a reference keeps them alive.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

cpdef enum Put:
    CONSTANT
    BOOLEAN
    INT
    LONG
    TIME
    FLOAT
    DOUBLE
    BYTES
    FIXED
    ENUM
    DECIMAL
    FIXED_DECIMAL
    RECORD
    ARRAY
    MAP

cdef enum:
    OFFSET_MAX = 0x7FFFFFFF
    HEAD_SIZE = 5


cdef class Output:
    """A buffer that grows."""
    cdef char* data
    cdef Py_ssize_t size, room

    def __dealloc__(self):
        free(self.data)

    cdef int reserve(self, Py_ssize_t count) except -1:
        """Make room for `count` more bytes."""
        cdef Py_ssize_t wanted = self.size + count
        cdef char* grown
        if wanted > self.room:
            grown = <char*>realloc(self.data, wanted * 2 + 4096)
            if grown == NULL:
                raise MemoryError()
            self.data = grown
            self.room = wanted * 2 + 4096
        return 0

    cdef inline int put_varint(self, int64_t value) except -1:
        cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
        self.reserve(10)
        while raw >= 0x80:
            self.data[self.size] = <char>(raw & 0x7F | 0x80)
            self.size += 1
            raw >>= 7
        self.data[self.size] = <char>raw
        self.size += 1
        return 0

    cdef inline int put(self, const void* data, Py_ssize_t count) except -1:
        self.reserve(count)
        memcpy(self.data + self.size, data, <size_t>count)
        self.size += count
        return 0


cdef class Source:
    """One column with the columns inside it. kind: how its values are written. branch: the index of values in a union, -1
    without a union. null_branch: the index of null, -1 if null is not allowed. width: size of a number in its column, in
    bytes. divisor: for times. size: of a fixed. symbols: of an enum, in UTF-8. constant: the bytes for every row."""
    cdef public int kind, branch, null_branch, width, divisor
    cdef public Py_ssize_t size
    cdef public list children, symbols
    cdef public bytes constant
    cdef const uint8_t* valid
    cdef const uint8_t* values
    cdef const int32_t* offsets
    cdef Py_ssize_t first
    cdef object kept_alive

    def __init__(
        self, int kind, *, int width=0, int divisor=1, Py_ssize_t size=0, children=(), symbols=(), bytes constant=b""
    ):
        self.kind = kind
        self.branch = self.null_branch = -1
        self.width, self.divisor, self.size = width, divisor, size
        self.children, self.symbols, self.constant = list(children), list(symbols), constant

    def bind(self, array):
        """Take the rows of this array from now on; None releases the last one."""
        self.valid = self.values = NULL
        self.offsets = NULL
        self.kept_alive = array
        if array is None:
            return
        buffers = array.buffers()
        self.first = array.offset
        if buffers[0] is not None and array.null_count:
            self.valid = <const uint8_t*><size_t>buffers[0].address
        if self.kind in (BYTES, FIXED, ENUM):
            self.offsets = <const int32_t*><size_t>buffers[1].address if buffers[1] is not None else NULL
            self.values = <const uint8_t*><size_t>buffers[2].address if buffers[2] is not None else NULL
        elif self.kind in (ARRAY, MAP):
            self.offsets = <const int32_t*><size_t>buffers[1].address if buffers[1] is not None else NULL
        elif self.kind not in (RECORD, CONSTANT) and buffers[1] is not None:
            self.values = <const uint8_t*><size_t>buffers[1].address

    cdef bint put(self, Py_ssize_t row, Output out) except? 0:
        """Write the value of a row; False if it does not match the schema."""
        cdef Py_ssize_t at = self.first + row
        cdef Py_ssize_t begin, end
        cdef int64_t number
        cdef float small
        cdef double large
        cdef Source child
        if self.kind == CONSTANT:
            out.put(PyBytes_AS_STRING(self.constant), PyBytes_GET_SIZE(self.constant))
            return True
        if self.valid != NULL and not (self.valid[at >> 3] >> (at & 7)) & 1:
            if self.null_branch < 0:
                return False
            out.put_varint(self.null_branch)
            return True
        if self.branch >= 0:
            out.put_varint(self.branch)
        if self.kind == BYTES:
            begin, end = self.offsets[at], self.offsets[at + 1]
            out.put_varint(end - begin)
            out.put(self.values + begin, end - begin)
            return True
        if self.kind == LONG or self.kind == INT:
            number = self.number(at)
            if self.kind == INT and not -0x80000000LL <= number <= 0x7FFFFFFFLL:
                return False
            out.put_varint(number)
            return True
        if self.kind == TIME:
            number = (<const int64_t*>self.values)[at]
            # Round down, also before 1970.
            out.put_varint(number // self.divisor - (1 if number % self.divisor < 0 else 0))
            return True
        if self.kind == DOUBLE:
            large = self.real(at)
            out.put(&large, 8)
            return True
        if self.kind == FLOAT:
            small = <float>self.real(at)
            out.put(&small, 4)
            return True
        if self.kind == BOOLEAN:
            out.reserve(1)
            out.data[out.size] = (self.values[at >> 3] >> (at & 7)) & 1
            out.size += 1
            return True
        if self.kind == RECORD:
            for child in self.children:
                if not child.put(row, out):
                    return False
            return True
        if self.kind == ARRAY or self.kind == MAP:
            return self.put_items(at, out)
        if self.kind == ENUM:
            return self.put_symbol(at, out)
        if self.kind == FIXED:
            begin, end = self.offsets[at], self.offsets[at + 1]
            if end - begin != self.size:
                return False
            out.put(self.values + begin, self.size)
            return True
        return self.put_decimal(at, out)

    cdef inline int64_t number(self, Py_ssize_t at) noexcept:
        if self.width == 8:
            return (<const int64_t*>self.values)[at]
        if self.width == 4:
            return (<const int32_t*>self.values)[at]
        return (<const int16_t*>self.values)[at] if self.width == 2 else (<const int8_t*>self.values)[at]

    cdef inline double real(self, Py_ssize_t at) noexcept:
        return (<const double*>self.values)[at] if self.width == 8 else <double>(<const float*>self.values)[at]

    cdef bint put_items(self, Py_ssize_t at, Output out) except? 0:
        """Write an array or a map as one block."""
        cdef Py_ssize_t item
        cdef Py_ssize_t begin = self.offsets[at]
        cdef Py_ssize_t end = self.offsets[at + 1]
        cdef Source first = self.children[0]
        cdef Source second = self.children[1] if self.kind == MAP else None
        if end > begin:
            out.put_varint(end - begin)
            for item in range(begin, end):
                if not first.put(item, out):
                    return False
                if second is not None and not second.put(item, out):
                    return False
        out.put_varint(0)
        return True

    cdef bint put_symbol(self, Py_ssize_t at, Output out) except? 0:
        cdef Py_ssize_t begin = self.offsets[at]
        cdef Py_ssize_t size = self.offsets[at + 1] - begin
        cdef Py_ssize_t index
        cdef bytes symbol
        for index in range(len(self.symbols)):
            symbol = self.symbols[index]
            if PyBytes_GET_SIZE(symbol) == size and memcmp(PyBytes_AS_STRING(symbol), self.values + begin, size) == 0:
                out.put_varint(index)
                return True
        return False

    cdef bint put_decimal(self, Py_ssize_t at, Output out) except? 0:
        """Write a little-endian number of 16 bytes with as few bytes as possible, or with those of a fixed."""
        cdef const uint8_t* decimal = self.values + 16 * at
        cdef uint8_t sign = 0xFF if decimal[15] & 0x80 else 0
        cdef Py_ssize_t used = 16
        cdef Py_ssize_t index
        while used > 1 and decimal[used - 1] == sign and (decimal[used - 2] & 0x80) == (sign & 0x80):
            used -= 1
        cdef Py_ssize_t wanted = used if self.kind == DECIMAL else self.size
        if wanted < used:
            return False
        if self.kind == DECIMAL:
            out.put_varint(wanted)
        out.reserve(wanted)
        memset(out.data + out.size, sign, <size_t>(wanted - used))
        for index in range(used):
            out.data[out.size + wanted - 1 - index] = <char>decimal[index]
        out.size += wanted
        return True


def write(Source root, Py_ssize_t rows, uint32_t id):
    """Encode `rows` rows. Returns the offsets of the records as 32-bit numbers, their bytes, and the numbers of the rows
    that do not match the schema, which have no bytes. Raises OverflowError for more than 2 GB."""
    cdef Output out = Output()
    cdef Py_ssize_t row, begin
    cdef uint8_t head[HEAD_SIZE]
    head[0] = 0
    for row in range(4):
        head[row + 1] = <uint8_t>(id >> (24 - 8 * row))
    places = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4)
    cdef int32_t* ends = <int32_t*>PyBytes_AS_STRING(places)
    ends[0] = 0
    failed = []
    for row in range(rows):
        begin = out.size
        out.put(head, HEAD_SIZE)
        if not root.put(row, out):
            out.size = begin
            failed.append(row)
        if out.size > OFFSET_MAX:
            raise OverflowError()
        ends[row + 1] = <int32_t>out.size
    return places, PyBytes_FromStringAndSize(out.data, out.size), failed
