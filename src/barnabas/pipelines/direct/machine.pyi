from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from barnabas.records.columnar import BinaryColumn

SLOTS: Final[int]

class Shape(IntEnum):
    FIELD = 0
    OBJECT = 1

class Part(IntEnum):
    KEY = 0
    VALUE = 1
    OFFSET = 2
    TIMESTAMP = 3
    TOPIC = 4
    PARTITION = 5

Reader = Any

class Template:
    def __init__(self, shape: int, slots: list[int], texts: list[bytes]) -> None: ...

class Machine:
    def __init__(
        self,
        reader: Reader,
        base: int,
        kinds: list[int],
        constants: dict[int, Any],
        parts: list[tuple[int, int]],
        steps: list[tuple[int, int, Sequence[int], int]],
        templates: list[tuple[int, Template]],
    ) -> None: ...
    def run(
        self, rows: int, parts: dict[int, Any], first: int, headers: list[Any], wanted: Any
    ) -> tuple[bytearray, list[BinaryColumn]]: ...

def reader_of(options: Mapping[str, Any]) -> Reader: ...
