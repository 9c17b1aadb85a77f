# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Encodes records that are lines of a file, without a Python object for a record.

A `RecordBlock` is the part of a batch behind its header, not compressed yet. Lines are appended by the thousand from the bytes
of a file; each may have a header that says where it begins. Records of other shapes are appended one by one.

Source: Kafka's message format, "Record".
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy


cdef enum:
    VARINT_BYTES_MAX = 10
    DIGITS_MAX = 20


cdef inline int varint_bytes(int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    cdef int count = 1
    while raw >= 0x80:
        raw >>= 7
        count += 1
    return count


cdef inline uint8_t* write_varint(uint8_t* p, int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)
    while raw >= 0x80:
        p[0] = <uint8_t> (raw | 0x80)
        p += 1
        raw >>= 7
    p[0] = <uint8_t> raw
    return p + 1


cdef inline uint8_t* write_bytes(uint8_t* p, const uint8_t* source, Py_ssize_t length) noexcept nogil:
    memcpy(p, source, length)
    return p + length


cdef inline int digits_of(uint64_t value, uint8_t* end) noexcept nogil:
    """Write the decimal digits of `value` before `end`; how many there are."""
    cdef int count = 0
    while True:
        count += 1
        end[-count] = <uint8_t> (48 + value % 10)
        value //= 10
        if not value:
            return count


def encode_headers(headers):
    """Pairs of a name and bytes as a record has them, without their count."""
    out = bytearray()
    cdef uint8_t number[VARINT_BYTES_MAX]
    for name, value in headers:
        for part in (name.encode(), bytes(value)):
            out += number[: write_varint(number, len(part)) - number]
            out += part
    return bytes(out)


cdef uint8_t[256] MORE      # by byte: how many more bytes it takes in a text of JSON
cdef uint8_t[256] SHORT     # by byte: the letter behind the backslash, or 0
for _code in range(32):
    MORE[_code] = 5
for _code, _letter in ((8, b"b"), (9, b"t"), (10, b"n"), (12, b"f"), (13, b"r"), (34, b'"'), (92, b"\\")):
    MORE[_code], SHORT[_code] = 1, _letter[0]


cdef inline Py_ssize_t json_bytes(const uint8_t* text, Py_ssize_t length) noexcept nogil:
    """How many bytes a text takes in JSON, without its quotation marks."""
    cdef Py_ssize_t at, more = 0
    for at in range(length):
        more += MORE[text[at]]
    return length + more


cdef inline uint8_t* write_json(uint8_t* p, const uint8_t* text, Py_ssize_t length, Py_ssize_t json_length) noexcept nogil:
    """Write a text as JSON has it, as Python's json does with ensure_ascii=False."""
    cdef Py_ssize_t at
    cdef uint8_t code
    if json_length == length:
        return write_bytes(p, text, length)
    for at in range(length):
        code = text[at]
        if not MORE[code]:
            p[0] = code
            p += 1
        elif SHORT[code]:
            p[0], p[1] = 92, SHORT[code]
            p += 2
        else:
            p[0], p[1], p[2], p[3] = 92, 117, 48, 48
            p[4], p[5] = 48 + (code >> 4), 48 + (code & 15) if code & 15 < 10 else 87 + (code & 15)
            p += 6
    return p


cdef class Frame:
    """Makes JSON of a line: `start`, the line as a text, `middle`, where it begins in its file, `end`. A carriage return at its
    end is left out. Lines must be UTF-8."""

    cdef bytes start
    cdef bytes middle
    cdef bytes end

    def __init__(self, bytes start not None, bytes middle not None, bytes end not None):
        self.start, self.middle, self.end = start + b'"', b'"' + middle, end


cdef bytes END_NAME = b"\x06end"     # with its length as a varint


cdef class Stamp:
    """What the records of one file have in common: their key and their headers.

    first, last: headers (see `encode_headers`) before and after the one that says where the line begins; count: how many
    these are together. name: of that header; empty if records have none. before: its value up to the position.
    """

    cdef bytes key
    cdef bytes first
    cdef bytes last
    cdef bytes name
    cdef bytes before
    cdef int count

    def __init__(self, key, bytes first, bytes last, int count, str name="", bytes before=b""):
        cdef uint8_t number[VARINT_BYTES_MAX]
        encoded = name.encode()
        self.key, self.first, self.last, self.before = key, first, last, before
        self.name = number[: write_varint(number, len(encoded)) - number] + encoded if name else b""
        self.count = count + (1 if name else 0)

    cdef bytes headers(self, int64_t position, int64_t end):
        """The headers of a record that begins here; with one that says where it ends, unless that is negative."""
        cdef uint8_t digits[DIGITS_MAX]
        cdef uint8_t number[VARINT_BYTES_MAX]
        cdef int count
        line = self.first
        if self.name:
            count = digits_of(<uint64_t> position, digits + DIGITS_MAX)
            size = number[: write_varint(number, len(self.before) + count) - number]
            line += self.name + size + self.before + (digits + DIGITS_MAX - count)[:count]
        line += self.last
        if end >= 0:
            count = digits_of(<uint64_t> end, digits + DIGITS_MAX)
            line += END_NAME + number[: write_varint(number, count) - number] + (digits + DIGITS_MAX - count)[:count]
        return line


cdef class RecordBlock:
    """Records for one batch. records: how many. Times are in milliseconds since 1970.

    base_timestamp, max_timestamp: of the records. size_bytes: of the encoded records.
    """

    cdef uint8_t* data
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t size_bytes
    cdef readonly int records
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp

    def __dealloc__(self):
        free(self.data)

    cdef int reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t wanted = self.size_bytes + more
        cdef void* moved
        if wanted > self.capacity:
            wanted = max(wanted, self.capacity * 2, 4096)
            moved = realloc(self.data, wanted)
            if moved == NULL:
                raise MemoryError
            self.data, self.capacity = <uint8_t*> moved, wanted
        return 0

    cdef int64_t timestamp_delta(self, int64_t now_ms) noexcept:
        if not self.records:
            self.base_timestamp = self.max_timestamp = now_ms
        if now_ms > self.max_timestamp:
            self.max_timestamp = now_ms
        return now_ms - self.base_timestamp

    def add_lines(
        self, const uint8_t[::1] lines not None, Py_ssize_t at, int64_t position, Stamp stamp not None,
        int64_t now_ms, Py_ssize_t size_bytes_max, Frame frame=None,
    ):
        """Append lines from index `at` on, each ended by a newline, as long as the block has at most `size_bytes_max`.

        position: where the line at `at` begins in its file. frame: what is made of each; None: a record is the line itself. The last line needs no newline. The first record of a block is
        added whatever its size. Returns the index behind the last line that was added, and how many were added.
        """
        cdef Py_ssize_t end = lines.shape[0]
        cdef const uint8_t* base
        cdef const uint8_t* stop
        cdef const uint8_t* key = NULL
        cdef Py_ssize_t key_bytes = -1
        cdef Py_ssize_t first_bytes = PyBytes_GET_SIZE(stamp.first)
        cdef Py_ssize_t last_bytes = PyBytes_GET_SIZE(stamp.last)
        cdef Py_ssize_t name_bytes = PyBytes_GET_SIZE(stamp.name)
        cdef Py_ssize_t before_bytes = PyBytes_GET_SIZE(stamp.before)
        cdef const uint8_t* first = <const uint8_t*> PyBytes_AS_STRING(stamp.first)
        cdef const uint8_t* last = <const uint8_t*> PyBytes_AS_STRING(stamp.last)
        cdef const uint8_t* name = <const uint8_t*> PyBytes_AS_STRING(stamp.name)
        cdef const uint8_t* before = <const uint8_t*> PyBytes_AS_STRING(stamp.before)
        cdef Py_ssize_t fixed, line_bytes, body, begun = at
        cdef Py_ssize_t text_bytes = 0, json_length = 0, value_bytes = 0, around = 0
        cdef uint8_t digits[DIGITS_MAX]
        cdef int digit_count = 0
        cdef int added = 0
        cdef int64_t delta
        cdef uint8_t* p
        if at >= end:
            return at, 0
        if stamp.key is not None:
            key, key_bytes = <const uint8_t*> PyBytes_AS_STRING(stamp.key), PyBytes_GET_SIZE(stamp.key)
        base = &lines[0]
        delta = self.timestamp_delta(now_ms)
        fixed = 1 + varint_bytes(delta) + varint_bytes(key_bytes) + max(key_bytes, 0)
        fixed += varint_bytes(stamp.count) + first_bytes + name_bytes + last_bytes
        if frame is not None:
            around = PyBytes_GET_SIZE(frame.start) + PyBytes_GET_SIZE(frame.middle) + PyBytes_GET_SIZE(frame.end)
        while at < end:
            stop = <const uint8_t*> memchr(base + at, 10, end - at)
            line_bytes = (stop - base if stop != NULL else end) - at
            if name_bytes or frame is not None:
                digit_count = digits_of(<uint64_t> (position + at - begun), digits + DIGITS_MAX)
            value_bytes = line_bytes
            if frame is not None:
                text_bytes = line_bytes - (line_bytes > 0 and base[at + line_bytes - 1] == 13)
                json_length = json_bytes(base + at, text_bytes)
                value_bytes = around + json_length + digit_count
            body = fixed + varint_bytes(self.records) + varint_bytes(value_bytes) + value_bytes
            if name_bytes:
                body += varint_bytes(before_bytes + digit_count) + before_bytes + digit_count
            if self.records and self.size_bytes + body + varint_bytes(body) > size_bytes_max:
                break
            self.reserve(body + VARINT_BYTES_MAX)
            p = write_varint(self.data + self.size_bytes, body)
            p[0] = 0
            p = write_varint(write_varint(p + 1, delta), self.records)
            p = write_varint(p, key_bytes)
            if key_bytes > 0:
                p = write_bytes(p, key, key_bytes)
            p = write_varint(p, value_bytes)
            if frame is None:
                p = write_bytes(p, base + at, line_bytes)
            else:
                p = write_bytes(p, <const uint8_t*> PyBytes_AS_STRING(frame.start), PyBytes_GET_SIZE(frame.start))
                p = write_json(p, base + at, text_bytes, json_length)
                p = write_bytes(p, <const uint8_t*> PyBytes_AS_STRING(frame.middle), PyBytes_GET_SIZE(frame.middle))
                p = write_bytes(p, digits + DIGITS_MAX - digit_count, digit_count)
                p = write_bytes(p, <const uint8_t*> PyBytes_AS_STRING(frame.end), PyBytes_GET_SIZE(frame.end))
            p = write_bytes(write_varint(p, stamp.count), first, first_bytes)
            if name_bytes:
                p = write_varint(write_bytes(p, name, name_bytes), before_bytes + digit_count)
                p = write_bytes(p, before, before_bytes)
                p = write_bytes(p, digits + DIGITS_MAX - digit_count, digit_count)
            p = write_bytes(p, last, last_bytes)
            self.size_bytes = p - self.data
            self.records += 1
            added += 1
            at += line_bytes + 1
        return min(at, end), added

    def add(self, bytes value not None, key, bytes headers not None, int count, int64_t now_ms, Py_ssize_t size_bytes_max):
        """Append one record; False if the block would have more than `size_bytes_max`. headers: `count` encoded ones.

        The first record of a block is added whatever its size.
        """
        cdef Py_ssize_t key_bytes = -1 if key is None else len(key)
        cdef Py_ssize_t value_bytes = len(value)
        cdef Py_ssize_t headers_bytes = len(headers)
        cdef int64_t delta = self.timestamp_delta(now_ms)
        cdef Py_ssize_t body
        cdef uint8_t* p
        body = 1 + varint_bytes(delta) + varint_bytes(self.records) + varint_bytes(key_bytes) + max(key_bytes, 0)
        body += varint_bytes(value_bytes) + value_bytes + varint_bytes(count) + headers_bytes
        if self.records and self.size_bytes + body + varint_bytes(body) > size_bytes_max:
            return False
        self.reserve(body + VARINT_BYTES_MAX)
        p = write_varint(self.data + self.size_bytes, body)
        p[0] = 0
        p = write_varint(write_varint(p + 1, delta), self.records)
        p = write_varint(p, key_bytes)
        if key_bytes > 0:
            p = write_bytes(p, <const uint8_t*> PyBytes_AS_STRING(key), key_bytes)
        p = write_bytes(write_varint(p, value_bytes), <const uint8_t*> PyBytes_AS_STRING(value), value_bytes)
        p = write_bytes(write_varint(p, count), <const uint8_t*> PyBytes_AS_STRING(headers), headers_bytes)
        self.size_bytes = p - self.data
        self.records += 1
        return True

    def add_stamped(
        self, bytes value not None, key, Stamp stamp not None, int64_t position, int64_t end, int64_t now_ms,
        Py_ssize_t size_bytes_max,
    ):
        """As `add`, with the headers of a stamp, and with one that is called `end` if `end` is not negative."""
        return self.add(
            value, key, stamp.headers(position, end), stamp.count + (1 if end >= 0 else 0), now_ms, size_bytes_max
        )

    def release(self):
        """Free the encoded records, which were packed; their size and count stay."""
        free(self.data)
        self.data, self.capacity = NULL, 0

    def encoded(self):
        """The encoded records."""
        return self.data[: self.size_bytes] if self.data != NULL else b""
