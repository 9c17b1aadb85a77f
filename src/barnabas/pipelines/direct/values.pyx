# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Values of one record while a program works on it, and the Arrow columns that they are written to.

Text is written as Spark writes it: numbers as Java does, times in UTC with three or six digits of a second. What is read
here is only what is beyond doubt; whoever gets False leaves the record to Spark.
"""

from cpython.mem cimport PyMem_Free
from libc.math cimport fabs, isfinite, signbit
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from barnabas.records.columnar cimport OK, Buffer, put, put_i32, reserve

cdef extern from "Python.h":
    char* PyOS_double_to_string(double value, char code, int precision, int flags, int* kind)

cdef enum:
    DIGITS_SURE = 15       # with so many digits, a decimal and a double name each other
    POWERS = 23

cdef double POWER_OF_TEN[POWERS]
cdef int _n
POWER_OF_TEN[0] = 1.0
for _n in range(1, POWERS):
    POWER_OF_TEN[_n] = POWER_OF_TEN[_n - 1] * 10.0

cdef int64_t SECOND = 1_000_000
cdef int64_t DAY = 86_400 * SECOND


# --- reading text ---------------------------------------------------------------------------------------


cdef int text_class(const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """0 if the bytes are not UTF-8, 1 if they are all ASCII, 2 for other text."""
    cdef Py_ssize_t i = 0
    cdef uint8_t high = 0
    cdef uint8_t c
    for i in range(n):
        high |= p[i]
    if not high & 0x80:
        return 1
    i = 0
    while i < n:
        c = p[i]
        if c < 0x80:
            i += 1
        elif 0xC2 <= c <= 0xDF:
            if i + 1 >= n or p[i + 1] & 0xC0 != 0x80:
                return 0
            i += 2
        elif 0xE0 <= c <= 0xEF:
            if i + 2 >= n or p[i + 1] & 0xC0 != 0x80 or p[i + 2] & 0xC0 != 0x80:
                return 0
            if (c == 0xE0 and p[i + 1] < 0xA0) or (c == 0xED and p[i + 1] > 0x9F):
                return 0
            i += 3
        elif 0xF0 <= c <= 0xF4:
            if i + 3 >= n or p[i + 1] & 0xC0 != 0x80 or p[i + 2] & 0xC0 != 0x80 or p[i + 3] & 0xC0 != 0x80:
                return 0
            if (c == 0xF0 and p[i + 1] < 0x90) or (c == 0xF4 and p[i + 1] > 0x8F):
                return 0
            i += 4
        else:
            return 0
    return 2


cdef bint whole_of(const uint8_t* p, Py_ssize_t n, Py_ssize_t digits_max, int64_t* out) noexcept nogil:
    """Read digits, with or without a minus before them; False for anything else, for more than `digits_max`, and for -0."""
    cdef bint minus = n > 0 and p[0] == c'-'
    cdef Py_ssize_t i = 1 if minus else 0
    cdef int64_t value = 0
    if n - i < 1 or n - i > digits_max or digits_max > 18:
        return False
    for i in range(i, n):
        if not is_digit(p[i]):
            return False
        value = value * 10 + (p[i] - c'0')
    if minus and value == 0:
        return False
    out[0] = -value if minus else value
    return True


cdef bint real_of(const uint8_t* p, Py_ssize_t n, double* out) noexcept nogil:
    """Read digits, with or without a point between them; False for anything else and for more than 15 digits."""
    cdef bint minus = n > 0 and p[0] == c'-'
    cdef Py_ssize_t i = 1 if minus else 0
    cdef int64_t value = 0
    cdef int digits = 0, fraction = -1
    cdef double real
    if i >= n or not is_digit(p[i]) or not is_digit(p[n - 1]):
        return False
    for i in range(i, n):
        if p[i] == c'.' and fraction < 0:
            fraction = 0
            continue
        if not is_digit(p[i]):
            return False
        value = value * 10 + (p[i] - c'0')
        digits += 1
        if fraction >= 0:
            fraction += 1
        if digits > DIGITS_SURE:
            return False
    if minus and value == 0:
        return False
    real = <double> value
    if fraction > 0:
        real /= POWER_OF_TEN[fraction]
    out[0] = -real if minus else real
    return True


cdef inline int two(const uint8_t* p) noexcept nogil:
    """The value of two digits; -1 for other characters."""
    if not (is_digit(p[0]) and is_digit(p[1])):
        return -1
    return (p[0] - c'0') * 10 + p[1] - c'0'


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


cdef bint moment(
    int year, int month, int day, int hour, int minute, int second, int64_t* micros
) noexcept nogil:
    """Microseconds since 1970; False for what is no time, or not between 1900 and 2999."""
    cdef int64_t shifted, days
    if year < 1900 or year > 2999 or month < 1 or month > 12 or day < 1 or day > month_days(year, month):
        return False
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return False
    # Days since 0000-03-01, so that a leap day is the last one of a year.
    shifted = year if month > 2 else year - 1
    days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400
    days += (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    micros[0] = (days - 719_468) * DAY + (hour * 3600 + minute * 60 + second) * SECOND
    return True


cdef bint time_of_log(const uint8_t* p, Py_ssize_t n, int64_t* micros) noexcept nogil:
    """Read `17/May/2015:10:05:03 +0200` (dd/MMM/yyyy:HH:mm:ss Z)."""
    cdef int zone_hours, zone_minutes
    cdef int64_t zone
    if n != 26 or p[2] != c'/' or p[6] != c'/' or p[11] != c':' or p[14] != c':' or p[17] != c':':
        return False
    if p[20] != c' ' or (p[21] != c'+' and p[21] != c'-') or two(p + 7) < 0 or two(p + 9) < 0:
        return False
    zone_hours, zone_minutes = two(p + 22), two(p + 24)
    if zone_hours < 0 or zone_hours > 17 or zone_minutes < 0 or zone_minutes > 59:
        return False
    if p[21] == c'-' and zone_hours == 0 and zone_minutes == 0:
        return False
    if not moment(
        two(p + 7) * 100 + two(p + 9), month_of(p + 3), two(p), two(p + 12), two(p + 15), two(p + 18), micros
    ):
        return False
    zone = (zone_hours * 3600 + zone_minutes * 60) * SECOND
    micros[0] += zone if p[21] == c'-' else -zone
    return True


cdef bint time_of_iso(const uint8_t* p, Py_ssize_t n, int64_t* micros) noexcept nogil:
    """Read `2015-05-17T08:05:03Z`, with or without up to six digits after a point."""
    cdef int64_t fraction = 0
    cdef Py_ssize_t i
    if n < 20 or n > 27 or p[4] != c'-' or p[7] != c'-' or p[10] != c'T' or p[13] != c':' or p[16] != c':':
        return False
    if p[n - 1] != c'Z' or n == 21 or (n > 20 and p[19] != c'.') or two(p) < 0 or two(p + 2) < 0:
        return False
    for i in range(20, 26):
        fraction *= 10
        if i < n - 1:
            if not is_digit(p[i]):
                return False
            fraction += p[i] - c'0'
    if not moment(
        two(p) * 100 + two(p + 2), two(p + 5), two(p + 8), two(p + 11), two(p + 14), two(p + 17), micros
    ):
        return False
    micros[0] += fraction
    return True


# --- writing text ---------------------------------------------------------------------------------------


cdef Py_ssize_t write_whole(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint8_t digits[24]
    cdef int i = 24
    cdef uint64_t left = <uint64_t> value if value >= 0 else 0 - <uint64_t> value
    while True:
        i -= 1
        digits[i] = c'0' + <uint8_t> (left % 10)
        left //= 10
        if left == 0:
            break
    if value < 0:
        i -= 1
        digits[i] = c'-'
    memcpy(out, digits + i, 24 - i)
    return 24 - i


cdef inline void put_digits(uint8_t* p, int64_t value, int count) noexcept nogil:
    cdef int i
    for i in range(count - 1, -1, -1):
        p[i] = c'0' + <uint8_t> (value % 10)
        value //= 10


cdef Py_ssize_t write_time(uint8_t* out, int64_t micros) noexcept nogil:
    """`2015-05-17T08:05:03.000Z`; with six digits of a second if three are not exact. Years have four digits."""
    cdef int64_t days = micros // DAY
    cdef int64_t rest = micros % DAY
    cdef int64_t era, of_era, year, of_year, shifted
    if rest < 0:
        days -= 1
        rest += DAY
    days += 719_468
    era = days // 146_097
    of_era = days % 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    year += era * 400 + (1 if shifted >= 10 else 0)
    memcpy(out, b"0000-00-00T00:00:00.", 20)
    put_digits(out, year, 4)
    put_digits(out + 5, shifted + 3 if shifted < 10 else shifted - 9, 2)
    put_digits(out + 8, of_year - (153 * shifted + 2) // 5 + 1, 2)
    put_digits(out + 11, rest // (3600 * SECOND), 2)
    put_digits(out + 14, rest // (60 * SECOND) % 60, 2)
    put_digits(out + 17, rest // SECOND % 60, 2)
    rest %= SECOND
    if rest % 1000 == 0:
        put_digits(out + 20, rest // 1000, 3)
        out[23] = c'Z'
        return 24
    put_digits(out + 20, rest, 6)
    out[26] = c'Z'
    return 27


cdef Py_ssize_t place_digits(uint8_t* out, bint minus, const uint8_t* digits, int count, int point) noexcept nogil:
    """Write 0.d1 d2 ... x 10^point as Java writes a double. digits: without zeros at either end."""
    cdef Py_ssize_t n = 0
    cdef int i
    cdef int power = point - 1
    if minus:
        out[0] = c'-'
        n = 1
    if -3 <= power < 7:
        if point <= 0:
            memcpy(out + n, b"0.000", 2 - point)
            n += 2 - point
            memcpy(out + n, digits, count)
            return n + count
        for i in range(max(count, point + 1)):
            if i == point:
                out[n] = c'.'
                n += 1
            out[n] = digits[i] if i < count else <uint8_t> c'0'
            n += 1
        return n
    out[n] = digits[0]
    out[n + 1] = c'.'
    n += 2
    if count == 1:
        out[n] = c'0'
        n += 1
    else:
        memcpy(out + n, digits + 1, count - 1)
        n += count - 1
    out[n] = c'E'
    return n + 1 + write_whole(out + n + 1, power)


cdef Py_ssize_t write_real(uint8_t* out, double value) noexcept:
    """A double as Java writes it, or 0 if that is not certain: Java before 19 does not always find the shortest text of
    very large and very small ones."""
    cdef double size = fabs(value)
    cdef uint8_t digits[32]
    cdef double scaled
    cdef int64_t mantissa
    cdef int places, count, point
    cdef char* text
    cdef char* at
    if not isfinite(value) or (value == 0 and signbit(value)):
        return 0
    if value == 0:
        memcpy(out, b"0.0", 3)
        return 3
    if size < 1e-3 or size >= 1e15:
        return 0
    # Most are decimals with few places: if it has 15 digits at most, it is the only such text of this double.
    for places in range(0, 7):
        scaled = size * POWER_OF_TEN[places]
        mantissa = <int64_t> (scaled + 0.5)
        if <double> mantissa / POWER_OF_TEN[places] == size and mantissa < 1_000_000_000_000_000:
            count = <int> write_whole(digits, mantissa)
            point = count - places
            while count > 1 and digits[count - 1] == c'0':
                count -= 1
            return place_digits(out, value < 0, digits, count, point)
    if size >= 1e7:
        return 0
    text = PyOS_double_to_string(size, c'r', 0, 0, NULL)
    if text == NULL:
        return 0
    count, point = 0, 0
    at = text
    places = -1  # digits before the point, once it is found
    while at[0] != 0 and count < 30:
        if at[0] == c'.':
            places = count
        elif not is_digit(at[0]):
            PyMem_Free(text)
            return 0
        elif count or at[0] != c'0':
            digits[count] = at[0]
            count += 1
        elif places >= 0:
            point -= 1
        at += 1
    if places > 0:
        point = places
    PyMem_Free(text)
    while count > 1 and digits[count - 1] == c'0':
        count -= 1
    return place_digits(out, value < 0, digits, count, point)


cdef Py_ssize_t write_text(uint8_t* out, const Value* value, int kind) noexcept:
    """A value that is not TEXT and not null, as text of at most TEXT_BYTES_MAX bytes; 0 if that is not certain."""
    if kind == INT or kind == LONG:
        return write_whole(out, value.whole)
    if kind == DOUBLE:
        return write_real(out, value.real)
    if kind == BOOLEAN:
        if value.whole:
            memcpy(out, b"true", 4)
            return 4
        memcpy(out, b"false", 5)
        return 5
    if kind == TIME:
        return write_time(out, value.whole)
    return 0


cdef void put_escaped(Buffer buffer, const uint8_t* p, Py_ssize_t n) noexcept nogil:
    """Append text as the inside of a JSON string. The caller has reserved room for six times its size."""
    cdef uint8_t* out = buffer.data + buffer.size
    cdef uint8_t special = 0
    cdef Py_ssize_t i
    cdef uint8_t c
    cdef const char* hexadecimal = b"0123456789ABCDEF"
    for i in range(n):
        special |= <uint8_t> (p[i] == c'"') | <uint8_t> (p[i] == c'\\') | <uint8_t> (p[i] < 0x20)
    if not special:
        put(buffer, p, n)
        return
    for i in range(n):
        c = p[i]
        if c == c'"' or c == c'\\' or c < 0x20:
            out[0] = c'\\'
            out += 1
            if c == 8:
                c = c'b'
            elif c == 9:
                c = c't'
            elif c == 10:
                c = c'n'
            elif c == 12:
                c = c'f'
            elif c == 13:
                c = c'r'
            elif c < 0x20:
                memcpy(out, b"u00", 3)
                out[3] = hexadecimal[c >> 4]
                out += 4
                c = hexadecimal[c & 15]
        out[0] = c
        out += 1
    buffer.size = out - buffer.data


# --- columns --------------------------------------------------------------------------------------------


cdef class Column:
    """An Arrow binary column to which rows are appended."""

    def __cinit__(self, Py_ssize_t rows_max):
        self.offsets, self.data, self.bits = Buffer(), Buffer(), Buffer()
        if reserve(self.bits, rows_max // 8 + 1) != OK or reserve(self.offsets, 4 * (rows_max + 1)) != OK:
            raise MemoryError
        put_i32(self.offsets, 0)

    @property
    def validity(self):
        """The validity bitmap, or None if no value is null."""
        return self.bits if self.null_count else None

    cdef int mark(self, bint there) except -1:
        """Finish a row, one of `rows_max` for which room was reserved, until it is kept or unwound. Raises OverflowError
        for more than 2 GB."""
        cdef Py_ssize_t byte = self.rows >> 3
        if self.data.size > INT32_MAX:
            raise OverflowError
        if byte == self.bits.size:
            self.bits.data[byte] = 0
            self.bits.size += 1
        if there:
            self.bits.data[byte] |= <uint8_t> (1 << (self.rows & 7))
        else:
            self.bits.data[byte] &= <uint8_t> ~(1 << (self.rows & 7))
            self.null_count += 1
        put_i32(self.offsets, <int32_t> self.data.size)
        self.rows += 1
        return 0

    cdef void keep(self) noexcept:
        """Keep the rows so far."""
        self.kept_rows, self.kept_nulls, self.kept_bytes = self.rows, self.null_count, self.data.size

    cdef void unwind(self) noexcept:
        """Remove the rows, and what was written of the next one, since `keep`."""
        self.rows, self.null_count, self.data.size = self.kept_rows, self.kept_nulls, self.kept_bytes
        self.offsets.size = 4 * (self.rows + 1)
