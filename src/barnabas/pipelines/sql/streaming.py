"""Requests that last in both directions: rows that are inserted as they come, and queries through a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.websockets import WebSocket, WebSocketDisconnect

from barnabas.http.bodies import object_of
from barnabas.http.errors import HttpError
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import Column, Relation
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.sql import answers
from barnabas.pipelines.sql.inserting import Inserter

if TYPE_CHECKING:
    from barnabas.pipelines.sql.engine import Engine

LINE_BYTES_MAX: Final = 1 << 20
BEAT_S: Final = 1.0
CLOSED_WELL: Final = 1000
CLOSED_BADLY: Final = 1008
REASON_BYTES: Final = 120
"""A WebSocket's reason for being closed has at most 123 bytes."""


async def lines_of(request: Request) -> AsyncIterator[bytes]:
    """The lines of a body, as they come; none after the client has gone. Raises HttpError 413 for one that is too long."""
    rest = b""
    try:
        async for piece in request.stream():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                if line.strip():
                    yield line
            if len(rest) > LINE_BYTES_MAX:
                raise HttpError(413, f"a line has more than {LINE_BYTES_MAX:,} bytes")
    except ClientDisconnect:
        return
    if rest.strip():
        yield rest


def target_of(engine: Engine, line: bytes) -> Relation:
    """The stream or table that the first line names. Raises SqlError."""
    try:
        target = str(json.loads(line)["target"])
    except (ValueError, KeyError, TypeError):
        raise SqlError('the first line names a stream or table: {"target": "CLICKS"}') from None
    return engine.catalog.find(target.strip("`") if target.startswith("`") else target.upper())


async def acknowledged(
    engine: Engine, relation: Relation, lines: AsyncIterator[bytes]
) -> AsyncGenerator[bytes, None]:
    """Inserts a row for each line; a line of JSON for each says what became of it. After a row that is refused, the others
    go on."""
    inserter = await run_in_threadpool(Inserter, engine.client, engine.schemas)
    number = 0
    async for line in lines:
        problem = await run_in_threadpool(_inserted, inserter, relation, line)
        answer: dict[str, Any] = {"status": "ok", "seq": number}
        if problem is not None:
            answer = {"status": "error", "error_code": 40000, "message": problem, "seq": number}
        yield json.dumps(answer, ensure_ascii=False).encode() + b"\n"
        number += 1


async def in_array(lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Lines of JSON as one array."""
    before = b"["
    try:
        async for line in lines:
            yield before + line.rstrip(b"\n")
            before = b",\n"
        yield b"[]\n" if before == b"[" else b"]\n"
    finally:
        await lines.aclose()


def _inserted(inserter: Inserter, relation: Relation, line: bytes) -> str | None:
    """Inserts one row; what is wrong with it."""
    try:
        members = json.loads(line)
        if not isinstance(members, dict):
            raise SqlError(f"a row is a JSON object, not {line.decode(errors='replace')[:80]}")
        row = {
            name.strip("`") if name.startswith("`") else name.upper(): value
            for name, value in members.items()
        }
        values = tuple(exp.convert(value) for value in row.values())
        inserter.insert(relation, s.InsertValues(relation.name, tuple(row), values))
    except SqlError as error:
        return error.message
    except ValueError as error:
        return f"a line is not a JSON object: {error}"
    return None


async def with_beats(parts: Iterator[str], beat: str) -> AsyncIterator[str]:
    """The parts, which are made in a thread, and `beat` for every second in which none comes."""
    coming = aiter(iterate_in_threadpool(parts))
    waiting: asyncio.Task[str] | None = None
    try:
        while True:
            waiting = waiting or asyncio.create_task(_next(coming))
            done, _ = await asyncio.wait({waiting}, timeout=BEAT_S)
            if not done:
                yield beat
                continue
            try:
                part = waiting.result()
            except StopAsyncIteration:
                return
            waiting = None
            yield part
    finally:
        if waiting is not None:  # the client has gone; what it waited for ends soon, and nobody looks at how
            waiting.add_done_callback(lambda task: task.cancelled() or task.exception())


async def _next(coming: AsyncIterator[str]) -> str:
    return await anext(coming)


# --- WebSockets ---------------------------------------------------------------------------------------


def request_in(socket: WebSocket) -> dict[str, Any]:
    """The request for a query that a WebSocket's address has. Raises SqlError."""
    try:
        return object_of(socket.query_params["request"].encode())
    except (HttpError, KeyError):
        raise SqlError(
            'name the query: /ws/query?request={"ksql": "SELECT ...;", "streamsProperties": {}}'
        ) from None


def as_messages(columns: tuple[Column, ...], rows: Iterator[list[Any]]) -> Iterator[str]:
    """The columns, then each row, as messages. Raises SqlError."""
    keys = {True: {"type": "KEY"}, False: {}}
    shown = [{"name": c.name, "schema": answers.schema(c.type), **keys[c.is_key]} for c in columns]
    yield json.dumps(shown)
    for row in rows:
        yield json.dumps({"row": {"columns": row}}, ensure_ascii=False)


async def send_all(socket: WebSocket, parts: Iterator[str], close: Callable[[], None]) -> None:
    """Sends messages until there are no more, or the client closes. close: ends the making of messages."""

    async def watch() -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            while True:
                await socket.receive()
        close()

    watching = asyncio.create_task(watch())
    try:
        async for part in iterate_in_threadpool(parts):
            await socket.send_text(part)
        await socket.close(CLOSED_WELL, "done")
    except SqlError as error:
        await refuse(socket, answers.failure(error.message, "", code=50000))
    except (WebSocketDisconnect, RuntimeError):
        pass  # the client has gone
    finally:
        watching.cancel()
        close()


async def refuse(socket: WebSocket, failure: Mapping[str, Any]) -> None:
    """Says what is wrong, and closes."""
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.send_text(json.dumps(failure, ensure_ascii=False))
        reason = str(failure["message"]).encode()[:REASON_BYTES].decode(errors="ignore")
        await socket.close(CLOSED_BADLY, reason)
