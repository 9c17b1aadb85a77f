from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

from barnabas.records.columnar import Buffer

class Kind(IntEnum):
    TEXT = 0
    INT = 1
    LONG = 2
    TIME = 3
    BARE = 4

class Shape(IntEnum):
    CONSTANT = 0
    FIELD = 1
    JOINED = 2
    OBJECT = 3

GROUPS: Final[tuple[str, ...]]
FIELDS: Final[int]

class Column:
    offsets: Buffer
    data: Buffer
    rows: int
    null_count: int
    @property
    def validity(self) -> Buffer | None: ...

class Template:
    def __init__(self, shape: int, fields: list[int], texts: list[bytes]) -> None: ...

class Maker:
    def __init__(
        self, combined: bool, fields: list[tuple[int, int]], templates: Sequence[tuple[int, Template]]
    ) -> None: ...
    def make(
        self, rows: int, offsets: Any, data: Any, first: int, wanted: Any
    ) -> tuple[bytearray, list[Column]]: ...
