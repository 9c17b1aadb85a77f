"""HTTP/2 for services that stream: one connection, on which requests and their answers go side by side.

The frames are those of the library h2; each request is run as uvicorn runs those of HTTP/1.1, with the same limits around
it. A connection becomes one of HTTP/2 when its first bytes are its preface, with TLS (ALPN) and without, or when its first
request asks for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    PingReceived,
    PriorityUpdated,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from barnabas.http.extensions import ABORT, BODY, KEEP

if TYPE_CHECKING:
    import uvicorn
    from uvicorn.server import ServerState

    from barnabas.http.accepting import Place

log = logging.getLogger("barnabas.http")

STREAMS_MAX: Final = 100
HEADER_BYTES_MAX: Final = 64 << 10
SILENT_S: Final = 20.0
"""How long a connection may be open before its first request."""
IDLE_S: Final = 75.0
TROUBLE_MAX: Final = 1000
TROUBLE_S: Final = 10.0
"""Frames that cost the peer little and the server something (resets, pings, settings, priorities, empty data): so many in
this time end the connection."""
UNREAD_BYTES_MAX: Final = 1 << 20
"""Frames that wait for a peer that does not read."""
HOP_HEADERS: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
"""Headers of HTTP/1.1 that HTTP/2 forbids."""


@dataclass(slots=True)
class Upgrade:
    """A request of HTTP/1.1 that asks for HTTP/2 (`curl --http2`). settings: the client's, as its header has them. headers:
    with those of HTTP/2. left: how much of the body is still to come, in bytes."""

    settings: bytes
    headers: list[tuple[bytes, bytes]]
    left: int
    body: bytearray = field(default_factory=bytearray)

    def fill(self, data: bytes) -> bytes | None:
        """Takes the body from what arrives; what comes after it, None while it is not whole."""
        self.body += data[: self.left]
        rest = data[self.left :]
        self.left -= min(len(data), self.left)
        return None if self.left else rest


class Http2Connection(asyncio.Protocol):
    """One connection. Has the methods that uvicorn's server expects of a connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        place: Place | None = None,
        upgrade: Upgrade | None = None,
    ) -> None:
        """place: the connection's place among those of the service. upgrade: a request of HTTP/1.1 that asked for HTTP/2."""
        self.config = config
        self.app = config.loaded_app
        self.state = server_state
        self.app_state = app_state
        self.place = place
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.streams: dict[int, Stream] = {}
        self.loop = asyncio.get_running_loop()
        self.writable = asyncio.Event()
        self.writable.set()
        self._timer: asyncio.TimerHandle | None = None
        self._trouble, self._trouble_since = 0, 0.0
        self._ending = False
        self._upgrade = upgrade

    # --- the connection ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established."""
        self.transport = cast("asyncio.Transport", transport)
        self.state.connections.add(self)  # type: ignore[arg-type]
        self.server, self.client = get_local_addr(self.transport), get_remote_addr(self.transport)
        self.scheme = "https" if is_ssl(self.transport) else "http"
        self._wait(SILENT_S)
        if self._upgrade is None:
            self.h2.initiate_connection()
            self._set_limits()

    def _set_limits(self) -> None:
        self.h2.update_settings(
            {
                SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: HEADER_BYTES_MAX,
            }
        )
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed: all requests on it have lost their client."""
        self._stop_waiting()
        self.state.connections.discard(self)
        if self.place is not None:
            self.place.release()
        self.writable.set()
        for stream in self.streams.values():
            stream.lose()

    def pause_writing(self) -> None:
        """The peer does not read: answers wait."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self.writable.set()

    def eof_received(self) -> None:
        """The peer has closed its side: so does the transport."""

    def shutdown(self) -> None:
        """Take no more requests; close when the last answer has ended."""
        self._ending = True
        if not self.streams:
            self.close()

    def close(self, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        """Say goodbye, and close."""
        if self.transport.is_closing():
            return
        try:
            self.h2.close_connection(code)
        except ProtocolError:
            pass
        self.flush()
        self.transport.close()

    def flush(self) -> None:
        """Send what h2 has to send."""
        data = self.h2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(seconds, self._late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self.close()
        self.loop.call_later(1.0, self.transport.abort)  # it may not read what is sent

    # --- what arrives ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Process bytes from the peer."""
        if self._upgrade is not None:
            rest = self._upgrade.fill(data)
            if rest is None:
                return
            self._answer_upgrade(self._upgrade)
            data = rest
        try:
            for event in self.h2.receive_data(data):
                self._handle(event)
        except ProtocolError as error:
            log.debug("a client broke HTTP/2", extra={"reason": str(error)})
            self.flush()
            self.transport.close()
            return
        self.flush()
        if self._trouble > TROUBLE_MAX:
            self.close(ErrorCodes.ENHANCE_YOUR_CALM)
        elif not self.writable.is_set() and self.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self.transport.abort()

    def _answer_upgrade(self, upgrade: Upgrade) -> None:
        """The request of HTTP/1.1 is the first stream of HTTP/2."""
        self._upgrade = None
        try:
            self.h2.initiate_upgrade_connection(upgrade.settings)
        except (ProtocolError, ValueError):  # its settings are none
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
            self.transport.close()
            return
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        )
        self._set_limits()
        self._run(1, upgrade.headers, more=bool(upgrade.body))
        if upgrade.body:
            self.streams[1].arrived(bytes(upgrade.body), 0)
            self.streams[1].complete()

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event)
        elif isinstance(event, DataReceived):
            stream = self.streams.get(event.stream_id)
            if not event.data:
                self._count_trouble()
            if stream is None or not event.data:  # its answer has ended already, or it is padding
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            else:
                stream.arrived(event.data, event.flow_controlled_length)
        elif isinstance(event, StreamEnded):
            if event.stream_id in self.streams:
                self.streams[event.stream_id].complete()
        elif isinstance(event, StreamReset):
            self._count_trouble()
            if event.stream_id in self.streams:
                self.streams[event.stream_id].lose()
        elif isinstance(event, WindowUpdated):
            named = self.streams.get(event.stream_id) if event.stream_id else None
            for stream in [named] if named else self.streams.values():
                stream.room.set()
        elif isinstance(event, RemoteSettingsChanged):
            self._count_trouble()
            for stream in self.streams.values():
                stream.room.set()
        elif isinstance(event, PingReceived | PriorityUpdated):
            self._count_trouble()

    def _count_trouble(self) -> None:
        now_s = self.loop.time()
        if now_s - self._trouble_since > TROUBLE_S:
            self._trouble, self._trouble_since = 0, now_s
        self._trouble += 1

    def _begin(self, event: RequestReceived) -> None:
        stream_id = event.stream_id
        assert stream_id is not None
        if self._ending:
            self.h2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            return
        self._run(stream_id, event.headers or [], more=event.stream_ended is None)

    def _run(self, stream_id: int, headers: Iterable[tuple[Any, Any]], *, more: bool) -> None:
        self._stop_waiting()
        stream = self.streams[stream_id] = Stream(self, stream_id, more)
        scope = self._scope(headers, stream)
        self.state.total_requests += 1
        task = self.loop.create_task(stream.run(scope))
        self.state.tasks.add(task)
        task.add_done_callback(self.state.tasks.discard)

    def _scope(self, headers: Iterable[tuple[Any, Any]], stream: Stream) -> dict[str, Any]:
        """The request as ASGI has it. h2 has checked that each of the names with a colon is there once."""
        named = {name: value for name, value in headers if name.startswith(b":")}
        rest = [(name, value) for name, value in headers if not name.startswith(b":")]
        if b":authority" in named:
            rest = [(b"host", named[b":authority"]), *(pair for pair in rest if pair[0] != b"host")]
        crumbs = [value for name, value in rest if name == b"cookie"]
        if len(crumbs) > 1:
            rest = [*(pair for pair in rest if pair[0] != b"cookie"), (b"cookie", b"; ".join(crumbs))]
        raw_path, _, query = named.get(b":path", b"/").partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": self.config.asgi_version, "spec_version": "2.3"},
            "http_version": "2",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": named[b":method"].decode("latin-1"),
            "root_path": self.config.root_path,
            "path": unquote(raw_path.decode("latin-1")),
            "raw_path": raw_path,
            "query_string": query,
            "headers": rest,
            "state": self.app_state.copy(),
            "extensions": {
                ABORT: stream.abort,
                KEEP: self.place.keep if self.place is not None else lambda: None,
                BODY: stream.more,
            },
        }

    def ended(self, stream: Stream) -> None:
        """The answer of a stream has ended, or will not."""
        self.streams.pop(stream.id, None)
        if self.transport.is_closing():
            return
        stream.discard()
        self.flush()
        if not self.streams:
            if self._ending:
                self.close()
            else:
                self._wait(IDLE_S)


class Stream:
    """One request and its answer. more: whether more of the body is to come. room: set when the peer may take more."""

    def __init__(self, connection: Http2Connection, stream_id: int, more: bool) -> None:
        self.connection = connection
        self.id = stream_id
        self.more = more
        self.lost = False
        self.room = asyncio.Event()
        self._pieces: list[tuple[bytes, int]] = []
        self._something = asyncio.Event()
        self._told_end = False
        self._ended = self._is_head = False

    # --- what arrives ------------------------------------------------------------------------------

    def arrived(self, data: bytes, counted: int) -> None:
        """A piece of the body. counted: its bytes of the flow control's windows."""
        self._pieces.append((data, counted))
        self._something.set()

    def complete(self) -> None:
        """The body has ended."""
        self.more = False
        self._something.set()

    def lose(self) -> None:
        """The client has gone, or does not want the answer any more."""
        self.lost = True
        self._something.set()
        self.room.set()

    def discard(self) -> None:
        """Nobody reads the rest of the body."""
        if self.more and not self.lost:
            self._reset(ErrorCodes.NO_ERROR if self._ended else ErrorCodes.INTERNAL_ERROR)
        self._acknowledge(sum(counted for _, counted in self._pieces))
        self._pieces.clear()

    def abort(self) -> None:
        """End the answer at once; the whole connection, if the peer does not read."""
        if not self.connection.writable.is_set():
            self.connection.transport.abort()
        else:
            self._reset(ErrorCodes.INTERNAL_ERROR)
            self.connection.flush()
        self.lose()

    def _reset(self, code: ErrorCodes) -> None:
        try:
            self.connection.h2.reset_stream(self.id, code)
        except ProtocolError:
            pass  # it is closed already

    def _acknowledge(self, counted: int) -> None:
        """The peer may send as much again."""
        if counted:
            try:
                self.connection.h2.acknowledge_received_data(counted, self.id)
            except ProtocolError:
                return
            self.connection.flush()

    # --- what ASGI asks for ------------------------------------------------------------------------

    async def run(self, scope: dict[str, Any]) -> None:
        """Carry out the request."""
        self._is_head = scope["method"] == "HEAD"
        try:
            await self.connection.app(scope, self.receive, self.send)
        except Exception:
            log.exception("a request on HTTP/2 met a bug", extra={"path": scope["path"]})
        finally:
            if not self._ended and not self.lost:
                self._reset(ErrorCodes.INTERNAL_ERROR)
            self.connection.ended(self)

    async def receive(self) -> dict[str, Any]:
        """The next piece of the body; after its end, the client's leaving."""
        while True:
            if self._pieces:
                body, counted = self._pieces.pop(0)
                self._acknowledge(counted)
                more = bool(self._pieces) or self.more
                self._told_end = not more
                return {"type": "http.request", "body": body, "more_body": more}
            if self.lost or self._ended:
                return {"type": "http.disconnect"}
            if not self.more and not self._told_end:
                self._told_end = True
                return {"type": "http.request", "body": b"", "more_body": False}
            self._something.clear()
            await self._something.wait()

    async def send(self, message: Any) -> None:
        """A piece of the answer; waits until the peer takes it."""
        if self.lost or self._ended:
            return
        try:
            if message["type"] == "http.response.start":
                self._begin(message)
            elif message["type"] == "http.response.body":
                await self._send_body(message.get("body", b""), not message.get("more_body", False))
        except ProtocolError:  # the stream was closed meanwhile
            self.lose()

    def _begin(self, message: Any) -> None:
        headers = [(b":status", str(message["status"]).encode())]
        all_headers = [*self.connection.state.default_headers, *message.get("headers", ())]
        headers += [(name, value) for name, value in all_headers if name.lower() not in HOP_HEADERS]
        self.connection.h2.send_headers(self.id, headers)
        self.connection.flush()

    async def _send_body(self, body: bytes, last: bool) -> None:
        h2, left = self.connection.h2, memoryview(b"" if self._is_head else body)
        while left:
            await self.connection.writable.wait()
            if self.lost:
                return
            size = min(h2.local_flow_control_window(self.id), h2.max_outbound_frame_size, len(left))
            if size <= 0:
                self.room.clear()
                await self.room.wait()
                continue
            h2.send_data(self.id, bytes(left[:size]))
            left = left[size:]
            self.connection.flush()
        if last:
            h2.end_stream(self.id)
            self._ended = True
            self._something.set()
            self.connection.flush()
