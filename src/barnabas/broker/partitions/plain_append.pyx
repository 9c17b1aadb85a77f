# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The append of a batch about which nothing is special, to a partition about which nothing is special.

Nearly all appends are of this kind, and with small batches the interpreter would take longer for one than the kernel takes
for writing it. Whatever is not plain (the first batch of a segment, a roll, replicas, transactions, a batch to be refused)
is left to `Partition.append`, which decides again and knows all rules; this module only recognizes what needs none of them.
"""

import os
import posix

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.exc cimport PyErr_SetFromErrno
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EINTR, errno
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from barnabas.cores.partition_offsets cimport PartitionOffsets
from barnabas.records.batch_layout cimport (
    ATTRIBUTES_AT, COUNT_AT, CRC_AT, EPOCH_AT, HEADER_BYTES, LAST_DELTA_AT, LENGTH_AT, MAGIC_AT, MAX_TIMESTAMP_AT,
    OVERHEAD_BYTES, PRODUCER_ID_AT, RECORD_BYTES_MIN,
)
from barnabas.records.checksum import crc32c
from barnabas.records.header_codec import read_header
from barnabas.storage.append_state cimport LogState, SegmentState
from barnabas.storage.errors import LogDirOffline
from barnabas.storage.segments.segment_files import TAIL_BATCHES
from barnabas.wire.big_endian cimport big16, big32, big64, put_big32, put_big64

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int fd, const void* data, size_t size, int64_t position)

cdef enum:
    CODEC_MASK = 0x07
    ZSTD = 4                # the codec with the greatest number
    TRANSACTIONAL_OR_CONTROL = 0x30

cdef Py_ssize_t TAIL_BATCHES_MAX = TAIL_BATCHES
cdef object OS_PWRITE = posix.pwrite


cdef class PartitionState:
    """The fields of a Partition that an append uses (what they mean is said in partition.py), and the plain append."""

    cdef int64_t append_plain(self, uint8_t* data, Py_ssize_t size, bint acks_all, bint zstd_allowed) except -2:
        """Append a producer's batch, which is committed with that; returns its base offset. -1 if something is not plain:
        then nothing has changed. The `size` bytes at `data` are patched in place."""
        cdef LogState log = self.log
        cdef PartitionOffsets core = log.core
        cdef SegmentState segment = log._active
        cdef int64_t base_offset = core.log_end_offset, position = segment.size_bytes, now_ms
        cdef int64_t last_offset, max_timestamp
        if not self.is_plain(acks_all) or not is_plain_batch(data, size, zstd_allowed):
            return -1
        last_offset = base_offset + <int32_t>big32(data + LAST_DELTA_AT)
        max_timestamp = big64(data + MAX_TIMESTAMP_AT)
        config = log.config
        if (
            position == 0
            or position + size > log._size_limit
            or last_offset > log._offset_limit
            or not -1 <= max_timestamp <= log._roll_after
            or size > <int64_t>config.max_message_bytes
            or last_offset + 1 - log.recovery_point >= <int64_t>config.flush_messages
        ):
            return -1
        now_ms = self._surroundings.clock.now_ms()
        if max_timestamp - now_ms > <int64_t>config.timestamp_after_max_ms:
            return -1
        header = None
        if big64(data + PRODUCER_ID_AT) >= 0:
            header = read_header(PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ))
            if core.decide_append(header) is not None:
                return -1
        put_big64(data, base_offset)
        put_big32(data + EPOCH_AT, <uint32_t>self.leader_epoch)
        if not self.write(data, size, position):
            put_big64(data, 0)  # as the producer sent it
            return -1
        note_append(log, segment, base_offset, last_offset, position, size, max_timestamp)
        if header is None:
            core.log_end_offset = last_offset + 1
        else:
            core.apply(header, base_offset, self.leader_epoch, now_ms)
        if core.producers.unreplicated:
            core.advance_high_watermark(last_offset + 1)
        else:
            core.high_watermark = last_offset + 1
        if self.waiters:
            self._surroundings.wake(self)
        self.bytes_in += size
        self.produce_requests += 1
        return base_offset

    cdef bint is_plain(self, bint acks_all) except -1:
        """Whether an append needs nothing but this broker's log, and is committed as soon as it is written there."""
        cdef LogState log = self.log
        replicas, epochs, config = self._replicas, log.core.epochs, log.config
        return (
            self.offline is None
            and self.is_leader
            and self._flushing is None
            and not self._pending
            and config.is_plain
            and replicas.is_alone
            and (not acks_all or <int64_t>config.min_insync_replicas <= 1)
            and self.leader_epoch == <int32_t>epochs.latest
            and not epochs.dirty
        )

    cdef bint write(self, uint8_t* data, Py_ssize_t size, int64_t position) except -1:
        """Write the batch behind the end of the active segment; False if that failed: then nothing counts as written."""
        cdef LogState log = self.log
        cdef ssize_t written
        cdef int fd
        file = log._active.file
        if file is None:
            return False
        fd = file.fd
        try:
            if os.pwrite is not OS_PWRITE:  # replaced by a simulated disk
                return <Py_ssize_t>os.pwrite(fd, PyMemoryView_FromMemory(<char*>data, size, PyBUF_WRITE), position) == size
            with nogil:
                written = pwrite(fd, data, size, position)
            if written < 0 and errno != EINTR:
                PyErr_SetFromErrno(OSError)
            return written == size
        except OSError as error:
            self._surroundings.write_failed(self, LogDirOffline(log.log_dir, error))
            return False


cdef bint is_plain_batch(const uint8_t* data, Py_ssize_t size, bint zstd_allowed) except -1:
    """Whether the bytes are a whole intact batch of a producer, without a part in a transaction."""
    cdef int16_t attributes
    cdef int32_t count
    if size < HEADER_BYTES or <int8_t>data[MAGIC_AT] != 2 or big64(data) != 0:
        return False
    if <int32_t>big32(data + LENGTH_AT) != size - OVERHEAD_BYTES:
        return False
    attributes = <int16_t>big16(data + ATTRIBUTES_AT)
    if attributes & TRANSACTIONAL_OR_CONTROL or attributes & CODEC_MASK > (ZSTD if zstd_allowed else ZSTD - 1):
        return False
    count = <int32_t>big32(data + COUNT_AT)
    if count <= 0 or <int32_t>big32(data + LAST_DELTA_AT) != count - 1:
        return False
    if not attributes & CODEC_MASK and <int64_t>count * RECORD_BYTES_MIN > size - HEADER_BYTES:
        return False
    checked = PyMemoryView_FromMemory(<char*>data + ATTRIBUTES_AT, size - ATTRIBUTES_AT, PyBUF_READ)
    return <uint32_t>crc32c(checked) == big32(data + CRC_AT)


cdef int note_append(
    LogState log, SegmentState segment, int64_t base_offset, int64_t last_offset, int64_t position, int64_t size,
    int64_t max_timestamp,
) except -1:
    """The batch has been written: what `LogWriter._write` does then. Index entries and a long tail are left to Segment."""
    segment.size_bytes = position + size
    if segment.bytes_since_entry > segment.interval or len(segment.tail_offsets) >= TAIL_BATCHES_MAX:
        if segment.note_append(base_offset, last_offset, position, size, max_timestamp):
            log._size_limit = 0
        return 0
    if max_timestamp > segment._max_timestamp:
        segment._max_timestamp = max_timestamp
        segment._offset_of_max_timestamp = last_offset
    segment.bytes_since_entry += size
    segment.tail_offsets.append(base_offset)
    segment.tail_positions.append(position)
    return 0
