# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads the values of a line of CSV.

A line is left to Spark if it is empty or not UTF-8, has another number of values or a control character, a quote within a value,
blanks at an end of a value in a line with quotes, or a value that is not plainly of its type.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from barnabas.pipelines.direct.values cimport (
    BOOLEAN, DOUBLE, INT, LONG, TEXT, TIME, Room, Value, real_of, text_class, time_of_iso, whole_of,
)

cdef enum:
    FIELDS_MAX = 256


cdef class SeparatedReader:
    """Reads lines with a value of each of these kinds. empty_is_null: whether `""` is null, as a value without text is."""

    def __init__(self, list kinds, bytes separator, bytes quote, bytes escape, bint empty_is_null):
        cdef Py_ssize_t i
        if not 0 < len(kinds) <= FIELDS_MAX or not len(separator) == len(quote) == len(escape) == 1:
            raise ValueError(f"{len(kinds)} values between {separator!r}")
        self.count = len(kinds)
        self.separator, self.quote, self.escape = separator[0], quote[0], escape[0]
        self.empty_is_null = empty_is_null
        for i in range(self.count):
            self.kinds[i] = kinds[i]
            if not 0 <= self.kinds[i] <= <int> TIME:  # enums compare without signs
                raise ValueError(f"kind {kinds[i]}")

    @property
    def fields(self):
        """How many values it reads."""
        return self.count

    cdef bint read(self, const uint8_t* p, Py_ssize_t n, Value* values, Room* room) noexcept:
        """Read a line into `values`; False if it is left to Spark."""
        cdef Py_ssize_t i = 0, start, number
        cdef bint in_quotes
        if n == 0 or not text_class(p, n):
            return False
        for number in range(self.count):
            in_quotes = i < n and p[i] == self.quote
            i += in_quotes
            start = i
            while i < n and p[i] != self.quote and (in_quotes or p[i] != self.separator):
                if (p[i] < 0x20 and p[i] != self.separator) or (p[i] == self.escape and self.escape != self.separator):
                    return False
                i += 1
            if i < n and p[i] == self.quote and not in_quotes or in_quotes and i == n:
                return False
            if not self.take(p + start, i - start, in_quotes, number, &values[number]):
                return False
            i += in_quotes
            if number == self.count - 1:
                return i == n
            if i >= n or p[i] != self.separator:
                return False
            i += 1
        return False

    cdef bint take(self, const uint8_t* p, Py_ssize_t n, bint in_quotes, Py_ssize_t number, Value* value) noexcept:
        cdef int kind = self.kinds[number]
        value.there = n > 0 or (in_quotes and not self.empty_is_null)
        if not value.there:
            return True
        value.start, value.length = p, n
        if kind == TEXT:
            return not in_quotes or n == 0 or (p[0] > 0x20 and p[n - 1] > 0x20)
        if kind == INT or kind == LONG:
            return whole_of(p, n, 9 if kind == INT else 18, &value.whole)
        if kind == DOUBLE:
            return real_of(p, n, &value.real)
        if kind == TIME:
            return time_of_iso(p, n, &value.whole)
        value.whole = n == 4
        return (n == 4 and memcmp(p, b"true", 4) == 0) or (n == 5 and memcmp(p, b"false", 5) == 0)
