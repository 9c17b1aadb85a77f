"""The znode tree in a ZooKeeper ensemble (3.6 or newer), through kazoo.

kazoo runs its own thread; every answer and event is handed to the event loop, and nothing here blocks it.
Two things go past kazoo's public interface, which knows only watches that fire once per node:
persistent recursive watches (ZooKeeper's addWatch) are asked for with a request of our own, and the events
that come back are read here. A watch per node, set again after each event, would miss changes in between.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, KazooState

from barnabas.coordination.tree import (
    BadVersion,
    ConnectionLost,
    EphemeralParent,
    Event,
    EventKind,
    NodeExists,
    NoNode,
    NotEmpty,
    Result,
    SessionExpired,
    Stat,
    TreeError,
    Watcher,
    ZnodeTree,
    check_path,
)
from barnabas.cores.znode_ops import Check, Create, Delete, Op, Set

EVENT_KINDS: Final = {1: EventKind.CREATED, 2: EventKind.DELETED, 3: EventKind.CHANGED}
RESERVED: Final = "/zookeeper"
READS_IN_FLIGHT: Final = 512

_ERRORS: Final[tuple[tuple[type[Exception], type[TreeError], str], ...]] = (
    (kazoo_errors.NoNodeError, NoNode, "no such node, or no parent for it"),
    (kazoo_errors.NodeExistsError, NodeExists, "exists already"),
    (kazoo_errors.BadVersionError, BadVersion, "is in another version"),
    (kazoo_errors.NotEmptyError, NotEmpty, "has children"),
    (kazoo_errors.NoChildrenForEphemeralsError, EphemeralParent, "its parent is ephemeral"),
    (kazoo_errors.SessionExpiredError, SessionExpired, "the session has ended"),
    (kazoo_errors.ConnectionLoss, ConnectionLost, "the connection to ZooKeeper was lost"),
    (kazoo_errors.ConnectionClosedError, ConnectionLost, "the connection to ZooKeeper is closed"),
    (kazoo_errors.OperationTimeoutError, ConnectionLost, "ZooKeeper did not answer in time"),
)


class _AddWatch:
    """The addWatch request (opcode 106) in mode 1, persistent and recursive. kazoo sends it like its own."""

    type: Final = 106

    def __init__(self, path: str) -> None:
        self.path = path

    def serialize(self) -> bytes:
        path = self.path.encode()
        return struct.pack(">i", len(path)) + path + struct.pack(">i", 1)

    @staticmethod
    def deserialize(data: bytes, offset: int) -> None:
        return None


def _translated(path: str, error: Exception) -> Exception:
    for theirs, ours, why in _ERRORS:
        if isinstance(error, theirs):
            return ours(path, why)
    if isinstance(error, kazoo_errors.ZookeeperError):
        return TreeError(path, f"ZooKeeper refused: {error!r}")
    return error


def _stat(found: Any) -> Stat:
    return Stat(found.version, found.czxid, found.mzxid, found.ctime, found.mtime, found.ephemeralOwner)


class ZooKeeperTree(ZnodeTree):
    """One session with an ensemble. Made by `open`."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop
        self._session_id = 0
        self._watchers: list[tuple[str, Watcher]] = []
        self._watched: set[str] = set()
        self._suspended = False
        self._ended = False
        self._closing = False
        self._stopping: asyncio.Future[None] | None = None
        # Read by kazoo's thread for each event; see the module's docstring.
        client._connection._read_watch_event = self._read_event
        client.add_listener(self._state_changed)

    @classmethod
    async def open(
        cls, hosts: str, *, session_timeout_s: float = 18.0, connect_timeout_s: float = 18.0
    ) -> ZooKeeperTree:
        """A session. hosts: host:port,host:port and optionally /chroot, as in Kafka's zookeeper.connect; the
        chroot is made when it is missing. Raises ConnectionLost when no server answers in time.
        """
        loop = asyncio.get_running_loop()
        servers, slash, chroot = hosts.partition("/")
        if slash and chroot:
            plain = await cls._started(servers, loop, session_timeout_s, connect_timeout_s)
            try:
                await plain.ensure(f"/{chroot}")
            finally:
                await plain.close()
        return await cls._started(hosts, loop, session_timeout_s, connect_timeout_s)

    @classmethod
    async def _started(
        cls, hosts: str, loop: asyncio.AbstractEventLoop, session_timeout_s: float, connect_timeout_s: float
    ) -> ZooKeeperTree:
        client = KazooClient(hosts, timeout=session_timeout_s)
        tree = cls(client, loop)
        try:
            await loop.run_in_executor(None, client.start, connect_timeout_s)
        except (client.handler.timeout_exception, kazoo_errors.KazooException):
            tree._closing = True
            await loop.run_in_executor(None, client.stop)
            why = f"no ZooKeeper server answered within {connect_timeout_s:g} s; check zookeeper.connect"
            raise ConnectionLost(hosts, why) from None
        tree._session_id = client.client_id[0]
        return tree

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str) -> tuple[bytes, Stat]:
        data, found = await self._answer(path, self._client.get_async)
        return data, _stat(found)

    async def exists(self, path: str) -> Stat | None:
        found = await self._answer(path, self._client.exists_async)
        return None if found is None else _stat(found)

    async def children(self, path: str) -> list[str]:
        names = await self._answer(path, self._client.get_children_async)
        return sorted(name for name in names if path != "/" or f"/{name}" != RESERVED)

    async def subtree(self, path: str) -> dict[str, tuple[bytes, Stat]]:
        found: dict[str, tuple[bytes, Stat]] = {}
        level = [path]
        while level:
            below: list[str] = []
            for at in range(0, len(level), READS_IN_FLIGHT):
                nodes = level[at : at + READS_IN_FLIGHT]
                for node, read in zip(nodes, await asyncio.gather(*map(self._read, nodes)), strict=True):
                    if read is not None:  # it was deleted since its parent was read
                        found[node] = read[0]
                        below += (f"{node.rstrip('/')}/{name}" for name in read[1])
            level = below
        return found

    async def _read(self, path: str) -> tuple[tuple[bytes, Stat], list[str]] | None:
        try:
            return await self.get(path), await self.children(path)
        except NoNode:
            return None

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        self._require_session()
        if not ops:
            return []
        transaction = self._client.transaction()
        for op in ops:
            if isinstance(op, Create):
                check_path(op.path)
                transaction.create(op.path, op.data, ephemeral=op.ephemeral, sequence=op.sequence)
            elif isinstance(op, Set):
                transaction.set_data(op.path, op.data, op.version)
            elif isinstance(op, Delete):
                transaction.delete(op.path, op.version)
            else:
                assert isinstance(op, Check)
                transaction.check(op.path, op.version)
        results = await self._answer(ops[0].path, lambda _: transaction.commit_async())
        for op, result in zip(ops, results, strict=True):
            # The one that failed has its own error; those before and after it are told of a rollback.
            rolled_back = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
            if isinstance(result, Exception) and not isinstance(result, rolled_back):
                raise _translated(op.path, result)
        return [self._result(op, result) for op, result in zip(ops, results, strict=True)]

    def _result(self, op: Op, result: Any) -> Result:
        if isinstance(op, Create):
            return str(self._client.unchroot(result))
        return _stat(result) if isinstance(op, Set) else None

    async def watch(self, path: str, watcher: Watcher) -> Callable[[], None]:
        prefix = path.rstrip("/")
        if prefix not in self._watched:
            await self._answer(path, self._add_watch)
            self._watched.add(prefix)
        entry = (prefix, watcher)
        self._watchers.append(entry)

        def end() -> None:
            if entry in self._watchers:
                self._watchers.remove(entry)

        return end

    def _add_watch(self, path: str) -> Any:
        answer = self._client.handler.async_result()
        prefix = self._client.chroot
        self._client._call(_AddWatch((prefix + path.rstrip("/")) or "/"), answer)
        return answer

    async def close(self) -> None:
        self._watchers.clear()
        self._ended = self._closing = True
        await self._stopped()

    def _stopped(self) -> asyncio.Future[None]:
        """Stops kazoo, once: an expiry and a close may both ask for it."""
        if self._stopping is None:
            self._stopping = self._loop.run_in_executor(None, self._stop_client)
        return self._stopping

    def _stop_client(self) -> None:
        self._client.stop()
        self._client.close()

    def _require_session(self) -> None:
        if self._ended:
            raise SessionExpired("session", f"session {self._session_id} has ended")

    async def _answer(self, path: str, call: Callable[[str], Any]) -> Any:
        """The result of one of kazoo's asynchronous calls, with our errors."""
        self._require_session()
        waiting: asyncio.Future[Any] = self._loop.create_future()

        def answered(answer: Any) -> None:
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(_settle, waiting, answer)

        call(path).rawlink(answered)
        try:
            return await waiting
        except Exception as error:
            raise _translated(path, error) from None

    # --- called by kazoo's thread -------------------------------------------------------------------

    def _read_event(self, buffer: bytes, offset: int) -> None:
        """One watch event as it comes from the socket: type, state, length and text of the path."""
        number, _, length = struct.unpack_from(">iii", buffer, offset)
        path = bytes(buffer[offset + 12 : offset + 12 + length]).decode()
        kind = EVENT_KINDS.get(number)
        if kind is not None:
            self._later(Event(kind, self._client.unchroot(path)))

    def _state_changed(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._suspended = True
        elif state == KazooState.CONNECTED and self._suspended:
            self._suspended = False
            self._later_call(self._watch_again)
        elif state == KazooState.LOST and not self._closing:
            # kazoo would go on with a new session, whose holder would not know that its nodes are gone.
            self._ended = self._closing = True
            self._later(Event(EventKind.EXPIRED))
            self._later_call(self._stopped)

    def _later(self, event: Event) -> None:
        self._later_call(lambda: self._deliver(event))

    def _later_call(self, function: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    # --- called by the event loop -------------------------------------------------------------------

    def _watch_again(self) -> None:
        """Watches live with the connection: set them again, then say that events may have been missed."""
        self._again = self._loop.create_task(self._set_watches(list(self._watched)))

    async def _set_watches(self, prefixes: Iterable[str]) -> None:
        try:
            for prefix in prefixes:
                await self._answer(prefix or "/", self._add_watch)
        except TreeError:
            return  # the connection is lost again: the next one comes here again
        self._deliver(Event(EventKind.RECONNECTED))

    def _deliver(self, event: Event) -> None:
        if event.path == RESERVED or event.path.startswith(RESERVED + "/"):
            return
        for entry in list(self._watchers):
            prefix = entry[0]
            if not event.path or event.path == prefix or event.path.startswith(prefix + "/"):
                entry[1](event)


def _settle(waiting: asyncio.Future[Any], answer: Any) -> None:
    if waiting.done():
        return
    error = answer.exception
    if error is None:
        waiting.set_result(answer.value)
    else:
        waiting.set_exception(error)
