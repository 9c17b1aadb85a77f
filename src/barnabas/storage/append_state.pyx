# cython: language_level=3
"""The fields of logs and segments that every append uses: compiled code reaches them without the interpreter."""


cdef class SegmentState:
    """The fields of a Segment; what they mean is said in segment_files.py."""


cdef class LogState:
    """The fields of a Log; what they mean is said in log_writer.py."""
