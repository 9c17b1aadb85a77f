# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a step of a program does with the values of one record, if none of them is null.

The functions return 1, or 0 where the result is not certain to be Spark's: the record is then left to Spark.
"""

from libc.math cimport floor, isfinite, signbit
from libc.stdint cimport INT32_MAX, INT32_MIN, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from barnabas.pipelines.direct.values cimport (
    DOUBLE, INT, LONG, TEXT, TEXT_BYTES_MAX, Room, Value, real_of, time_of_iso, time_of_log, whole_of, write_text,
)

cdef extern from *:
    bint add_overflows "__builtin_add_overflow"(int64_t a, int64_t b, int64_t* result) nogil
    bint sub_overflows "__builtin_sub_overflow"(int64_t a, int64_t b, int64_t* result) nogil
    bint mul_overflows "__builtin_mul_overflow"(int64_t a, int64_t b, int64_t* result) nogil


cdef int logic(int op, Value* a, Value* b, Value* out) noexcept:
    """AND and OR of true, false and null."""
    cdef bint decisive = op == OR
    if (a.there and (a.whole != 0) == decisive) or (b.there and (b.whole != 0) == decisive):
        out.whole, out.there = decisive, True
    else:
        out.whole, out.there = not decisive, a.there and b.there
    return 1


cdef inline int sign(int64_t value) noexcept:
    return (value > 0) - (value < 0)


cdef int order(int kind, Value* a, Value* b) noexcept:
    cdef int difference
    if kind == DOUBLE:
        return (a.real > b.real) - (a.real < b.real)
    if kind != TEXT:
        return (a.whole > b.whole) - (a.whole < b.whole)
    difference = memcmp(a.start, b.start, min(a.length, b.length))
    return sign(difference) if difference else sign(a.length - b.length)


cdef bint is_like(const uint8_t* p, Py_ssize_t n, const uint8_t* pattern, Py_ssize_t m) noexcept:
    """Whether text is like a pattern in which only % has a meaning."""
    cdef Py_ssize_t i = 0, j = 0, star = -1, back = 0
    while i < n:
        if j < m and pattern[j] == c'%':
            star, back = j, i
            j += 1
        elif j < m and pattern[j] == p[i]:
            i += 1
            j += 1
        elif star >= 0:
            j, back = star + 1, back + 1
            i = back
        else:
            return False
    while j < m and pattern[j] == c'%':
        j += 1
    return j == m


cdef bint contains(const uint8_t* p, Py_ssize_t n, const uint8_t* part, Py_ssize_t m) noexcept:
    cdef Py_ssize_t i
    for i in range(n - m + 1):
        if memcmp(p + i, part, m) == 0:
            return True
    return False


cdef int compared(int op, int kind, Value* a, Value* b, Value* out) noexcept:
    if op == NOT:
        out.whole = not a.whole
    elif op == COPY:
        out[0] = a[0]
    elif op == EQUAL:
        out.whole = order(kind, a, b) == 0
    elif op == LESS:
        out.whole = order(kind, a, b) < 0
    elif op == LIKE:
        out.whole = is_like(a.start, a.length, b.start, b.length)
    elif op == STARTS:
        out.whole = a.length >= b.length and memcmp(a.start, b.start, b.length) == 0
    elif op == ENDS:
        out.whole = a.length >= b.length and memcmp(a.start + a.length - b.length, b.start, b.length) == 0
    else:
        out.whole = contains(a.start, a.length, b.start, b.length)
    return 1


cdef int computed(int op, int kind, Value* a, Value* b, Value* out) noexcept:
    cdef double real
    if kind == DOUBLE:
        if op == DIVIDE and b.real == 0:
            return 0
        real = (
            a.real + b.real if op == ADD else a.real - b.real if op == SUBTRACT
            else a.real * b.real if op == MULTIPLY else a.real / b.real
        )
        out.real = real
        return op != REMAINDER and isfinite(real) and not (real == 0 and signbit(real))
    if op == REMAINDER:
        if b.whole == 0 or b.whole == -1:
            return 0
        out.whole = a.whole % b.whole
    elif (
        add_overflows(a.whole, b.whole, &out.whole) if op == ADD else sub_overflows(a.whole, b.whole, &out.whole)
        if op == SUBTRACT else mul_overflows(a.whole, b.whole, &out.whole)
    ):
        return 0
    return kind == LONG or INT32_MIN <= out.whole <= INT32_MAX


cdef int converted(int op, int kind, Value* a, Value* out, Room* room) noexcept:
    """What is made of one value. kind: of the result, of TO_TEXT that of the argument."""
    cdef Py_ssize_t i, n
    cdef const uint8_t* p = a.start
    if op == WHOLE_TO_REAL:
        out.real = <double> a.whole
        return 1
    if op == REAL_TO_WHOLE:
        if a.real != floor(a.real) or not -2e9 < a.real < 2e9:
            return 0
        out.whole = <int64_t> a.real
        return 1
    if op == TEXT_TO_WHOLE:
        return whole_of(p, a.length, 9 if kind == INT else 18, &out.whole)
    if op == TEXT_TO_REAL:
        return real_of(p, a.length, &out.real)
    if op == TEXT_TO_BOOLEAN:
        out.whole = a.length == 4
        return (a.length == 4 and memcmp(p, b"true", 4) == 0) or (a.length == 5 and memcmp(p, b"false", 5) == 0)
    if op == TEXT_TO_TIME:
        return time_of_iso(p, a.length, &out.whole)
    if op == LINE_TIME:
        return time_of_log(p, a.length, &out.whole)
    if op == LENGTH:
        n = 0
        for i in range(a.length):
            n += p[i] & 0xC0 != 0x80
        out.whole = n
        return 1
    if op == PLAIN:
        if memchr(p, c'\\', a.length) != NULL:
            return 0
        out.start, out.length = p, a.length
        return 1
    if op == TO_TEXT:
        if room.end - room.at < TEXT_BYTES_MAX:
            return 0
        n = write_text(room.at, a, kind)
        out.start, out.length = room.at, n
        room.at += n
        return n > 0
    if op == TRIM:
        n = a.length
        while n and p[n - 1] == c' ':
            n -= 1
        while n and p[0] == c' ':
            p += 1
            n -= 1
        out.start, out.length = p, n
        return 1
    # UPPER and LOWER of ASCII.
    if room.end - room.at < a.length:
        return 0
    for i in range(a.length):
        if p[i] & 0x80:
            return 0
        room.at[i] = p[i]
        if op == UPPER and c'a' <= p[i] <= c'z' or op == LOWER and c'A' <= p[i] <= c'Z':
            room.at[i] ^= 0x20
    out.start, out.length = room.at, a.length
    room.at += a.length
    return 1
