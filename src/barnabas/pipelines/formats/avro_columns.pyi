from collections.abc import Sequence
from enum import IntEnum
from typing import Any

class ColumnType(IntEnum):
    NOTHING = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    FIXED = 7
    ENUM = 8
    DECIMAL = 9
    FIXED_DECIMAL = 10
    RECORD = 11
    ARRAY = 12
    MAP = 13

class Column:
    kind: int
    null_branch: int
    size: int
    children: list[Column]
    symbols: list[bytes]
    rows: int
    nulls: int
    def __init__(
        self, kind: int, *, size: int = 0, children: Sequence[Column] = (), symbols: Sequence[bytes] = ()
    ) -> None: ...
    def clear(self) -> None: ...
    def buffers(self) -> tuple[bytes | None, bytes | None, bytes | None]: ...

def fill(column: Column, data: Any, offsets: Any, first: int, rows: int, id: int) -> bool: ...
