# cython: language_level=3
"""The fields of a PartitionCore that every append uses: compiled code reaches them without the interpreter."""


cdef class PartitionOffsets:
    """See the module. What the fields mean, and who may change them, is said in cores/partition.py."""
