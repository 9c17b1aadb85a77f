"""What a step of a program does with the values of one record, if none of them is null."""

from barnabas.pipelines.direct.values cimport Room, Value

cpdef enum Op:
    READ
    FILTER
    COPY
    AND
    OR
    NOT
    IS_NULL
    EQUAL
    LESS
    LIKE
    STARTS
    ENDS
    CONTAINS
    ADD
    SUBTRACT
    MULTIPLY
    DIVIDE
    REMAINDER
    WHOLE_TO_REAL
    REAL_TO_WHOLE
    TEXT_TO_WHOLE
    TEXT_TO_REAL
    TEXT_TO_BOOLEAN
    TEXT_TO_TIME
    LINE_TIME
    TO_TEXT
    PLAIN
    TRIM
    UPPER
    LOWER
    LENGTH
    CONCAT
    JOIN
    COALESCE
    CHOOSE
    HEADER
    LOOKUP
    REFUSE

# To CONTAINS the result is BOOLEAN or the argument itself, to REMAINDER a number of the arguments' kind.

cdef int logic(int op, Value* a, Value* b, Value* out) noexcept
cdef int compared(int op, int kind, Value* a, Value* b, Value* out) noexcept
cdef int computed(int op, int kind, Value* a, Value* b, Value* out) noexcept
cdef int converted(int op, int kind, Value* a, Value* out, Room* room) noexcept
