"""What zookeeper-shell knows about nodes, and asks the tree that they are in."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Refusal(Exception):
    """A command failed on its node. The message is the one of ZooKeeper's shell."""


class Facts(NamedTuple):
    """What is known about a node. The embedded tree keeps no pzxid, cversion and aversion: they are None."""

    czxid: int
    ctime_ms: int
    mzxid: int
    mtime_ms: int
    pzxid: int | None
    cversion: int | None
    version: int
    aversion: int | None
    owner: int
    data_length: int
    children: int


class Tree(Protocol):
    """What the shell asks. Paths begin with a slash. Everything raises Refusal."""

    def get(self, path: str) -> tuple[bytes | None, Facts]:
        """Data and facts of a node."""

    def children(self, path: str) -> list[str]:
        """The names of its children, sorted."""

    def create(self, path: str, data: bytes | None, ephemeral: bool, sequence: bool, acl: str | None) -> str:
        """Create a node; its path."""

    def set(self, path: str, data: bytes, version: int) -> Facts:
        """Replace its data."""

    def delete(self, path: str, version: int) -> None:
        """Delete a node without children."""

    def get_acl(self, path: str) -> list[tuple[str, str, str]]:
        """(scheme, id, permissions as in cdrwa) of each entry."""

    def set_acl(self, path: str, acl: str, version: int) -> Facts:
        """Replace its ACL."""

    def add_auth(self, scheme: str, credential: str) -> None:
        """Log this session in."""

    def sync(self, path: str) -> None:
        """Wait until this server knows what all others know."""

    def close(self) -> None:
        """End the session."""
