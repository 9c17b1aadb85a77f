# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads the declared fields of a JSON object.

A record is left to Spark if it is not one valid object in UTF-8, has a name twice or with an escape in it, half of a
surrogate pair, a control character, a number with an exponent, or a declared field whose value is not plainly of its type:
nested values as text, numbers with more digits than are always kept, times in other forms than ISO 8601 in UTC.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from barnabas.pipelines.direct.values cimport (
    BOOLEAN, DOUBLE, INT, LONG, TEXT, TIME, Room, Value, is_digit, real_of, text_class, time_of_iso, whole_of,
)

cdef enum:
    FIELDS_MAX = 256
    NAMES_MAX = 512   # of all objects that are open at one point
    DEPTH_MAX = 16
    DIGITS_MAX = 18
    TEXT_MAX = 1 << 20

cdef struct Name:
    const uint8_t* start
    Py_ssize_t length

cdef struct Scan:
    const uint8_t* p
    Py_ssize_t n
    Py_ssize_t at
    Name names[NAMES_MAX]
    int count

cdef struct Text:
    const uint8_t* start
    Py_ssize_t length
    bint escaped


cdef inline uint8_t next_byte(Scan* scan) noexcept nogil:
    """Skip blanks; the byte behind them, 0 at the end."""
    cdef uint8_t c
    while scan.at < scan.n:
        c = scan.p[scan.at]
        if c != c' ' and c != c'\n' and c != c'\r' and c != c'\t':
            return c
        scan.at += 1
    return 0


cdef inline int hexadecimal(uint8_t c) noexcept nogil:
    if is_digit(c):
        return c - c'0'
    c |= 0x20
    return c - c'a' + 10 if c'a' <= c <= c'f' else -1


cdef inline bint expect(Scan* scan, const char* word, Py_ssize_t length) noexcept nogil:
    if scan.n - scan.at < length or memcmp(scan.p + scan.at, word, length) != 0:
        return False
    scan.at += length
    return True


cdef bint read_text(Scan* scan, Text* text) noexcept nogil:
    """A string in quotes, which begins at this point."""
    cdef Py_ssize_t i = scan.at + 1
    cdef Py_ssize_t n = scan.n
    cdef const uint8_t* p = scan.p
    text.start = p + i
    text.escaped = False
    while i < n and p[i] != c'"':
        if p[i] < 0x20:
            return False
        if p[i] == c'\\':
            text.escaped = True
            i += 1
        i += 1
    if i >= n:
        return False
    text.length = p + i - text.start
    scan.at = i + 1
    return text.length <= TEXT_MAX and (not text.escaped or unescaped(text, NULL) >= 0)


cdef Py_ssize_t unescaped(const Text* text, uint8_t* out) noexcept nogil:
    """Write a string without its escapes; its size, or -1 if there is an escape that is left to Spark. out: NULL if it is
    only checked."""
    cdef Py_ssize_t i = 0, size = 0, k
    cdef int code, digit
    cdef uint8_t c
    cdef uint8_t utf8[4]
    while i < text.length:
        c = text.start[i]
        i += 1
        if c != c'\\':
            if out != NULL:
                out[size] = c
            size += 1
            continue
        c = text.start[i]
        i += 1
        code = c
        if c == c'b':
            code = 8
        elif c == c'f':
            code = 12
        elif c == c'n':
            code = 10
        elif c == c'r':
            code = 13
        elif c == c't':
            code = 9
        elif c == c'u':
            if text.length - i < 4:
                return -1
            code = 0
            for k in range(4):
                digit = hexadecimal(text.start[i + k])
                if digit < 0:
                    return -1
                code = code * 16 + digit
            i += 4
            if code < 0x20 or 0xD800 <= code <= 0xDFFF:
                return -1
        elif c != c'"' and c != c'\\' and c != c'/':
            return -1
        if code < 0x80:
            utf8[0] = <uint8_t> code
            k = 1
        elif code < 0x800:
            utf8[0] = <uint8_t> (0xC0 | code >> 6)
            utf8[1] = <uint8_t> (0x80 | code & 0x3F)
            k = 2
        else:
            utf8[0] = <uint8_t> (0xE0 | code >> 12)
            utf8[1] = <uint8_t> (0x80 | code >> 6 & 0x3F)
            utf8[2] = <uint8_t> (0x80 | code & 0x3F)
            k = 3
        if out != NULL:
            for digit in range(<int> k):
                out[size + digit] = utf8[digit]
        size += k
    return size


cdef bint read_number(Scan* scan, Text* text) noexcept nogil:
    """A number without an exponent, of at most DIGITS_MAX digits. escaped: whether it has a fraction."""
    cdef const uint8_t* p = scan.p
    cdef Py_ssize_t n = scan.n, i = scan.at, digits = 0
    text.start = p + i
    text.escaped = False
    if p[i] == c'-':
        i += 1
    if i >= n or not is_digit(p[i]):
        return False
    if p[i] == c'0' and i + 1 < n and is_digit(p[i + 1]):
        return False
    while i < n and is_digit(p[i]):
        i += 1
        digits += 1
    if i < n and p[i] == c'.':
        text.escaped = True
        i += 1
        if i >= n or not is_digit(p[i]):
            return False
        while i < n and is_digit(p[i]):
            i += 1
            digits += 1
    if i < n and (p[i] == c'e' or p[i] == c'E'):
        return False
    text.length = p + i - text.start
    scan.at = i
    return digits <= DIGITS_MAX


cdef bint note_name(Scan* scan, int base, const Text* name) noexcept nogil:
    """Remember a name of the object whose names begin at `base`; False if it is there twice, or there are too many."""
    cdef int i
    for i in range(base, scan.count):
        if scan.names[i].length == name.length and memcmp(scan.names[i].start, name.start, name.length) == 0:
            return False
    if scan.count == NAMES_MAX:
        return False
    scan.names[scan.count].start = name.start
    scan.names[scan.count].length = name.length
    scan.count += 1
    return True


cdef bint read_name(Scan* scan, Text* name) noexcept nogil:
    """A name and the colon behind it."""
    if next_byte(scan) != c'"' or not read_text(scan, name) or name.escaped:
        return False
    if next_byte(scan) != c':':
        return False
    scan.at += 1
    return True


cdef bint skip(Scan* scan, int depth) noexcept nogil:
    """Read any value that nobody needs."""
    cdef Text text
    cdef int base = scan.count
    cdef uint8_t c = next_byte(scan)
    if c == c'"':
        return read_text(scan, &text)
    if c == c't':
        return expect(scan, b"true", 4)
    if c == c'f':
        return expect(scan, b"false", 5)
    if c == c'n':
        return expect(scan, b"null", 4)
    if c != c'{' and c != c'[':
        return c != 0 and read_number(scan, &text)
    if depth == DEPTH_MAX:
        return False
    scan.at += 1
    if next_byte(scan) == (c'}' if c == c'{' else c']'):
        scan.at += 1
        return True
    while True:
        if c == c'{' and (not read_name(scan, &text) or not note_name(scan, base, &text)):
            return False
        if not skip(scan, depth + 1):
            return False
        if next_byte(scan) != c',':
            break
        scan.at += 1
    scan.count = base
    if next_byte(scan) != (c'}' if c == c'{' else c']'):
        return False
    scan.at += 1
    return True


cdef bint read_value(Scan* scan, int kind, Value* value, Room* room) noexcept nogil:
    """A value of a declared type, or null."""
    cdef Text text
    cdef Py_ssize_t size
    cdef uint8_t c = next_byte(scan)
    value.there = c != c'n'
    if c == c'n':
        return expect(scan, b"null", 4)
    if c == c'"':
        if kind != TEXT and kind != TIME or not read_text(scan, &text):
            return False
        if text.escaped:
            if room.end - room.at < text.length:
                return False
            size = unescaped(&text, room.at)
            text.start, text.length = room.at, size
            room.at += size
        if kind == TIME:
            return time_of_iso(text.start, text.length, &value.whole)
        value.start, value.length = text.start, text.length
        return True
    if c == c't' or c == c'f':
        value.whole = c == c't'
        value.start, value.length = scan.p + scan.at, 4 if c == c't' else 5
        if kind != BOOLEAN and kind != TEXT:
            return False
        return expect(scan, b"true", 4) if c == c't' else expect(scan, b"false", 5)
    if c == 0 or c == c'{' or c == c'[' or not read_number(scan, &text):
        return False
    if kind == DOUBLE:
        return real_of(text.start, text.length, &value.real)
    if text.escaped:
        return False
    value.start, value.length = text.start, text.length
    if kind == INT:
        return whole_of(text.start, text.length, 9, &value.whole)
    return (kind == LONG or kind == TEXT) and whole_of(text.start, text.length, DIGITS_MAX, &value.whole)


cdef class ObjectReader:
    """Reads objects with these fields. kinds: the SlotType of each."""

    def __init__(self, list names, list kinds):
        cdef Py_ssize_t i
        if len(names) > FIELDS_MAX or len(names) != len(kinds):
            raise ValueError(f"{len(names)} fields and {len(kinds)} kinds")
        self.names = [name.encode() for name in names]
        self.count = len(names)
        for i in range(self.count):
            self.starts[i] = <const uint8_t*> <const char*> <bytes> self.names[i]
            self.sizes[i] = len(self.names[i])
            self.kinds[i] = kinds[i]
            if not 0 <= self.kinds[i] <= <int> TIME:  # enums compare without signs
                raise ValueError(f"kind {kinds[i]}")

    @property
    def fields(self):
        """How many values it reads."""
        return self.count

    cdef bint read(self, const uint8_t* p, Py_ssize_t n, Value* values, Room* room) noexcept:
        """Read an object into `values`, one for each field; False if the record is left to Spark."""
        cdef Scan scan
        cdef Text name
        cdef Py_ssize_t i, k
        cdef bint seen[FIELDS_MAX]
        scan.p, scan.n, scan.at, scan.count = p, n, 0, 0
        if not text_class(p, n):
            return False
        for i in range(self.count):
            values[i].there = False
            seen[i] = False
        if next_byte(&scan) != c'{':
            return False
        scan.at += 1
        if next_byte(&scan) == c'}':
            scan.at += 1
            return next_byte(&scan) == 0 and scan.at == n
        k = 0  # most objects have their fields in the declared order
        while True:
            if not read_name(&scan, &name):
                return False
            for i in range(self.count):
                if k == self.count:
                    k = 0
                if name.length == self.sizes[k] and memcmp(name.start, self.starts[k], name.length) == 0:
                    break
                k += 1
            else:
                i = -1
            if i >= 0:
                if seen[k] or not read_value(&scan, self.kinds[k], &values[k], room):
                    return False
                seen[k] = True
                k += 1
            elif not note_name(&scan, 0, &name) or not skip(&scan, 0):
                return False
            if next_byte(&scan) != c',':
                break
            scan.at += 1
        if next_byte(&scan) != c'}':
            return False
        scan.at += 1
        return next_byte(&scan) == 0 and scan.at == n
