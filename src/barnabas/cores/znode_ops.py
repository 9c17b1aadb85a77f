"""Changes to a znode tree, as data. A list of them is applied atomically by `ZnodeTree.multi`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ANY_VERSION: Final = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node under an existing parent.

    ephemeral: it goes when its session ends. sequence: ten digits, counted per parent, are appended to
    the path.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's data. version: what it must be now, or ANY_VERSION."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node that has no children. version: what it must be now, or ANY_VERSION."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Let the whole list fail unless the node exists in this version. ANY_VERSION: unless it exists."""

    path: str
    version: int = ANY_VERSION


Op = Create | Set | Delete | Check


def parent_of(path: str) -> str:
    """The path one level up; "/" for top-level nodes."""
    return path.rpartition("/")[0] or "/"
