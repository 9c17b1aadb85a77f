# cython: language_level=3
"""Where the fields of a batch's header stand (magic 2), in bytes from the batch's beginning, for all compiled modules."""

cdef enum:
    LENGTH_AT = 8
    OVERHEAD_BYTES = 12     # the base offset and the length, which the length does not count
    EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    COUNT_AT = 57
    HEADER_BYTES = 61
    RECORD_BYTES_MIN = 7    # of a record without key, value and headers: seven fields of at least a byte
