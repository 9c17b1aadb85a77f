# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Decodes fetched record batches into Arrow columns, without a Python object for a record.

`decode` reads fetched bytes (v2 batches of one partition) into buffers in Arrow's layout. It does not use
pyarrow: the buffers are read through the buffer protocol, so that building this module needs only a C
compiler. The other direction is `columnar_encoder`.

The bytes come from a network. Every length is checked against what is left before it is used, every count
against the fewest bytes that so many items take (a record takes at least 7), and a decompressed batch
against `batch_bytes_max`. Damage raises CorruptBatch; nothing is read or written out of bounds.

Source: Kafka's message format, "Record Batch" and "Record"; Arrow's columnar format, "variable-size binary".
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from barnabas.records.batch import CorruptBatch
from barnabas.records.checksum import crc32c
from barnabas.records.compression import Codec, CompressionError, decompress

cdef enum:
    RECORD_BYTES_MIN = 7
    PAD_BYTES = 64

cdef int64_t MICROS_MAX_MS = INT64_MAX // 1000


class UnsupportedMagic(CorruptBatch):
    """Records in message format 0 or 1."""


cdef class Buffer:
    """Bytes that this module allocated, readable through the buffer protocol. Never moves once exported."""

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.data == NULL and reserve(self, 1) != OK:
            raise MemoryError
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __bytes__(self):
        if self.size == 0:
            return b""
        return (<char*> self.data)[:self.size]


cdef int reserve(Buffer buffer, Py_ssize_t more) noexcept nogil:
    """Make room for `more` bytes after the used ones, by doubling the size."""
    cdef Py_ssize_t need = buffer.size + more
    cdef Py_ssize_t capacity
    cdef uint8_t* data
    if need <= buffer.capacity and buffer.data != NULL:
        return OK
    capacity = buffer.capacity * 2
    if capacity < need:
        capacity = need
    capacity = (capacity + PAD_BYTES - 1) // PAD_BYTES * PAD_BYTES + PAD_BYTES
    data = <uint8_t*> realloc(buffer.data, capacity)
    if data == NULL:
        return NO_MEMORY
    buffer.data = data
    buffer.capacity = capacity
    return OK


cdef inline int varint(const uint8_t* p, Py_ssize_t* pos, Py_ssize_t end, int64_t* value) noexcept nogil:
    """Read a zigzag varint of at most ten bytes; BAD_RECORD if it passes `end`."""
    cdef uint64_t raw
    cdef uint8_t byte
    cdef int shift = 7
    cdef Py_ssize_t at = pos[0]
    if at >= end:
        return BAD_RECORD
    byte = p[at]
    at += 1
    raw = byte & 0x7F
    while byte & 0x80:
        if at >= end or shift > 63:
            return BAD_RECORD
        byte = p[at]
        at += 1
        raw |= <uint64_t> (byte & 0x7F) << shift
        shift += 7
    pos[0] = at
    value[0] = <int64_t> (raw >> 1) ^ -<int64_t> (raw & 1)
    return OK


cdef class BinaryColumn:
    """An Arrow binary column that is being built: int32 offsets, data, validity bits (only after the first null)."""

    cdef readonly Buffer offsets
    cdef readonly Buffer data
    cdef Buffer bits
    cdef readonly Py_ssize_t null_count
    cdef Py_ssize_t rows

    def __cinit__(self):
        self.offsets = Buffer()
        self.data = Buffer()
        self.bits = Buffer()
        if reserve(self.offsets, 4) != OK or reserve(self.data, 1) != OK:
            raise MemoryError
        put_i32(self.offsets, 0)

    @property
    def validity(self):
        """The bitmap, or None if there is no null."""
        return self.bits if self.null_count else None


cdef int mark_null(BinaryColumn column) noexcept nogil:
    cdef Py_ssize_t need = column.rows // 8 + 1
    if need > column.bits.size:
        if reserve(column.bits, need - column.bits.size) != OK:
            return NO_MEMORY
        memset(column.bits.data + column.bits.size, 0xFF, need - column.bits.size)
        column.bits.size = need
    cdef uint8_t* byte = column.bits.data + (column.rows >> 3)
    byte[0] = byte[0] & <uint8_t> ~(1 << (column.rows & 7))
    column.null_count += 1
    return OK


cdef int finish_bits(BinaryColumn column) noexcept nogil:
    """Extend the bitmap to the last row."""
    cdef Py_ssize_t need = (column.rows + 7) // 8
    if column.null_count and need > column.bits.size:
        if reserve(column.bits, need - column.bits.size) != OK:
            return NO_MEMORY
        memset(column.bits.data + column.bits.size, 0xFF, need - column.bits.size)
        column.bits.size = need
    return OK


cdef int add_value(BinaryColumn column, const uint8_t* p, Py_ssize_t* pos, Py_ssize_t end) noexcept nogil:
    """Append the length-prefixed nullable value at `pos` to the column."""
    cdef int64_t length = 0
    if varint(p, pos, end, &length) != OK or length > end - pos[0]:
        return BAD_RECORD
    if reserve(column.offsets, 4) != OK:
        return NO_MEMORY
    if length < 0:
        if mark_null(column) != OK:
            return NO_MEMORY
    elif length > 0:
        if reserve(column.data, length) != OK:
            return NO_MEMORY
        if column.data.size + length > INT32_MAX:
            return BAD_RECORD
        put(column.data, p + pos[0], length)
        pos[0] += length
    put_i32(column.offsets, <int32_t> column.data.size)
    column.rows += 1
    return OK


cdef class Decoded:
    """Records of one partition as Arrow buffers.

    rows: number of records. next_offset: the offset at which to continue (after compacted gaps, control
    batches and aborted records). position: number of input bytes that were used; less than all if
    `rows_bytes_max` was reached or a batch is cut off.
    offsets, timestamps_us (microseconds), timestamp_types (0 create, 1 append): int64, int64, int32 values.
    key, value: BinaryColumn. headers_*: list offsets (int32, rows + 1), validity (null where a record has
    none), and the two columns of the structs inside; None unless requested.
    """

    cdef readonly Py_ssize_t rows
    cdef readonly int64_t next_offset
    cdef readonly Py_ssize_t position
    cdef readonly Buffer offsets
    cdef readonly Buffer timestamps_us
    cdef readonly Buffer timestamp_types
    cdef readonly BinaryColumn key
    cdef readonly BinaryColumn value
    cdef readonly BinaryColumn headers
    cdef readonly BinaryColumn header_keys
    cdef readonly BinaryColumn header_values

    def __cinit__(self):
        self.offsets = Buffer()
        self.timestamps_us = Buffer()
        self.timestamp_types = Buffer()
        self.key = BinaryColumn()
        self.value = BinaryColumn()


cdef int add_headers(Decoded out, int64_t count, const uint8_t* p, Py_ssize_t* pos, Py_ssize_t end) noexcept nogil:
    """Append the `count` headers at `pos` as one list entry; a record without headers is null, as in Spark."""
    cdef int64_t i
    cdef int status
    if reserve(out.headers.offsets, 4) != OK:
        return NO_MEMORY
    if count == 0:
        if mark_null(out.headers) != OK:
            return NO_MEMORY
    for i in range(count):
        status = add_value(out.header_keys, p, pos, end)
        if status == OK:
            status = add_value(out.header_values, p, pos, end)
        if status != OK:
            return status
    put_i32(out.headers.offsets, <int32_t> out.header_keys.rows)
    out.headers.rows += 1
    return OK


cdef struct BatchInfo:
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t record_count
    bint append_time


cdef int add_records(
    Decoded out, const uint8_t* p, Py_ssize_t size, BatchInfo* batch, int64_t start, int64_t end_offset
) noexcept nogil:
    """Append the records in p[0:size] whose offset is in start..end_offset-1; STOP at the first one after them."""
    cdef Py_ssize_t pos = 0, end
    cdef int64_t length = 0, delta_ms = 0, delta = 0, count = 0, offset, timestamp
    cdef int32_t i
    cdef int status
    if batch.record_count < 0 or <int64_t> batch.record_count * RECORD_BYTES_MIN > size:
        return BAD_RECORD
    if reserve(out.offsets, <Py_ssize_t> batch.record_count * 8) != OK \
            or reserve(out.timestamps_us, <Py_ssize_t> batch.record_count * 8) != OK \
            or reserve(out.timestamp_types, <Py_ssize_t> batch.record_count * 4) != OK:
        return NO_MEMORY
    for i in range(batch.record_count):
        if varint(p, &pos, size, &length) != OK or length < 1 or length > size - pos:
            return BAD_RECORD
        end = pos + length
        pos += 1  # the record's own attributes, which are not used
        if varint(p, &pos, end, &delta_ms) != OK or varint(p, &pos, end, &delta) != OK:
            return BAD_RECORD
        if delta < 0 or delta > INT32_MAX:
            return BAD_RECORD
        offset = batch.base_offset + delta
        if offset < start:
            pos = end
            continue
        if offset >= end_offset:
            return STOP
        status = add_value(out.key, p, &pos, end)
        if status == OK:
            status = add_value(out.value, p, &pos, end)
        if status != OK:
            return status
        if varint(p, &pos, end, &count) != OK or count < 0 or count * 2 > end - pos:
            return BAD_RECORD
        if out.headers is not None:
            status = add_headers(out, count, p, &pos, end)
            if status != OK:
                return status
        if batch.append_time:
            timestamp = batch.max_timestamp
        else:
            timestamp = <int64_t> (<uint64_t> batch.base_timestamp + <uint64_t> delta_ms)
        if timestamp > MICROS_MAX_MS:
            timestamp = MICROS_MAX_MS
        elif timestamp < -MICROS_MAX_MS:
            timestamp = -MICROS_MAX_MS
        put_i64(out.offsets, offset)
        put_i64(out.timestamps_us, timestamp * 1000)
        put_i32(out.timestamp_types, batch.append_time)
        out.rows += 1
        pos = end
    return OK


class AbortedTransactions:
    """Which batches of a fetch belong to aborted transactions. Batches must be passed in the order of the log.

    aborted: (producer id, first offset) pairs of the fetch response. Use the same object for all calls of
    `decode` for one response, because the calls may divide a transaction's batches from its marker.
    """

    __slots__ = ("_active", "_seen", "_sorted")

    def __init__(self, aborted=()):
        self._sorted = sorted((first, producer) for producer, first in aborted)
        self._seen = 0
        self._active = set()

    def drops(self, producer_id, last_offset):
        """Whether to drop a transactional batch of this producer that ends at `last_offset`."""
        while self._seen < len(self._sorted) and self._sorted[self._seen][0] <= last_offset:
            self._active.add(self._sorted[self._seen][1])
            self._seen += 1
        return producer_id in self._active

    def marker(self, producer_id):
        """The end of a transaction: later batches belong to another one."""
        self._active.discard(producer_id)


def decode(
    data,
    int64_t start_offset,
    int64_t end_offset=INT64_MAX,
    *,
    Py_ssize_t position=0,
    bint headers=False,
    aborted=None,
    bint check_crcs=True,
    Py_ssize_t rows_bytes_max=64 << 20,
    Py_ssize_t batch_bytes_max=1 << 28,
):
    """The records of `data` from byte `position` with start_offset <= offset < end_offset, as Decoded.

    data: whole v2 batches of one partition; the last may be cut off and is then left out. Stops after the
    batch with which keys, values and headers reach `rows_bytes_max` bytes: call again with
    `position=decoded.position` for the rest. Control batches contain no records.
    aborted: an AbortedTransactions, if aborted records are to be left out.
    Raises CorruptBatch (bad length, CRC-32C, damaged records or compression) and UnsupportedMagic (formats
    0 and 1). O(bytes); the parsing runs without the GIL.
    """
    cdef Decoded out = Decoded()
    cdef Py_buffer view
    if headers:
        out.headers, out.header_keys, out.header_values = BinaryColumn(), BinaryColumn(), BinaryColumn()
    out.next_offset = start_offset
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= position <= view.len:
            raise ValueError(f"position {position} is outside of {view.len} bytes")
        out.position = position
        # Most fetched bytes are values: one allocation instead of a dozen doublings.
        if reserve(out.value.data, min(view.len - position, rows_bytes_max)) != OK:
            raise MemoryError
        decode_batches(
            out, <const uint8_t*> view.buf, view.len, data, end_offset, aborted, check_crcs, rows_bytes_max,
            batch_bytes_max,
        )
    finally:
        PyBuffer_Release(&view)
    for column in (out.key, out.value, out.headers, out.header_keys, out.header_values):
        if column is not None and finish_bits(column) != OK:
            raise MemoryError
    return out


cdef int decode_batches(
    Decoded out, const uint8_t* p, Py_ssize_t size, object data, int64_t end_offset, object aborted,
    bint check_crcs, Py_ssize_t rows_bytes_max, Py_ssize_t batch_bytes_max,
) except -1:
    cdef Py_ssize_t pos = out.position, batch_end
    cdef int64_t start = out.next_offset, last_offset, producer_id, batch_length
    cdef int32_t last_delta
    cdef uint32_t attributes
    cdef int status
    cdef BatchInfo info
    cdef const uint8_t* payload
    cdef Py_ssize_t payload_bytes
    cdef bytes unpacked
    cdef bint dropped
    raw = memoryview(data).cast("B")
    while size - pos >= HEADER_BYTES and out.next_offset < end_offset:
        batch_length = <int32_t> load_u32(p + pos + 8)
        if batch_length < HEADER_BYTES - OVERHEAD_BYTES:
            raise CorruptBatch(f"a batch at byte {pos} states a length of {batch_length} bytes")
        if batch_length > size - pos - OVERHEAD_BYTES:
            break
        batch_end = pos + OVERHEAD_BYTES + batch_length
        info.base_offset = <int64_t> load_u64(p + pos)
        if p[pos + 16] != 2:
            raise UnsupportedMagic(
                f"the batch at offset {info.base_offset} has message format {p[pos + 16]}; only 2 is read"
            )
        if check_crcs and crc32c(raw[pos + 21:batch_end]) != load_u32(p + pos + 17):
            raise CorruptBatch(f"the CRC-32C of the batch at offset {info.base_offset} is wrong")
        attributes = load_u32(p + pos + 19) & 0xFFFF
        last_delta = <int32_t> load_u32(p + pos + 23)
        if last_delta < 0 or info.base_offset < 0 or info.base_offset > INT64_MAX - INT32_MAX - 1:
            raise CorruptBatch(f"the batch at offset {info.base_offset} ends before it begins")
        last_offset = info.base_offset + last_delta
        producer_id = <int64_t> load_u64(p + pos + 43)
        dropped = (attributes & 0x20) != 0
        if aborted is not None and attributes & 0x10:
            if aborted.drops(producer_id, last_offset) and not dropped:
                dropped = True
            if attributes & 0x20:
                aborted.marker(producer_id)
        status = OK
        if not dropped and last_offset >= start and info.base_offset < end_offset:
            if out.rows and held_bytes(out) >= rows_bytes_max:
                return 0
            info.base_timestamp = <int64_t> load_u64(p + pos + 27)
            info.max_timestamp = <int64_t> load_u64(p + pos + 35)
            info.append_time = (attributes & 8) != 0
            info.record_count = <int32_t> load_u32(p + pos + 57)
            payload = p + pos + HEADER_BYTES
            payload_bytes = batch_end - pos - HEADER_BYTES
            if attributes & 7:
                unpacked = unpack(attributes & 7, raw[pos + HEADER_BYTES:batch_end], info.base_offset, batch_bytes_max)
                payload = <const uint8_t*> <char*> unpacked
                payload_bytes = len(unpacked)
            with nogil:
                status = add_records(out, payload, payload_bytes, &info, start, end_offset)
            if status == NO_MEMORY:
                raise MemoryError
            if status == BAD_RECORD:
                raise CorruptBatch(f"the batch at offset {info.base_offset} holds a damaged record")
        if last_offset >= out.next_offset:
            out.next_offset = min(last_offset + 1, end_offset)
        pos = batch_end
        out.position = pos
    return 0


cdef Py_ssize_t held_bytes(Decoded out):
    cdef Py_ssize_t total = out.key.data.size + out.value.data.size
    if out.headers is not None:
        total += out.header_keys.data.size + out.header_values.data.size
    return total


cdef bytes unpack(int codec, object data, int64_t base_offset, Py_ssize_t batch_bytes_max):
    try:
        return decompress(Codec(codec), data, batch_bytes_max)
    except (CompressionError, ValueError) as error:
        raise CorruptBatch(f"the batch at offset {base_offset} does not decompress: {error}") from error


def repeat(bytes text, Py_ssize_t rows):
    """(int32 offsets, data) of an Arrow column with `text` in each of `rows` rows."""
    cdef Buffer offsets = Buffer(), data = Buffer()
    cdef Py_ssize_t i, size = len(text)
    cdef const uint8_t* source = <const uint8_t*> <char*> text
    if rows < 0 or rows * max(size, 1) > INT32_MAX:
        raise ValueError(f"{rows} rows of {size} bytes do not fit one Arrow column")
    if reserve(offsets, (rows + 1) * 4) != OK or reserve(data, rows * size + 1) != OK:
        raise MemoryError
    with nogil:
        put_i32(offsets, 0)
        for i in range(rows):
            put(data, source, size)
            put_i32(offsets, <int32_t> data.size)
    return offsets, data


def scan(const uint8_t[::1] data not None):
    """(offset after the last whole batch, size of the whole batches); offset -1 if there are none.

    Reads only headers, so that the next fetch can be sent before this one is decoded.
    Raises CorruptBatch for an impossible length.
    """
    cdef Py_ssize_t pos = 0, size = data.shape[0]
    cdef int64_t next_offset = -1, length
    cdef const uint8_t* p
    while size - pos >= HEADER_BYTES:
        p = &data[pos]
        length = <int32_t> load_u32(p + 8)
        if length < HEADER_BYTES - OVERHEAD_BYTES:
            raise CorruptBatch(f"a batch at byte {pos} states a length of {length} bytes")
        if length > size - pos - OVERHEAD_BYTES:
            break
        next_offset = <int64_t> (load_u64(p) + load_u32(p + 23) + 1)
        pos += OVERHEAD_BYTES + length
    return next_offset, pos
