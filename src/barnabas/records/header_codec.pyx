# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads, checks and patches batch headers. Every produced batch passes here, which is most of the cost of small ones."""

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from barnabas.records.batch_header import BatchHeader, CorruptBatch
from barnabas.records.batch_layout cimport (
    ATTRIBUTES_AT, COUNT_AT, CRC_AT, EPOCH_AT, HEADER_BYTES, LAST_DELTA_AT, LENGTH_AT, MAGIC_AT, MAX_TIMESTAMP_AT,
    OVERHEAD_BYTES, PRODUCER_ID_AT,
)
from barnabas.records.checksum import crc32c
from barnabas.wire.big_endian cimport big16, big32, big64, put_big32, put_big64

cdef enum:
    LENGTH_MIN = HEADER_BYTES - OVERHEAD_BYTES      # of a batch without records
    FIELDS = 13

cdef extern from "Python.h":
    object new_tuple "PyType_GenericAlloc"(PyTypeObject* kind, Py_ssize_t count)


cdef inline int put(object header, Py_ssize_t slot, object value) except -1:
    Py_INCREF(value)
    PyTuple_SET_ITEM(header, slot, value)
    return 0


cdef object header_at(const uint8_t* data):
    """The BatchHeader in 61 bytes, created as by `tuple.__new__`, but without an intermediate tuple."""
    header = new_tuple(<PyTypeObject*>BatchHeader, FIELDS)
    put(header, 0, big64(data))
    put(header, 1, <int32_t>big32(data + LENGTH_AT))
    put(header, 2, <int32_t>big32(data + EPOCH_AT))
    put(header, 3, <int8_t>data[MAGIC_AT])
    put(header, 4, big32(data + CRC_AT))
    put(header, 5, <int16_t>big16(data + ATTRIBUTES_AT))
    put(header, 6, <int32_t>big32(data + LAST_DELTA_AT))
    put(header, 7, big64(data + 27))
    put(header, 8, big64(data + MAX_TIMESTAMP_AT))
    put(header, 9, big64(data + PRODUCER_ID_AT))
    put(header, 10, <int16_t>big16(data + 51))
    put(header, 11, <int32_t>big32(data + 53))
    put(header, 12, <int32_t>big32(data + COUNT_AT))
    return header


cdef Py_ssize_t require_header(Py_buffer* view, Py_ssize_t pos) except -1:
    """The number of bytes from `pos` on. Raises CorruptBatch if they are too few for a header."""
    cdef Py_ssize_t left = view.len - pos
    if pos < 0 or left < HEADER_BYTES:
        raise CorruptBatch(f"{left} bytes are too few for a batch header")
    return left


def read_header(buf, Py_ssize_t pos=0):
    """The header at `pos`, unchecked. Raises CorruptBatch if fewer than 61 bytes are left.

    For an older magic, only base offset, length and magic have a meaning: these three are at the same
    place in all formats.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        require_header(&view, pos)
        return header_at(<const uint8_t*>view.buf + pos)
    finally:
        PyBuffer_Release(&view)


def check_batch(buf, Py_ssize_t pos=0):
    """The header at `pos` of a batch whose length, magic and checksum are correct.

    Raises CorruptBatch. Cost: one CRC-32C over the batch; no copies.
    """
    cdef Py_buffer view
    cdef const uint8_t* data
    cdef Py_ssize_t left
    cdef int32_t length
    cdef uint32_t crc
    PyObject_GetBuffer(buf, &view, PyBUF_SIMPLE)
    try:
        left = require_header(&view, pos)
        data = <const uint8_t*>view.buf + pos
        if <int8_t>data[MAGIC_AT] != 2:
            raise CorruptBatch(f"magic {<int8_t>data[MAGIC_AT]} where 2 was expected")
        length = <int32_t>big32(data + 8)
        if length < LENGTH_MIN or length > left - OVERHEAD_BYTES:
            raise CorruptBatch(f"batch length {length} does not fit the {left} bytes at hand")
        checked = PyMemoryView_FromMemory(
            <char*>data + ATTRIBUTES_AT, length + OVERHEAD_BYTES - ATTRIBUTES_AT, PyBUF_READ
        )
        crc = crc32c(checked)
        if crc != big32(data + CRC_AT):
            raise CorruptBatch(f"the checksum of the batch at offset {big64(data)} does not hold")
        return header_at(data)
    finally:
        PyBuffer_Release(&view)


def patch(buf, Py_ssize_t pos, int64_t base_offset, int32_t leader_epoch):
    """Write base offset and leader epoch into the batch at `pos`; the checksum does not cover these fields."""
    cdef Py_buffer view
    cdef uint8_t* data
    PyObject_GetBuffer(buf, &view, PyBUF_WRITABLE)
    try:
        require_header(&view, pos)
        data = <uint8_t*>view.buf + pos
        put_big64(data, base_offset)
        put_big32(data + EPOCH_AT, <uint32_t>leader_epoch)
    finally:
        PyBuffer_Release(&view)
