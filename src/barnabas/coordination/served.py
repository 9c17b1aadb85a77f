"""The embedded tree for several processes of one machine: the process that owns the file serves it over a Unix socket.

A connection is a session. The session ends with the connection, so that the ephemeral nodes of a killed process disappear at
once, or when the other side has been silent for the session's time-out (a stopped process). Requests and answers are frames:
a length, then JSON, with data in base64. Both sides are of one release, so the format may change with each release.

Only the owner of the file can connect: the permissions of the folder admit nobody else.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.coordination import tree as trees
from barnabas.coordination.local import LocalStore, LocalTree
from barnabas.coordination.tree import (
    ConnectionLost,
    Event,
    EventKind,
    Result,
    SessionExpired,
    Stat,
    TreeError,
    Watcher,
    ZnodeTree,
    check_multi,
    check_path,
)
from barnabas.cores.znode_ops import Check, Create, Delete, Op, Set

SESSION_TIMEOUT_S: Final = 10.0
BEATS_PER_SESSION: Final = 5
FRAME_BYTES_MAX: Final = 1 << 30
_LENGTH: Final = struct.Struct(">I")
_OPS: Final = {kind.__name__: kind for kind in (Create, Set, Delete, Check)}
_REFUSALS: Final = {
    kind.__name__: kind
    for kind in (
        trees.NoNode, trees.NodeExists, trees.BadVersion, trees.NotEmpty, trees.EphemeralParent, trees.TooLarge,
        trees.SessionExpired, trees.TreeError,
    )
}  # fmt: skip


# --- frames -----------------------------------------------------------------------------------------------


async def _read(reader: asyncio.StreamReader) -> Any:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > FRAME_BYTES_MAX:
        raise ConnectionError("a frame without end")
    return json.loads(await reader.readexactly(length))


def _frame(message: Any) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _pack_op(op: Op) -> list[Any]:
    fields = [getattr(op, name) for name in op.__slots__]
    return [type(op).__name__, *(_text(value) if isinstance(value, bytes) else value for value in fields)]


def _unpack_op(packed: Sequence[Any]) -> Op:
    kind = _OPS[packed[0]]
    values = dict(zip(kind.__slots__, packed[1:], strict=True))
    if "data" in values:
        values["data"] = base64.b64decode(values["data"])
    op: Op = kind(**values)
    return op


def _pack_node(node: tuple[bytes, Stat]) -> list[Any]:
    return [_text(node[0]), *node[1]]


def _unpack_node(packed: Sequence[Any]) -> tuple[bytes, Stat]:
    return base64.b64decode(packed[0]), Stat(*packed[1:])


# --- the process that holds the file ----------------------------------------------------------------------


class TreeServer:
    """Serves the sessions of other processes. Call `start`, and `close` at the end."""

    def __init__(self, store: LocalStore, path: Path, session_timeout_s: float = SESSION_TIMEOUT_S) -> None:
        self._store = store
        self._path = path
        self._session_timeout_s = session_timeout_s
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Raises OSError. The socket of a killed process is replaced, since this process owns the file."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._accepted, self._path)
        finally:
            os.umask(before)

    async def close(self) -> None:
        """End all sessions."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one session, from its first byte to its end."""
        session = await asyncio.get_running_loop().run_in_executor(None, self._store.session)
        calls: set[asyncio.Task[None]] = set()
        try:
            writer.write(_frame({"session": session.session_id, "timeout_s": self._session_timeout_s}))
            await session.watch(
                "/", lambda event: writer.write(_frame({"event": [event.kind.value, event.path]}))
            )
            while True:
                async with asyncio.timeout(self._session_timeout_s):
                    request = await _read(reader)
                # The store's thread handles one call at a time, so answers and events are sent in the order of the changes.
                call = asyncio.get_running_loop().create_task(self._answered(session, request, writer))
                calls.add(call)
                call.add_done_callback(calls.discard)
        except (TimeoutError, EOFError, OSError, ValueError):
            pass  # the other side is gone, or stopped
        finally:
            for call in calls:
                call.cancel()
            with contextlib.suppress(TreeError):
                await session.close()
            writer.close()

    async def _answered(
        self, session: LocalTree, request: dict[str, Any], writer: asyncio.StreamWriter
    ) -> None:
        try:
            number = request["id"]
            answer: dict[str, Any] = {"value": await _call(session, request["call"], request["arguments"])}
        except TreeError as error:
            answer = {"refused": [type(error).__name__, error.path, error.reason]}
        except (AssertionError, KeyError, TypeError, ValueError):
            writer.close()  # not a request of this release
            return
        writer.write(_frame({"id": number, **answer}))


async def _call(session: LocalTree, call: str, arguments: list[Any]) -> Any:
    if call == "get":
        return _pack_node(await session.get(*arguments))
    if call == "exists":
        return await session.exists(*arguments)
    if call == "children":
        return await session.children(*arguments)
    if call == "subtree":
        return [[path, *_pack_node(node)] for path, node in (await session.subtree(*arguments)).items()]
    if call == "multi":
        return await session.multi([_unpack_op(op) for op in arguments])
    assert call == "beat"
    return None


# --- the other processes ----------------------------------------------------------------------------------


class ServedTree(ZnodeTree):
    """One session with a tree that another process on this machine serves. Created by `open`."""

    def __init__(self, path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._path = str(path)
        self._reader = reader
        self._writer = writer
        self._session_id = 0
        self._session_timeout_s = SESSION_TIMEOUT_S
        self._safe_until_s = 0.0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._watchers: list[tuple[str, Watcher]] = []
        self._ended = False
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, path: Path, connect_timeout_s: float = SESSION_TIMEOUT_S) -> ServedTree:
        """Open a session. Raises ConnectionLost if the tree is not served within this time."""
        try:
            async with asyncio.timeout(connect_timeout_s):
                reader, writer = await _connected(path)
                began_s = time.monotonic()
                hello = await _read(reader)
        except (TimeoutError, EOFError, OSError) as error:
            why = f"the broker that serves the metadata did not answer within {connect_timeout_s:g} s"
            raise ConnectionLost(str(path), why) from error
        tree = cls(path, reader, writer)
        tree._session_id, tree._session_timeout_s = hello["session"], hello["timeout_s"]
        tree._safe_until_s = began_s + tree._session_timeout_s
        loop = asyncio.get_running_loop()
        tree._tasks = [loop.create_task(tree._listen()), loop.create_task(tree._keep_beating())]
        return tree

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
        return _unpack_node(await self._asked("get", path))

    async def exists(self, path: str) -> Stat | None:
        check_path(path)
        stat = await self._asked("exists", path)
        return None if stat is None else Stat(*stat)

    async def children(self, path: str) -> list[str]:
        check_path(path)
        names: list[str] = await self._asked("children", path)
        return names

    async def subtree(self, path: str) -> dict[str, tuple[bytes, Stat]]:
        check_path(path)
        return {node[0]: _unpack_node(node[1:]) for node in await self._asked("subtree", path)}

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        self._require_session()
        if not ops:
            return []
        check_multi(ops)
        results = await self._asked("multi", *map(_pack_op, ops))
        return [Stat(*result) if isinstance(result, list) else result for result in results]

    async def watch(self, path: str, watcher: Watcher) -> Callable[[], None]:
        check_path(path)
        self._require_session()
        entry = (path.rstrip("/"), watcher)
        self._watchers.append(entry)

        def end() -> None:
            if entry in self._watchers:
                self._watchers.remove(entry)

        return end

    async def close(self) -> None:
        self._watchers.clear()
        self._end()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    # ---------------------------------------------------------------------------------------------------

    def _require_session(self) -> None:
        if self._ended:
            raise SessionExpired("session", f"session {self._session_id} has ended")

    async def _asked(self, call: str, *arguments: Any) -> Any:
        self._require_session()
        self._next_id += 1
        number = self._next_id
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        began_s = time.monotonic()
        try:
            self._writer.write(_frame({"id": number, "call": call, "arguments": arguments}))
            async with asyncio.timeout(self._session_timeout_s * 2 / 3):
                answer = await waiting
        except TimeoutError:
            # Between two processes of one machine the line does not fail: the other process is hanging.
            self._end()
            raise ConnectionLost(self._path, "the broker that serves the metadata does not answer") from None
        finally:
            self._waiting.pop(number, None)
        kind, path, why = answer.get("refused", ("", "", ""))
        if kind == SessionExpired.__name__:
            self._end()
        else:
            self._safe_until_s = max(self._safe_until_s, began_s + self._session_timeout_s)
        if kind:
            raise _REFUSALS.get(kind, TreeError)(path, why)
        return answer["value"]

    async def _keep_beating(self) -> None:
        while not self._ended:
            await asyncio.sleep(self._session_timeout_s / BEATS_PER_SESSION)
            with contextlib.suppress(TreeError):
                await self._asked("beat")

    async def _listen(self) -> None:
        try:
            while True:
                message = await _read(self._reader)
                if "event" in message:
                    kind, path = message["event"]
                    if EventKind(kind) is EventKind.EXPIRED:
                        break
                    self._deliver(Event(EventKind(kind), path))
                elif message["id"] in self._waiting and not self._waiting[message["id"]].done():
                    self._waiting[message["id"]].set_result(message)
        except (EOFError, OSError, ValueError):
            pass
        self._end()

    def _end(self) -> None:
        """The connection has ended, and with it the session."""
        if self._ended:
            return
        self._ended = True
        self._writer.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                why = "the broker that serves the metadata has gone"
                waiting.set_exception(ConnectionLost(self._path, why))
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._deliver(Event(EventKind.EXPIRED))

    def _deliver(self, event: Event) -> None:
        for entry in list(self._watchers):
            prefix = entry[0]
            if not event.path or event.path == prefix or event.path.startswith(prefix + "/"):
                entry[1](event)


CONNECT_PAUSE_S: Final = 0.1


async def _connected(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_unix_connection(path)
        except (FileNotFoundError, ConnectionRefusedError):
            await asyncio.sleep(CONNECT_PAUSE_S)
