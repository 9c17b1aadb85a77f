from collections.abc import Iterable

from typing_extensions import Buffer as BytesLike

from barnabas.records.batch import CorruptBatch

class UnsupportedMagic(CorruptBatch): ...

class Buffer:
    size: int
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class BinaryColumn:
    offsets: Buffer
    data: Buffer
    null_count: int
    @property
    def validity(self) -> Buffer | None: ...

class Decoded:
    rows: int
    next_offset: int
    position: int
    offsets: Buffer
    timestamps_us: Buffer
    timestamp_types: Buffer
    key: BinaryColumn
    value: BinaryColumn
    headers: BinaryColumn | None
    header_keys: BinaryColumn | None
    header_values: BinaryColumn | None

class AbortedTransactions:
    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None: ...
    def drops(self, producer_id: int, last_offset: int) -> bool: ...
    def marker(self, producer_id: int) -> None: ...

def decode(
    data: BytesLike,
    start_offset: int,
    end_offset: int = ...,
    *,
    position: int = 0,
    headers: bool = False,
    aborted: AbortedTransactions | None = None,
    check_crcs: bool = True,
    rows_bytes_max: int = ...,
    batch_bytes_max: int = ...,
) -> Decoded: ...
def scan(data: BytesLike) -> tuple[int, int]: ...
def repeat(text: bytes, rows: int) -> tuple[Buffer, Buffer]: ...
