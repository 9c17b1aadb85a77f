"""Changes to a znode tree, as data. `ZnodeTree.multi` applies a list of them atomically."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

ANY_VERSION: Final = -1
MULTI_BYTES_MAX: Final = 1_000_000
"""The largest multi that every tree accepts: ZooKeeper's servers close the connection at 1,048,575 bytes."""
CHUNK_BYTES: Final = 500_000
CHUNK_OPS: Final = 500
LARGE_OP_BYTES: Final = 50_000
"""A change of this size ends its list: making and replaying it takes a turn of the loop by itself."""
OP_BYTES: Final = 80
"""Upper bound of a change's size in a request, without its path and data."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node under an existing parent.

    ephemeral: the node is removed when its session ends. sequence: ten digits, counted per parent, are appended to
    the path.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's data. version: its expected version, or ANY_VERSION."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node that has no children. version: its expected version, or ANY_VERSION."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Make the whole list fail unless the node has this version or, with ANY_VERSION, exists."""

    path: str
    version: int = ANY_VERSION


Op = Create | Set | Delete | Check
Ops = tuple[Op, ...]


T_co = TypeVar("T_co", covariant=True)


class LazyOps(Generic[T_co]):
    """Changes that are computed on demand, again for each iteration: a topic of 10,000 partitions has 20,000 of them.

    None among them is a point to pause, see `chunks`.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Iterator[T_co]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[T_co]:
        return self._make()


def parent_of(path: str) -> str:
    """The path one level up; "/" for top-level nodes."""
    return path.rpartition("/")[0] or "/"


def size_bytes(op: Op) -> int:
    """Upper bound of a change's size in a request to ZooKeeper."""
    data = len(op.data) if isinstance(op, (Create, Set)) else 0
    return OP_BYTES + len(op.path.encode()) + data


def chunks(
    ops: Iterable[Op | None], bytes_max: int = CHUNK_BYTES, ops_max: int = CHUNK_OPS
) -> Iterator[list[Op]]:
    """The changes in the same order, in lists that are small enough for one multi and for one turn of the loop.

    Checks at the beginning are repeated in every list. A change that is too large by itself gets its own list, which the
    tree refuses. `ops` is read only as far as lists are requested; an empty list is a point to pause, when much has been
    examined and nothing is to be changed yet.
    """
    guard: list[Op] = []
    chunk: list[Op] = []
    used = 0
    has_begun = False
    for op in ops:
        if op is None:
            yield []
            continue
        if isinstance(op, Check) and not has_begun:
            guard.append(op)
            continue
        has_begun = True
        size = size_bytes(op)
        if chunk and (used + size > bytes_max or len(chunk) >= ops_max):
            yield [*guard, *chunk]
            chunk, used = [], 0
        chunk.append(op)
        used += size
        if size > LARGE_OP_BYTES:
            yield [*guard, *chunk]
            chunk, used = [], 0
    if chunk:
        yield [*guard, *chunk]
