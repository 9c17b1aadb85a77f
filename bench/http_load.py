"""Requests over HTTP/1.1 by many connections at once: each sends its next when it has its answer."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.requests import BenchError

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"
TIMEOUT_S = 60


def request(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of one request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Accept: */*"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + HEAD_END + body


@dataclass
class Result:
    """What one run found. milliseconds: of each request."""

    seconds: float = 0.0
    milliseconds: list[float] = field(default_factory=list)

    @property
    def per_second(self) -> float:
        return len(self.milliseconds) / self.seconds

    def percentile(self, part: int) -> float:
        return statistics.quantiles(self.milliseconds, n=100)[part - 1]


async def _answer(reader: asyncio.StreamReader) -> None:
    """Reads one answer whole. Raises BenchError for a failure: it is no throughput."""
    head = await reader.readuntil(HEAD_END)
    lower = head.lower()
    at = lower.find(LENGTH)
    if at >= 0:
        body = await reader.readexactly(int(lower[at + len(LENGTH) : lower.index(b"\r\n", at)]))
    elif b"transfer-encoding: chunked" in lower:
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    else:
        body = b""
    if not head.startswith(b"HTTP/1.1 2"):
        raise BenchError(f"{head.splitlines()[0].decode()}: {body[:300].decode(errors='replace')}")


async def _run(port: int, connections: int, seconds: float, next_request: Callable[[], bytes]) -> Result:
    load = Result()
    opened = [await asyncio.open_connection("127.0.0.1", port, limit=1 << 22) for _ in range(connections)]
    begun = time.perf_counter()
    end = begun + seconds

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (now := time.perf_counter()) < end:
            writer.write(next_request())
            await asyncio.wait_for(_answer(reader), TIMEOUT_S)
            load.milliseconds.append((time.perf_counter() - now) * 1000)

    try:
        await asyncio.gather(*(one(reader, writer) for reader, writer in opened))
    finally:
        for _, writer in opened:
            writer.close()
    load.seconds = time.perf_counter() - begun
    return load


def run(port: int, connections: int, seconds: float, next_request: Callable[[], bytes]) -> Result:
    """One sample. Raises BenchError when a request fails."""
    try:
        import uvloop

        loop_factory = uvloop.new_event_loop
    except ImportError:
        loop_factory = None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(_run(port, connections, seconds, next_request))
