"""The znode tree in a ZooKeeper ensemble (3.6 or newer), through kazoo.

kazoo runs its own thread; every answer and event is passed to the event loop, and nothing here blocks it. Some things
bypass kazoo's public interface: persistent recursive watches, whose events are read here (one-time watches, set again
after each event, would miss changes in between), reads of many nodes in one request, the chroot, which is set after its
node has been created, the session time granted by the server, and refusals of a SASL login, some of which would end
kazoo's thread.

Every call has a deadline of two thirds of the session's time-out. If a server has not answered by then, the connection is
cut, watchers get DISCONNECTED, and kazoo looks for another server. Calls made meanwhile wait for that here and
not in kazoo's queue, which would send them long after their callers have been told that they failed.

**How long the session certainly lives.** Six times per session time-out a beat is sent: a transaction that changes nothing.
It is answered when a majority of the ensemble has written it, so the session was alive when the beat was sent. The
connected server reports signs of life to the ensemble's leader only from time to time, but always before it forwards a
later beat. So an answered beat proves that the leader counts from the previous beat, or from a later sign of life, and
the session lives until the time when that one was sent plus the session's time-out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KeeperState

from barnabas.coordination.tree import (
    BadVersion,
    ConnectionLost,
    EphemeralParent,
    Event,
    EventKind,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    Result,
    SessionExpired,
    Stat,
    TooLarge,
    TreeError,
    Watcher,
    ZnodeTree,
    check_multi,
    check_path,
)
from barnabas.coordination.zookeeper_access import OPEN, Access, TlsHandler
from barnabas.coordination.zookeeper_requests import (
    GET_CHILDREN,
    GET_DATA,
    NO_AUTH,
    AddWatch,
    MultiRead,
    ReadError,
    watch_event,
)
from barnabas.cores.znode_ops import ANY_VERSION, MULTI_BYTES_MAX, Check, Create, Delete, Op, Set, size_bytes

EVENT_KINDS: Final = {1: EventKind.CREATED, 2: EventKind.DELETED, 3: EventKind.CHANGED}
RESERVED: Final = "/zookeeper"
READS_PER_REQUEST: Final = 500
REQUESTS_AT_ONCE: Final = 4
CALL_SHARE_OF_SESSION: Final = 2 / 3
BEAT_SHARE_OF_SESSION: Final = 1 / 6
"""How often a beat is sent. It fails after half of the session time: 1/6 and 1/2 make the 2/3 of other calls."""
BEAT_TIMEOUT_SHARE: Final = 1 / 2
CLOSE_TIMEOUT_S: Final = 5.0
CONNECT_POLL_S: Final = 0.02
RETRY: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}

# What kazoo logs about lost connections is also reported by the events.
_log: Final = logging.getLogger("barnabas.zookeeper")
_kazoo_log: Final = logging.getLogger("barnabas.zookeeper.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)

_ERRORS: Final[tuple[tuple[type[Exception], type[TreeError], str], ...]] = (
    (kazoo_errors.NoNodeError, NoNode, "no such node, or no parent for it"),
    (kazoo_errors.NodeExistsError, NodeExists, "exists already"),
    (kazoo_errors.BadVersionError, BadVersion, "is in another version"),
    (kazoo_errors.NotEmptyError, NotEmpty, "has children"),
    (kazoo_errors.NoChildrenForEphemeralsError, EphemeralParent, "its parent is ephemeral"),
    (kazoo_errors.NoAuthError, NotAllowed, "its ACL in ZooKeeper does not let this broker do that"),
    (kazoo_errors.InvalidACLError, NotAllowed, "ZooKeeper takes no ACL from a session without a login"),
    (kazoo_errors.AuthFailedError, NotAllowed, "ZooKeeper refused the login"),
    (kazoo_errors.SessionClosedRequireSaslError, NotAllowed, "ZooKeeper serves nobody without a SASL login"),
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
    if isinstance(error, ReadError) and error.code == NO_AUTH:
        return NotAllowed(path, "its ACL in ZooKeeper does not let this broker read it")
    if isinstance(error, kazoo_errors.ZookeeperError | ReadError):
        return TreeError(path, f"ZooKeeper refused: {error!r}")
    return error


def _stat(zstat: Any) -> Stat:
    return Stat(zstat.version, zstat.czxid, zstat.mzxid, zstat.ctime, zstat.mtime, zstat.ephemeralOwner)


class ZooKeeperTree(ZnodeTree):
    """One session with an ensemble. Created by `open`."""

    def __init__(
        self, client: Any, loop: asyncio.AbstractEventLoop, session_timeout_s: float, access: Access
    ) -> None:
        self.client = client
        self._loop = loop
        self._access = access
        self._session_id = 0
        self._session_timeout_s = session_timeout_s
        self._safe_until_s = 0.0
        self._last_sign_s = time.monotonic()
        self._beating: asyncio.Task[None] | None = None
        self._login_refused = False
        self._login_pending = False
        """Whether a SASL login has begun that the server has not accepted. Some servers hang up instead of refusing it."""
        self._watchers: list[tuple[str, Watcher]] = []
        self._watched: set[str] = set()
        self._connected = asyncio.Event()
        self._suspended = False
        self._ended = False
        self._closing = False
        self._stopping: threading.Thread | None = None
        # Called by kazoo's thread for each event; see the module's docstring.
        client._connection._read_watch_event = self._read_event
        connection = client._connection
        connection._invoke = self._note_session_time(connection._invoke)
        connection._authenticate_with_sasl = _refused_login(connection._authenticate_with_sasl)
        client.add_listener(self._state_changed)

    @classmethod
    async def open(
        cls,
        hosts: str,
        *,
        session_timeout_s: float = 18.0,
        connect_timeout_s: float = 18.0,
        access: Access = OPEN,
    ) -> ZooKeeperTree:
        """Open a session. hosts: host:port,host:port and optionally /chroot, as in Kafka's zookeeper.connect; the chroot is
        created if it does not exist. Raises ConnectionLost if no server answers in time, NotAllowed if the login is
        refused.
        """
        servers, _, chroot = hosts.partition("/")
        loop = asyncio.get_running_loop()
        handler = TlsHandler(access.tls)
        client = KazooClient(
            servers,
            timeout=session_timeout_s,
            connection_retry=dict(RETRY),
            logger=_kazoo_log,
            handler=handler,
            use_ssl=access.tls is not None,
            auth_data=access.auth_data(),
            sasl_options=access.sasl_options(),
        )
        tree = cls(client, loop, session_timeout_s, access)
        tree._watch_login()
        try:
            async with asyncio.timeout(connect_timeout_s):
                await tree._begin(connect_timeout_s, chroot.strip("/"))
        except (TimeoutError, ConnectionLost, SessionExpired, NotAllowed) as error:
            tree._stop()
            if tree._login_refused or tree._login_pending:
                raise NotAllowed(hosts, access.why_refused()) from None
            if isinstance(error, NotAllowed):
                raise
            why = f"no ZooKeeper server answered within {connect_timeout_s:g} s; check zookeeper.connect"
            if handler.failure is not None:  # which waiting does not change
                why += f" and zookeeper.ssl.*, since TLS failed: {handler.failure}"
                raise NotAllowed(hosts, why) from None
            raise ConnectionLost(hosts, why) from None
        except BaseException:
            tree._stop()
            raise
        return tree

    def _watch_login(self) -> None:
        """Note the beginning and the end of each SASL login, which kazoo's states do not always show."""
        connection = self.client._connection
        log_in = connection._authenticate_with_sasl

        def watched(*args: Any) -> None:
            self._login_pending = True
            log_in(*args)
            self._login_pending = False

        connection._authenticate_with_sasl = watched

    async def _begin(self, connect_timeout_s: float, chroot: str) -> None:
        client = self.client
        live = client.start_async()
        for _ in range(
            int(connect_timeout_s / CONNECT_POLL_S) + 1
        ):  # not in a thread, which cannot be cancelled
            if live.is_set():
                break
            await asyncio.sleep(CONNECT_POLL_S)
        if not client.connected:
            raise TimeoutError
        self._session_id = client.client_id[0]
        self._connected.set()
        await self._beat()  # fails if the server hangs or refuses the login
        if chroot:
            await self.ensure("/" + chroot)
            client.chroot = "/" + chroot
        self._beating = self._loop.create_task(self._keep_beating())

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def safe_until_s(self) -> float:
        return self._safe_until_s

    @property
    def session_timeout_s(self) -> float:
        return self._session_timeout_s

    async def get(self, path: str) -> tuple[bytes, Stat]:
        check_path(path)
        data, kazoo_stat = await self._answer(path, self.client.get_async)
        return data, _stat(kazoo_stat)

    async def exists(self, path: str) -> Stat | None:
        check_path(path)
        kazoo_stat = await self._answer(path, self.client.exists_async)
        return None if kazoo_stat is None else _stat(kazoo_stat)

    async def children(self, path: str) -> list[str]:
        check_path(path)
        names = await self._answer(path, self.client.get_children_async)
        return sorted(name for name in names if path != "/" or f"/{name}" != RESERVED)

    async def subtree(self, path: str) -> dict[str, tuple[bytes, Stat]]:
        check_path(path)
        nodes: dict[str, tuple[bytes, Stat]] = {}
        level = [path]
        while level:
            parents: list[str] = []
            # Leave out nodes that have been removed since their parent was read.
            for node, read in zip(level, await self._read_all(GET_DATA, level), strict=True):
                if read is not None:
                    data, stat, children = read
                    nodes[node] = (data, stat)
                    if children:
                        parents.append(node)
            level = []
            for node, names in zip(parents, await self._read_all(GET_CHILDREN, parents), strict=True):
                level += (f"{node.rstrip('/')}/{name}" for name in sorted(names or ()))
            level = [node for node in level if node != RESERVED]
        return nodes

    async def _read_all(self, kind: int, paths: Sequence[str]) -> list[Any]:
        """Read each path once, many in a request and several requests at the same time."""
        parts = [paths[at : at + READS_PER_REQUEST] for at in range(0, len(paths), READS_PER_REQUEST)]
        free = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def read(part: Sequence[str]) -> list[Any]:
            prefix = self.client.chroot
            request = MultiRead(kind, [(prefix + path.rstrip("/")) or "/" for path in part])
            async with free:
                answer: list[Any] = await self._answer(part[0], lambda _: self._sent(request))
            return answer

        return [read for answer in await asyncio.gather(*map(read, parts)) for read in answer]

    def _sent(self, request: AddWatch | MultiRead) -> Any:
        answer = self.client.handler.async_result()
        self.client._call(request, answer)
        return answer

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        self._require_session()
        if not ops:
            return []
        check_multi(ops)
        self._require_small(ops)
        transaction = self.client.transaction()
        for op in ops:
            if isinstance(op, Create):
                acl = self._access.acl(op.path)
                transaction.create(op.path, op.data, acl, ephemeral=op.ephemeral, sequence=op.sequence)
            elif isinstance(op, Set):
                transaction.set_data(op.path, op.data, op.version)
            elif isinstance(op, Delete):
                transaction.delete(op.path, op.version)
            else:
                assert isinstance(op, Check)
                transaction.check(op.path, op.version)
        results = await self._answer(ops[0].path, lambda _: transaction.commit_async())
        for op, result in zip(ops, results, strict=True):
            # The failed change has its own error; those before and after it have that of a rollback.
            rolled_back = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
            if isinstance(result, Exception) and not isinstance(result, rolled_back):
                raise _translated(op.path, result)
        return [self._result(op, result) for op, result in zip(ops, results, strict=True)]

    def _require_small(self, ops: Sequence[Op]) -> None:
        """The chroot is prepended to every path. ZooKeeper cuts the connection of a client that sends too much."""
        size = sum(map(size_bytes, ops)) + len(ops) * len(self.client.chroot)
        if size > MULTI_BYTES_MAX:
            why = f"{len(ops)} changes of {size} bytes; at most {MULTI_BYTES_MAX} bytes go at once"
            raise TooLarge(ops[0].path, why)

    def _result(self, op: Op, result: Any) -> Result:
        if isinstance(op, Create):
            return str(result)  # without the chroot: kazoo has removed it from a transaction's answer
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
        return self._sent(AddWatch((self.client.chroot + path.rstrip("/")) or "/"))

    async def close(self) -> None:
        self._watchers.clear()
        self._ended = True
        stopping = self._stop()
        await self._loop.run_in_executor(None, stopping.join, CLOSE_TIMEOUT_S)

    def _stop(self) -> threading.Thread:
        """Stop kazoo, once: both an expiry and a close may call this. A hanging server may delay kazoo's thread."""
        self._closing = True
        if self._beating is not None:
            self._beating.cancel()
        if self._stopping is None:
            self._stopping = threading.Thread(target=self._stop_client, name="zookeeper-stop", daemon=True)
            self._stopping.start()
        return self._stopping

    def _stop_client(self) -> None:
        with contextlib.suppress(Exception):  # kazoo raises errors of its own thread, useless here
            self.client.stop()
            self.client.close()

    def _require_session(self) -> None:
        if self._ended:
            raise SessionExpired("session", f"session {self._session_id} has ended")

    async def _keep_beating(self) -> None:
        """Notice in time that the server is silent, and learn how long the session certainly lives."""
        while True:
            await asyncio.sleep(self._session_timeout_s * BEAT_SHARE_OF_SESSION)
            try:
                await self._beat()
            except SessionExpired:
                return
            except TreeError:
                continue  # reconnecting
            except Exception:
                _log.exception("a beat of the ZooKeeper session met a bug; the next one follows")

    async def _beat(self) -> None:
        """Send a beat. Raises TreeError. The contents of the answer do not matter: the chroot may be gone, for instance."""
        await self._connected.wait()
        began_s = time.monotonic()
        await self._answer("/", self._send_beat, timeout_s=self._session_timeout_s * BEAT_TIMEOUT_SHARE)
        self._safe_until_s = max(self._safe_until_s, self._last_sign_s + self._session_timeout_s)
        self._last_sign_s = max(self._last_sign_s, began_s)

    def _send_beat(self, path: str) -> Any:
        transaction = self.client.transaction()
        transaction.check(path, ANY_VERSION)
        return transaction.commit_async()

    async def _answer(self, path: str, call: Callable[[str], Any], timeout_s: float = 0.0) -> Any:
        """The result of one of kazoo's asynchronous calls, with our errors and our deadline."""
        self._require_session()
        timeout_s = timeout_s or self._session_timeout_s * CALL_SHARE_OF_SESSION
        waiting: asyncio.Future[Any] = self._loop.create_future()
        asked = False

        def answered(answer: Any) -> None:
            if not self._loop.is_closed():
                with contextlib.suppress(RuntimeError):  # the loop is just closing
                    self._loop.call_soon_threadsafe(_settle, waiting, answer)

        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
                self._require_session()
                asked = True
                call(path).rawlink(answered)
                return await waiting
        except TimeoutError:
            if asked:
                self._cut()
            why = f"ZooKeeper did not answer within {timeout_s:.3g} s"
            raise ConnectionLost(path, why) from None
        except TreeError:
            raise
        except Exception as error:
            raise _translated(path, error) from None

    def _cut(self) -> None:
        """The server is silent: make kazoo look for another one."""
        with contextlib.suppress(OSError, AttributeError):  # kazoo may have lost the connection by itself
            self.client._connection._socket.shutdown(socket.SHUT_RDWR)
        self._on_suspended()

    # --- called by kazoo's thread -------------------------------------------------------------------

    def _read_event(self, buffer: bytes, offset: int) -> None:
        number, path = watch_event(buffer, offset)
        kind = EVENT_KINDS.get(number)
        if kind is not None:
            self._later_call(lambda: self._deliver(Event(kind, self.client.unchroot(path))))

    def _note_session_time(self, invoke: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the method with which kazoo opens a session, to learn the session time-out granted by the server."""

        def noting(timeout_s: float, request: Any, xid: int | None = None) -> Any:
            began_s = time.monotonic()
            answer = invoke(timeout_s, request, xid)
            if isinstance(request, Connect) and answer[0].time_out > 0:
                self._session_timeout_s = answer[0].time_out / 1000
                self._last_sign_s = began_s  # the ensemble's leader has created the session or looked it up
            return answer

        return noting

    def _state_changed(self, state: str) -> None:
        if self.client.client_state == KeeperState.AUTH_FAILED:
            self._login_refused = True
        if self._closing:
            return
        if state == KazooState.SUSPENDED:
            self._suspended = True
            self._later_call(self._on_suspended)
        elif state == KazooState.CONNECTED and self._suspended:
            self._suspended = False
            self._later_call(self._watch_again)
        elif state == KazooState.LOST:
            # kazoo would continue with a new session, without notifying that the old one's nodes are gone.
            self._ended = self._closing = True
            self._later_call(self._on_lost)

    def _later_call(self, function: Callable[[], object]) -> None:
        if not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # the loop is just closing
                self._loop.call_soon_threadsafe(function)

    # --- called by the event loop -------------------------------------------------------------------

    def _on_suspended(self) -> None:
        """Called when kazoo has lost the connection, and by the call that cut it, whichever comes first."""
        if self._connected.is_set() and not self._ended:
            self._connected.clear()
            self._deliver(Event(EventKind.DISCONNECTED))

    def _on_lost(self) -> None:
        self._connected.set()  # wakes the calls that wait; they notice that the session has ended
        self._deliver(Event(EventKind.EXPIRED))
        self._stop()

    def _watch_again(self) -> None:
        """Watches end with the connection: set them again, then report that events may have been missed."""
        self._connected.set()
        self._again = self._loop.create_task(self._set_watches(list(self._watched)))

    async def _set_watches(self, prefixes: Iterable[str]) -> None:
        try:
            for prefix in prefixes:
                await self._answer(prefix or "/", self._add_watch)
            await self._beat()
        except TreeError:
            return  # the connection is lost again: the next one will call this again
        self._deliver(Event(EventKind.RECONNECTED))

    def _deliver(self, event: Event) -> None:
        if event.path == RESERVED or event.path.startswith(RESERVED + "/"):
            return
        for entry in list(self._watchers):
            prefix = entry[0]
            if not event.path or event.path == prefix or event.path.startswith(prefix + "/"):
                entry[1](event)


def _refused_login(authenticate: Callable[[str, float], None]) -> Callable[[str, float], None]:
    """kazoo's SASL login, in which every error but a lost connection means that the login was refused."""

    def authenticating(host: str, timeout_s: float) -> None:
        try:
            authenticate(host, timeout_s)
        except (kazoo_errors.ConnectionDropped, KazooTimeoutError):
            raise
        except Exception as error:
            raise kazoo_errors.AuthFailedError(repr(error)) from error

    return authenticating


def _settle(waiting: asyncio.Future[Any], answer: Any) -> None:
    if waiting.done():
        return
    error = answer.exception
    if error is None:
        waiting.set_result(answer.value)
    else:
        waiting.set_exception(error)
