from array import array

from barnabas.records.compression import Buffer
from barnabas.storage.batch_table import BatchTable

class OffsetMap:
    slot_count: int
    capacity: int
    size: int
    latest_offset: int
    def __init__(self, memory_bytes: int, secret: bytes, load_factor: float = 0.9) -> None: ...
    def __len__(self) -> int: ...
    def get(self, key: bytes) -> int: ...
    def put(self, key: bytes, offset: int) -> bool: ...
    def put_block(self, block: Buffer, base_offset: int, count: int, from_offset: int) -> bool: ...
    def put_plain(self, table: BatchTable, first: int, from_offset: int) -> int: ...

class Kept:
    count: int
    has_tombstones: bool
    max_timestamp_delta: int
    block: bytes | None

def siphash(data: bytes, key: bytes) -> bytes: ...
def keep_block(
    block: Buffer,
    base_offset: int,
    count: int,
    newest: OffsetMap,
    latest_offset: int,
    drop_tombstones: bool,
) -> Kept: ...
def keep_plain(
    table: BatchTable,
    first: int,
    stop: int,
    newest: OffsetMap,
    latest_offset: int,
    last_offsets: array[int],
) -> tuple[int, int, int]: ...
def shift_timestamps(block: Buffer, count: int, shift_ms: int) -> bytes: ...
