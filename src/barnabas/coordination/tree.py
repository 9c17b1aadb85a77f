"""The znode tree: where a cluster's metadata lives. One interface; embedded or in ZooKeeper.

Nodes are addressed by absolute paths, hold bytes and a version, and may have children. Rules that
hold in every implementation, checked by tests/unit/coordination:

* A change is durable and visible to every session once its call has returned.
* `multi` applies all of its changes or none, and takes up to MULTI_BYTES_MAX; longer lists go in chunks.
* Watchers are notified of every change below their path, their own included, in the order of the changes. They are
  called by the event loop, before or after the call that made the change returns. An event says what
  changed, not the data: read it again.
* Every call returns or fails in bounded time, whatever happens to the server.
* An ephemeral node goes when its session is closed or expires; it has no children.
* Until `safe_until_s` nobody else can have seen this session's ephemeral nodes go. DISCONNECTED is delivered before
  that moment, unless the whole process stood still; so whoever must not act after its session has ended compares the
  clock with it at the moment of acting.
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

    version: 0 at creation, one more for each set. czxid, mzxid: numbers of the changes that created and
    last set it; they only grow. owner: session of an ephemeral node, else 0.
    """

    version: int
    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    owner: int


class EventKind(Enum):
    """What happened to a node, or to the session that watches."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    # No server answers: the session lives until `safe_until_s`, and may then end without this side hearing of it.
    DISCONNECTED = "disconnected"
    # Events may have been missed while the connection was down: read everything again.
    RECONNECTED = "reconnected"
    # The session's ephemeral nodes are gone, and the tree object is of no more use.
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
    """A change or read was refused, or could not be made."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.reason = why


class NoNode(TreeError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExists(TreeError):
    """There is a node at the path already."""


class BadVersion(TreeError):
    """Someone else changed the node in between."""


class NotEmpty(TreeError):
    """The node has children."""


class EphemeralParent(TreeError):
    """Ephemeral nodes have no children."""


class TooLarge(TreeError):
    """More than one multi can carry."""


class NotAllowed(TreeError):
    """The node's ACL does not let this session do that, or the session's login was refused."""


class SessionExpired(TreeError):
    """The session has ended; open a new one."""


class ConnectionLost(TreeError):
    """No answer came; the change may have been made or not."""


class TreeInUse(TreeError):
    """Another process holds the embedded tree."""


class ZnodeTree(ABC):
    """One session with a tree. All methods belong to one event loop."""

    @property
    @abstractmethod
    def session_id(self) -> int:
        """Number of this session: the owner of its ephemeral nodes."""

    @property
    def safe_until_s(self) -> float:
        """Until when, by time.monotonic(), this session has certainly not ended; it moves on while the tree answers."""
        return math.inf

    @property
    def session_timeout_s(self) -> float:
        """Silence after which the tree ends this session."""
        return math.inf

    @abstractmethod
    async def get(self, path: str) -> tuple[bytes, Stat]:
        """Data and stat. Raises NoNode."""

    @abstractmethod
    async def exists(self, path: str) -> Stat | None:
        """The stat, or None."""

    @abstractmethod
    async def children(self, path: str) -> list[str]:
        """Names (not paths) of the children, sorted. Raises NoNode."""

    @abstractmethod
    async def subtree(self, path: str) -> dict[str, tuple[bytes, Stat]]:
        """The node and all below it, by path; parents come before children. Empty when there is no node.

        Not one moment's picture when others write meanwhile: watch first, then read, then follow the events.
        """

    @abstractmethod
    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        """Apply all changes or none. For each: the path of a create, the stat of a set, else None.

        Raises for the first that is refused: NoNode, NodeExists, BadVersion, NotEmpty, EphemeralParent.
        """

    @abstractmethod
    async def watch(self, path: str, watcher: Watcher) -> Callable[[], None]:
        """Call `watcher` for each later change of the node or anything below it; returns what ends that.

        The node need not exist. Watchers run on the event loop; they should only put the event on a queue.
        """

    @abstractmethod
    async def close(self) -> None:
        """End the session; its ephemeral nodes go."""

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Make a node; its path. Raises NodeExists, NoNode (no parent), EphemeralParent.

        make_parents: make missing parents first (these stay when the create itself fails).
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

        recursive: all below it too, the deepest first, in as many steps as its size needs; while others go on
        making nodes there, NotEmpty is raised after a few attempts.
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
        """Make the node, empty, and its parents, where they are missing."""
        if path == "/" or await self.exists(path) is not None:
            return
        await self.ensure(parent_of(path))
        try:
            await self.create(path)
        except NodeExists:
            pass  # somebody else was quicker, with the same aim


def check_path(path: str) -> None:
    """Raises TreeError unless ZooKeeper takes the path: absolute, no empty part, none that is a dot or two."""
    parts = path.split("/")
    if path == "/":
        return
    if not path.startswith("/") or any(part in _NO_PARTS for part in parts[1:]):
        raise TreeError(path, "is not a path of the form /a/b")
    if _NO_CHARACTERS.search(path):
        raise TreeError(path, "has a character that no path may have")


def check_multi(ops: Sequence[Op]) -> None:
    """Raises TreeError for a path that is none, TooLarge for more than one multi can carry."""
    for op in ops:
        check_path(op.path)
    size = sum(map(size_bytes, ops))
    if size > MULTI_BYTES_MAX:
        raise TooLarge(
            ops[0].path, f"{len(ops)} changes of {size} bytes; at most {MULTI_BYTES_MAX} bytes go at once"
        )
