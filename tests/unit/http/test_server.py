"""The HTTP server of the services: limits, ids, errors, stopping; by bytes on sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from barnabas.http import accepting, connection
from barnabas.http.bodies import json_object
from barnabas.http.errors import HttpError
from barnabas.http.guard import Limits
from barnabas.http.listening import ServiceError, TlsFiles
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.http.shares import Shares
from barnabas.schemas.json_text import DEPTH_MAX, BadJson, parse_json
from barnabas.security.authority import Authority, write_private
from barnabas.services.access import Access

WAIT_S = 60


def shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    return json.dumps({"code": error.code, "message": error.message}).encode(), "application/problem"


class Api:
    """Handlers that wait for each other by events."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()
        self.stopped = False

    async def echo(self, request: Request) -> Response:
        return JSONResponse(await json_object(request))

    async def slow(self, request: Request) -> Response:
        self.entered.set()
        await self.leave.wait()
        return JSONResponse("done")

    async def refuse(self, request: Request) -> Response:
        raise HttpError(422, "no such thing", 42201)

    async def fail(self, request: Request) -> Response:
        raise RuntimeError("a bug")

    async def flood(self, request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(10_000):
                yield b"x" * 65536

        return StreamingResponse(pieces())

    def service(self) -> Service:
        async def start(url: str) -> None:
            return None

        async def stop() -> None:
            self.stopped = True

        routes = [
            Route("/echo", self.echo, methods=["POST"]),
            Route("/slow", self.slow),
            Route("/refuse", self.refuse),
            Route("/fail", self.fail),
            Route("/flood", self.flood),
        ]
        return Service("test", routes, shape, start=start, stop=stop)


@asynccontextmanager
async def serving(api: Api, limits: Limits = Limits(), **more: Any) -> AsyncIterator[HttpServer]:  # noqa: B008
    async with HttpServer(api.service, HttpOptions("127.0.0.1:0", limits, **more)) as server:
        yield server


async def connect(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def exchange(server: HttpServer, raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """Sends bytes, reads one answer."""
    reader, writer = await connect(server)
    try:
        writer.write(raw)
        return await answer(reader)
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split()[1]), headers, body


def get(path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(WAIT_S):
            return await work()

    return asyncio.run(bounded())


def served(work: Callable[[HttpServer, Api], Awaitable[Any]], limits: Limits = Limits(), **more: Any) -> Any:  # noqa: B008
    async def whole() -> Any:
        api = Api()
        async with serving(api, limits, **more) as server:
            return await work(server, api)

    return run(whole)


def test_request_ids_are_kept_or_made_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def work(server: HttpServer, api: Api) -> Any:
        return [
            await exchange(server, get("/health", "X-Request-Id: abc-1\r\n")),
            await exchange(server, get("/health", "X-Request-Id: <script>\r\n")),
        ]

    with caplog.at_level(logging.INFO, "barnabas.http.access"):
        kept, generated = served(work)
    assert kept[:2] == (200, {**kept[1], "x-request-id": "abc-1"})
    assert len(generated[1]["x-request-id"]) == 32
    rows = [record for record in caplog.records if record.name == "barnabas.http.access"]
    assert [(r.path, r.status, r.method, r.service) for r in rows] == [("/health", 200, "GET", "test")] * 2  # type: ignore[attr-defined]
    assert rows[0].request_id == "abc-1"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (get("/refuse"), 422, 42201),
        (get("/nothing"), 404, 404),
        (get("/fail"), 500, 500),
        (post("/refuse", b""), 405, 405),
        (post("/echo", b"{"), 400, 400),
        (post("/echo", b'{"a": 1, "a": 2}'), 400, 400),
        (post("/echo", b"[1]"), 400, 400),
        (post("/echo", b'{"a": NaN}'), 400, 400),
        (post("/echo", b'{"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"), 400, 400),
        (post("/echo", b"\xff\xfe{}"), 400, 400),
        (post("/echo", b'{"a": ' + b"9" * 10_000 + b"}"), 400, 400),
    ],
    ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else str(value),
)
def test_errors_have_the_shape_of_the_api(raw: bytes, status: int, code: int) -> None:
    async def work(server: HttpServer, api: Api) -> Any:
        return await exchange(server, raw)

    got, headers, body = served(work)
    assert (got, json.loads(body)["code"]) == (status, code)
    assert headers["content-type"] == "application/problem"
    assert "Traceback" not in body.decode()


def test_a_slash_at_the_end_of_a_path_is_ignored() -> None:
    async def work(server: HttpServer, api: Api) -> Any:
        return [
            (await exchange(server, get(path)))[0]
            for path in ("/refuse/", "/health/", "/refuse%2F", "/refuse//", "/")
        ]

    assert served(work) == [422, 200, 404, 404, 404]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_and_others_are_served(chunked: bool) -> None:
    async def work(server: HttpServer, api: Api) -> Any:
        body = b"x" * 3_000_000
        raw = post("/echo", body)
        if chunked:
            raw = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            raw += f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        return await exchange(server, raw), await exchange(server, post("/echo", b'{"a": 1}'))

    refused, taken = served(work, Limits(body_bytes=100_000))
    assert refused[0] == 413
    assert "the limit is 100000" in json.loads(refused[2])["message"]
    assert taken[0] == 200


def test_a_body_that_does_not_come_is_given_up() -> None:
    async def work(server: HttpServer, api: Api) -> Any:
        return await exchange(server, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")

    status, _, body = served(work, Limits(request_s=0.3))
    assert status == 408
    assert "did not arrive within 0.3 s" in json.loads(body)["message"]


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    async def work(server: HttpServer, api: Api) -> Any:
        return await exchange(server, get("/slow"))

    assert served(work, Limits(request_s=0.3))[0] == 503


def test_a_peer_that_does_not_read_loses_its_connection() -> None:
    async def work(server: HttpServer, api: Api) -> bool:
        reader, writer = await connect(server)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(get("/flood"))
        others = await exchange(server, get("/health"))
        await asyncio.sleep(1.5)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        try:
            while await reader.read(1 << 20):
                pass
        except ConnectionError:
            pass
        writer.close()
        return others[0] == 200

    assert served(work, Limits(request_s=0.5))


@pytest.mark.parametrize("sent", [b"", b"GET /health HT"])
def test_half_a_request_line_loses_the_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEADER_TIMEOUT_S", 0.3)

    async def work(server: HttpServer, api: Api) -> bytes:
        reader, writer = await connect(server)
        writer.write(sent)
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        writer.close()
        return b"ended"

    assert served(work) == b"ended"


def test_headers_without_end_are_refused() -> None:
    async def work(server: HttpServer, api: Api) -> bytes:
        reader, writer = await connect(server)
        try:
            for _ in range(200):
                writer.write(b"GET / HTTP/1.1\r\n" if _ == 0 else b"X-A: " + b"a" * 1000 + b"\r\n")
                await writer.drain()
            return await reader.read(1 << 16)
        except ConnectionError:
            return b"HTTP/1.1 400"
        finally:
            writer.close()

    assert served(work).startswith(b"HTTP/1.1 400")


def test_more_requests_than_allowed_are_told_to_come_back() -> None:
    async def work(server: HttpServer, api: Api) -> Any:
        first = asyncio.create_task(exchange(server, get("/slow")))
        await api.entered.wait()
        second = await exchange(server, get("/refuse"))
        healthy = await exchange(server, get("/health"))
        api.leave.set()
        return (await first)[0], second, healthy[0]

    status, (refused, headers, _), healthy = served(work, Limits(requests=1))
    assert (status, refused, headers["retry-after"], healthy) == (200, 503, "1", 200)


def test_requests_that_are_not_whole_keep_nobody_waiting() -> None:
    """Bodies that do not arrive take none of the slots, and connections that sent none of theirs make room."""

    async def work(server: HttpServer, api: Api) -> Any:
        head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
        connections = []
        for _ in range(20):
            connections.append(await connect(server))
            connections[-1][1].write(head)
        answers = [await exchange(server, get("/refuse")), await exchange(server, post("/echo", b'{"a": 1}'))]
        for reader, writer in connections:  # each is served as soon as it is whole
            writer.write(b'{"b": 123}')
            answers.append(await answer(reader))
            writer.close()
        return [status for status, _, _ in answers]

    assert served(work, Limits(requests=4)) == [422, *[200] * 21]


def test_a_body_that_breaks_off_is_not_handled() -> None:
    async def work(server: HttpServer, api: Api) -> Any:
        _, writer = await connect(server)
        writer.write(b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await exchange(server, get("/health"))
        return api.entered.is_set()

    assert not served(work)


def test_one_address_leaves_a_share_to_each_other() -> None:
    shares = Shares(total=100, share=5)
    assert sum(shares.take("a") for _ in range(1000)) == 50
    assert [sum(shares.take(f"b{number}") for _ in range(1000)) for number in range(12)] == [5] * 10 + [0] * 2
    shares.give_back("a", 50)
    assert [shares.take("b1"), sum(shares.take("a") for _ in range(1000)), shares.used] == [False, 5, 55]
    shares.give_back("a", 5)
    for number in range(10):
        shares.give_back(f"b{number}", 5)
    assert (shares.used, shares.take("a", 50), shares.take("a", 1)) == (0, True, False)


def test_bodies_in_memory_are_counted() -> None:
    """Half of the memory is for one address; it is given back with each answer."""

    async def work(server: HttpServer, api: Api) -> Any:
        connections = []
        for _ in range(3):
            connections.append(await connect(server))
            connections[-1][1].write(
                b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b" " * 90_000
            )
            await connections[-1][1].drain()
        refused = await connections[2][0].readuntil(b"\r\n\r\n")
        for _, writer in connections:
            writer.close()
            await writer.wait_closed()
        answers = [await exchange(server, post("/echo", b" " * 90_000)) for _ in range(5)]
        return refused.split()[1], [status for status, _, _ in answers]

    assert served(work, Limits(body_bytes=100_000, bodies_bytes=0)) == (b"503", [200] * 5)


def test_stopping_answers_what_was_taken() -> None:
    async def whole() -> Any:
        api = Api()
        server = HttpServer(api.service, HttpOptions("127.0.0.1:0"))
        await server.start()
        request = asyncio.create_task(exchange(server, get("/slow")))
        await api.entered.wait()
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0.3)
        assert not api.stopped
        api.leave.set()
        await stopping
        assert api.stopped
        with pytest.raises(ConnectionError):
            await connect(server)
        return await request

    status, _, body = run(whole)
    assert (status, body) == (200, b'"done"')


def test_users_are_asked_for_before_the_body_is_read() -> None:
    async def who(scope: Any) -> str | None:
        if dict(scope["headers"]).get(b"authorization") != b"Basic YTpi":
            raise HttpError(401, "name and password please", headers={"www-authenticate": "Basic"})
        return "a"

    async def work(server: HttpServer, api: Api) -> Any:
        return (
            await exchange(server, get("/refuse")),
            await exchange(server, get("/refuse", "Authorization: Basic YTpi\r\n")),
        )

    refused, taken = served(work, authenticate=who)
    assert (refused[0], refused[1]["www-authenticate"], taken[0]) == (401, "Basic", 422)


def test_cors_only_for_named_origins() -> None:
    async def work(server: HttpServer, api: Api) -> Any:
        return [
            (await exchange(server, get("/health", f"Origin: {origin}\r\n")))[1].get(
                "access-control-allow-origin"
            )
            for origin in ("http://a.example", "http://b.example")
        ]

    assert served(work, cors_origins=("http://a.example",)) == ["http://a.example", None]


def test_an_address_in_use_is_one_sentence() -> None:
    async def work(server: HttpServer, api: Api) -> str:
        taken = server.url.removeprefix("http://")
        with pytest.raises(ServiceError) as refused:
            await HttpServer(api.service, HttpOptions(taken)).start()
        return str(refused.value)

    assert "choose another with --listen" in served(work)


def test_json_as_deep_as_allowed_is_read() -> None:
    deep: Any = parse_json("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    for _ in range(DEPTH_MAX - 1):
        deep = deep[0]
    assert deep == []
    with pytest.raises(BadJson, match="nested"):
        parse_json("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1))
    assert parse_json('"' + "[" * 1000 + '"') == "[" * 1000


def own_certificate(folder: Path) -> tuple[Authority, str]:
    """An authority, and a file with key, certificate and the authority's own."""
    authority = Authority.new("Of servers")
    key, certificate = authority.issue("server", ["localhost"])
    file = folder / "server.pem"
    write_private(file, key + certificate + authority.pem)
    return authority, str(file)


def test_a_handshake_that_is_not_made_loses_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "HANDSHAKE_S", 0.3)
    _, file = own_certificate(tmp_path)

    async def work(server: HttpServer, api: Api) -> bytes:
        host, _, port = server.url.removeprefix("https://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            return await reader.read(1)
        except ConnectionError:
            return b""
        finally:
            writer.close()

    assert served(work, tls=TlsFiles(file, file)) == b""


def test_who_shows_the_server_s_own_certificate_is_let_in(tmp_path: Path) -> None:
    """Services of one process do. Others with a certificate of the authority that signed it are not."""
    authority, file = own_certificate(tmp_path)
    clients = tmp_path / "clients.pem"
    clients.write_bytes(Authority.new("Of clients").pem)
    access = Access(tls_cert=Path(file), tls_client_ca=clients, is_inside=True)
    inside, other = access.within(), access.within()
    assert inside is not None
    assert other is not None
    key, certificate = authority.issue("another")
    write_private(tmp_path / "other.pem", key + certificate + authority.pem)
    other.load_cert_chain(tmp_path / "other.pem")

    async def work(server: HttpServer, api: Api) -> list[bytes]:
        host, _, port = server.url.removeprefix("https://").rpartition(":")
        answers = []
        for context in (inside, other):
            try:
                reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
                writer.write(get("/health", "Connection: close\r\n"))
                answers.append((await reader.read())[:15])
                writer.close()
            except (ssl.SSLError, ConnectionError):
                answers.append(b"")
        return answers

    assert served(work, tls=access.tls()) == [b"HTTP/1.1 200 OK", b""]
