# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Decodes Avro records into the buffers of Arrow columns, without a Python object for a record or a value.

Only for records written with exactly the schema whose columns are filled, which are nearly all of them; other versions go
through fastavro's schema resolution. Nobody has checked what a producer wrote: every length is compared with the record's
end, and `fill` gives up at anything that does not fit, so that the slow way can find out what is wrong.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from barnabas.records.varint cimport read_varint

cpdef enum ColumnType:
    NOTHING
    BOOLEAN
    INT
    LONG
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
    DEPTH_MAX = 64
    OFFSET_MAX = 0x7FFFFFFF
    ITEMS_MAX = 1 << 24


cdef class Buffer:
    """A buffer that grows."""
    cdef char* data
    cdef Py_ssize_t size, room

    def __dealloc__(self):
        free(self.data)

    cdef char* more(self, Py_ssize_t count) except NULL:
        """Append `count` uninitialized bytes; returns where they begin."""
        cdef Py_ssize_t wanted = self.size + count
        cdef char* grown
        if self.data == NULL or wanted > self.room:
            grown = <char*>realloc(self.data, wanted * 2 + 64)
            if grown == NULL:
                raise MemoryError()
            self.data = grown
            self.room = wanted * 2 + 64
        grown = self.data + self.size
        self.size = wanted
        return grown

    cdef bytes taken(self):
        return PyBytes_FromStringAndSize(self.data, self.size)


cdef class Column:
    """One column with the columns inside it. kind: the type of the values. null_branch: the index of null in a union of two
    branches, -1 without a union. size: of a fixed. symbols: of an enum, in UTF-8."""
    cdef public int kind, null_branch
    cdef public Py_ssize_t size
    cdef public list children, symbols
    cdef Buffer values, offsets, valid
    cdef readonly Py_ssize_t rows, nulls

    def __init__(self, int kind, *, Py_ssize_t size=0, children=(), symbols=()):
        self.kind = kind
        self.null_branch = -1
        self.size = size
        self.children = list(children)
        self.symbols = list(symbols)
        self.clear()

    def clear(self):
        """Remove all rows, also from the columns inside."""
        cdef Column child
        self.values, self.offsets, self.valid = Buffer(), Buffer(), Buffer()
        self.rows = self.nulls = 0
        if self.kind in (NOTHING, BYTES, ENUM, ARRAY, MAP):
            (<int32_t*>self.offsets.more(4))[0] = 0
        for child in self.children:
            child.clear()

    def buffers(self):
        """(validity as a bitmap or None, offsets or None, values or None), in Arrow's layout."""
        validity = bitmap(self.valid) if self.nulls else None
        offsets = self.offsets.taken() if self.offsets.size else None
        if self.kind == BOOLEAN:
            return validity, offsets, bitmap(self.values)
        return validity, offsets, None if self.kind in (RECORD, ARRAY, MAP) else self.values.taken()

    cdef int put_null(self) except -1:
        cdef Column child
        self.valid.more(1)[0] = 0
        self.rows += 1
        self.nulls += 1
        if self.kind == RECORD:
            for child in self.children:
                child.put_null()
        elif self.offsets.size:
            self.put_offset()
        else:
            memset(self.values.more(self.width()), 0, self.width())
        return 0

    cdef Py_ssize_t width(self) noexcept:
        if self.kind == BOOLEAN:
            return 1
        if self.kind == INT or self.kind == FLOAT:
            return 4
        return 16 if self.kind in (DECIMAL, FIXED_DECIMAL) else self.size if self.kind == FIXED else 8

    cdef int put_offset(self) except -1:
        """Append the end of the present row to the offsets."""
        cdef Py_ssize_t end = (<Column>self.children[0]).rows if self.kind in (ARRAY, MAP) else self.values.size
        if end > OFFSET_MAX:
            raise OverflowError()
        (<int32_t*>self.offsets.more(4))[0] = <int32_t>end
        return 0

    cdef bint take(self, const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, int depth) except? 0:
        """Decode the value at `at`, and move `at` behind it; False if it does not fit."""
        cdef int64_t number
        cdef Column child
        cdef bytes symbol
        if depth > DEPTH_MAX:
            return False
        if self.null_branch >= 0:
            if not read_varint(data, at, end, &number) or number < 0 or number > 1:
                return False
            if number == self.null_branch:
                self.put_null()
                return True
        if self.kind == NOTHING:
            self.put_null()
            return True
        self.valid.more(1)[0] = 1
        self.rows += 1
        if self.kind == RECORD:
            for child in self.children:
                if not child.take(data, at, end, depth + 1):
                    return False
            return True
        if self.kind == BYTES:
            if not read_varint(data, at, end, &number) or number < 0 or number > end - at[0]:
                return False
            memcpy(self.values.more(<Py_ssize_t>number), data + at[0], <size_t>number)
            at[0] += <Py_ssize_t>number
            self.put_offset()
            return True
        if self.kind == LONG or self.kind == INT:
            if not read_varint(data, at, end, &number):
                return False
            if self.kind == LONG:
                (<int64_t*>self.values.more(8))[0] = number
            elif -0x80000000LL <= number <= 0x7FFFFFFFLL:
                (<int32_t*>self.values.more(4))[0] = <int32_t>number
            else:
                return False
            return True
        if self.kind == BOOLEAN:
            if end - at[0] < 1 or data[at[0]] > 1:
                return False
            self.values.more(1)[0] = data[at[0]]
            at[0] += 1
            return True
        if self.kind == FLOAT or self.kind == DOUBLE or self.kind == FIXED:
            number = self.width()
            if end - at[0] < number:
                return False
            memcpy(self.values.more(<Py_ssize_t>number), data + at[0], <size_t>number)
            at[0] += <Py_ssize_t>number
            return True
        if self.kind == ENUM:
            if not read_varint(data, at, end, &number) or number < 0 or number >= len(self.symbols):
                return False
            symbol = self.symbols[number]
            memcpy(self.values.more(len(symbol)), PyBytes_AS_STRING(symbol), len(symbol))
            self.put_offset()
            return True
        if self.kind == ARRAY or self.kind == MAP:
            return self.take_items(data, at, end, depth) and self.put_offset() == 0
        number = self.size
        if self.kind == DECIMAL and (not read_varint(data, at, end, &number) or number < 0):
            return False
        if number < 1 or number > 16 or number > end - at[0]:
            return False
        put_decimal(self.values.more(16), data + at[0], <Py_ssize_t>number)
        at[0] += <Py_ssize_t>number
        return True

    cdef bint take_items(self, const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, int depth) except? 0:
        """Decode the blocks of an array or a map."""
        cdef int64_t count, size
        cdef Column first = self.children[0]
        cdef Column second = self.children[1] if self.kind == MAP else None
        while True:
            if not read_varint(data, at, end, &count):
                return False
            if count == 0:
                return True
            if count < 0:  # the block's size in bytes comes next
                if count < -ITEMS_MAX or not read_varint(data, at, end, &size):
                    return False
                count = -count
            # Items may take no bytes (null): then the bytes do not limit their number.
            if count > ITEMS_MAX or first.rows + count > ITEMS_MAX:
                return False
            while count > 0:
                if not first.take(data, at, end, depth + 1):
                    return False
                if second is not None and not second.take(data, at, end, depth + 1):
                    return False
                count -= 1


cdef void put_decimal(char* to, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Write a big-endian number of at most 16 bytes as a little-endian one of 16."""
    cdef Py_ssize_t i
    memset(to, 0xFF if data[0] & 0x80 else 0, 16)
    for i in range(size):
        (<uint8_t*>to)[i] = data[size - 1 - i]


cdef bytes bitmap(Buffer flags):
    """A bitmap with a 1 for each byte that is not 0."""
    cdef Py_ssize_t i
    packed = PyBytes_FromStringAndSize(NULL, (flags.size + 7) // 8)
    cdef char* bits = PyBytes_AS_STRING(packed)
    memset(bits, 0, (flags.size + 7) // 8)
    for i in range(flags.size):
        if flags.data[i]:
            bits[i >> 3] |= <char>(1 << (i & 7))
    return packed


def fill(Column column, const uint8_t[::1] data, const int32_t[::1] offsets, Py_ssize_t first, Py_ssize_t rows, uint32_t id):
    """Decode `rows` records, whose bytes are between the offsets from `first` on. False if one of them does not have the
    schema `id` or does not match it; the column must not be used then."""
    cdef Py_ssize_t at, end, row
    cdef uint8_t head[5]
    head[0] = 0
    for row in range(4):
        head[row + 1] = <uint8_t>(id >> (24 - 8 * row))
    cdef const uint8_t* base = &data[0] if data.shape[0] else NULL
    column.clear()
    for row in range(first, first + rows):
        at, end = offsets[row], offsets[row + 1]
        if end - at < 5 or end > data.shape[0] or memcmp(base + at, head, 5) != 0:
            return False
        at += 5
        if not column.take(base, &at, end, 0) or at != end:
            return False
    return True
