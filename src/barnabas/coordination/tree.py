"""The znode tree, which stores a cluster's metadata. One interface; embedded or in ZooKeeper.

Nodes are addressed by absolute paths, contain bytes and a version, and may have children. Rules for all
implementations, checked by tests/unit/coordination:

* A change is durable and visible to every session when its call returns.
* `multi` applies all of its changes or none, and takes up to MULTI_BYTES_MAX; longer lists are sent in chunks.
* Watchers are notified of every change of their path and below it, including their own changes, in order. They are
  called by the event loop, before or after the call that made the change returns. An event says what
  changed, not the data: read it again.
* Every call returns or fails in bounded time, whatever happens to the server.
* An ephemeral node is removed when its session is closed or expires; it has no children.
* Until `safe_until_s`, no other session can have seen this session's ephemeral nodes disappear. DISCONNECTED is
  delivered before that time, unless the whole process stood still. So code that must not act after its session has
  ended has to compare the clock with it at the moment of acting.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from barnabas.cores.znode_ops import (
    ANY_VERSION,
    MULTI_BYTES_MAX,
    Check,
    Create,
    Delete,
    Op,
    Set,
    chunks,
    parent_of,
    size_bytes,
)


class Stat(NamedTuple):
    """What is known of a node besides its data.

    version: 0 at creation, incremented by each set. czxid, mzxid: numbers of the changes that created and last set it; they
    only increase. owner: the session of an ephemeral node, otherwise 0.
    """

    version: int
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    owner: int


class EventKind(Enum):
    """What happened to a node, or to the session."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    # No server answers. The session lives until `safe_until_s`, and may then end without a notification here.
    DISCONNECTED = "disconnected"
    # Events may have been missed while the connection was down: read everything again.
    RECONNECTED = "reconnected"
    # The session's ephemeral nodes are gone, and the tree object can no longer be used.
    EXPIRED = "expired"


class Event(NamedTuple):
    """One change. path: the node; "" for events of the session."""

    kind: EventKind
    path: str = ""


Watcher = Callable[[Event], None]
DELETE_ATTEMPTS: Final = 4
_NO_PARTS: Final = frozenset(("", ".", ".."))
# Source: ZooKeeper's PathUtils.validatePath.
_NO_CHARACTERS: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
Result = str | Stat | None


class TreeError(Exception):
    """A change or read was refused, or was not possible."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.reason = why


class NoNode(TreeError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExists(TreeError):
    """A node with this path already exists."""


class BadVersion(TreeError):
    """Somebody else has changed the node meanwhile."""


class NotEmpty(TreeError):
    """The node has children."""


class EphemeralParent(TreeError):
    """Ephemeral nodes cannot have children."""


class TooLarge(TreeError):
    """The changes exceed the limit of one multi."""


class NotAllowed(TreeError):
    """The node's ACL does not permit this, or the session's login was refused."""


class SessionExpired(TreeError):
    """The session has ended; open a new one."""


class ConnectionLost(TreeError):
    """There was no answer; the change may have been made or not."""


class TreeInUse(TreeError):
    """Another process has the embedded tree open."""


class ZnodeTree(ABC):
    """One session with a tree. All methods belong to one event loop."""

    @property
    @abstractmethod
    def session_id(self) -> int:
        """The number of this session, which is the owner of its ephemeral nodes."""

    @property
    def safe_until_s(self) -> float:
        """The time.monotonic() until which this session has certainly not ended; advances while the tree answers."""
        return math.inf

    @property
    def session_timeout_s(self) -> float:
        """The time of silence after which the tree ends this session."""
        return math.inf

    @abstractmethod
    async def get(self, path: str) -> tuple[bytes, Stat]:
        """Data and stat. Raises NoNode."""

    @abstractmethod
    async def exists(self, path: str) -> Stat | None:
        """The stat, or None if the node does not exist."""

    @abstractmethod
    async def children(self, path: str) -> list[str]:
        """Names (not paths) of the children, sorted. Raises NoNode."""

    @abstractmethod
    async def subtree(self, path: str) -> dict[str, tuple[bytes, Stat]]:
        """The node and everything below it, by path, parents before children. Empty if the node does not exist.

        Not an atomic snapshot if others write meanwhile: watch first, then read, then follow the events.
        """

    @abstractmethod
    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        """Apply all changes or none. Returns for each: the path of a create, the stat of a set, otherwise None.

        Raises the error of the first refused change: NoNode, NodeExists, BadVersion, NotEmpty, EphemeralParent.
        """

    @abstractmethod
    async def watch(self, path: str, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` for each later change of the node or anything below it; returns a function that ends this.

        The node need not exist. Watchers run on the event loop; they should only put the event in a queue.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the session; its ephemeral nodes are removed."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node; returns its path. Raises NodeExists, NoNode (no parent), EphemeralParent.

        make_parents: create missing parents first (these remain if the create itself fails).
        """
        if make_parents:
            await self.ensure(parent_of(path))
        (result,) = await self.multi([Create(path, data, ephemeral, sequence)])
        assert isinstance(result, str)
        return result

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data. Raises NoNode, BadVersion."""
        (result,) = await self.multi([Set(path, data, version)])
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION, *, recursive: bool = False) -> None:
        """Remove a node. Raises NoNode, BadVersion, NotEmpty.

        recursive: also everything below it, deepest first, in as many steps as the size requires. If others keep creating
        nodes there, NotEmpty is raised after a few attempts.
        """
        if not recursive:
            await self.multi([Delete(path, version)])
            return
        guard: list[Op] = [] if version == ANY_VERSION else [Check(path, version)]
        for attempt in range(DELETE_ATTEMPTS):
            below = await self.subtree(path)
            if not below and attempt:
                return  # others have removed the rest
            if not below:
                raise NoNode(path, "no such node")
            try:
                for chunk in chunks([*guard, *(Delete(node) for node in reversed(below))]):
                    await self.multi(chunk)
            except (NoNode, NotEmpty):
                if attempt + 1 == DELETE_ATTEMPTS:
                    raise
            else:
                return

    async def ensure(self, path: str) -> None:
        """Create the node, empty, and its parents, as far as they do not exist."""
        if path == "/" or await self.exists(path) is not None:
            return
        await self.ensure(parent_of(path))
        try:
            await self.create(path)
        except NodeExists:
            pass  # somebody else has just created it


def check_path(path: str) -> None:
    """Raises TreeError unless ZooKeeper accepts the path: absolute, no empty component, none of one or two dots."""
    parts = path.split("/")
    if path == "/":
        return
    if not path.startswith("/") or any(part in _NO_PARTS for part in parts[1:]):
        raise TreeError(path, "is not a path of the form /a/b")
    if _NO_CHARACTERS.search(path):
        raise TreeError(path, "has a character that no path may have")


def check_multi(ops: Sequence[Op]) -> None:
    """Raises TreeError for an invalid path, TooLarge for more than one multi can carry."""
    for op in ops:
        check_path(op.path)
    size = sum(map(size_bytes, ops))
    if size > MULTI_BYTES_MAX:
        raise TooLarge(
            ops[0].path, f"{len(ops)} changes of {size} bytes; at most {MULTI_BYTES_MAX} bytes go at once"
        )
