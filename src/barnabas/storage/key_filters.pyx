# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Bloom filters of record keys: filled from batches, and asked. See key_index.py, which keeps them in files.

A key sets as many bits as the filter has hashes; their places are a + i * b modulo the number of bits, where a and b (made odd) are
the halves of the key's 128 bits of SipHash. A filter without bits lets every key through.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memset

from barnabas.records.batch import CorruptBatch
from barnabas.records.batch_layout cimport HEADER_BYTES
from barnabas.storage.batch_table cimport BatchTable, Row
from barnabas.storage.compaction cimport Record, load64, next_record, siphash128

cdef struct Hash:
    uint64_t low
    uint64_t high

cdef enum:
    UNPLAIN_BITS = 0x27  # a codec, control
    ROOM_AT_FIRST = 4096


cdef int compare(const void* one, const void* other) noexcept nogil:
    cdef const Hash* a = <const Hash*>one
    cdef const Hash* b = <const Hash*>other
    if a.low != b.low:
        return -1 if a.low < b.low else 1
    if a.high != b.high:
        return -1 if a.high < b.high else 1
    return 0


cdef class KeyCollector:
    """The hashes of the keys of some batches, until `filter` makes a filter of them. records: how many were added, with
    those without a key."""

    cdef Hash* hashes
    cdef Py_ssize_t count
    cdef Py_ssize_t room
    cdef uint64_t k0, k1
    cdef readonly Py_ssize_t records

    def __cinit__(self, bytes secret):
        """secret: 16 bytes, those of the file."""
        if len(secret) != 16:
            raise ValueError("the secret has 16 bytes")
        self.k0 = load64(<const uint8_t*>(<const char*>secret))
        self.k1 = load64(<const uint8_t*>(<const char*>secret) + 8)

    def __dealloc__(self):
        free(self.hashes)

    cdef bint add(self, const uint8_t* key, Py_ssize_t key_bytes) noexcept nogil:
        """False without memory."""
        cdef Hash* grown
        cdef Py_ssize_t room
        if self.count == self.room:
            room = self.room * 2 if self.room else ROOM_AT_FIRST
            grown = <Hash*>realloc(self.hashes, room * sizeof(Hash))
            if grown == NULL:
                return False
            self.hashes = grown
            self.room = room
        siphash128(key, key_bytes, self.k0, self.k1, <uint64_t*>(self.hashes + self.count))
        self.count += 1
        return True

    cdef int add_records(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t count) noexcept nogil:
        """0, 1 for records that do not fit their lengths, 2 without memory."""
        cdef Py_ssize_t at = 0, i
        cdef Record record
        for i in range(count):
            if not next_record(data, &at, size, &record):
                return 1
            if record.key_bytes >= 0 and not self.add(record.key, record.key_bytes):
                return 2
        self.records += count
        return 0

    def add_key(self, bytes key) -> None:
        """Add one record's key."""
        if not self.add(<const uint8_t*>(<const char*>key), len(key)):
            raise MemoryError
        self.records += 1

    def add_block(self, const uint8_t[::1] block, Py_ssize_t count) -> None:
        """Add the keys of `count` encoded records. Raises CorruptBatch."""
        cdef Py_ssize_t size = block.shape[0]
        cdef const uint8_t* data = &block[0] if size else NULL
        cdef int outcome
        with nogil:
            outcome = self.add_records(data, size, count)
        if outcome == 1:
            raise CorruptBatch("a record does not fit its length")
        if outcome == 2:
            raise MemoryError

    def add_plain(self, BatchTable table, Py_ssize_t first, Py_ssize_t stop) -> int:
        """Add the keys of the table's batches from row `first` on, as long as they are intact, of magic 2 and not
        compressed. Returns the first row that is left to others, at most `stop`."""
        cdef Py_ssize_t i = first
        cdef Row* row
        cdef int outcome = 0
        with nogil:
            while i < stop:
                row = table.rows + i
                if row.magic < 2 or row.attributes & UNPLAIN_BITS or not row.intact:
                    break
                outcome = self.add_records(
                    &table.data[row.at] + HEADER_BYTES, row.size - HEADER_BYTES, row.record_count
                )
                if outcome:
                    break
                i += 1
        if outcome == 2:
            raise MemoryError
        return i

    def filter(self, Py_ssize_t bits_per_key, Py_ssize_t hash_count) -> bytes:
        """A filter of the keys that were added since the last one; of at least one byte."""
        cdef Py_ssize_t i, kept = 0
        cdef uint64_t bits
        cdef bytes filter_bytes
        cdef uint8_t* out
        with nogil:
            if self.count:
                qsort(self.hashes, self.count, sizeof(Hash), compare)
            for i in range(self.count):
                if kept == 0 or compare(self.hashes + i, self.hashes + kept - 1):
                    self.hashes[kept] = self.hashes[i]
                    kept += 1
        bits = <uint64_t>((kept * bits_per_key + 7) // 8 * 8 if kept else 8)
        filter_bytes = PyBytes_FromStringAndSize(NULL, bits // 8)
        out = <uint8_t*>PyBytes_AS_STRING(filter_bytes)
        with nogil:
            memset(out, 0, bits // 8)
            for i in range(kept):
                set_bits(out, bits, self.hashes + i, hash_count)
        self.count = self.records = 0
        return filter_bytes


cdef void set_bits(uint8_t* out, uint64_t bits, const Hash* hashed, Py_ssize_t hash_count) noexcept nogil:
    cdef uint64_t place
    cdef Py_ssize_t i
    for i in range(hash_count):
        place = (hashed.low + <uint64_t>i * (hashed.high | 1)) % bits
        out[place >> 3] |= <uint8_t>(1 << (place & 7))


def may_have(const uint8_t[::1] data, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t hash_count, bytes key, bytes secret) -> bool:
    """Whether the filter in data[begin:end] lets a key through. Raises ValueError if it is not within the data."""
    cdef Hash hashed
    cdef uint64_t bits, place
    cdef Py_ssize_t i
    cdef const uint8_t* raw = secret
    if begin < 0 or end < begin or end > data.shape[0] or len(secret) != 16:
        raise ValueError("the filter is not within its file")
    if begin == end:
        return True
    siphash128(<const uint8_t*>(<const char*>key), len(key), load64(raw), load64(raw + 8), <uint64_t*>&hashed)
    bits = <uint64_t>(end - begin) * 8
    for i in range(hash_count):
        place = (hashed.low + <uint64_t>i * (hashed.high | 1)) % bits
        if not data[begin + (place >> 3)] & (1 << (place & 7)):
            return False
    return True
