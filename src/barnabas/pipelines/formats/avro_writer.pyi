from collections.abc import Sequence
from enum import IntEnum
from typing import Any

class Put(IntEnum):
    CONSTANT = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    TIME = 4
    FLOAT = 5
    DOUBLE = 6
    BYTES = 7
    FIXED = 8
    ENUM = 9
    DECIMAL = 10
    FIXED_DECIMAL = 11
    RECORD = 12
    ARRAY = 13
    MAP = 14

class Source:
    kind: int
    branch: int
    null_branch: int
    width: int
    divisor: int
    size: int
    children: list[Source]
    symbols: list[bytes]
    constant: bytes
    def __init__(
        self,
        kind: int,
        *,
        width: int = 0,
        divisor: int = 1,
        size: int = 0,
        children: Sequence[Source] = (),
        symbols: Sequence[bytes] = (),
        constant: bytes = b"",
    ) -> None: ...
    def bind(self, array: Any) -> None: ...

def write(root: Source, rows: int, id: int) -> tuple[bytes, bytes, list[int]]: ...
