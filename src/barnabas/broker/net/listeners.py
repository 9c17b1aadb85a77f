"""Listeners: bind, accept within limits, keep the open connections, close the idle ones."""

from __future__ import annotations

import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.net.buffers import Buffers
from barnabas.broker.net.congestion import spare_local_peer
from barnabas.broker.net.connection import Connection, FrameHandler, Gate
from barnabas.broker.net.limits import same_host
from barnabas.broker.net.room import RequestRoom
from barnabas.broker.net.senders import Senders
from barnabas.broker.net.shared import Shared
from barnabas.broker.net.tls import Handshake, Secured, TlsTransport
from barnabas.broker.net.transports import PlainTransport, Transport
from barnabas.storage.files import OPEN_FILES

if TYPE_CHECKING:
    from barnabas.broker.net.limits import ConnectionLimits
    from barnabas.broker.net.turn import Turn
    from barnabas.security.tls import TlsListener

log = logging.getLogger("barnabas.listeners")

ACCEPTS_PER_TURN: Final = 64
ACCEPT_REST_S: Final = 1.0
# After a restart all clients reconnect at once; a full backlog delays each of them by a second.
BACKLOG_MIN: Final = 1024
FILES_RESERVED: Final = 32
"""File descriptors for other purposes than logs and connections: listeners, the tree, modules loaded on demand."""
CONNECTIONS_MIN: Final = 8
HANDSHAKES_FAIR: Final = 500
"""Above this number, unfinished TLS handshakes are closed after HANDSHAKE_S_FAIR instead of HANDSHAKE_S_MAX."""
HANDSHAKE_S_FAIR: Final = 2.0
LOGIN_S_MAX: Final = 60.0
"""How long a connection to a SASL listener may stay without a login."""
REFUSALS_PER_SECOND: Final = 10
"""At most this many log lines per second about failed handshakes."""


IsMeant = Callable[[str, str], bool]
"""(Listener, address of a peer) -> whether room is needed there."""


def everybody(name: str, host: str) -> bool:
    """Room is needed whoever makes it."""
    return True


class Listener(NamedTuple):
    """A bound socket and its name in the configuration."""

    sock: socket.socket
    name: str


class SocketBuffers(NamedTuple):
    """SO_SNDBUF and SO_RCVBUF of client sockets; None leaves them to the system, which tunes them automatically."""

    send_bytes: int | None = None
    receive_bytes: int | None = None

    def set_on(self, sock: socket.socket) -> None:
        """Set them on a socket before it listens: accepted sockets inherit them, and TCP windows depend on them."""
        if self.send_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_bytes)
        if self.receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_bytes)


class Listeners:
    """All listeners of one loop, and the connections accepted by them."""

    def __init__(
        self,
        turn: Turn,
        limits: ConnectionLimits,
        request_bytes_max: int,
        room_bytes_max: int,
        buffers: SocketBuffers,
        new_socket: Callable[[int, int], socket.socket] = socket.socket,
    ) -> None:
        """room_bytes_max: queued.max.request.bytes, 0 for no limit. new_socket: (family, kind) -> a socket to listen on."""
        self._buffers = buffers
        self.limits = limits
        self.connections: dict[Connection, None] = {}
        """In the order in which they were accepted."""
        self.connections_max = 1 << 31
        self.accepted: Counter[str] = Counter()
        self.logins: Counter[str] = Counter()
        self.failed_logins: Counter[str] = Counter()
        """By listener, since the start: connections, logins, failed logins and TLS handshakes."""
        self.tls: dict[str, TlsListener] = {}
        """The TLS listeners, by name."""
        self.gates: dict[str, Gate] = {}
        """By name: the login gates of SASL listeners."""
        self._handshakes: dict[Handshake, str] = {}
        """The listeners of unfinished handshakes, the oldest first."""
        self._strangers: dict[Connection, None] = {}
        """Connections that had no login when they were looked at last, the oldest first."""
        self._refusals_s = -ACCEPT_REST_S
        self._refusals = 0
        self._loop = turn.loop
        self._new_socket = new_socket
        room = RequestRoom(turn.loop, room_bytes_max)
        self._shared = Shared(turn, Buffers(), Senders(turn.loop), room, request_bytes_max)
        self._handler: FrameHandler | None = None
        self._listeners: list[Listener] = []
        self._full: list[Listener] = []
        self._refused: set[socket.socket] = set()
        self._said_full_s = -ACCEPT_REST_S

    def limit_connections(self, wanted_max: int) -> None:
        """Allow at most `wanted_max`, and leave enough file descriptors for the logs and everything else."""
        files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.connections_max = min(
            wanted_max, max(files_max - OPEN_FILES.limit - FILES_RESERVED, CONNECTIONS_MIN)
        )

    # --- listening -------------------------------------------------------------------------------------

    def listen(self, host: str, port: int, name: str, backlog: int) -> int:
        """Bind host:port (port 0: any free port); returns the port. `serve` starts accepting. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = self._new_socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and host == "::":
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._buffers.set_on(sock)
            sock.setblocking(False)
            sock.bind((host, port))
            sock.listen(max(backlog, BACKLOG_MIN))
        except OSError:
            sock.close()
            raise
        self._listeners.append(Listener(sock, name))
        bound_port: int = sock.getsockname()[1]
        return bound_port

    def serve(self, handler: FrameHandler) -> None:
        """Start accepting; frames go to `handler`. Peers that connected since `listen` are waiting in the backlog."""
        self.handle_with(handler)
        for listener in self._listeners:
            self._loop.add_reader(listener.sock.fileno(), self._accept, listener)

    def handle_with(self, handler: FrameHandler) -> None:
        """From now on, frames of all open and future connections go to `handler`."""
        before, self._handler = self._handler, handler
        for connection in self.connections:
            if connection.handler is before:
                connection.handler = handler

    # --- accepting -------------------------------------------------------------------------------------

    def _accept(self, listener: Listener) -> None:
        """Peers are waiting. Errors with them must neither make the loop spin nor stop the accepting."""
        try:
            rest_s = self._accept_some(listener)
        except Exception:
            log.exception("accepting met a bug; it is tried again", extra={"listener": listener.name})
            rest_s = ACCEPT_REST_S
        if rest_s:
            self._rest(listener, rest_s)

    def _accept_some(self, listener: Listener) -> float:
        """Accept waiting peers, up to a limit; returns for how many seconds to accept none."""
        for accepted in range(ACCEPTS_PER_TURN):
            is_own = self.limits.listener_is_full(listener.name)
            if is_own or self._is_full():
                if accepted:
                    return 0  # A connection is closed to make room only if a peer waits; if one does, the loop calls again.
                is_meant = (lambda name, host: name == listener.name) if is_own else everybody
                if not self._make_room_of_strangers(is_meant):
                    return self._await_room(listener, f"listener {listener.name}" if is_own else "the broker")
            try:
                sock, peer = listener.sock.accept()
            except (BlockingIOError, InterruptedError):
                return 0
            except OSError as error:
                log.error(
                    "no connection can be accepted for now; raise the limit of open files (ulimit -n) if this goes on",
                    extra={"reason": str(error), "connections": len(self.connections)},
                )
                return ACCEPT_REST_S
            try:
                if not self._refuse(sock, peer[0]):
                    self.admit(sock, listener.name)
            except Exception:
                sock.close()
                raise
            rest_ms = self.limits.count_accepted(listener.name)
            if rest_ms:
                log.info(
                    "connections come faster than max.connection.creation.rate",
                    extra={"listener": listener.name, "rest_ms": rest_ms},
                )
                return rest_ms / 1000
        return 0

    def _is_full(self) -> bool:
        return len(self.connections) + len(self._refused) + len(self._handshakes) >= self.connections_max

    def _make_room_of_strangers(self, is_meant: IsMeant) -> bool:
        """End the oldest handshake that is unfinished, else the oldest connection without a login; whether there was one."""
        handshake = next((h for h, name in self._handshakes.items() if is_meant(name, h.host)), None)
        if handshake is not None:
            handshake.cut("others wait, and the handshake is the oldest of those not finished")
            return True
        until_s = self._loop.time() - HANDSHAKE_S_FAIR
        old = list(takewhile(lambda stranger: stranger.connected_s <= until_s, self._strangers))
        for stranger in old:
            if not self._awaits_login(stranger):
                del self._strangers[stranger]
            elif is_meant(stranger.listener, stranger.host):
                stranger.close("others wait, and nobody has logged in on it")
                return True
        return False

    def _refuse(self, sock: socket.socket, ip: str) -> bool:
        """Close a connection that exceeds the limits of its address, now or later; False when it does not."""
        refusal = self.limits.refusal(ip)
        if refusal is not None and not self._make_room_of_strangers(lambda name, host: same_host(host, ip)):
            log.info("connection refused", extra={"peer": ip, "reason": refusal})
            sock.close()
            return True
        hold_ms = self.limits.count_new(ip)
        if hold_ms:
            log.info(
                "connection refused after a wait",
                extra={"peer": ip, "reason": "connection_creation_rate of its address", "wait_ms": hold_ms},
            )
            self._refused.add(sock)
            self._loop.call_later(hold_ms / 1000, self._close_refused, sock)
            return True
        return False

    def _close_refused(self, sock: socket.socket) -> None:
        self._refused.discard(sock)
        sock.close()

    def _await_room(self, listener: Listener, what: str) -> float:
        """Leave peers in the backlog until an open connection closes."""
        now_s = self._loop.time()
        if now_s - self._said_full_s >= ACCEPT_REST_S:
            self._said_full_s = now_s
            log.warning(
                "no more connections are accepted until one closes; raise max.connections or the limit of open "
                "files (ulimit -n) if this goes on",
                extra={"full": what, "connections": len(self.connections)},
            )
        self._full.append(listener)
        return ACCEPT_REST_S  # retry after a while as well: limits may be raised

    def _rest(self, listener: Listener, rest_s: float) -> None:
        """Leave peers in the backlog for a while, without the loop spinning over them."""
        self._loop.remove_reader(listener.sock.fileno())
        self._loop.call_later(rest_s, self._accept_again, listener)

    def _accept_again(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener.sock.fileno(), self._accept, listener)

    def admit(self, sock: socket.socket, name: str) -> Connection | None:
        """Make a connection of a socket accepted by listener `name`; None when its peer is already gone."""
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            spare_local_peer(sock)
            tls = self.tls.get(name)
            if tls is not None:
                self._begin_handshake(sock, name, tls)
                return None
            return self._open(PlainTransport(sock), name)
        except OSError:
            sock.close()
            return None

    def _open(self, transport: Transport, name: str, principal: str | None = None) -> Connection:
        """Create the connection of an admitted peer. principal: from its certificate, if any."""
        assert self._handler is not None, "nothing is accepted before `serve`"
        gate = self.gates.get(name)
        connection = Connection(transport, name, gate or self._handler, self._shared)
        if gate is not None:
            gate.welcome(connection)
            self._strangers[connection] = None
        if principal is not None:
            connection.principal = principal
        self.connections[connection] = None
        self.accepted[name] += 1
        if principal is not None:
            self.logins[name] += 1
        self.limits.opened(name, connection.host)
        connection.call_when_closed(self, partial(self._forget, connection))
        connection.start()
        return connection

    # --- TLS -------------------------------------------------------------------------------------------

    def _begin_handshake(self, sock: socket.socket, name: str, tls: TlsListener) -> None:
        self._cut_stalled()

        def done(handshake: Handshake, ready: Secured | None, why: str) -> None:
            self._handshakes.pop(handshake, None)
            self.limits.closed(name, handshake.host)
            if ready is None:
                self._note_refusal(name, handshake.host, why)
                self._make_room()
                return
            try:
                self._take_secured(ready, name, tls)
            except OSError:
                ready.sock.close()

        handshake = Handshake(sock, tls.context, self._loop, self._shared.buffers.cipher, done)
        self._handshakes[handshake] = name
        self.limits.opened(name, handshake.host)

    def _cut_stalled(self) -> None:
        """Limit the cost of unfinished handshakes: each holds some 50 KiB, and a flood of them is closed in one turn.

        When many are unfinished, those that have had enough time are closed. Young ones never are: after a restart all
        clients reconnect at once, and would restart every handshake that is cut off.
        """
        until_s = self._loop.time() - HANDSHAKE_S_FAIR
        while len(self._handshakes) >= HANDSHAKES_FAIR:
            oldest = next(iter(self._handshakes))
            if oldest.begun_s > until_s:
                return
            oldest.cut(
                f"the TLS handshake took over {HANDSHAKE_S_FAIR:.0f} s, and many others are unfinished"
            )

    def _take_secured(self, secured: Secured, name: str, tls: TlsListener) -> None:
        certificate = secured.tls.getpeercert(binary_form=True)
        try:
            principal = tls.principal(certificate)
        except Exception as error:
            log.warning(
                "a client's certificate cannot be read", extra={"listener": name, "reason": str(error)}
            )
            principal = None
        if principal is None:
            host = secured.sock.getpeername()[0]
            secured.sock.close()
            self._note_refusal(
                name, host, "no rule of ssl.principal.mapping.rules applies to its certificate"
            )
            return
        self._open(TlsTransport(secured, self._shared.buffers.cipher), name, principal)

    def _note_refusal(self, name: str, host: str, why: str) -> None:
        """Log a failed handshake; at most REFUSALS_PER_SECOND lines per second."""
        if not why:
            return
        self.failed_logins[name] += 1
        now_s = self._loop.time()
        if now_s - self._refusals_s < ACCEPT_REST_S and self._refusals >= REFUSALS_PER_SECOND:
            self._refusals += 1
            return
        if now_s - self._refusals_s >= ACCEPT_REST_S:
            if self._refusals > REFUSALS_PER_SECOND:
                log.warning(
                    "more TLS handshakes failed than were logged",
                    extra={"count": self._refusals - REFUSALS_PER_SECOND},
                )
            self._refusals_s, self._refusals = now_s, 0
        self._refusals += 1
        log.warning("connection closed", extra={"listener": name, "peer": host, "reason": why})

    @property
    def room_taken_bytes(self) -> int:
        """Memory of large requests that are being received or handled."""
        return self._shared.room.taken_bytes

    def refresh_tls(self) -> None:
        """Apply changed certificates and TLS options."""
        for tls in self.tls.values():
            tls.refresh()

    # --- closing ---------------------------------------------------------------------------------------

    def _forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._strangers.pop(connection, None)
        self.limits.closed(connection.listener, connection.host)
        self._make_room()

    def _make_room(self) -> None:
        full, self._full = self._full, []
        for listener in full:
            self._accept_again(listener)

    def close_idle(self, idle_s_max: float) -> None:
        """Close connections that have sent nothing for longer than connections.max.idle.ms, or on which nobody logs in."""
        now_s = self._loop.time()
        for connection in [c for c in self.connections if now_s - c.last_active_s > idle_s_max]:
            connection.close(None)
        late = [c for c in self._awaiting_login() if now_s - c.connected_s > LOGIN_S_MAX]
        for connection in late:
            connection.close(None)
        if late:
            log.warning(
                "connections closed without a login", extra={"count": len(late), "after_s": int(LOGIN_S_MAX)}
            )

    def _awaiting_login(self) -> Iterator[Connection]:
        """Connections on which nobody has logged in yet, the oldest first."""
        return filter(self._awaits_login, self.connections)

    def _awaits_login(self, connection: Connection) -> bool:
        gate = self.gates.get(connection.listener)
        return gate is not None and gate.awaits(connection)

    def close(self) -> None:
        """Stop accepting, write what the sockets still accept, close everything."""
        for listener in self._listeners:
            self._loop.remove_reader(listener.sock.fileno())
            listener.sock.close()
        self._listeners.clear()
        self.limits.close()
        for waiting in list(self._refused):
            self._close_refused(waiting)
        for handshake in list(self._handshakes):
            handshake.cut("")
        for connection in list(self.connections):
            connection.flush()
            connection.close(None)
        self._shared.senders.close()
