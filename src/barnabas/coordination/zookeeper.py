"""The znode tree in a ZooKeeper ensemble (3.6 or newer), through kazoo.

kazoo runs its own thread; every answer and event is handed to the event loop, and nothing here blocks it.
Three things go past kazoo's public interface: persistent recursive watches, whose events are read here (a watch
per node, set again after each event, would miss changes in between), reads of many nodes in one request, and
the chroot, which is set once its node has been made.

Every call has a deadline of two thirds of the session's time. A server that has not answered by then is given up: the
connection is cut, watchers get DISCONNECTED, and kazoo looks for another server. Calls made meanwhile
wait for that here and not in kazoo's queue, which would send them long after their callers were answered
that they failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
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
    check_multi,
    check_path,
)
from barnabas.coordination.zookeeper_requests import (
    GET_CHILDREN,
    GET_DATA,
    AddWatch,
    MultiRead,
    ReadError,
    watch_event,
)
from barnabas.cores.znode_ops import Check, Create, Delete, Op, Set

EVENT_KINDS: Final = {1: EventKind.CREATED, 2: EventKind.DELETED, 3: EventKind.CHANGED}
RESERVED: Final = "/zookeeper"
READS_PER_REQUEST: Final = 500
REQUESTS_AT_ONCE: Final = 4
CALL_SHARE_OF_SESSION: Final = 2 / 3
CLOSE_TIMEOUT_S: Final = 5.0
RETRY: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}

# What kazoo says of lost connections, the events say as well.
_kazoo_log: Final = logging.getLogger("barnabas.zookeeper.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)

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
    (kazoo_errors.BadArgumentsError, TreeError, "ZooKeeper does not take this path"),
)


def _translated(path: str, error: Exception) -> Exception:
    for theirs, ours, why in _ERRORS:
        if isinstance(error, theirs):
            return ours(path, why)
    if isinstance(error, kazoo_errors.ZookeeperError | ReadError):
        return TreeError(path, f"ZooKeeper refused: {error!r}")
    return error


def _stat(found: Any) -> Stat:
    return Stat(found.version, found.czxid, found.mzxid, found.ctime, found.mtime, found.ephemeralOwner)


class ZooKeeperTree(ZnodeTree):
    """One session with an ensemble. Made by `open`."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop, session_timeout_s: float) -> None:
        self._client = client
        self._loop = loop
        self._session_id = 0
        self._call_timeout_s = session_timeout_s * CALL_SHARE_OF_SESSION
        self._watchers: list[tuple[str, Watcher]] = []
        self._watched: set[str] = set()
        self._connected = asyncio.Event()
        self._suspended = False
        self._ended = False
        self._closing = False
        self._stopping: threading.Thread | None = None
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
        servers, _, chroot = hosts.partition("/")
        loop = asyncio.get_running_loop()
        client = KazooClient(
            servers, timeout=session_timeout_s, connection_retry=dict(RETRY), logger=_kazoo_log
        )
        tree = cls(client, loop, session_timeout_s)
        try:
            async with asyncio.timeout(connect_timeout_s):
                live = client.start_async()
                await loop.run_in_executor(None, live.wait, connect_timeout_s)
                if not client.connected:
                    raise TimeoutError
                tree._begin()
                if chroot.strip("/"):
                    await tree.ensure("/" + chroot.strip("/"))
                    client.chroot = "/" + chroot.strip("/")
        except (TimeoutError, ConnectionLost, SessionExpired):
            tree._stop()
            why = f"no ZooKeeper server answered within {connect_timeout_s:g} s; check zookeeper.connect"
            raise ConnectionLost(hosts, why) from None
        except BaseException:
            tree._stop()
            raise
        return tree

    def _begin(self) -> None:
        self._session_id = self._client.client_id[0]
        self._connected.set()

    @property
    def session_id(self) -> int:
        return self._session_id

    async def get(self, path: str) -> tuple[bytes, Stat]:
        check_path(path)
        data, found = await self._answer(path, self._client.get_async)
        return data, _stat(found)

    async def exists(self, path: str) -> Stat | None:
        check_path(path)
        found = await self._answer(path, self._client.exists_async)
        return None if found is None else _stat(found)

    async def children(self, path: str) -> list[str]:
        check_path(path)
        names = await self._answer(path, self._client.get_children_async)
        return sorted(name for name in names if path != "/" or f"/{name}" != RESERVED)

    async def subtree(self, path: str) -> dict[str, tuple[bytes, Stat]]:
        check_path(path)
        found: dict[str, tuple[bytes, Stat]] = {}
        level = [path]
        while level:
            parents: list[str] = []
            # Nodes that are gone since their parent was read are left out.
            for node, read in zip(level, await self._read_all(GET_DATA, level), strict=True):
                if read is not None:
                    data, stat, children = read
                    found[node] = (data, stat)
                    if children:
                        parents.append(node)
            level = []
            for node, names in zip(parents, await self._read_all(GET_CHILDREN, parents), strict=True):
                level += (f"{node.rstrip('/')}/{name}" for name in sorted(names or ()))
            level = [node for node in level if node != RESERVED]
        return found

    async def _read_all(self, kind: int, paths: Sequence[str]) -> list[Any]:
        """One read of each path, many in a request and several requests at once."""
        parts = [paths[at : at + READS_PER_REQUEST] for at in range(0, len(paths), READS_PER_REQUEST)]
        free = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def read(part: Sequence[str]) -> list[Any]:
            prefix = self._client.chroot
            request = MultiRead(kind, [(prefix + path.rstrip("/")) or "/" for path in part])
            async with free:
                answer: list[Any] = await self._answer(part[0], lambda _: self._sent(request))
            return answer

        return [read for answer in await asyncio.gather(*map(read, parts)) for read in answer]

    def _sent(self, request: AddWatch | MultiRead) -> Any:
        answer = self._client.handler.async_result()
        self._client._call(request, answer)
        return answer

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        self._require_session()
        if not ops:
            return []
        check_multi(ops)
        transaction = self._client.transaction()
        for op in ops:
            if isinstance(op, Create):
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
            # The one that failed has its own error; those before and after it have the one of a rollback.
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
        return self._sent(AddWatch((self._client.chroot + path.rstrip("/")) or "/"))

    async def close(self) -> None:
        self._watchers.clear()
        self._ended = True
        stopping = self._stop()
        await self._loop.run_in_executor(None, stopping.join, CLOSE_TIMEOUT_S)

    def _stop(self) -> threading.Thread:
        """Stops kazoo, once: an expiry and a close may both ask for it. A server that hangs may hold its thread up."""
        self._closing = True
        if self._stopping is None:
            self._stopping = threading.Thread(target=self._stop_client, name="zookeeper-stop", daemon=True)
            self._stopping.start()
        return self._stopping

    def _stop_client(self) -> None:
        with contextlib.suppress(Exception):  # kazoo raises what it met in its own thread, of no use here
            self._client.stop()
            self._client.close()

    def _require_session(self) -> None:
        if self._ended:
            raise SessionExpired("session", f"session {self._session_id} has ended")

    async def _answer(self, path: str, call: Callable[[str], Any]) -> Any:
        """The result of one of kazoo's asynchronous calls, with our errors and our deadline."""
        self._require_session()
        waiting: asyncio.Future[Any] = self._loop.create_future()
        asked = False

        def answered(answer: Any) -> None:
            if not self._loop.is_closed():
                with contextlib.suppress(RuntimeError):  # the loop closes just now
                    self._loop.call_soon_threadsafe(_settle, waiting, answer)

        try:
            async with asyncio.timeout(self._call_timeout_s):
                await self._connected.wait()
                self._require_session()
                asked = True
                call(path).rawlink(answered)
                return await waiting
        except TimeoutError:
            if asked:
                self._cut()
            why = f"ZooKeeper did not answer within {self._call_timeout_s:g} s"
            raise ConnectionLost(path, why) from None
        except TreeError:
            raise
        except Exception as error:
            raise _translated(path, error) from None

    def _cut(self) -> None:
        """The server is silent: make kazoo look for another one."""
        with contextlib.suppress(OSError, AttributeError):  # it may have lost the connection itself
            self._client._connection._socket.shutdown(socket.SHUT_RDWR)

    # --- called by kazoo's thread -------------------------------------------------------------------

    def _read_event(self, buffer: bytes, offset: int) -> None:
        number, path = watch_event(buffer, offset)
        kind = EVENT_KINDS.get(number)
        if kind is not None:
            self._later_call(lambda: self._deliver(Event(kind, self._client.unchroot(path))))

    def _state_changed(self, state: str) -> None:
        if self._closing:
            return
        if state == KazooState.SUSPENDED:
            self._suspended = True
            self._later_call(self._on_suspended)
        elif state == KazooState.CONNECTED and self._suspended:
            self._suspended = False
            self._later_call(self._watch_again)
        elif state == KazooState.LOST:
            # kazoo would go on with a new session, whose holder would not know that its nodes are gone.
            self._ended = self._closing = True
            self._later_call(self._on_lost)

    def _later_call(self, function: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop closes just now
                self._loop.call_soon_threadsafe(function)

    # --- called by the event loop -------------------------------------------------------------------

    def _on_suspended(self) -> None:
        self._connected.clear()
        self._deliver(Event(EventKind.DISCONNECTED))

    def _on_lost(self) -> None:
        self._connected.set()  # whoever waits for the connection learns that the session has ended
        self._deliver(Event(EventKind.EXPIRED))
        self._stop()

    def _watch_again(self) -> None:
        """Watches live with the connection: set them again, then say that events may have been missed."""
        self._connected.set()
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
