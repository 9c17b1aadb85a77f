from collections.abc import Set as AbstractSet

from barnabas.records.compression import Buffer

NAMED_MAX: int

def faults(
    block: Buffer, count: int, base_timestamp: int, keyed: bool, oldest_ms: int, newest_ms: int
) -> tuple[list[int], list[int], list[int]]: ...
def first_at_or_after(
    block: Buffer, count: int, base_timestamp: int, base_offset: int, timestamp: int, from_offset: int
) -> tuple[int, int] | None: ...
def greatest(
    block: Buffer, count: int, base_timestamp: int, base_offset: int, from_offset: int
) -> tuple[int, int] | None: ...
def schemas_named(block: Buffer, count: int, of_key: bool) -> set[int | bytes | None]: ...
def records_naming(
    block: Buffer, count: int, of_key: bool, names: AbstractSet[int | bytes | None]
) -> list[int]: ...
