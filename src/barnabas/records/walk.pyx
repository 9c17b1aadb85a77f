# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Answers questions about a batch's records by walking over their bytes, without an object for a record.

`pieces` are what `record_slices` returns: a record may begin in one and end in a later one, and none is kept. `block` is
what `records_block` returns. Nobody has checked what a producer wrote there: every length is compared with the record's end
before it is used, and damage raises CorruptBatch.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memset

from barnabas.records.batch import CorruptBatch
from barnabas.records.varint cimport read_varint
from barnabas.wire.big_endian cimport big32

cdef struct Fields:
    int64_t timestamp_delta
    int64_t offset_delta
    bint has_key


cdef bint skip_bytes(const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, int64_t least) noexcept nogil:
    """Skip a length and the bytes that follow it. least: the smallest length allowed; -1 allows null."""
    cdef int64_t size
    if not read_varint(data, at, end, &size) or size < least or size > end - at[0]:
        return False
    if size > 0:
        at[0] += <Py_ssize_t>size
    return True


cdef bint read_record(const uint8_t* data, Py_ssize_t* at, Py_ssize_t size, Fields* fields) noexcept nogil:
    """Read the record at `at`, and move `at` behind it; False if its fields do not fill its length."""
    cdef int64_t length, key_bytes, headers
    cdef Py_ssize_t end
    if not read_varint(data, at, size, &length) or length < 1 or length > size - at[0]:
        return False
    end = at[0] + <Py_ssize_t>length
    at[0] += 1  # attributes
    if not read_varint(data, at, end, &fields.timestamp_delta):
        return False
    if not read_varint(data, at, end, &fields.offset_delta):
        return False
    if not read_varint(data, at, end, &key_bytes) or key_bytes < -1 or key_bytes > end - at[0]:
        return False
    fields.has_key = key_bytes >= 0
    at[0] += <Py_ssize_t>key_bytes if key_bytes > 0 else 0
    if not skip_bytes(data, at, end, -1) or not read_varint(data, at, end, &headers) or headers < 0:
        return False
    while headers > 0:
        if not skip_bytes(data, at, end, 0) or not skip_bytes(data, at, end, -1):
            return False
        headers -= 1
    return at[0] == end


cdef enum Step:
    LENGTH, ATTRIBUTES, TIMESTAMP, OFFSET, KEY, VALUE, HEADERS, HEADER_NAME, HEADER_VALUE, DONE

cdef struct Walk:
    Step step         # the field that comes next
    int64_t left      # bytes of the record that are neither read nor skipped
    int64_t skip      # bytes of the present field that are to be skipped
    int64_t headers   # headers left
    uint64_t varint   # the beginning of a varint whose end is in the next piece
    int shift
    Fields fields     # of the present record

cdef enum Outcome:
    DAMAGED, MORE, RECORD


cdef Outcome take(Walk* walk, const uint8_t* data, Py_ssize_t* at, Py_ssize_t size) noexcept nogil:
    """Walk to the end of a record (RECORD: its `fields` are known), or of the piece (MORE)."""
    cdef int64_t length
    cdef Py_ssize_t start = at[0]
    if walk.step == LENGTH and walk.shift == 0 and read_varint(data, &start, size, &length):
        if 0 < length <= size - start:  # nearly always: the record lies in this piece
            return RECORD if read_record(data, at, size, &walk.fields) else DAMAGED
    while True:
        if walk.skip:
            length = min(walk.skip, <int64_t>(size - at[0]))
            at[0] += <Py_ssize_t>length
            walk.skip -= length
            if walk.skip:
                return MORE
        if walk.step == DONE:
            walk.step = LENGTH
            return RECORD if walk.left == 0 else DAMAGED
        if at[0] == size:
            return MORE
        if not take_byte(walk, data[at[0]]):
            return DAMAGED
        at[0] += 1


cdef bint take_byte(Walk* walk, uint8_t byte) noexcept nogil:
    cdef int64_t value
    if walk.step != LENGTH:
        walk.left -= 1
        if walk.left < 0:
            return False
    if walk.step == ATTRIBUTES:
        walk.step = TIMESTAMP
        return True
    walk.varint |= (<uint64_t>(byte & 0x7F)) << walk.shift
    walk.shift += 7
    if byte >= 0x80:
        return walk.shift <= 63
    value = <int64_t>((walk.varint >> 1) ^ (0 - (walk.varint & 1)))
    walk.varint = 0
    walk.shift = 0
    return take_value(walk, value)


cdef bint take_value(Walk* walk, int64_t value) noexcept nogil:
    """The varint that was next has this value."""
    if walk.step == LENGTH:
        walk.left = value
        walk.step = ATTRIBUTES
        return value > 0
    if walk.step == TIMESTAMP:
        walk.fields.timestamp_delta = value
        walk.step = OFFSET
        return True
    if walk.step == OFFSET:
        walk.fields.offset_delta = value
        walk.step = KEY
        return True
    if walk.step == HEADERS:
        walk.headers = value
        walk.step = HEADER_NAME if value else DONE
        return value >= 0
    if value < (0 if walk.step == HEADER_NAME else -1) or value > walk.left:
        return False
    if value > 0:
        walk.skip = value
        walk.left -= value
    if walk.step == KEY:
        walk.fields.has_key = value >= 0
        walk.step = VALUE
    elif walk.step == VALUE:
        walk.step = HEADERS
    elif walk.step == HEADER_NAME:
        walk.step = HEADER_VALUE
    else:
        walk.headers -= 1
        walk.step = HEADER_NAME if walk.headers else DONE
    return True


cdef object broken(Py_ssize_t number, Py_ssize_t count):
    return CorruptBatch(f"record {number} of {count} does not fit its length")


def counted(pieces, Py_ssize_t count):
    """The pieces unchanged, while the records in them are counted. Raises CorruptBatch when there are not `count`, or one
    does not fit its length; other threads run meanwhile."""
    cdef Walk walk
    cdef Py_ssize_t number = 0
    memset(&walk, 0, sizeof(Walk))
    for piece in pieces:
        number = walked(&walk, piece, number, count)
        yield piece
    if number < count:
        raise broken(number, count)


cdef Py_ssize_t walked(Walk* walk, const uint8_t[::1] piece, Py_ssize_t number, Py_ssize_t count) except -1:
    """How many records have ended by the end of a piece, if `number` had before it."""
    cdef Py_ssize_t at = 0, size = piece.shape[0]
    cdef Outcome outcome = MORE
    if size == 0:
        return number
    with nogil:
        while number < count:
            outcome = take(walk, &piece[0], &at, size)
            if outcome != RECORD:
                break
            number += 1
    if outcome == DAMAGED:
        raise broken(number, count)
    if at != size:
        raise CorruptBatch(f"{size - at} bytes lie behind the last of {count} records")
    return number


cdef enum:
    NAMES = 1000

NAMED_MAX = NAMES
"""`faults` names at most this many records of a kind: a client could send a batch of millions."""

cdef struct Numbers:
    Py_ssize_t count
    Py_ssize_t[NAMES] at


cdef void note(Numbers* numbers, Py_ssize_t number) noexcept nogil:
    if numbers.count < NAMES:
        numbers.at[numbers.count] = number
        numbers.count += 1


def faults(
    pieces, Py_ssize_t count, int64_t base_timestamp, bint keyed, int64_t oldest_ms, int64_t newest_ms
):
    """(numbers of the records without a key, of those older than `oldest_ms`, of those newer than `newest_ms`) of a batch
    of `count` records; at most NAMED_MAX of each.

    keyed: whether to look at keys. oldest_ms: if negative, nothing is too old; records without a time never are. Other
    threads run meanwhile. Raises CorruptBatch.
    """
    cdef Py_ssize_t at, size, number = 0
    cdef const uint8_t[::1] piece
    cdef Outcome outcome
    cdef Walk walk
    cdef int64_t timestamp
    cdef Numbers keyless, old, new
    keyless.count = old.count = new.count = 0
    memset(&walk, 0, sizeof(Walk))
    for piece in pieces:
        at, size, outcome = 0, piece.shape[0], MORE
        if size == 0:
            continue
        with nogil:
            while number < count:
                outcome = take(&walk, &piece[0], &at, size)
                if outcome != RECORD:
                    break
                if keyed and not walk.fields.has_key:
                    note(&keyless, number)
                timestamp = base_timestamp + walk.fields.timestamp_delta
                if 0 <= timestamp < oldest_ms:
                    note(&old, number)
                if timestamp > newest_ms:
                    note(&new, number)
                number += 1
        if outcome == DAMAGED:
            raise broken(number, count)
        if at != size:
            raise CorruptBatch(f"{size - at} bytes lie behind the last of {count} records")
    if number < count:
        raise broken(number, count)
    return list_of(&keyless), list_of(&old), list_of(&new)


cdef list list_of(Numbers* numbers):
    return [numbers.at[index] for index in range(numbers.count)]


def first_at_or_after(
    pieces, Py_ssize_t count, int64_t base_timestamp, int64_t base_offset, int64_t timestamp, int64_t from_offset
):
    """(timestamp, offset) of the first record that is at or after both; None if there is none. Nothing behind it is
    unpacked; other threads run meanwhile. Raises CorruptBatch."""
    cdef Py_ssize_t at, size, number = 0
    cdef const uint8_t[::1] piece
    cdef Outcome outcome
    cdef Walk walk
    memset(&walk, 0, sizeof(Walk))
    for piece in pieces:
        at, size, outcome = 0, piece.shape[0], MORE
        if size == 0:
            continue
        with nogil:
            while number < count:
                outcome = take(&walk, &piece[0], &at, size)
                if outcome != RECORD:
                    break
                number += 1
                if base_timestamp + walk.fields.timestamp_delta < timestamp:
                    continue
                if base_offset + walk.fields.offset_delta >= from_offset:
                    break
        if outcome == DAMAGED:
            raise broken(number, count)
        if outcome == RECORD and (
            base_timestamp + walk.fields.timestamp_delta >= timestamp
            and base_offset + walk.fields.offset_delta >= from_offset
        ):
            return base_timestamp + walk.fields.timestamp_delta, base_offset + walk.fields.offset_delta
        if number == count:
            return None
    if number < count:
        raise broken(number, count)
    return None


def greatest(pieces, Py_ssize_t count, int64_t base_timestamp, int64_t base_offset, int64_t from_offset):
    """(timestamp, offset) of the first record with the greatest timestamp from an offset on; None if there is none.
    Other threads run meanwhile. Raises CorruptBatch."""
    cdef Py_ssize_t at, size, number = 0
    cdef const uint8_t[::1] piece
    cdef Outcome outcome
    cdef Walk walk
    cdef int64_t best = 0, best_offset = -1
    memset(&walk, 0, sizeof(Walk))
    for piece in pieces:
        at, size, outcome = 0, piece.shape[0], MORE
        if size == 0:
            continue
        with nogil:
            while number < count:
                outcome = take(&walk, &piece[0], &at, size)
                if outcome != RECORD:
                    break
                number += 1
                if base_offset + walk.fields.offset_delta < from_offset:
                    continue
                if best_offset < 0 or base_timestamp + walk.fields.timestamp_delta > best:
                    best = base_timestamp + walk.fields.timestamp_delta
                    best_offset = base_offset + walk.fields.offset_delta
        if outcome == DAMAGED:
            raise broken(number, count)
        if number == count:
            break
    if number < count:
        raise broken(number, count)
    return None if best_offset < 0 else (best, best_offset)


cdef enum Named:
    NOTHING       # the key or value is null: it names no schema
    NO_SCHEMA
    BY_ID         # 4 bytes, big-endian
    BY_GUID       # 16 bytes

cdef struct Reference:
    Named kind
    const uint8_t* at

cdef const char* KEY_HEADER = b"__key_schema_id"
cdef const char* VALUE_HEADER = b"__value_schema_id"


cdef Reference reference_at(const uint8_t* data, int64_t size) noexcept nogil:
    """The reference at the beginning of a payload or a header: 0 and an id, or 1 and a GUID."""
    cdef Reference reference
    reference.kind = NO_SCHEMA
    reference.at = data + 1
    if size >= 5 and data[0] == 0:
        reference.kind = BY_ID
    elif size >= 17 and data[0] == 1:
        reference.kind = BY_GUID
    return reference


cdef bint read_reference(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t size, bint of_key, Reference* reference
) noexcept nogil:
    """Read the schema named by the record at `at`, and move `at` behind it; False if its fields do not fill its length."""
    cdef int64_t length, number, key_bytes, value_bytes, headers, name_bytes, wanted_bytes
    cdef Py_ssize_t end, key_at, value_at, name_at
    cdef const char* wanted = KEY_HEADER if of_key else VALUE_HEADER
    wanted_bytes = 15 if of_key else 17
    if not read_varint(data, at, size, &length) or length < 1 or length > size - at[0]:
        return False
    end = at[0] + <Py_ssize_t>length
    at[0] += 1  # attributes
    if not read_varint(data, at, end, &number) or not read_varint(data, at, end, &number):
        return False
    if not read_varint(data, at, end, &key_bytes) or key_bytes < -1 or key_bytes > end - at[0]:
        return False
    key_at = at[0]
    at[0] += <Py_ssize_t>key_bytes if key_bytes > 0 else 0
    if not read_varint(data, at, end, &value_bytes) or value_bytes < -1 or value_bytes > end - at[0]:
        return False
    value_at = at[0]
    at[0] += <Py_ssize_t>value_bytes if value_bytes > 0 else 0
    if of_key:
        value_at = key_at
        value_bytes = key_bytes
    reference.kind = NOTHING
    reference.at = data
    if value_bytes >= 0:
        reference[0] = reference_at(data + value_at, value_bytes)
    if not read_varint(data, at, end, &headers) or headers < 0:
        return False
    while headers > 0:
        if not read_varint(data, at, end, &name_bytes) or name_bytes < 0 or name_bytes > end - at[0]:
            return False
        name_at = at[0]
        at[0] += <Py_ssize_t>name_bytes
        if not read_varint(data, at, end, &number) or number < -1 or number > end - at[0]:
            return False
        if value_bytes >= 0 and name_bytes == wanted_bytes and memcmp(data + name_at, wanted, wanted_bytes) == 0:
            reference[0] = reference_at(data + at[0], number)
        at[0] += <Py_ssize_t>number if number > 0 else 0
        headers -= 1
    return at[0] == end


cdef object named(Reference* reference):
    if reference.kind == BY_ID:
        return <int64_t>big32(reference.at) & 0xFFFFFFFF
    if reference.kind == BY_GUID:
        return PyBytes_FromStringAndSize(<const char*>reference.at, 16)
    return None


cdef bint is_same(const Reference* one, const Reference* other) noexcept nogil:
    if one.kind != other.kind:
        return False
    if one.kind == BY_ID:
        return memcmp(one.at, other.at, 4) == 0
    return one.kind != BY_GUID or memcmp(one.at, other.at, 16) == 0


def schemas_named(const uint8_t[::1] block, Py_ssize_t count, bint of_key):
    """The schemas named by the keys or values of a batch of `count` records: ids as int, GUIDs as 16 bytes, None for a
    record that names none. Null keys and values are left out. Raises CorruptBatch.

    Source: Confluent's wire format; since 8.0 the schema may be in the header __key_schema_id or __value_schema_id.
    """
    cdef Py_ssize_t at = 0, size = block.shape[0], number
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef Reference reference, last
    last.kind = NOTHING
    last.at = data
    names = set()
    for number in range(count):
        if not read_reference(data, &at, size, of_key, &reference):
            raise CorruptBatch(f"record {number} of {count} does not fit its length")
        if reference.kind == NOTHING or is_same(&reference, &last):
            continue
        last = reference
        names.add(named(&reference))
    return names


def records_naming(const uint8_t[::1] block, Py_ssize_t count, bint of_key, names):
    """The numbers of the records whose schema is one of `names`, given as by schemas_named. Raises CorruptBatch."""
    cdef Py_ssize_t at = 0, size = block.shape[0], number
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef Reference reference
    numbers = []
    for number in range(count):
        if not read_reference(data, &at, size, of_key, &reference):
            raise CorruptBatch(f"record {number} of {count} does not fit its length")
        if reference.kind != NOTHING and named(&reference) in names:
            numbers.append(number)
    return numbers
