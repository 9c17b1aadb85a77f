# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Encodes Arrow columns as record batches, without a Python object for a record.

`BatchEncoder` takes Arrow buffers through the buffer protocol and returns v2 batches for each partition, chosen
as by Java's producer. Every offset of an Arrow column is checked against its data before it is used.

Source: Kafka's message format, "Record Batch" and "Record"; KIP-480 for records without a key.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from barnabas.records.batch_layout cimport HEADER_BYTES, OVERHEAD_BYTES
from barnabas.records.columnar cimport (
    BAD_RECORD, NO_MEMORY, OK, STOP, Buffer, store_u16, store_u32, store_u64,
)

from barnabas.records.checksum import crc32c
from barnabas.records.compression import Codec, compress


cdef int TRANSACTIONAL = 1 << 4  # bit 4 of a batch's attributes


cdef uint32_t murmur2_c(const uint8_t* p, Py_ssize_t length) noexcept nogil:
    """Java's murmur2 with Kafka's seed. Source: org.apache.kafka.common.utils.Utils.murmur2."""
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t> 0x9747B28C ^ <uint32_t> length
    cdef uint32_t k
    cdef Py_ssize_t i = 0
    while length - i >= 4:
        k = p[i] | (<uint32_t> p[i + 1] << 8) | (<uint32_t> p[i + 2] << 16) | (<uint32_t> p[i + 3] << 24)
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        i += 4
    k = 0
    if length - i == 3:
        k |= <uint32_t> p[i + 2] << 16
    if length - i >= 2:
        k |= <uint32_t> p[i + 1] << 8
    if length - i >= 1:
        k |= p[i]
        h ^= k
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h


def murmur2(const uint8_t[::1] data not None):
    """Kafka's murmur2 of `data`, unsigned."""
    return murmur2_c(&data[0] if data.shape[0] else NULL, data.shape[0])


cdef struct Column:
    # An Arrow column as it was passed. wide: size of one offset in bytes (4 or 8), 0 for fixed-width values.
    const uint8_t* offsets
    const uint8_t* data
    const uint8_t* validity
    Py_ssize_t data_bytes
    Py_ssize_t first
    int wide


cdef inline bint is_null(Column* column, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t at = row + column.first
    return column.validity != NULL and not (column.validity[at >> 3] >> (at & 7)) & 1


cdef inline int64_t offset_at(Column* column, Py_ssize_t row) noexcept nogil:
    if column.wide == 4:
        return (<const int32_t*> column.offsets)[row + column.first]
    return (<const int64_t*> column.offsets)[row + column.first]


cdef inline int span(Column* column, Py_ssize_t row, const uint8_t** start, int64_t* length) noexcept nogil:
    """The bytes of a row; length -1 for null. BAD_RECORD if the offsets are outside of the data."""
    cdef int64_t a, b
    if column.offsets == NULL or is_null(column, row):
        length[0] = -1
        return OK
    a = offset_at(column, row)
    b = offset_at(column, row + 1)
    if a < 0 or b < a or b > column.data_bytes or b - a > INT32_MAX:
        return BAD_RECORD
    start[0] = column.data + a
    length[0] = b - a
    return OK


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


cdef inline uint8_t* write_bytes(uint8_t* p, const uint8_t* source, int64_t length) noexcept nogil:
    p = write_varint(p, length)
    if length > 0:
        memcpy(p, source, length)
        p += length
    return p


cdef struct OpenBatch:
    # A batch being filled; data begins with room for the header.
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity
    int32_t partition
    int32_t records
    int64_t base_timestamp
    int64_t max_timestamp


class EncodedBatch:
    """A finished v2 batch (base offset 0) for one partition.

    data: bytes-like. records: number of records. base_sequence: -1 without a producer id. records_bytes:
    size of the records before compression.
    """

    __slots__ = ("base_sequence", "data", "partition", "records", "records_bytes")

    def __init__(self, partition, data, records, base_sequence, records_bytes):
        self.partition = partition
        self.data = data
        self.records = records
        self.base_sequence = base_sequence
        self.records_bytes = records_bytes


cdef class BatchEncoder:
    """Fills one batch for each partition from Arrow columns; full batches wait for `take`.

    partitions: number of the topic's partitions. batch_bytes_max: uncompressed size after which a batch is
    closed; a larger record gets a batch of its own. With a producer id, the sequences of a partition's batches
    count up from 0, in the order in which `take` and `flush` return them. transactional: whether the batches
    belong to the producer's open transaction.
    A record goes to its given partition, otherwise, as in Java's producer, to that of the murmur2 of its key;
    records without a key go to one partition until its batch is full (sticky), then to the next.
    """

    cdef readonly int32_t partitions
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch
    cdef readonly Py_ssize_t open_bytes
    cdef Py_ssize_t batch_bytes_max
    cdef int codec
    cdef int attributes
    cdef object level
    cdef int32_t sticky
    cdef OpenBatch* open
    cdef OpenBatch* full
    cdef Py_ssize_t full_count
    cdef Py_ssize_t full_capacity
    cdef int32_t* sequences

    def __init__(
        self,
        int32_t partitions,
        *,
        int64_t producer_id=-1,
        int producer_epoch=-1,
        int codec=0,
        level=None,
        Py_ssize_t batch_bytes_max=900_000,
        int32_t first_sticky=0,
        bint transactional=False,
    ):
        if partitions < 1:
            raise ValueError(f"a topic with {partitions} partitions cannot take records")
        if self.open != NULL:
            raise ValueError("an encoder cannot be initialized twice")
        self.partitions = partitions
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.codec = Codec(codec)
        self.attributes = self.codec | (TRANSACTIONAL if transactional else 0)
        self.level = level
        self.batch_bytes_max = max(batch_bytes_max, HEADER_BYTES + 1)
        self.sticky = abs(first_sticky) % partitions
        self.open = <OpenBatch*> calloc(partitions, sizeof(OpenBatch))
        self.sequences = <int32_t*> calloc(partitions, sizeof(int32_t))
        if self.open == NULL or self.sequences == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.open != NULL:
            for i in range(self.partitions):
                free(self.open[i].data)
        for i in range(self.full_count):
            free(self.full[i].data)
        free(self.open)
        free(self.full)
        free(self.sequences)

    def append(
        self, Py_ssize_t rows, value, key=None, *, int64_t now_ms, timestamp=None, partition=None, headers=None
    ):
        """Append `rows` records.

        value, key: (offsets, data, validity or None, first row, bytes of one offset: 4 or 8).
        timestamp: (int64 values, validity or None, first row, units in one millisecond); now_ms for null.
        partition: (int32 values, validity or None, first row).
        headers: (list as key with data None, names as key, values as key).
        Raises ValueError for buffers too short for `rows`, and for a partition that does not exist; the
        records appended before the error remain.
        """
        cdef Append call = Append()
        cdef int status
        cdef Py_ssize_t done = 0
        call.binary(&call.value, value, rows, "value")
        call.binary(&call.key, key, rows, "key")
        if timestamp is not None:
            call.fixed(&call.timestamp, timestamp, rows, 8, "timestamp")
            call.units_per_ms = timestamp[3]
            if call.units_per_ms < 1:
                raise ValueError("a timestamp needs at least one unit in a millisecond")
        if partition is not None:
            call.fixed(&call.partition, partition, rows, 4, "partition")
        if headers is not None:
            call.headers(headers, rows)
        call.now_ms = now_ms
        with nogil:
            status = append_rows(self, call, rows, &done)
        if status == NO_MEMORY:
            raise MemoryError
        if status == BAD_RECORD:
            raise ValueError(f"row {done} is not a record: its offsets are outside of the buffers, or it has over 2 GiB")
        if status == STOP:
            raise ValueError(
                f"row {done} asks for partition {(<const int32_t*> call.partition.data)[done + call.partition.first]}"
                f"; the topic has {self.partitions} (0 to {self.partitions - 1})"
            )

    def take(self):
        """The full batches, as a list of EncodedBatch, in the order in which they became full."""
        batches = []
        cdef Py_ssize_t i
        cdef Py_ssize_t count = self.full_count
        cdef OpenBatch batch
        for i in range(count):
            batch = self.full[i]
            self.full[i].data = NULL  # `finish` owns it, even if it raises
            batches.append(self.finish(batch))
        self.full_count = 0
        return batches

    def flush(self):
        """All batches, full or not; the encoder is empty afterwards."""
        cdef int32_t i
        cdef int status = OK
        for i in range(self.partitions):
            if self.open[i].records and close_batch(self, i) != OK:
                raise MemoryError
        return self.take()

    cdef object finish(self, OpenBatch batch):
        cdef Buffer buffer = Buffer()
        cdef uint8_t* p = batch.data
        cdef int32_t sequence = -1
        cdef Py_ssize_t records_bytes = batch.size - HEADER_BYTES
        buffer.data, buffer.size, buffer.capacity = batch.data, batch.size, batch.capacity
        if self.producer_id >= 0:
            sequence = self.sequences[batch.partition]
            # Java wraps sequences at 2**31 to 0.
            self.sequences[batch.partition] = <int32_t> ((<int64_t> sequence + batch.records) & 0x7FFFFFFF)
        store_u64(p, 0)
        store_u32(p + 8, <uint32_t> (batch.size - OVERHEAD_BYTES))
        store_u32(p + 12, 0xFFFFFFFF)
        p[16] = 2
        store_u16(p + 21, self.attributes)
        store_u32(p + 23, batch.records - 1)
        store_u64(p + 27, <uint64_t> batch.base_timestamp)
        store_u64(p + 35, <uint64_t> batch.max_timestamp)
        store_u64(p + 43, <uint64_t> self.producer_id)
        store_u16(p + 51, <uint32_t> self.producer_epoch & 0xFFFF)
        store_u32(p + 53, <uint32_t> sequence)
        store_u32(p + 57, batch.records)
        if self.codec:
            packed = compress(Codec(self.codec), bytes(buffer)[HEADER_BYTES:], self.level)
            if len(packed) > INT32_MAX - HEADER_BYTES:
                raise ValueError("a compressed batch is over 2 GiB")
            store_u32(p + 8, <uint32_t> (len(packed) + HEADER_BYTES - OVERHEAD_BYTES))
            head = bytearray(memoryview(buffer)[:HEADER_BYTES])
            head[17:21] = crc32c(packed, crc32c(memoryview(head)[21:])).to_bytes(4, "big")
            return EncodedBatch(
                batch.partition, bytes(head) + packed, batch.records, sequence, records_bytes
            )
        store_u32(p + 17, crc32c(memoryview(buffer)[21:]))
        return EncodedBatch(batch.partition, buffer, batch.records, sequence, records_bytes)


cdef class Append:
    """The arguments of one `append`: the columns, and the buffers that they point to."""

    cdef Column value
    cdef Column key
    cdef Column timestamp
    cdef Column partition
    cdef Column header_lists
    cdef Column header_keys
    cdef Column header_values
    cdef int64_t now_ms
    cdef int64_t units_per_ms
    cdef Py_buffer views[24]
    cdef int views_taken

    def __dealloc__(self):
        cdef int i
        for i in range(self.views_taken):
            PyBuffer_Release(&self.views[i])

    cdef const uint8_t* hold(self, object source, Py_ssize_t need, str name, Py_ssize_t* size) except? NULL:
        if source is None:
            if need > 0:
                raise ValueError(f"column {name} has no buffer")
            size[0] = 0
            return <const uint8_t*> self.views  # never read, since it has no bytes
        PyObject_GetBuffer(source, &self.views[self.views_taken], PyBUF_SIMPLE)
        self.views_taken += 1
        if self.views[self.views_taken - 1].len < need:
            raise ValueError(f"a buffer of column {name} is too short: {self.views[self.views_taken - 1].len} bytes, not {need}")
        size[0] = self.views[self.views_taken - 1].len
        return <const uint8_t*> self.views[self.views_taken - 1].buf

    cdef int bits(self, Column* column, object validity, Py_ssize_t rows, str name) except -1:
        cdef Py_ssize_t size = 0
        column.validity = NULL
        if column.first < 0 or column.first > INT64_MAX // 16 - rows:
            raise ValueError(f"column {name} begins at row {column.first}")
        if validity is not None:
            column.validity = self.hold(validity, (rows + column.first + 7) // 8, name, &size)
        return 0

    cdef int binary(self, Column* column, object source, Py_ssize_t rows, str name) except -1:
        cdef Py_ssize_t size = 0
        memset(column, 0, sizeof(Column))
        if source is None:
            return 0
        offsets, data, validity, column.first, column.wide = source
        if column.wide != 4 and column.wide != 8:
            raise ValueError(f"an offset of column {name} has {column.wide} bytes, not 4 or 8")
        self.bits(column, validity, rows, name)
        if rows:
            column.offsets = self.hold(offsets, (rows + column.first + 1) * column.wide, name, &size)
        column.data = self.hold(data, 0, name, &column.data_bytes)
        return 0

    cdef int fixed(self, Column* column, object source, Py_ssize_t rows, int width, str name) except -1:
        cdef Py_ssize_t size = 0
        memset(column, 0, sizeof(Column))
        column.first = source[2]
        self.bits(column, source[1], rows, name)
        column.data = self.hold(source[0], (rows + column.first) * width, name, &size)
        return 0

    cdef int headers(self, object source, Py_ssize_t rows) except -1:
        lists, names, values = source
        self.binary(&self.header_lists, lists, rows, "headers")
        cdef Py_ssize_t entries = 0
        if rows:
            entries = offset_at(&self.header_lists, rows)
            if entries < 0 or entries > INT32_MAX:
                raise ValueError("the list offsets of column headers are damaged")
        self.header_lists.data_bytes = entries
        self.binary(&self.header_keys, names, entries, "headers.key")
        self.binary(&self.header_values, values, entries, "headers.value")
        return 0


cdef int close_batch(BatchEncoder encoder, int32_t partition) noexcept nogil:
    """Move the partition's open batch to the full ones."""
    cdef OpenBatch* full
    cdef Py_ssize_t capacity
    if encoder.full_count == encoder.full_capacity:
        capacity = encoder.full_capacity * 2 + 16
        full = <OpenBatch*> realloc(encoder.full, capacity * sizeof(OpenBatch))
        if full == NULL:
            return NO_MEMORY
        encoder.full = full
        encoder.full_capacity = capacity
    encoder.full[encoder.full_count] = encoder.open[partition]
    encoder.full_count += 1
    encoder.open_bytes -= encoder.open[partition].size
    memset(&encoder.open[partition], 0, sizeof(OpenBatch))
    if partition == encoder.sticky:
        encoder.sticky = (partition + 1) % encoder.partitions
    return OK


cdef int headers_span(Append call, Py_ssize_t row, int64_t* first, int64_t* count, int64_t* size) noexcept nogil:
    """The position of a row's headers among the entries, and their size in a record."""
    cdef int64_t a, b, i, length = 0
    cdef const uint8_t* at = NULL
    first[0] = 0
    count[0] = 0
    size[0] = 1
    if call.header_lists.offsets == NULL or is_null(&call.header_lists, row):
        return OK
    a = offset_at(&call.header_lists, row)
    b = offset_at(&call.header_lists, row + 1)
    if a < 0 or b < a or b > call.header_lists.data_bytes:
        return BAD_RECORD
    first[0] = a
    count[0] = b - a
    size[0] = varint_bytes(b - a)
    for i in range(a, b):
        if span(&call.header_keys, i, &at, &length) != OK:
            return BAD_RECORD
        if length < 0:
            length = 0  # a header's name is never null on the wire
        size[0] += varint_bytes(length) + length
        if span(&call.header_values, i, &at, &length) != OK:
            return BAD_RECORD
        size[0] += varint_bytes(length) + (length if length > 0 else 0)
    return OK


cdef uint8_t* write_headers(Append call, uint8_t* p, int64_t first, int64_t count) noexcept nogil:
    cdef int64_t i, length = 0
    cdef const uint8_t* at = NULL
    p = write_varint(p, count)
    for i in range(first, first + count):
        span(&call.header_keys, i, &at, &length)
        p = write_bytes(p, at, length if length > 0 else 0)
        span(&call.header_values, i, &at, &length)
        p = write_bytes(p, at, length)
    return p


cdef int append_rows(BatchEncoder encoder, Append call, Py_ssize_t rows, Py_ssize_t* done) noexcept nogil:
    cdef Py_ssize_t row, need, capacity
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int64_t key_bytes = 0, value_bytes = 0, timestamp, body, first = 0, count = 0, headers_bytes = 0
    cdef int32_t target
    cdef OpenBatch* batch
    cdef uint8_t* p
    for row in range(rows):
        done[0] = row
        if span(&call.key, row, &key, &key_bytes) != OK or span(&call.value, row, &value, &value_bytes) != OK \
                or headers_span(call, row, &first, &count, &headers_bytes) != OK:
            return BAD_RECORD
        timestamp = call.now_ms
        if call.timestamp.data != NULL and not is_null(&call.timestamp, row):
            timestamp = (<const int64_t*> call.timestamp.data)[row + call.timestamp.first]
            if timestamp < 0:  # round down, also before 1970: C rounds towards zero
                timestamp -= call.units_per_ms - 1
            timestamp = timestamp // call.units_per_ms
        if call.partition.data != NULL and not is_null(&call.partition, row):
            target = (<const int32_t*> call.partition.data)[row + call.partition.first]
            if target < 0 or target >= encoder.partitions:
                return STOP
        elif key_bytes >= 0:
            target = <int32_t> ((murmur2_c(key, key_bytes) & 0x7FFFFFFF) % <uint32_t> encoder.partitions)
        else:
            target = encoder.sticky
        batch = &encoder.open[target]
        body = 1 + varint_bytes(key_bytes) + varint_bytes(value_bytes) + headers_bytes
        body += (key_bytes if key_bytes > 0 else 0) + (value_bytes if value_bytes > 0 else 0)
        need = body + 25  # three more varints: length, timestamp and offset delta
        if body > INT32_MAX - 1024:
            return BAD_RECORD
        if batch.records and batch.size + need > encoder.batch_bytes_max:
            if close_batch(encoder, target) != OK:
                return NO_MEMORY
            if call.partition.data == NULL and key_bytes < 0:
                target = encoder.sticky
                batch = &encoder.open[target]
                if batch.records and batch.size + need > encoder.batch_bytes_max \
                        and close_batch(encoder, target) != OK:
                    return NO_MEMORY
        if batch.size + need > batch.capacity:
            # A batch starts small, so that a topic with many partitions does not take the full size for each.
            capacity = batch.capacity * 2 if batch.capacity else 4096
            if capacity > encoder.batch_bytes_max:
                capacity = encoder.batch_bytes_max
            if capacity < batch.size + need + HEADER_BYTES:
                capacity = batch.size + need + HEADER_BYTES
            p = <uint8_t*> realloc(batch.data, capacity)
            if p == NULL:
                return NO_MEMORY
            batch.data = p
            batch.capacity = capacity
        if batch.records == 0:
            batch.size = HEADER_BYTES
            encoder.open_bytes += HEADER_BYTES
            batch.partition = target
            batch.base_timestamp = timestamp
            batch.max_timestamp = timestamp
        elif timestamp > batch.max_timestamp:
            batch.max_timestamp = timestamp
        body += varint_bytes(timestamp - batch.base_timestamp) + varint_bytes(batch.records)
        p = write_varint(batch.data + batch.size, body)
        p[0] = 0
        p = write_varint(p + 1, timestamp - batch.base_timestamp)
        p = write_varint(p, batch.records)
        p = write_bytes(p, key, key_bytes)
        p = write_bytes(p, value, value_bytes)
        p = write_headers(call, p, first, count)
        encoder.open_bytes += (p - batch.data) - batch.size
        batch.size = p - batch.data
        batch.records += 1
    done[0] = rows
    return OK
