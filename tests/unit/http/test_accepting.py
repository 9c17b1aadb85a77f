"""How many connections and unfinished TLS handshakes a service has at a time; by sockets."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.http import accepting
from barnabas.http.accepting import ConnectionLimits
from barnabas.http.listening import TlsFiles
from barnabas.http.server import HttpServer
from tests.unit.http.test_server import WAIT_S, Api, answer, get, own_certificate, served

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(server: HttpServer, tls: ssl.SSLContext | None = None) -> Stream:
    host, _, port = server.url.partition("://")[2].rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=tls)


async def health(server: HttpServer, tls: ssl.SSLContext | None = None) -> bool:
    """Whether a new connection is served."""
    try:
        reader, writer = await connect(server, tls)
        writer.write(get("/health", "Connection: close\r\n"))
        reply = await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
    except (ConnectionError, ssl.SSLError):
        return False
    return reply.startswith(b"HTTP/1.1 200")


async def until_healthy(server: HttpServer, tls: ssl.SSLContext | None = None) -> None:
    """A place becomes free a moment after its peer has gone."""
    while True:
        if await health(server, tls):
            return
        await asyncio.sleep(0.01)


HALF = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n12345678"


async def ends(stream: Stream) -> None:
    """Waits until the service has closed a connection."""
    try:
        assert await asyncio.wait_for(stream[0].read(), WAIT_S) == b""
    except ConnectionError:
        pass


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize(
    "limits", [ConnectionLimits(20, 1_000), ConnectionLimits(1_000, 20)], ids=["all", "one address"]
)
def test_connections_that_say_nothing_leave_room_when_they_go(
    limits: ConnectionLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "SILENCE_S_FAIR", 1000.0)

    async def work(server: HttpServer, api: Api) -> None:
        idle = [await connect(server) for _ in range(20)]
        assert not await health(server)
        for _, writer in idle[:5]:
            writer.close()
        await until_healthy(server)
        for _, writer in idle[5:]:
            writer.close()

    served(work, connections=limits)


@pytest.mark.parametrize(
    "limits", [ConnectionLimits(20, 1_000), ConnectionLimits(1_000, 20)], ids=["all", "one address"]
)
@pytest.mark.parametrize("secured", [False, True])
@pytest.mark.parametrize("sent", [b"", HALF], ids=["nothing", "half"])
def test_connections_that_have_asked_nothing_make_room(
    limits: ConnectionLimits, sent: bytes, secured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A balancer's address may hold all places: the oldest silent connection goes, none that has sent a whole request."""
    monkeypatch.setattr(accepting, "SILENCE_S_FAIR", -1.0)
    file = own_certificate(tmp_path)[1] if secured else ""
    trust = trusting() if secured else None

    async def work(server: HttpServer, api: Api) -> None:
        asked = await connect(server, trust)
        asked[1].write(get("/health"))
        assert (await answer(asked[0]))[0] == 200
        idle = [await connect(server, trust) for _ in range(19)]
        for _, writer in idle:
            writer.write(sent)
            await writer.drain()
        assert await health(server, trust)
        await ends(idle[0])
        asked[1].write(get("/health"))
        assert (await answer(asked[0]))[0] == 200
        for _, writer in (asked, *idle):
            writer.close()

    served(work, connections=limits, tls=TlsFiles(file, file) if secured else None)


@pytest.mark.parametrize("full", [True, False])
def test_unfinished_handshakes_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    """The oldest go: at once where there is no room, else when there are many and they have had their time."""
    _, file = own_certificate(tmp_path)
    limits = ConnectionLimits(20, 20) if full else ConnectionLimits()
    if not full:
        monkeypatch.setattr(accepting, "HANDSHAKES_FAIR", 20)
        monkeypatch.setattr(accepting, "HANDSHAKE_S_FAIR", 0.0)

    async def work(server: HttpServer, api: Api) -> None:
        stalled = [await connect(server) for _ in range(20 if not full else 19)]
        stalled[-1][1].write(b"\x16\x03\x01")  # half a message
        for _ in range(3):
            await until_healthy(server, trusting())
        if full:  # with the last place of their address taken, the oldest of them goes
            stalled.append(await connect(server))
            assert await health(server, trusting())
        await ends(stalled[0])
        for _, writer in stalled:
            writer.close()

    served(work, tls=TlsFiles(file, file), connections=limits)


def test_a_full_service_cuts_the_oldest_handshake(tmp_path: Path) -> None:
    _, file = own_certificate(tmp_path)

    async def work(server: HttpServer, api: Api) -> None:
        stalled = [await connect(server) for _ in range(60)]
        for stream in stalled[:40]:
            await ends(stream)
        await until_healthy(server, trusting())
        for _, writer in stalled:
            writer.close()

    served(work, tls=TlsFiles(file, file), connections=ConnectionLimits(20, 1_000))


def test_a_service_stops_while_handshakes_are_under_way(tmp_path: Path) -> None:
    _, file = own_certificate(tmp_path)
    stalled: list[Stream] = []

    async def work(server: HttpServer, api: Api) -> None:
        stalled.extend([await connect(server) for _ in range(5)])

    served(work, tls=TlsFiles(file, file))


def test_a_process_that_may_open_few_files_takes_few_connections() -> None:
    assert ConnectionLimits().within(1024) == ConnectionLimits(128, 64), "one address does not get all"
    assert ConnectionLimits(200, 10).within(1024) == ConnectionLimits(128, 10)
    assert ConnectionLimits().within(1 << 20) == ConnectionLimits()
    assert ConnectionLimits(10, 5).within(1024) == ConnectionLimits(10, 5)


@pytest.mark.parametrize(
    ("asked", "level"), [(ConnectionLimits(200, 10), "WARNING"), (ConnectionLimits(), "INFO")]
)
def test_a_start_says_that_the_options_cannot_be_met(
    asked: ConnectionLimits, level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "files_allowed", lambda: 1024)
    caplog.set_level("INFO", "barnabas.http")

    async def work(server: HttpServer, api: Api) -> None:
        assert await health(server)

    served(work, connections=asked)
    warnings = [row for row in caplog.records if "the process may open few files" in row.message]
    assert [row.levelname for row in warnings] == [level]
    assert getattr(warnings[0], "connections") == 128  # noqa: B009


def test_services_may_open_all_files() -> None:
    """The soft limit of a shell is often 1024; in a process of its own, since nobody can take a limit back."""
    program = (
        "import resource as r; from barnabas.http import server\n"
        "hard = min(r.getrlimit(r.RLIMIT_NOFILE)[1] % (1 << 40), 512)\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, hard))\n"
        "server.serve = lambda *given: __import__('asyncio').sleep(0, r.getrlimit(r.RLIMIT_NOFILE)[0])\n"
        "assert server.run([], print) == hard"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
