from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from barnabas.records.compression import Buffer

NAMED_MAX: int

def counted(pieces: Iterable[Buffer], count: int) -> Iterator[Buffer]: ...
def faults(
    pieces: Iterable[Buffer],
    count: int,
    base_timestamp: int,
    keyed: bool,
    oldest_ms: int,
    newest_ms: int,
) -> tuple[list[int], list[int], list[int]]: ...
def first_at_or_after(
    pieces: Iterable[Buffer],
    count: int,
    base_timestamp: int,
    base_offset: int,
    timestamp: int,
    from_offset: int,
) -> tuple[int, int] | None: ...
def greatest(
    pieces: Iterable[Buffer], count: int, base_timestamp: int, base_offset: int, from_offset: int
) -> tuple[int, int] | None: ...
def schemas_named(block: Buffer, count: int, of_key: bool) -> set[int | bytes | None]: ...
def records_naming(
    block: Buffer, count: int, of_key: bool, names: AbstractSet[int | bytes | None]
) -> list[int]: ...
