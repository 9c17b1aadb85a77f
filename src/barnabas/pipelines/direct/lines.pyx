# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Makes the records of outputs directly from lines of web servers' access logs, without a Python object for a line.

`Maker.make` checks each line of a column. If it is certain about a line, it makes the key, the value and the headers'
values of every output, with the same bytes as Spark's expressions. It skips the lines that it is not certain about:
those that do not match, with unusual numbers or times, or with a byte that is not printable ASCII. They are left to
Spark's expressions.

The patterns are `common-log` and `combined-log` of `steps/regex.py`. In printable ASCII each of their tokens ends at
the first byte that cannot belong to it, so a line is read once, from left to right.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from barnabas.records.columnar cimport OK, Buffer, put, put_i32, reserve

cpdef enum Kind:
    TEXT
    INT
    LONG
    TIME
    BARE

# BARE is text without a backslash, which `unescape` does not change.

cpdef enum Shape:
    CONSTANT
    FIELD
    JOINED
    OBJECT

cdef enum:
    GROUPS_MAX = 11
    FIELDS_MAX = 64
    ISO_BYTES = 24

GROUPS = (
    "remote_addr", "ident", "remote_user", "time", "method", "path", "protocol", "status", "body_bytes_sent",
    "referer", "user_agent",
)
"""The parts of a line, in order; `common-log` ends with body_bytes_sent."""
FIELDS = FIELDS_MAX


cdef struct Span:
    const uint8_t* start
    Py_ssize_t length  # -1: null


# --- reading a line -------------------------------------------------------------------------------------


cdef inline bint digit(uint8_t c) noexcept nogil:
    return c >= c'0' and c <= c'9'


cdef bint printable(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint8_t bad = 0
    for i in range(n):
        bad |= <uint8_t> (<uint8_t> (p[i] - 0x20) > 0x5E)
    return not bad


cdef inline bint until(const uint8_t* p, Py_ssize_t* at, Py_ssize_t n, uint8_t stop, Span* found) noexcept nogil:
    """Find at least one byte before `stop`, and move `at` behind `stop`; False if there is none."""
    cdef const uint8_t* end = <const uint8_t*> memchr(p + at[0], stop, n - at[0])
    if end == NULL or end == p + at[0]:
        return False
    found.start = p + at[0]
    found.length = end - found.start
    at[0] = end - p + 1
    return True


cdef inline bint expect(const uint8_t* p, Py_ssize_t* at, Py_ssize_t n, const char* text, Py_ssize_t count) noexcept nogil:
    if n - at[0] < count or memcmp(p + at[0], text, count) != 0:
        return False
    at[0] += count
    return True


cdef bint quoted(const uint8_t* p, Py_ssize_t* at, Py_ssize_t n, Span* found) noexcept nogil:
    """Find the text before the next unescaped quote; null if it is empty or a dash. False without a quote."""
    cdef Py_ssize_t start = at[0]
    cdef Py_ssize_t i = start
    while i < n and p[i] != c'"':
        i += 2 if p[i] == c'\\' else 1
    if i >= n:
        return False
    found.start = p + start
    found.length = i - start
    if i == start or (i == start + 1 and p[start] == c'-'):
        found.length = -1
    at[0] = i + 1
    return True


cdef bint request(const uint8_t* p, Py_ssize_t* at, Py_ssize_t n, Span* groups) noexcept nogil:
    """Read `GET /path HTTP/1.1" 200 1234`: method, path, protocol, status and bytes. False if it does not match."""
    cdef Py_ssize_t i, start
    if not until(p, at, n, c' ', &groups[4]) or not until(p, at, n, c' ', &groups[5]):
        return False
    for i in range(groups[4].length):
        if groups[4].start[i] < c'A' or groups[4].start[i] > c'Z':
            return False
    start = at[0]
    if not expect(p, at, n, b"HTTP/", 5):
        return False
    i = at[0]
    while i < n and (digit(p[i]) or p[i] == c'.'):
        i += 1
    if i == at[0]:
        return False
    groups[6].start = p + start
    groups[6].length = i - start
    at[0] = i
    if not expect(p, at, n, b'" ', 2):
        return False
    i = at[0]
    if n - i < 5 or not (digit(p[i]) and digit(p[i + 1]) and digit(p[i + 2])) or p[i + 3] != c' ':
        return False
    groups[7].start = p + i
    groups[7].length = 3
    i += 4
    start = i
    while i < n and digit(p[i]):
        i += 1
    groups[8].start = p + start
    groups[8].length = i - start
    if i == start:
        groups[8].length = -1
        if i == n or p[i] != c'-':
            return False
        i += 1
    at[0] = i
    return True


cdef bint take_apart(const uint8_t* p, Py_ssize_t n, bint combined, Span* groups) noexcept nogil:
    """Split a line into its groups; False if it does not match."""
    cdef Py_ssize_t at = 0
    if not printable(p, n):
        return False
    if not (until(p, &at, n, c' ', &groups[0]) and until(p, &at, n, c' ', &groups[1])):
        return False
    if not until(p, &at, n, c' ', &groups[2]) or not expect(p, &at, n, b"[", 1):
        return False
    if not until(p, &at, n, c']', &groups[3]) or not expect(p, &at, n, b' "', 2):
        return False
    if not request(p, &at, n, groups):
        return False
    if combined:
        if not expect(p, &at, n, b' "', 2) or not quoted(p, &at, n, &groups[9]):
            return False
        if not expect(p, &at, n, b' "', 2) or not quoted(p, &at, n, &groups[10]):
            return False
    while at < n:
        if p[at] != c' ':
            return False
        at += 1
    return True


# --- numbers and times ----------------------------------------------------------------------------------


cdef bint number(Span* value, Py_ssize_t digits_max) noexcept nogil:
    """Remove leading zeros; False if there are other characters than digits, or more than `digits_max`."""
    cdef Py_ssize_t i
    if value.length < 1 or value.length > digits_max:
        return False
    for i in range(value.length):
        if not digit(value.start[i]):
            return False
    while value.length > 1 and value.start[0] == c'0':
        value.start += 1
        value.length -= 1
    return True


cdef inline int two(const uint8_t* p) noexcept nogil:
    """The value of two digits; -1 for other characters."""
    if not (digit(p[0]) and digit(p[1])):
        return -1
    return (p[0] - c'0') * 10 + p[1] - c'0'


cdef inline void put_two(uint8_t* p, int value) noexcept nogil:
    p[0] = c'0' + value // 10
    p[1] = c'0' + value % 10


cdef int month_of(const uint8_t* p) noexcept nogil:
    """1 to 12 for the English abbreviation of a month; 0 for other text."""
    cdef const char* names = b"JanFebMarAprMayJunJulAugSepOctNovDec"
    cdef int month
    for month in range(12):
        if memcmp(p, names + 3 * month, 3) == 0:
            return month + 1
    return 0


cdef int month_days(int year, int month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


cdef bint time_of(Span* value, uint8_t* iso) noexcept nogil:
    """Convert `17/May/2015:10:05:03 +0200` (dd/MMM/yyyy:HH:mm:ss Z) to `2015-05-17T08:05:03.000Z`, or return False."""
    cdef const uint8_t* p = value.start
    cdef int day, month, year, hour, minute, second, zone_hours, zone_minutes, minutes
    if value.length != 26 or p[2] != c'/' or p[6] != c'/' or p[11] != c':' or p[14] != c':' or p[17] != c':':
        return False
    if p[20] != c' ' or (p[21] != c'+' and p[21] != c'-'):
        return False
    day, month, hour, minute, second = two(p), month_of(p + 3), two(p + 12), two(p + 15), two(p + 18)
    zone_hours, zone_minutes = two(p + 22), two(p + 24)
    if two(p + 7) < 0 or two(p + 9) < 0:
        return False
    year = two(p + 7) * 100 + two(p + 9)
    if year < 1900 or year > 2999 or month == 0 or day < 1 or day > month_days(year, month):
        return False
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return False
    if zone_hours < 0 or zone_hours > 17 or zone_minutes < 0 or zone_minutes > 59:
        return False
    if p[21] == c'-' and zone_hours == 0 and zone_minutes == 0:
        return False
    minutes = zone_hours * 60 + zone_minutes
    minutes = hour * 60 + minute + (minutes if p[21] == c'-' else -minutes)
    if minutes < 0:
        minutes += 1440
        day -= 1
        if day == 0:
            month -= 1
            if month == 0:
                month, year = 12, year - 1
            day = month_days(year, month)
    elif minutes >= 1440:
        minutes -= 1440
        day += 1
        if day > month_days(year, month):
            day, month = 1, month + 1
            if month == 13:
                month, year = 1, year + 1
    memcpy(iso, b"0000-00-00T00:00:00.000Z", ISO_BYTES)
    put_two(iso, year // 100)
    put_two(iso + 2, year % 100)
    put_two(iso + 5, month)
    put_two(iso + 8, day)
    put_two(iso + 11, minutes // 60)
    put_two(iso + 14, minutes % 60)
    put_two(iso + 17, second)
    value.start = iso
    value.length = ISO_BYTES
    return True


# --- writing --------------------------------------------------------------------------------------------


cdef class Column:
    """An Arrow binary column to which rows are appended."""
    cdef readonly Buffer offsets, data
    cdef Buffer bits
    cdef readonly Py_ssize_t rows, null_count

    def __cinit__(self, Py_ssize_t rows_max):
        self.offsets, self.data, self.bits = Buffer(), Buffer(), Buffer()
        if reserve(self.offsets, 4 * (rows_max + 1)) != OK or reserve(self.bits, rows_max // 8 + 1) != OK:
            raise MemoryError
        put_i32(self.offsets, 0)

    @property
    def validity(self):
        """The validity bitmap, or None if no value is null."""
        return self.bits if self.null_count else None

    cdef int end_row(self, bint there) except -1:
        """Finish a row, one of `rows_max` for which room was reserved. Raises OverflowError for more than 2 GB."""
        cdef Py_ssize_t byte = self.rows >> 3
        if self.data.size > INT32_MAX:
            raise OverflowError
        if byte == self.bits.size:
            self.bits.data[byte] = 0
            self.bits.size += 1
        if there:
            self.bits.data[byte] |= <uint8_t> (1 << (self.rows & 7))
        else:
            self.null_count += 1
        put_i32(self.offsets, <int32_t> self.data.size)
        self.rows += 1
        return 0


cdef void put_escaped(Buffer buffer, const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """Append text as the inside of a JSON string. The caller has reserved room for twice its size."""
    cdef uint8_t* out = buffer.data + buffer.size
    cdef uint8_t special = 0
    cdef Py_ssize_t i
    for i in range(n):
        special |= <uint8_t> (p[i] == c'"') | <uint8_t> (p[i] == c'\\')
    if not special:
        put(buffer, p, n)
        return
    for i in range(n):
        if p[i] == c'"' or p[i] == c'\\':
            out[0] = c'\\'
            out += 1
        out[0] = p[i]
        out += 1
    buffer.size = out - buffer.data


cdef class Template:
    """How a value is made of the fields. texts: for an OBJECT, what is before each field and at the end; for JOINED,
    the separator; for a CONSTANT, its text."""
    cdef int shape
    cdef list texts
    cdef Py_ssize_t count, room
    cdef int fields[FIELDS_MAX]
    cdef const uint8_t* starts[FIELDS_MAX + 1]
    cdef Py_ssize_t sizes[FIELDS_MAX + 1]

    def __init__(self, int shape, list fields, list texts):
        cdef Py_ssize_t i
        cdef bytes text
        if len(fields) > FIELDS_MAX or len(texts) != (len(fields) + 1 if shape == OBJECT else shape != FIELD):
            raise ValueError(f"template of {len(fields)} fields and {len(texts)} texts")
        if not 0 <= shape <= <int> OBJECT or (shape == CONSTANT and fields) or (shape == FIELD and len(fields) != 1):
            raise ValueError(f"template of shape {shape} and {len(fields)} fields")
        self.shape = shape
        self.texts = texts  # keeps alive what `starts` points to
        self.count = len(fields)
        self.room = 16
        for i in range(self.count):
            self.fields[i] = fields[i]
        for i in range(len(texts)):
            text = texts[i]
            self.starts[i] = <const uint8_t*> <const char*> text
            self.sizes[i] = len(text)
            self.room += len(text) * (max(self.count, 1) if shape == JOINED else 1)

    cdef inline void text(self, Buffer out, Py_ssize_t i) noexcept:
        put(out, self.starts[i], self.sizes[i])

    cdef bint within(self, int count) noexcept:
        """Whether its fields are all among the first `count`."""
        cdef Py_ssize_t i
        for i in range(self.count):
            if not 0 <= self.fields[i] < count:
                return False
        return True

    cdef int write(self, Column column, Span* values, int* kinds) except -1:
        cdef Buffer out = column.data
        cdef Span* value
        cdef Py_ssize_t i, room = self.room
        cdef bint begun = False
        for i in range(self.count):
            room += 2 * max(values[self.fields[i]].length, 0) + 8
        if reserve(out, room) != OK:
            raise MemoryError
        if self.shape == FIELD:
            value = &values[self.fields[0]]
            if value.length >= 0:
                put(out, value.start, value.length)
            return column.end_row(value.length >= 0)
        if self.shape == CONSTANT:
            self.text(out, 0)
        for i in range(self.count):
            value = &values[self.fields[i]]
            if self.shape == JOINED:
                if value.length >= 0:
                    if begun:
                        self.text(out, 0)
                    begun = True
                    put(out, value.start, value.length)
                continue
            self.text(out, i)
            if value.length < 0:
                put(out, b"null", 4)
            elif kinds[self.fields[i]] == INT or kinds[self.fields[i]] == LONG:
                put(out, value.start, value.length)
            else:
                put(out, b'"', 1)
                put_escaped(out, value.start, value.length)
                put(out, b'"', 1)
        if self.shape == OBJECT:
            self.text(out, self.count)
        return column.end_row(True)


cdef class Maker:
    """Makes columns of lines. fields: group and Kind of each value that is made of a line. templates: what is made of
    the values, with a column's number; those with the same number alternate in one column, like headers' values."""
    cdef bint combined
    cdef int count
    cdef int groups[FIELDS_MAX]
    cdef int kinds[FIELDS_MAX]
    cdef list templates, places
    cdef int columns

    def __init__(self, bint combined, list fields, list templates):
        """templates: (column, Template) pairs, by column. Raises ValueError for an unknown field, group or kind."""
        cdef Py_ssize_t i
        cdef Template template
        if len(fields) > FIELDS_MAX:
            raise ValueError(f"{len(fields)} fields")
        self.combined = combined
        self.count = <int> len(fields)
        for i in range(self.count):
            self.groups[i], self.kinds[i] = fields[i]
            if not 0 <= self.groups[i] < (GROUPS_MAX if combined else GROUPS_MAX - 2):
                raise ValueError(f"group {self.groups[i]}")
            if not 0 <= self.kinds[i] <= <int> BARE:  # enums compare without signs
                raise ValueError(f"kind {self.kinds[i]}")
        self.places = [int(place) for place, _ in templates]
        self.templates = [<Template?> template for _, template in templates]
        if self.places and min(self.places) < 0:
            raise ValueError(f"column {min(self.places)}")
        for template in self.templates:
            if not template.within(self.count):
                raise ValueError("a template of fields that are not made")
        self.columns = max(self.places) + 1 if templates else 0

    def make(
        self, Py_ssize_t rows, const int32_t[::1] offsets, const uint8_t[::1] data, Py_ssize_t first,
        const uint8_t[::1] wanted,
    ):
        """Which rows it is certain about (a byte for each, 1 or 0), and their columns. wanted: 0 for rows to skip.

        Raises ValueError for offsets outside of the data.
        """
        if first < 0 or rows < 0 or first > offsets.shape[0] or rows >= offsets.shape[0] - first or wanted.shape[0] < rows:
            raise ValueError("offsets are missing")
        cdef bytearray certain = bytearray(rows)
        cdef unsigned char* sure = certain
        cdef Span groups[GROUPS_MAX]
        cdef Span values[FIELDS_MAX]
        cdef uint8_t times[FIELDS_MAX * ISO_BYTES]
        cdef Py_ssize_t row, a, b, i
        cdef Template template
        cdef list columns = [Column(rows * self.places.count(place)) for place in range(self.columns)]
        for row in range(rows):
            a, b = offsets[first + row], offsets[first + row + 1]
            if a < 0 or b < a or b > data.shape[0]:
                raise ValueError("an offset is wrong")
            if not wanted[row] or a == b or not take_apart(&data[a], b - a, self.combined, groups):
                continue
            if not self.converted(groups, values, times):
                continue
            sure[row] = 1
            for i in range(len(self.templates)):
                template = self.templates[i]
                template.write(columns[self.places[i]], values, self.kinds)
        return certain, columns

    cdef bint converted(self, Span* groups, Span* values, uint8_t* times) noexcept:
        cdef int i, kind
        for i in range(self.count):
            values[i] = groups[self.groups[i]]
            kind = self.kinds[i]
            if kind == TEXT or values[i].length < 0:
                continue
            if kind == BARE:
                if memchr(values[i].start, c'\\', values[i].length) != NULL:
                    return False
            elif kind == TIME:
                if not time_of(&values[i], times + i * ISO_BYTES):
                    return False
            elif not number(&values[i], 9 if kind == INT else 18):
                return False
        return True
