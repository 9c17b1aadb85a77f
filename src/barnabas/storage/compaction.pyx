# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The two inner loops of compaction: where each key's newest record is, and which records of a batch stay.

`OffsetMap` maps a key's hash to its newest offset in a fixed amount of memory. A record key is represented by
128 bits of SipHash with a random key for each map: nobody can choose keys that collide, and the probability
that two of a billion keys collide by chance is 1e-21.

Record blocks come from disk, with a verified checksum, but nobody has checked what a producer wrote into
them: every length is checked before it is used. Damage raises CorruptBatch.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from barnabas.records.batch import CorruptBatch
from barnabas.records.batch_layout cimport HEADER_BYTES
from barnabas.records.varint cimport read_varint
from barnabas.storage.batch_table cimport BatchTable, Row

cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t next_offset  # offset + 1; 0 is an empty slot

cdef enum:
    SLOT_BYTES = 24
    VARINT_BYTES_MAX = 10
    UNPLAIN_BITS = 0x77  # a codec, transactional, control, a delete horizon
    MARKED_BITS = 0x30   # transactional, control

cdef enum Fate:
    STAYS
    GOES
    OPEN_QUESTION


cdef inline uint64_t rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef uint64_t load64(const uint8_t* data) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, data, 8)
    return value


cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[1] = rotate(v[1], 13)
    v[1] ^= v[0]
    v[0] = rotate(v[0], 32)
    v[2] += v[3]
    v[3] = rotate(v[3], 16)
    v[3] ^= v[2]
    v[0] += v[3]
    v[3] = rotate(v[3], 21)
    v[3] ^= v[0]
    v[2] += v[1]
    v[1] = rotate(v[1], 17)
    v[1] ^= v[2]
    v[2] = rotate(v[2], 32)


cdef void siphash128(const uint8_t* data, Py_ssize_t size, uint64_t k0, uint64_t k1, uint64_t* out) noexcept nogil:
    """SipHash-2-4 with 128 bits of output (Aumasson and Bernstein's reference construction)."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Py_ssize_t i, whole = size - size % 8
    v[0] = k0 ^ <uint64_t>0x736F6D6570736575
    v[1] = k1 ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = k0 ^ <uint64_t>0x6C7967656E657261
    v[3] = k1 ^ <uint64_t>0x7465646279746573
    for i in range(0, whole, 8):
        word = load64(data + i)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
    word = (<uint64_t>size) << 56
    for i in range(whole, size):
        word |= (<uint64_t>data[i]) << (8 * (i - whole))
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xEE
    for i in range(4):
        sip_round(v)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for i in range(4):
        sip_round(v)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


def siphash(data: bytes, key: bytes) -> bytes:
    """The 16-byte hash of `data` under a 16-byte key; for the tests."""
    cdef const uint8_t* raw = key
    cdef uint64_t out[2]
    siphash128(data, len(data), load64(raw), load64(raw + 8), out)
    return PyBytes_FromStringAndSize(<const char*>out, 16)


cdef bint next_record(const uint8_t* data, Py_ssize_t* at, Py_ssize_t size, Record* record) noexcept nogil:
    """Read the record at `at`, and move `at` behind it; False if its fields do not fit its length."""
    cdef int64_t value
    record.start = at[0]
    if not read_varint(data, at, size, &value) or value < 6 or value > size - at[0]:
        return False
    record.end = at[0] + <Py_ssize_t>value
    at[0] += 1
    record.fields = at[0]
    if not read_varint(data, at, record.end, &record.timestamp_delta):
        return False
    record.rest = at[0]
    if not read_varint(data, at, record.end, &record.offset_delta):
        return False
    if not read_varint(data, at, record.end, &value) or value < -1 or value > record.end - at[0]:
        return False
    record.key_bytes = <Py_ssize_t>value
    record.key = data + at[0]
    if value > 0:
        at[0] += <Py_ssize_t>value
    if not read_varint(data, at, record.end, &value) or value < -1 or value > record.end - at[0]:
        return False
    record.has_value = value >= 0
    at[0] = record.end
    return True


cdef class OffsetMap:
    """Key -> newest offset, for as many keys as fit into `memory_bytes`, filled to `load_factor`.

    latest_offset: the last offset of the log that has been indexed; -1 for none.
    """

    cdef Slot* slots
    cdef readonly Py_ssize_t slot_count
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t size
    cdef public object latest_offset
    cdef uint64_t k0, k1

    def __cinit__(self, Py_ssize_t memory_bytes, bytes secret, double load_factor=0.9):
        """secret: 16 random bytes. Raises ValueError if not even one key fits, MemoryError."""
        if len(secret) != 16:
            raise ValueError("the secret has 16 bytes")
        self.slot_count = memory_bytes // SLOT_BYTES
        self.capacity = <Py_ssize_t>(self.slot_count * load_factor)
        if self.capacity < 1 or self.capacity >= self.slot_count:
            raise ValueError(f"{memory_bytes} bytes are too few for an offset map")
        # calloc returns untouched zero pages: memory is used when keys are added, not at once.
        self.slots = <Slot*>calloc(self.slot_count, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError(f"no memory for an offset map of {memory_bytes} bytes")
        self.k0 = load64(<const uint8_t*>(<const char*>secret))
        self.k1 = load64(<const uint8_t*>(<const char*>secret) + 8)
        self.latest_offset = -1

    def __dealloc__(self):
        free(self.slots)

    def __len__(self):
        return self.size

    cdef Slot* find(self, const uint8_t* key, Py_ssize_t key_bytes) noexcept nogil:
        """The key's slot, or the empty one where it belongs; there is always one."""
        cdef uint64_t hashed[2]
        cdef Py_ssize_t at
        cdef Slot* slot
        siphash128(key, key_bytes, self.k0, self.k1, hashed)
        at = <Py_ssize_t>(hashed[0] % <uint64_t>self.slot_count)
        while True:
            slot = self.slots + at
            if slot.next_offset == 0:
                slot.low = hashed[0]
                slot.high = hashed[1]
                return slot
            if slot.low == hashed[0] and slot.high == hashed[1]:
                return slot
            at += 1
            if at == self.slot_count:
                at = 0

    def get(self, key: bytes) -> int:
        """The newest offset of `key`; -1 if it is not in the map."""
        return self.find(key, len(key)).next_offset - 1

    def put(self, key: bytes, offset: int) -> bool:
        """Set the offset of `key`; False if the key is new and the map is full."""
        cdef Slot* slot = self.find(key, len(key))
        if slot.next_offset == 0:
            if self.size >= self.capacity:
                return False
            self.size += 1
        slot.next_offset = <int64_t>offset + 1
        return True

    def put_block(self, const uint8_t[::1] block, int64_t base_offset, Py_ssize_t count, int64_t from_offset) -> bool:
        """Add the keys of a batch's records from `from_offset` on; False if the map is full.

        The keys that fitted stay in the map, which does no harm: their records exist. Raises CorruptBatch.
        """
        cdef Py_ssize_t at = 0, size = block.shape[0], i
        cdef Record record
        cdef Slot* slot
        cdef int64_t offset
        cdef int outcome = 0
        cdef const uint8_t* data = &block[0] if size else NULL
        with nogil:
            for i in range(count):
                if not next_record(data, &at, size, &record):
                    outcome = 1
                    break
                offset = base_offset + record.offset_delta
                if record.key_bytes < 0 or offset < from_offset:
                    continue
                slot = self.find(record.key, record.key_bytes)
                if slot.next_offset == 0:
                    if self.size >= self.capacity:
                        outcome = 2
                        break
                    self.size += 1
                slot.next_offset = offset + 1
        if outcome == 1:
            raise CorruptBatch(f"a record in the batch at offset {base_offset} does not fit its length")
        return outcome == 0

    def put_plain(self, BatchTable table, Py_ssize_t first, int64_t from_offset):
        """Add the keys of the table's batches from row `first` on, as long as they are plain: of magic 2,
        uncompressed, not in a transaction. Returns the first row that is left to `put_block`, because it is not
        plain, is damaged, or does not fit into the map; len(table) if there is none.
        """
        cdef Py_ssize_t i = first
        with nogil:
            while i < table.count and self.put_row(&table.data[table.rows[i].at], table.rows + i, from_offset):
                i += 1
        return i

    cdef bint put_row(self, const uint8_t* batch, const Row* row, int64_t from_offset) noexcept nogil:
        cdef Py_ssize_t at = 0, size = row.size - HEADER_BYTES, i
        cdef Record record
        cdef Slot* slot
        cdef int64_t offset
        if row.magic < 2 or row.attributes & UNPLAIN_BITS:
            return False
        for i in range(row.record_count):
            if not next_record(batch + HEADER_BYTES, &at, size, &record):
                return False
            offset = row.base_offset + record.offset_delta
            if record.key_bytes < 0 or offset < from_offset:
                continue
            slot = self.find(record.key, record.key_bytes)
            if slot.next_offset == 0:
                if self.size >= self.capacity:
                    return False
                self.size += 1
            slot.next_offset = offset + 1
        return True


class Kept:
    """The records of a batch that stay: their number, whether a tombstone is among them, their greatest timestamp
    delta, and their bytes."""

    __slots__ = ("block", "count", "has_tombstones", "max_timestamp_delta")

    def __init__(self, count, has_tombstones, max_timestamp_delta, block):
        self.count = count
        self.has_tombstones = has_tombstones
        self.max_timestamp_delta = max_timestamp_delta
        self.block = block


def keep_block(
    const uint8_t[::1] block, int64_t base_offset, Py_ssize_t count, OffsetMap newest, int64_t latest_offset,
    bint drop_tombstones,
):
    """Filter a batch's records. Returns a Kept, whose `block` is None if every record stays.

    A record stays if it is above `latest_offset` (which the map does not cover), or if it has a key, the map has
    no newer record with that key, and it has a value or tombstones are not to be dropped. Raises CorruptBatch.
    """
    cdef Py_ssize_t at = 0, size = block.shape[0], i, used = 0, kept = 0
    cdef Record record
    cdef int64_t offset, newer, max_delta = 0
    cdef bint tombstones = False, stays, damaged = False
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef uint8_t* out = <uint8_t*>malloc(size if size else 1)
    if out == NULL:
        raise MemoryError
    try:
        with nogil:
            for i in range(count):
                if not next_record(data, &at, size, &record):
                    damaged = True
                    break
                offset = base_offset + record.offset_delta
                if offset > latest_offset:
                    stays = True
                elif record.key_bytes < 0:
                    stays = False
                else:
                    newer = newest.find(record.key, record.key_bytes).next_offset - 1
                    stays = offset >= newer and (record.has_value or not drop_tombstones)
                if stays:
                    if not record.has_value:
                        tombstones = True
                    if kept == 0 or record.timestamp_delta > max_delta:
                        max_delta = record.timestamp_delta
                    kept += 1
                    memcpy(out + used, data + record.start, record.end - record.start)
                    used += record.end - record.start
        if damaged or at != size:
            raise CorruptBatch(f"the records in the batch at offset {base_offset} do not fit their lengths")
        kept_block = None if kept == count else PyBytes_FromStringAndSize(<const char*>out, used)
        return Kept(kept, tombstones, max_delta, kept_block)
    finally:
        free(out)


cdef inline bint contains(const int64_t[::1] sorted_values, int64_t value) noexcept nogil:
    cdef Py_ssize_t low = 0, high = sorted_values.shape[0], middle
    while low < high:
        middle = (low + high) // 2
        if sorted_values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < sorted_values.shape[0] and sorted_values[low] == value


cdef Fate fate_of(const uint8_t* data, const Row* row, OffsetMap newest, int64_t latest_offset) noexcept nogil:
    """Whether a batch stays as it is, is removed completely, or has to be filtered; see keep_block."""
    cdef Py_ssize_t at = 0, size = row.size - HEADER_BYTES, i
    cdef Record record
    cdef int64_t offset
    cdef bint stays
    cdef Fate fate = OPEN_QUESTION
    if row.magic == 2 and not row.attributes & MARKED_BITS and row.base_offset > latest_offset:
        return STAYS
    if row.magic < 2 or row.attributes & UNPLAIN_BITS or row.last_offset > latest_offset:
        return OPEN_QUESTION
    for i in range(row.record_count):
        if not next_record(data, &at, size, &record):
            return OPEN_QUESTION
        offset = row.base_offset + record.offset_delta
        stays = offset > latest_offset or (
            record.key_bytes >= 0 and offset >= newest.find(record.key, record.key_bytes).next_offset - 1
        )
        if (stays and not record.has_value) or (i and stays != (fate == STAYS)):
            return OPEN_QUESTION
        fate = STAYS if stays else GOES
    return fate if at == size else OPEN_QUESTION


def keep_plain(
    BatchTable table, Py_ssize_t first, Py_ssize_t stop, OffsetMap newest, int64_t latest_offset,
    const int64_t[::1] last_offsets,
):
    """Mark those of the table's batches from `first` on that stay as they are, until one has to be filtered.

    last_offsets: the last offsets of the newest batches of the active producers, sorted; a batch that ends at one of
    them, or at the last offset that the map covers, is not removed completely. Returns (the first row that has to be
    filtered, or `stop`; number of records read; number of records kept).
    """
    cdef Py_ssize_t i
    cdef Row* row
    cdef Fate fate
    cdef int64_t records_read = 0, records_kept = 0
    with nogil:
        for i in range(first, stop):
            row = table.rows + i
            fate = fate_of(&table.data[row.at] + HEADER_BYTES, row, newest, latest_offset)
            if fate == OPEN_QUESTION:
                break
            if fate == GOES and (
                row.last_offset == latest_offset
                or (row.producer_id >= 0 and contains(last_offsets, row.last_offset))
            ):
                break
            row.kept = fate == STAYS
            records_read += row.record_count
            if row.kept:
                records_kept += row.record_count
        else:
            i = stop
    return i, records_read, records_kept


def shift_timestamps(const uint8_t[::1] block, Py_ssize_t count, int64_t shift_ms) -> bytes:
    """The records with `shift_ms` added to each timestamp delta, for a batch whose base timestamp changes.

    Raises CorruptBatch.
    """
    cdef Py_ssize_t at = 0, size = block.shape[0], i, used = 0, body, written, room
    cdef Record record
    cdef uint8_t delta[VARINT_BYTES_MAX]
    cdef const uint8_t* data = &block[0] if size else NULL
    cdef bint damaged = False
    room = size + count * 2 * VARINT_BYTES_MAX + 1
    cdef uint8_t* out = <uint8_t*>malloc(room)
    if out == NULL:
        raise MemoryError
    try:
        with nogil:
            for i in range(count):
                if not next_record(data, &at, size, &record):
                    damaged = True
                    break
                written = write_varint(delta, record.timestamp_delta + shift_ms)
                body = 1 + written + (record.end - record.rest)
                used += write_varint(out + used, body)
                out[used] = data[record.fields - 1]
                used += 1
                memcpy(out + used, delta, written)
                used += written
                memcpy(out + used, data + record.rest, record.end - record.rest)
                used += record.end - record.rest
        if damaged or at != size:
            raise CorruptBatch("the records of a batch do not fit their lengths")
        return PyBytes_FromStringAndSize(<const char*>out, used)
    finally:
        free(out)


cdef inline Py_ssize_t write_varint(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef Py_ssize_t used = 0
    while raw > 0x7F:
        out[used] = <uint8_t>(raw & 0x7F) | 0x80
        raw >>= 7
        used += 1
    out[used] = <uint8_t>raw
    return used + 1
