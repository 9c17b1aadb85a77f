from enum import IntEnum

class SlotType(IntEnum):
    TEXT = 0
    INT = 1
    LONG = 2
    DOUBLE = 3
    BOOLEAN = 4
    TIME = 5
