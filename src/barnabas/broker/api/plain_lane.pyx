# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The shortest way of a produce request: recognized, appended and answered without a step of the interpreter.

It serves requests about which nothing is special (see partitions/plain_append.pyx); produce_lane.py takes the others.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t

from barnabas.broker.partitions.plain_append cimport PartitionState
from barnabas.cores.partition_offsets cimport PartitionOffsets
from barnabas.runtime.timing cimport RequestStats, Timing
from barnabas.wire.big_endian cimport big16, big32
from barnabas.wire.produce_shape cimport ProduceShape

cdef enum:
    SIZE_BYTES = 4          # in front of each frame
    CORRELATION_AT = 4      # in a frame behind API key and version
    PRODUCE = 0


cdef class PlainLane:
    """One producer's requests to one topic. served: the topic's partitions by number."""

    cdef ProduceShape shape
    cdef dict served
    cdef bint acks_all, zstd_allowed
    cdef tuple topics

    def __init__(self, ProduceShape shape, dict served, bint acks_all, bint zstd_allowed, str topic):
        self.shape = shape
        self.served = served
        self.acks_all = acks_all
        self.zstd_allowed = zstd_allowed
        self.topics = (topic,)

    def take(self, connection, buffer, Py_ssize_t end, Py_ssize_t frames_max, RequestStats stats):
        """Serve the frames at the beginning of buffer[:end] while they are whole and plain, but at most `frames_max`.

        Returns where the first other frame begins, for which nothing has changed. The answers are queued in one piece,
        also when a later frame meets a bug. stats: of produce requests.
        """
        cdef Py_buffer view
        cdef Py_ssize_t position = 0, bytes_max = connection.frame_bytes_max
        cdef int64_t size, begun_us = stats.begin_quick()
        cdef list answers = []
        cdef Timing timing
        PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
        try:
            while end - position >= SIZE_BYTES and len(answers) < frames_max:
                size = <int32_t>big32(<uint8_t*>view.buf + position)
                if not 0 <= size <= min(end - position - SIZE_BYTES, bytes_max):
                    break
                answer = self.serve(<uint8_t*>view.buf + position + SIZE_BYTES, size)
                if answer is None:
                    break
                answers.append(answer)
                position += SIZE_BYTES + size
        finally:
            PyBuffer_Release(&view)
            if answers:
                connection.respond(answers if len(answers) == 1 else [b"".join(answers)])
                timing = stats.quick(begun_us, len(answers), self.shape.version, position, self.topics)
                if timing is not None:
                    connection.timings.append(timing)
        return position

    cdef bytes serve(self, uint8_t* frame, Py_ssize_t size):
        """The answer to a frame, whose batch has been appended; None if something is not
        plain. Raises only when the batch is in the log, so that it is not appended again."""
        cdef Py_ssize_t at, end
        cdef int32_t index
        cdef int64_t base_offset, end_offset
        cdef PartitionState partition
        cdef PartitionOffsets core
        if not self.shape.find(frame, size, &index, &at, &end) or big16(frame) != PRODUCE:
            return None
        partition = self.served.get(index)
        if partition is None:
            return None
        core = partition.log.core
        end_offset = core.log_end_offset
        try:
            base_offset = partition.append_plain(frame + at, end - at, self.acks_all, self.zstd_allowed)
        except Exception:
            if core.log_end_offset != end_offset:
                raise
            return None
        if base_offset < 0:
            return None
        return self.shape.answer(
            <int32_t>big32(frame + CORRELATION_AT), index, 0, base_offset, -1, core.log_start_offset
        )
