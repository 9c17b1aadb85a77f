# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads lines of web servers' access logs.

The patterns are `common-log` and `combined-log` of `plan/patterns.py`. In printable ASCII each of their tokens ends at
the first byte that cannot belong to it, so a line is read once, from left to right. Lines with other bytes, and those
that do not match, are left to Spark.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from barnabas.pipelines.direct.values cimport Room, Value

cdef enum:
    GROUPS_MAX = 11

GROUPS = (
    "remote_addr", "ident", "remote_user", "time", "method", "path", "protocol", "status", "body_bytes_sent",
    "referer", "user_agent",
)
"""The parts of a line, in order; `common-log` ends with body_bytes_sent."""


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


cdef inline bint until(const uint8_t* p, Py_ssize_t* at, Py_ssize_t n, uint8_t stop, Span* span) noexcept nogil:
    """Find at least one byte before `stop`, and move `at` behind `stop`; False if there is none."""
    cdef const uint8_t* end = <const uint8_t*> memchr(p + at[0], stop, n - at[0])
    if end == NULL or end == p + at[0]:
        return False
    span.start = p + at[0]
    span.length = end - span.start
    at[0] = end - p + 1
    return True


cdef inline bint expect(const uint8_t* p, Py_ssize_t* at, Py_ssize_t n, const char* text, Py_ssize_t count) noexcept nogil:
    if n - at[0] < count or memcmp(p + at[0], text, count) != 0:
        return False
    at[0] += count
    return True


cdef bint quoted(const uint8_t* p, Py_ssize_t* at, Py_ssize_t n, Span* span) noexcept nogil:
    """Find the text before the next unescaped quote; null if it is empty or a dash. False without a quote."""
    cdef Py_ssize_t start = at[0]
    cdef Py_ssize_t i = start
    while i < n and p[i] != c'"':
        i += 2 if p[i] == c'\\' else 1
    if i >= n:
        return False
    span.start = p + start
    span.length = i - start
    if i == start or (i == start + 1 and p[start] == c'-'):
        span.length = -1
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


cdef class LineReader:
    """Reads lines of the format `combined-log`, or else `common-log`, into a value for each of their groups."""

    def __init__(self, bint combined):
        self.combined = combined

    @property
    def fields(self):
        """How many values it reads."""
        return GROUPS_MAX if self.combined else GROUPS_MAX - 2

    cdef bint read(self, const uint8_t* p, Py_ssize_t n, Value* values, Room* room) noexcept:
        """Read a line into `values`; False if it is left to Spark."""
        cdef Span groups[GROUPS_MAX]
        cdef Py_ssize_t i
        if n == 0 or not take_apart(p, n, self.combined, groups):
            return False
        for i in range(GROUPS_MAX if self.combined else GROUPS_MAX - 2):
            values[i].there = groups[i].length >= 0
            values[i].start, values[i].length = groups[i].start, groups[i].length
        return True
