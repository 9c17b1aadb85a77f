# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Answers questions about a batch's records by walking over their bytes, without an object for a record.

`block` is what `records_block` returns. Nobody has checked what a producer wrote there: every length is compared with
the record's end before it is used, and damage raises CorruptBatch.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

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
    const uint8_t[::1] block, Py_ssize_t count, int64_t base_timestamp, bint keyed, int64_t oldest_ms,
    int64_t newest_ms,
):
    """(numbers of the records without a key, of those older than `oldest_ms`, of those newer than `newest_ms`) of a batch
    of `count` records; at most NAMED_MAX of each.

    keyed: whether to look at keys. oldest_ms: if negative, nothing is too old; records without a time never are. Other
    threads run meanwhile. Raises CorruptBatch.
    """
    cdef Py_ssize_t at = 0, size = block.shape[0], number = 0
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef Fields fields
    cdef int64_t timestamp
    cdef Numbers keyless, old, new
    keyless.count = old.count = new.count = 0
    with nogil:
        for number in range(count):
            if not read_record(data, &at, size, &fields):
                break
            if keyed and not fields.has_key:
                note(&keyless, number)
            timestamp = base_timestamp + fields.timestamp_delta
            if 0 <= timestamp < oldest_ms:
                note(&old, number)
            if timestamp > newest_ms:
                note(&new, number)
        else:
            number = count
    if number < count:
        raise CorruptBatch(f"record {number} of {count} does not fit its length")
    if at != size:
        raise CorruptBatch(f"{size - at} bytes lie behind the last of {count} records")
    return list_of(&keyless), list_of(&old), list_of(&new)


cdef list list_of(Numbers* numbers):
    return [numbers.at[index] for index in range(numbers.count)]


def first_at_or_after(
    const uint8_t[::1] block, Py_ssize_t count, int64_t base_timestamp, int64_t base_offset, int64_t timestamp,
    int64_t from_offset,
):
    """(timestamp, offset) of the first record that is at or after both; None if there is none. Raises CorruptBatch."""
    cdef Py_ssize_t at = 0, size = block.shape[0], number
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef Fields fields
    for number in range(count):
        if not read_record(data, &at, size, &fields):
            raise CorruptBatch(f"record {number} of {count} at offset {base_offset} does not fit its length")
        if base_timestamp + fields.timestamp_delta >= timestamp and base_offset + fields.offset_delta >= from_offset:
            return base_timestamp + fields.timestamp_delta, base_offset + fields.offset_delta
    return None


def greatest(
    const uint8_t[::1] block, Py_ssize_t count, int64_t base_timestamp, int64_t base_offset, int64_t from_offset
):
    """(timestamp, offset) of the first record with the greatest timestamp from an offset on; None if there is none.
    Raises CorruptBatch."""
    cdef Py_ssize_t at = 0, size = block.shape[0], number
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef Fields fields
    cdef int64_t best = 0, best_offset = -1
    for number in range(count):
        if not read_record(data, &at, size, &fields):
            raise CorruptBatch(f"record {number} of {count} at offset {base_offset} does not fit its length")
        if base_offset + fields.offset_delta < from_offset:
            continue
        if best_offset < 0 or base_timestamp + fields.timestamp_delta > best:
            best = base_timestamp + fields.timestamp_delta
            best_offset = base_offset + fields.offset_delta
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
    cdef Reference found
    found.kind = NO_SCHEMA
    found.at = data + 1
    if size >= 5 and data[0] == 0:
        found.kind = BY_ID
    elif size >= 17 and data[0] == 1:
        found.kind = BY_GUID
    return found


cdef bint read_reference(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t size, bint of_key, Reference* found
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
    found.kind = NOTHING
    found.at = data
    if value_bytes >= 0:
        found[0] = reference_at(data + value_at, value_bytes)
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
            found[0] = reference_at(data + at[0], number)
        at[0] += <Py_ssize_t>number if number > 0 else 0
        headers -= 1
    return at[0] == end


cdef object named(Reference* found):
    if found.kind == BY_ID:
        return <int64_t>big32(found.at) & 0xFFFFFFFF
    if found.kind == BY_GUID:
        return PyBytes_FromStringAndSize(<const char*>found.at, 16)
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
    cdef Reference found, last
    last.kind = NOTHING
    last.at = data
    names = set()
    for number in range(count):
        if not read_reference(data, &at, size, of_key, &found):
            raise CorruptBatch(f"record {number} of {count} does not fit its length")
        if found.kind == NOTHING or is_same(&found, &last):
            continue
        last = found
        names.add(named(&found))
    return names


def records_naming(const uint8_t[::1] block, Py_ssize_t count, bint of_key, names):
    """The numbers of the records whose schema is one of `names`, given as by schemas_named. Raises CorruptBatch."""
    cdef Py_ssize_t at = 0, size = block.shape[0], number
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef Reference found
    numbers = []
    for number in range(count):
        if not read_reference(data, &at, size, of_key, &found):
            raise CorruptBatch(f"record {number} of {count} does not fit its length")
        if found.kind != NOTHING and named(&found) in names:
            numbers.append(number)
    return numbers
