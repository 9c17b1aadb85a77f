# cython: language_level=3
from libc.stdint cimport int64_t


cdef Py_ssize_t search(bytearray entries, Py_ssize_t entry_bytes, Py_ssize_t at, Py_ssize_t width, int64_t value) noexcept
