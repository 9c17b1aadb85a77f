"""A shard: one event loop with the connections and partitions that it alone touches.

The work of one turn of the loop is answered together: connections that became readable are handled one
after another and their appends are written, then waiting fetches are woken, then every connection that has
something to say writes once. That order is what makes an acknowledgement follow the write it confirms.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.connection import SEND_BUFFER_BYTES, SHARED_BUFFER_BYTES, Connection, LargeBuffers
from barnabas.broker.senders import Senders
from barnabas.storage.files import OPEN_FILES

if TYPE_CHECKING:
    from barnabas.broker.connection_limits import ConnectionLimits
    from barnabas.broker.dispatch import Dispatcher
    from barnabas.broker.partition import Partition
    from barnabas.runtime.clock import Clock
    from barnabas.storage.errors import LogDirOffline

log = logging.getLogger("barnabas.shard")

T = TypeVar("T")

ACCEPTS_PER_TURN = 64
ACCEPT_REST_S = 1.0
# After a restart all clients come back at once; a full backlog costs each of them a second.
BACKLOG_MIN = 1024
FILES_RESERVED = 32
"""Beside logs and connections: listeners, the tree, modules that are loaded when first needed."""
CONNECTIONS_MIN = 8


class Shard:
    """Owns its connections, its receive buffer and the end of each turn."""

    dispatcher: Dispatcher
    limits: ConnectionLimits
    on_write_failed: Callable[[Partition, LogDirOffline], None]

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, request_bytes_max: int) -> None:
        self.loop = loop
        self.clock = clock
        self.request_bytes_max = request_bytes_max
        self.connections_max = 1 << 31
        self.senders = Senders(loop)
        self.receive_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.send_buffer = memoryview(bytearray(SEND_BUFFER_BYTES))
        self.large_buffers = LargeBuffers()
        self.connections: set[Connection] = set()
        self._to_flush: list[Connection] = []
        self._to_wake: dict[Partition, None] = {}
        self._turn_ends = False
        self._listeners: list[tuple[socket.socket, str]] = []
        self._full: list[tuple[socket.socket, str]] = []
        self._held: set[socket.socket] = set()
        self._said_full_s = -ACCEPT_REST_S

    def limit_connections(self, wanted_max: int) -> None:
        """At most `wanted_max`, and no more than leave the logs and everything else their file descriptors."""
        files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.connections_max = min(
            wanted_max, max(files_max - OPEN_FILES.limit - FILES_RESERVED, CONNECTIONS_MIN)
        )

    # --- listening -------------------------------------------------------------------------------------

    def listen(self, host: str, port: int, listener: str, backlog: int) -> int:
        """Bind host:port (port 0: any free one); returns the port. `serve` begins to accept. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and host == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setblocking(False)
            sock.bind((host, port))
            sock.listen(max(backlog, BACKLOG_MIN))
        except OSError:
            sock.close()
            raise
        self._listeners.append((sock, listener))
        bound_port: int = sock.getsockname()[1]
        return bound_port

    def serve(self) -> None:
        """Begin to accept; peers that came since `listen` are waiting in the backlog."""
        for sock, listener in self._listeners:
            self.loop.add_reader(sock.fileno(), self._accept, sock, listener)

    def _accept(self, listening: socket.socket, listener: str) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if len(self.connections) + len(self._held) >= self.connections_max:
                self._await_room(listening, listener, "the broker")
                return
            if self.limits.listener_is_full(listener):
                self._await_room(listening, listener, f"listener {listener}")
                return
            try:
                sock, peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                log.error(
                    "no connection can be accepted for now; raise the limit of open files (ulimit -n) if this goes on",
                    extra={"reason": str(error), "connections": len(self.connections)},
                )
                self._rest_accepting(listening, listener, ACCEPT_REST_S)
                return
            if self._is_welcome(sock, peer[0]):
                self._admit(sock, listener)
            rest_ms = self.limits.rest_ms(listener)
            if rest_ms:
                log.info(
                    "connections come faster than max.connection.creation.rate",
                    extra={"listener": listener, "rest_ms": rest_ms},
                )
                self._rest_accepting(listening, listener, rest_ms / 1000)
                return

    def _is_welcome(self, sock: socket.socket, ip: str) -> bool:
        """Whether the limits of an address let a connection in; else it is closed, now or after a while."""
        refusal = self.limits.refusal(ip)
        if refusal is not None:
            log.info("connection refused", extra={"peer": ip, "reason": refusal})
            sock.close()
            return False
        hold_ms = self.limits.hold_ms(ip)
        if hold_ms:
            log.info(
                "connection refused after a wait",
                extra={"peer": ip, "reason": "connection_creation_rate of its address", "wait_ms": hold_ms},
            )
            self._held.add(sock)
            self.loop.call_later(hold_ms / 1000, self._let_go, sock)
        return not hold_ms

    def _let_go(self, sock: socket.socket) -> None:
        self._held.discard(sock)
        sock.close()

    def _await_room(self, listening: socket.socket, listener: str, what: str) -> None:
        """Peers wait in the backlog until one of the open connections closes."""
        now_s = self.loop.time()
        if now_s - self._said_full_s >= ACCEPT_REST_S:
            self._said_full_s = now_s
            log.warning(
                "no more connections are accepted until one closes; raise max.connections or the limit of open "
                "files (ulimit -n) if this goes on",
                extra={"full": what, "connections": len(self.connections)},
            )
        self._full.append((listening, listener))
        # By the clock too: limits may be raised.
        self._rest_accepting(listening, listener, ACCEPT_REST_S)

    def _rest_accepting(self, listening: socket.socket, listener: str, rest_s: float) -> None:
        """Peers wait in the backlog for a while, and the loop does not spin over them."""
        self.loop.remove_reader(listening.fileno())
        self.loop.call_later(rest_s, self._accept_again, listening, listener)

    def _accept_again(self, listening: socket.socket, listener: str) -> None:
        if (listening, listener) in self._listeners:
            self.loop.add_reader(listening.fileno(), self._accept, listening, listener)

    def _admit(self, sock: socket.socket, listener: str) -> None:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(self, sock, listener)
        except OSError:  # the peer is gone already
            sock.close()
            return
        self.connections.add(connection)
        self.limits.opened(listener, connection.host)
        self.loop.add_reader(sock.fileno(), connection.on_readable)

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.limits.closed(connection.listener, connection.host)
        self.dispatcher.on_closed(connection)
        if self._full:
            full, self._full = self._full, []
            for listening, listener in full:
                self._accept_again(listening, listener)

    def close_idle(self, idle_s_max: float) -> None:
        """Close connections that have sent nothing for longer than connections.max.idle.ms."""
        now_s = self.loop.time()
        for connection in [c for c in self.connections if now_s - c.last_active_s > idle_s_max]:
            connection.close(None)

    def close(self) -> None:
        for sock, _ in self._listeners:
            self.loop.remove_reader(sock.fileno())
            sock.close()
        self._listeners.clear()
        self.limits.close()
        for held in list(self._held):
            self._let_go(held)
        for connection in list(self.connections):
            connection.flush()
            connection.close(None)
        self.senders.close()

    def sendfile_allowed(self, connection: Connection) -> bool:
        return connection.sock.__class__ is socket.socket

    # --- the end of a turn --------------------------------------------------------------------------------

    def to_flush(self, connection: Connection) -> None:
        self._to_flush.append(connection)
        if not self._turn_ends:
            self._end_turn_soon()

    def to_wake(self, partition: Partition) -> None:
        """`partition` has something new for the fetches that wait on it."""
        self._to_wake[partition] = None
        if not self._turn_ends:
            self._end_turn_soon()

    def _end_turn_soon(self) -> None:
        self._turn_ends = True
        self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        if self._to_wake:
            woken, self._to_wake = self._to_wake, {}
            for partition in woken:
                partition.wake_waiters()
        self._turn_ends = False
        for connection in self._drain(self._to_flush):
            connection.flush()

    @staticmethod
    def _drain(items: list[T]) -> list[T]:
        drained = items[:]
        items.clear()
        return drained
