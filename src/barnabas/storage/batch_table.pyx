# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A table of the batches in a piece of a segment: one pass over the bytes, without an object for each batch.

Recovery, index look-ups and compaction ask about thousands of small batches. The table answers; only the few batches
that matter (one with an index entry, a producer's last, a control batch, a damaged one) become objects. Batches of
magic 0 and 1 have rows as well; formats.py reads what only their messages contain.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from barnabas.records.batch import HEADER, BatchHeader, CorruptBatch
from barnabas.records.batch_layout cimport ATTRIBUTES_AT, CRC_AT, EPOCH_AT, HEADER_BYTES, LENGTH_AT, MAGIC_AT, OVERHEAD_BYTES
from barnabas.records.checksum import crc32c
from barnabas.storage.formats import Damaged, FoundBatch, verify
from barnabas.wire.big_endian cimport big16, big32, big64

cdef enum:
    LENGTH_MIN = 14             # an empty message of magic 0, after the overhead
    SMALLEST_BYTES = 26
    CONTROL_BIT = 0x20
    TRANSACTIONAL_BIT = 0x10
    BATCHES_KEPT = 5            # of each producer, see cores/producers.py
    ROWS_FIRST = 64

cdef enum Outcome:
    WHOLE
    CUT
    DAMAGED

cdef struct Seen:
    int64_t producer_id
    int32_t batches
    bint used
    bint in_transaction


cdef inline Outcome read_row(const uint8_t* data, int64_t have, int64_t left, bint bodies, Row* row) noexcept nogil:
    """Read the batch at `data`; `have` bytes are in memory and `left` exist in the file. A row that is cut off has the
    batch's size, or 0 if not even that is known."""
    cdef int64_t size
    cdef int8_t magic
    row.size = 0
    if left < SMALLEST_BYTES or have < SMALLEST_BYTES:
        return CUT
    size = <int64_t><int32_t>big32(data + LENGTH_AT) + OVERHEAD_BYTES
    magic = <int8_t>data[MAGIC_AT]
    if size < LENGTH_MIN + OVERHEAD_BYTES or magic < 0 or magic > 2:
        return DAMAGED
    row.size = size
    row.magic = magic
    if size > left or (bodies and size > have):
        return CUT
    row.base_offset = row.last_offset = big64(data)
    if magic < 2:
        row.max_timestamp = row.producer_id = -1
        row.leader_epoch = -1
        row.record_count = 1
        row.attributes = 0
        return WHOLE
    if size < HEADER_BYTES:
        return DAMAGED
    if have < HEADER_BYTES:
        row.size = 0
        return CUT
    row.leader_epoch = <int32_t>big32(data + EPOCH_AT)
    row.attributes = <int16_t>big16(data + ATTRIBUTES_AT)
    row.last_offset = row.base_offset + <int32_t>big32(data + 23)
    row.producer_id = big64(data + 43)
    row.record_count = <int32_t>big32(data + 57)
    row.max_timestamp = big64(data + 35) if row.record_count else -1
    return WHOLE


cdef str why(const uint8_t* data):
    return f"length {<int32_t>big32(data + 8)} and magic {<int8_t>data[MAGIC_AT]}"


def seek(bytes piece, int64_t start, int64_t limit, int64_t offset, bint with_records=False):
    """Walk over the headers in `piece`, which begins at byte `start` of a file that is valid up to `limit`.

    Returns the FoundBatch of the first batch whose last offset is at or after `offset` (with_records: and that is not
    empty), or else the byte at which the walk must continue, which is `start` if even the first header is cut off.
    Raises Damaged.
    """
    cdef int64_t at = 0, have = len(piece)
    cdef const uint8_t* data = <const uint8_t*><const char*>piece
    cdef Outcome outcome
    cdef Row row
    while at < have:
        outcome = read_row(&data[at], have - at, limit - start - at, False, &row)
        if outcome == DAMAGED:
            raise Damaged(start + at, why(&data[at]))
        if outcome == CUT:
            break
        if row.last_offset >= offset and (row.record_count or not with_records):
            return FoundBatch(start + at, row.size, row.magic, row.base_offset, row.last_offset)
        at += row.size
    return start + at


def find_batch(const uint8_t[::1] data, int64_t start, int64_t limit, int64_t low, int64_t ceiling):
    """The first byte of `data` at which there may be a whole batch of magic 2 with offsets in [low, ceiling); -1 if there
    is none. The caller verifies the checksum. `data` begins at byte `start` of a file that is valid up to `limit`.
    """
    cdef int64_t at = 0, have = data.shape[0]
    cdef Row row
    with nogil:
        while at + HEADER_BYTES <= have:
            if (
                data[at + MAGIC_AT] == 2
                and read_row(&data[at], have - at, limit - start - at, False, &row) == WHOLE
                and row.base_offset >= low and row.base_offset <= row.last_offset < ceiling
                and row.record_count >= 0
            ):
                break
            at += 1
        else:
            at = -1
    return at


cdef class BatchTable:
    """See the module. start, end: positions in the file where the first row begins and the last one ends.

    needed: how many bytes from `end` on the next `read` must be given for one more row. damage: why there can be no
    batch at `end`, or None.
    """

    def __dealloc__(self):
        free(self.rows)

    def __len__(self):
        return self.count

    cdef int make_room(self) except -1:
        cdef Py_ssize_t capacity = self.capacity * 2 if self.capacity else ROWS_FIRST
        cdef Row* rows = <Row*>realloc(self.rows, capacity * sizeof(Row))
        if rows == NULL:
            raise MemoryError
        self.rows = rows
        self.capacity = capacity
        return 0

    def read(self, data, int64_t start, int64_t limit, *, bint bodies=True, bint verified=False):
        """Fill the table again, from `data`, which begins at byte `start` of a file that is valid up to `limit`.

        bodies: whether `data` must contain whole batches, not only their headers. verified: whether to verify checksums.
        `data` is used until the next `read`.
        """
        cdef int64_t have, at = 0
        cdef Outcome outcome
        cdef Row* row
        self.data = data
        self.bytes = data
        self.start = self.end = start
        self.count = 0
        self.damage = None
        have = self.data.shape[0]
        while True:
            if self.count == self.capacity:
                self.make_room()
            row = self.rows + self.count
            outcome = CUT if at >= have else read_row(&self.data[at], have - at, limit - start - at, bodies, row)
            if outcome != WHOLE:
                break
            row.at = at
            row.intact = row.kept = row.telling = False
            self.count += 1
            at += row.size
        self.end = start + at
        self.needed = row.size if at < have and row.size > HEADER_BYTES else HEADER_BYTES
        if outcome == DAMAGED:
            self.damage = why(&self.data[at])
        if verified:
            self.verify_rows()

    cdef int verify_rows(self) except -1:
        cdef Py_ssize_t i
        cdef Row* row
        cdef const uint8_t* raw
        for i in range(self.count):
            row = self.rows + i
            if row.magic < 2:
                try:
                    row.max_timestamp = self.header(i).max_timestamp
                    row.intact = True
                except CorruptBatch:
                    pass
                continue
            raw = &self.data[row.at]
            view = PyMemoryView_FromMemory(<char*>raw + ATTRIBUTES_AT, row.size - ATTRIBUTES_AT, PyBUF_READ)
            row.intact = <uint32_t>crc32c(view) == big32(raw + CRC_AT)
        return 0

    # --- one row -----------------------------------------------------------------------------------------

    def position(self, Py_ssize_t i):
        """The position in the file where the row's batch begins."""
        return self.start + self.rows[i].at

    def end_of(self, Py_ssize_t i):
        """The position in the file where the row's batch ends."""
        return self.start + self.rows[i].at + self.rows[i].size

    def size(self, Py_ssize_t i):
        return self.rows[i].size

    def magic(self, Py_ssize_t i):
        return self.rows[i].magic

    def base_offset(self, Py_ssize_t i):
        return self.rows[i].base_offset

    def last_offset(self, Py_ssize_t i):
        return self.rows[i].last_offset

    def is_intact(self, Py_ssize_t i):
        return self.rows[i].intact

    def leader_epoch(self, Py_ssize_t i):
        return self.rows[i].leader_epoch

    def view(self, Py_ssize_t i):
        """The batch's bytes, valid until the next `read`."""
        return self.bytes[self.rows[i].at : self.rows[i].at + self.rows[i].size]

    def header(self, Py_ssize_t i):
        """The header of a batch whose body is in `data`. Raises CorruptBatch for a damaged one of an old format."""
        if self.rows[i].magic < 2:
            return verify(self.view(i))
        return BatchHeader._make(HEADER.unpack_from(self.bytes, self.rows[i].at))

    def fault(self, Py_ssize_t i):
        """Why a batch is not intact; empty if it is."""
        try:
            verify(self.view(i))
        except CorruptBatch as error:
            return str(error)
        return ""

    # --- looking for a row -------------------------------------------------------------------------------

    def reaching(self, int64_t offset):
        """The first row whose last offset is at or after `offset`; len(self) if there is none."""
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.rows[i].last_offset >= offset:
                return i
        return self.count

    def beginning_at(self, int64_t position):
        """The row whose batch begins at a position in the file; -1 if there is none."""
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = (low + high) // 2
            if self.start + self.rows[middle].at < position:
                low = middle + 1
            else:
                high = middle
        return low if low < self.count and self.start + self.rows[low].at == position else -1

    def intact_until(self, Py_ssize_t first):
        """The first row from `first` on that is not intact; len(self) if all are."""
        while first < self.count and self.rows[first].intact:
            first += 1
        return first

    def in_order_until(self, Py_ssize_t first, int64_t end_offset, int64_t ceiling):
        """The first row from `first` on that is doubtful: not intact, or out of place.

        A row is in its place if it begins where the row before it ended; or later, as after a compaction, if the intact
        row after it confirms this by beginning later still. (The checksum does not cover base offsets: a flipped bit
        makes a gap or an overlap on both sides.) end_offset: where the batch before row `first` ended. ceiling: all
        offsets are below it.
        """
        cdef Row* row
        while first < self.count:
            row = self.rows + first
            if not row.intact or row.base_offset < end_offset:
                break
            if row.last_offset < row.base_offset or row.last_offset >= ceiling:
                break
            if row.base_offset > end_offset and not self.is_confirmed(first):
                break
            end_offset = row.last_offset + 1
            first += 1
        return first

    cdef bint is_confirmed(self, Py_ssize_t i) noexcept nogil:
        if i + 1 >= self.count:
            return False
        return self.rows[i + 1].intact and self.rows[i + 1].base_offset > self.rows[i].last_offset

    def consistent_until(self, Py_ssize_t first, int64_t low, int64_t ceiling):
        """The first intact row from `first` on whose offsets are not in [low, ceiling) or overlap those of the intact row
        after it; len(self) if there is none. Rows that are not intact are skipped."""
        cdef Row* row
        while first < self.count:
            row = self.rows + first
            if row.intact:
                if row.base_offset < low or row.last_offset < row.base_offset or row.last_offset >= ceiling:
                    break
                if (
                    first + 1 < self.count and self.rows[first + 1].intact
                    and self.rows[first + 1].base_offset <= row.last_offset
                ):
                    break
                low = row.last_offset + 1
            first += 1
        return first

    def end_before(self, Py_ssize_t i, int64_t otherwise):
        """The offset where the last intact row before row `i` ends; `otherwise` if there is none."""
        while i > 0:
            i -= 1
            if self.rows[i].intact:
                return self.rows[i].last_offset + 1
        return otherwise

    def give_up(self, Py_ssize_t i):
        """Mark the row as damaged: it will not be served."""
        self.rows[i].intact = False

    def below(self, Py_ssize_t first, int64_t offset):
        """The first row from `first` on that begins at or after `offset`; len(self) if there is none."""
        while first < self.count and self.rows[first].base_offset < offset:
            first += 1
        return first

    # --- many rows ---------------------------------------------------------------------------------------

    def index_entries(
        self, Py_ssize_t first, Py_ssize_t stop, int64_t position, int64_t interval, int64_t since_entry,
        int64_t max_timestamp, int64_t offset_of_max, bint only_kept=False,
    ):
        """The index entries for rows that are written one after the other from byte `position` on.

        Returns (entries, bytes since the last one, greatest timestamp, its last offset, the position after the rows);
        an entry is (last offset, position, greatest timestamp up to there, its last offset).
        """
        cdef Py_ssize_t i
        cdef Row* row
        entries = []
        for i in range(first, stop):
            row = self.rows + i
            if only_kept and not row.kept:
                continue
            if row.max_timestamp > max_timestamp:
                max_timestamp = row.max_timestamp
                offset_of_max = row.last_offset
            if since_entry > interval:
                entries.append((row.last_offset, position, max_timestamp, offset_of_max))
                since_entry = 0
            since_entry += row.size
            position += row.size
        return entries, since_entry, max_timestamp, offset_of_max, position

    def kept_bytes(self, Py_ssize_t first, Py_ssize_t stop):
        """The bytes of the rows that compaction.keep_plain has marked."""
        cdef Py_ssize_t i
        cdef int64_t size = 0
        cdef Row* row
        for i in range(first, stop):
            if self.rows[i].kept:
                size += self.rows[i].size
        out = PyBytes_FromStringAndSize(NULL, size)
        cdef char* to = PyBytes_AS_STRING(out)
        for i in range(first, stop):
            row = self.rows + i
            if row.kept:
                memcpy(to, &self.data[row.at], row.size)
                to += row.size
        return out

    def telling(self, Py_ssize_t first, Py_ssize_t stop):
        """The rows that bring a PartitionCore into the same state as all rows would: changes of the leader epoch, control
        batches and, for each producer, its last batches and those that begin a transaction."""
        cdef Py_ssize_t i
        cdef bint producers = False
        cdef Row* row
        for i in range(first, stop):
            row = self.rows + i
            row.telling = (
                i == first or row.leader_epoch != self.rows[i - 1].leader_epoch
                or (row.attributes & CONTROL_BIT) != 0
            )
            producers = producers or row.producer_id >= 0
        if producers:
            tell_producers(self.rows, first, stop)
        return [i for i in range(first, stop) if self.rows[i].telling]


cdef int tell_producers(Row* rows, Py_ssize_t first, Py_ssize_t stop) except -1:
    cdef Py_ssize_t i, slots = 2
    cdef Row* row
    cdef Seen* one
    while slots < 2 * (stop - first):
        slots *= 2
    cdef Seen* seen = <Seen*>calloc(slots, sizeof(Seen))
    if seen == NULL:
        raise MemoryError
    for i in range(first, stop):
        row = rows + i
        if row.producer_id < 0:
            continue
        one = seen_of(seen, slots, row.producer_id)
        if row.attributes & CONTROL_BIT:
            one.in_transaction = False
        elif row.attributes & TRANSACTIONAL_BIT:
            if not one.in_transaction:
                row.telling = True
            one.in_transaction = True
    for i in range(stop - 1, first - 1, -1):
        row = rows + i
        if row.producer_id < 0 or row.attributes & CONTROL_BIT:
            continue
        one = seen_of(seen, slots, row.producer_id)
        if one.batches < BATCHES_KEPT:
            one.batches += 1
            row.telling = True
    free(seen)
    return 0


cdef inline Seen* seen_of(Seen* seen, Py_ssize_t slots, int64_t producer_id) noexcept nogil:
    cdef Py_ssize_t at = <Py_ssize_t>((<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15) >> 20) & (slots - 1)
    while seen[at].used and seen[at].producer_id != producer_id:
        at = (at + 1) & (slots - 1)
    seen[at].used = True
    seen[at].producer_id = producer_id
    return seen + at
