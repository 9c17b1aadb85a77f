from collections.abc import Iterable

from typing_extensions import Buffer as BytesLike

def encode_headers(headers: Iterable[tuple[str, bytes]]) -> bytes: ...

class Stamp:
    def __init__(
        self, key: bytes | None, first: bytes, last: bytes, count: int, name: str = "", before: bytes = b""
    ) -> None: ...

class Frame:
    def __init__(self, start: bytes, middle: bytes, end: bytes) -> None: ...

class RecordBlock:
    size_bytes: int
    records: int
    base_timestamp: int
    max_timestamp: int
    def add_lines(
        self,
        lines: BytesLike,
        at: int,
        position: int,
        stamp: Stamp,
        now_ms: int,
        size_bytes_max: int,
        frame: Frame | None = None,
    ) -> tuple[int, int]: ...
    def add(
        self, value: bytes, key: bytes | None, headers: bytes, count: int, now_ms: int, size_bytes_max: int
    ) -> bool: ...
    def add_stamped(
        self,
        value: bytes,
        key: bytes | None,
        stamp: Stamp,
        position: int,
        end: int,
        now_ms: int,
        size_bytes_max: int,
    ) -> bool: ...
    def release(self) -> None: ...
    def encoded(self) -> bytes: ...
