"""HTTP/2 and WebSockets of the HTTP server, by clients that others wrote (httpx, websockets), and by frames of our own."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
import websockets
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.settings import SettingCodes
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from barnabas.http.errors import HttpError
from barnabas.http.guard import Limits
from barnabas.http.http2 import Http2Connection
from barnabas.http.listening import TlsFiles
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.http.streaming import DuplexResponse
from tests.unit.http.test_server import WAIT_S, Api, own_certificate


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """On the event loop that services run on."""

    async def bounded() -> Any:
        async with asyncio.timeout(WAIT_S):
            return await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())


class Both(Api):
    """A service of HTTP/2 with a WebSocket."""

    async def mirror(self, request: Request) -> Response:
        async def pieces() -> AsyncGenerator[bytes, None]:
            async for piece in request.stream():
                if piece:
                    yield piece

        return DuplexResponse(pieces(), "text/x", 10)

    async def chat(self, socket: WebSocket) -> None:
        await socket.accept()
        async for text in socket.iter_text():
            await socket.send_text(text.upper())

    def service(self) -> Service:
        service = super().service()
        more = [Route("/mirror", self.mirror, methods=["POST"]), WebSocketRoute("/chat", self.chat)]
        return replace(
            service,
            routes=[*service.routes, *more],
            http2=True,
            is_socket=lambda scope: scope["path"] == "/chat",
            is_streaming=lambda scope: scope["path"] == "/mirror",
        )


Work = Callable[[HttpServer, Both], Awaitable[Any]]


def served(work: Work, limits: Limits = Limits(), **more: Any) -> Any:  # noqa: B008
    async def whole() -> Any:
        api = Both()
        options = HttpOptions("127.0.0.1:0", limits, **more)
        async with HttpServer(api.service, options) as server:
            return await work(server, api)

    return run(whole)


def client(**more: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(http1=False, http2=True, timeout=60, **more)


def test_requests_go_side_by_side_on_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def work(server: HttpServer, api: Both) -> Any:
        async with client() as http:
            slow = asyncio.create_task(http.get(f"{server.url}/slow"))
            await api.entered.wait()
            echo = await http.post(f"{server.url}/echo", json={"a": "b" * 200_000})
            empty = await http.head(f"{server.url}/health")
            wrong = [await http.get(f"{server.url}{path}") for path in ("/refuse", "/fail", "/nothing")]
            form = await http.post(f"{server.url}/echo", data={"a": "b"})
            api.leave.set()
            return [await slow, echo, empty, *wrong, form]

    with caplog.at_level(logging.INFO, "barnabas.http.access"):
        slow, echo, empty, *wrong, form = served(work)
    assert {response.http_version for response in (slow, echo, *wrong)} == {"HTTP/2"}
    assert (slow.json(), echo.json(), empty.content) == ("done", {"a": "b" * 200_000}, b"")
    assert [response.status_code for response in (*wrong, form)] == [422, 500, 404, 415]
    assert "x-request-id" in slow.headers
    rows = [r for r in caplog.records if r.name == "barnabas.http.access" and r.path == "/echo"]  # type: ignore[attr-defined]
    assert [(r.method, r.status) for r in rows] == [("POST", 200), ("POST", 415)]  # type: ignore[attr-defined]


def test_tls_offers_http_2_and_http_1_1(tmp_path: Path) -> None:
    authority, file = own_certificate(tmp_path)
    context = ssl.create_default_context(cadata=authority.pem.decode())

    async def work(server: HttpServer, api: Both) -> Any:
        url = f"{server.url.replace('127.0.0.1', 'localhost')}/health"
        answers = []
        for http2 in (True, False):
            async with httpx.AsyncClient(http2=http2, verify=context, timeout=60) as http:
                answers.append(await http.get(url))
        return [(answer.http_version, answer.status_code) for answer in answers]

    assert served(work, tls=TlsFiles(file, file)) == [("HTTP/2", 200), ("HTTP/1.1", 200)]


@pytest.mark.parametrize("piece_bytes", [1, 50, 1 << 20])
def test_a_request_of_http_1_1_may_ask_for_http_2(piece_bytes: int) -> None:
    """As `curl --http2` does."""

    async def work(server: HttpServer, api: Both) -> Any:
        peer = await Peer.of(server, preface=False)
        settings = peer.h2.initiate_upgrade_connection()
        assert settings is not None
        body = b'{"a": 1}'
        head = (
            b"POST http://x/echo?a=b HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: " + settings + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n"
        )
        whole = head + body
        for at in range(0, len(whole), piece_bytes):
            peer.writer.write(whole[at : at + piece_bytes])
            await peer.writer.drain()
            await asyncio.sleep(0)
        first = await peer.reader.readuntil(b"\r\n\r\n")
        await peer.flush()
        data = await peer.until(DataReceived)
        await peer.get("/refuse")
        again = await peer.until(ResponseReceived)
        assert isinstance(data, DataReceived)
        assert isinstance(again, ResponseReceived)
        return first.split(b"\r\n")[0], data.data, dict(again.headers or [])[b":status"]

    assert served(work) == (b"HTTP/1.1 101 Switching Protocols", b'{"a":1}', b"422")


# --- frames ----------------------------------------------------------------------------------------


class Peer:
    """A client of HTTP/2 that does as it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.h2 = H2Connection(H2Configuration(client_side=True, validate_outbound_headers=False))
        self._events: list[Event] = []

    @classmethod
    async def of(cls, server: HttpServer, *, preface: bool = True) -> Peer:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        peer = cls(*await asyncio.open_connection(host, int(port)))
        if preface:
            peer.h2.initiate_connection()
            await peer.flush()
        return peer

    async def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())
        await self.writer.drain()

    async def get(self, path: str, *more: tuple[str, str], method: str = "GET", end: bool = True) -> int:
        number = self.h2.get_next_available_stream_id()
        head = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "x"), *more]
        self.h2.send_headers(number, head, end_stream=end)
        await self.flush()
        return number

    async def until(self, kind: type[Event]) -> Event | None:
        """The next event of this kind; None if the connection ends before."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if isinstance(event, kind):
                    return event
            try:
                data = await self.reader.read(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self._events += self.h2.receive_data(data)
            await self.flush()


def test_a_body_and_its_answer_stream_in_both_directions() -> None:
    async def work(server: HttpServer, api: Both) -> Any:
        peer = await Peer.of(server)
        number = await peer.get("/mirror", ("content-type", "text/x"), method="POST", end=False)
        body = b""
        for piece in (b"one", b"two", b"x" * 16_000):
            peer.h2.send_data(number, piece)
            await peer.flush()
            wanted = len(body) + len(piece)
            while len(body) < wanted:
                event = await peer.until(DataReceived)
                assert isinstance(event, DataReceived)
                body += event.data or b""
        peer.h2.end_stream(number)
        await peer.flush()
        ended = await peer.until(StreamEnded)
        return body, ended is not None

    assert served(work) == (b"onetwo" + b"x" * 16_000, True)


def healthy(work: Callable[[HttpServer], Awaitable[Any]]) -> Any:
    """What comes of it, when another client is served as well."""

    async def whole(server: HttpServer, api: Both) -> Any:
        answer = await work(server)
        async with client() as http:
            assert (await http.get(f"{server.url}/health")).status_code == 200
        return answer

    return served(whole, Limits(request_s=20))


def test_requests_that_are_begun_and_given_up_without_end_cost_the_connection() -> None:
    async def work(server: HttpServer) -> Any:
        peer = await Peer.of(server)
        try:
            for _ in range(1500):
                peer.h2.reset_stream(await peer.get("/slow"))
        except ConnectionError:
            return True
        return isinstance(await peer.until(ConnectionTerminated), ConnectionTerminated | None)

    assert healthy(work)


@pytest.mark.parametrize(
    "sent",
    [b"\x00\x00\x05\x00\x01\x00\x00\x00\x01hello", b"\xff" * 100, b"\x00\x40\x00\x01\x05\x00\x00\x00\x01"],
)
def test_frames_that_are_none_end_the_connection(sent: bytes) -> None:
    async def work(server: HttpServer) -> Any:
        peer = await Peer.of(server)
        peer.writer.write(sent + b"\x00" * 20_000)
        try:
            return await peer.until(ConnectionTerminated)
        finally:
            peer.writer.close()

    healthy(work)


def test_headers_that_are_too_large_are_refused() -> None:
    async def work(server: HttpServer) -> Any:
        peer = await Peer.of(server)
        await peer.get("/health", *((f"x-{number}", "a" * 1000) for number in range(100)))
        return await peer.until(ResponseReceived)

    assert healthy(work) is None


def test_a_peer_that_opens_no_window_holds_nobody_up() -> None:
    async def work(server: HttpServer) -> Any:
        peer = await Peer.of(server)
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        await peer.get("/flood")
        return await peer.until(StreamReset)

    async def whole(server: HttpServer, api: Both) -> Any:
        return await work(server)

    assert isinstance(served(whole, Limits(request_s=0.5)), StreamReset)


def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.http import http2

    monkeypatch.setattr(http2, "SILENT_S", 0.2)

    async def work(server: HttpServer) -> Any:
        peer = await Peer.of(server)
        return await peer.until(ConnectionTerminated)

    assert isinstance(healthy(work), ConnectionTerminated)


def test_stopping_waits_for_the_answers() -> None:
    async def work(server: HttpServer, api: Both) -> Any:
        async with client() as http:
            slow = asyncio.create_task(http.get(f"{server.url}/slow"))
            await api.entered.wait()
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(0.3)
            api.leave.set()
            answer = await slow
            await stopping
            return answer.json()

    assert served(work) == "done"


def test_a_service_without_http_2_says_that_it_is_none() -> None:
    async def whole() -> Any:
        async with HttpServer(Api().service, HttpOptions("127.0.0.1:0")) as server:
            peer = await Peer.of(server)
            return await peer.reader.read(100)

    assert run(whole).startswith(b"HTTP/1.1 400")


def test_connections_give_back_their_places() -> None:
    async def work(server: HttpServer, api: Both) -> Any:
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        original = Http2Connection.connection_lost

        def lost(self: Http2Connection, exc: Exception | None) -> None:
            original(self, exc)
            place.set_result(self.place is not None and self.place.is_free)

        Http2Connection.connection_lost = lost  # type: ignore[method-assign]
        try:
            async with client() as http:
                await http.get(f"{server.url}/health")
            return await place
        finally:
            Http2Connection.connection_lost = original  # type: ignore[method-assign]

    assert served(work) is True


# --- WebSockets ---------------------------------------------------------------------------------------


def test_a_websocket_of_the_service_is_served_and_others_are_refused() -> None:
    async def work(server: HttpServer, api: Both) -> Any:
        address = server.url.replace("http", "ws")
        async with websockets.connect(f"{address}/chat") as socket:
            await socket.send("hello")
            messages: list[Any] = [await socket.recv()]
        for path, origin in (("/echo", None), ("/chat", "https://evil.example")):
            try:
                async with websockets.connect(address + path, origin=origin):  # type: ignore[arg-type]
                    messages.append("served")
            except websockets.InvalidStatus as error:
                messages.append((error.response.status_code, json.loads(error.response.body)["message"][:30]))
        return messages

    assert served(work) == [
        "HELLO",
        (404, "there is no WebSocket here"),
        (403, "pages of https://evil.example "),
    ]


def test_a_websocket_needs_the_login_of_the_service() -> None:
    async def authenticate(scope: Any) -> str:
        raise HttpError(401, "log in", headers={"www-authenticate": "Basic"})

    async def work(server: HttpServer, api: Both) -> Any:
        with pytest.raises(websockets.InvalidStatus) as caught:
            async with websockets.connect(f"{server.url.replace('http', 'ws')}/chat"):
                pass
        return caught.value.response.status_code

    assert served(work, authenticate=authenticate) == 401
