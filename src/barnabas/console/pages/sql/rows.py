"""The rows of a query, as they come, until nobody wants them any more."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from barnabas.console import services
from barnabas.console.asking import Ask
from barnabas.console.pages.sql.server import call, is_query, require_readable, stream_properties
from barnabas.console.roles import Role, require
from barnabas.console.said import Refused, said
from barnabas.console.services import SQL
from barnabas.http_client import NoAnswer, Stream, stream, without_login

AT_ONCE: Final = 100
TURN_S: Final = 0.3
BEAT_S: Final = 10.0
WAITING: Final = 10_000
"""Lines that wait to be shown; while there are so many, no more are read."""
RUNNING: Final = 32
"""Queries that this console follows at a time: each has a thread and a job of its own on the server."""
_open: list[int] = []


class _Lines:
    """Reads lines in a thread. is_over: nothing more will come; error: why, if that is no good reason."""

    def __init__(self, source: Stream) -> None:
        self._source = source
        self._lines: list[bytes] = []
        self._lock = threading.Condition()
        self.is_over = False
        self.is_unwanted = False
        threading.Thread(target=self._read, name="sql-rows", daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._source.lines():
                with self._lock:
                    while len(self._lines) >= WAITING and not self.is_unwanted:
                        self._lock.wait(1.0)
                    if self.is_unwanted:
                        break
                    self._lines.append(line)
        except NoAnswer:
            pass  # what came until then is shown; a query that fails says so in a line
        finally:
            self.is_over = True

    def taken(self, count: int) -> list[bytes]:
        """The next lines, as far as they have come."""
        with self._lock:
            lines, self._lines = self._lines[:count], self._lines[count:]
            self._lock.notify()
        return lines

    def close(self) -> None:
        """Nobody wants them: the connection is closed, which ends the query on the server."""
        self.is_unwanted = True
        self._source.close()


async def follow(
    ask: Ask, seconds: float | None = None, count: int | None = None
) -> AsyncIterator[Mapping[str, Any]]:
    """The rows of a SELECT or PRINT: sql, start (latest, earliest). Events: begun (columns), found (rows), done"""
    text = ask.required("sql")
    if not is_query(text):
        raise Refused(400, said("Only SELECT and PRINT answer with rows"))
    require(ask.role_for(None), Role.OPERATE, ask.user)
    described = await call(
        ask, "POST", "/ksql", {"ksql": "DESCRIBE STREAMS; DESCRIBE TABLES;", "streamsProperties": {}}
    )
    require_readable(ask, text, [one for answer in described for one in answer.get("sourceDescriptions", [])])
    if len(_open) >= RUNNING:
        raise Refused(429, said("{count} queries are followed already; stop one of them", count=RUNNING))
    _open.append(1)
    lines = None
    try:
        yield {"event": "begun", "said": said("The query starts.")}
        lines = _Lines(await asyncio.to_thread(_opened, ask, text))
        async for event in _events(lines, seconds, count):
            yield event
    finally:
        _open.pop()
        if lines is not None:
            await asyncio.to_thread(lines.close)


def _opened(ask: Ask, text: str) -> Stream:
    """Raises Refused."""
    address = services.address_of(ask, SQL)
    body = json.dumps({"sql": text, "properties": stream_properties(ask)}).encode()
    try:
        opened = stream(
            address, "POST", "/query-stream", body, {"Content-Type": "application/json"}, connect_s=10.0
        )
    except NoAnswer as error:
        raise Refused(
            503,
            said(
                "The SQL server does not answer at {url}: {reason}",
                url=without_login(address.url),
                reason=str(error),
            ),
            services.RUNS,
        ) from None
    if opened.status >= 400:
        answer = opened.whole()
        raise Refused(
            opened.status if opened.status < 500 else 502,
            said("{reason}", reason=services.reason_of(SQL, answer)),
        )
    return opened


async def _events(
    lines: _Lines, seconds: float | None, count: int | None
) -> AsyncIterator[Mapping[str, Any]]:
    began_s = told_s = time.monotonic()
    shown, columns = 0, None
    while True:
        is_last = lines.is_over
        room = AT_ONCE if count is None else min(AT_ONCE, count - shown)
        rows = []
        for line in lines.taken(room):
            value = _value(line)
            if isinstance(value, dict) and "columnNames" in value:
                columns = list(value["columnNames"])
                yield {"event": "columns", "columns": columns}
            elif isinstance(value, dict) and "message" in value:
                raise Refused(502, said("{reason}", reason=str(value["message"])))
            elif value is not None:
                rows.append(value if isinstance(value, list) else [value])
        if rows:
            if columns is None:
                columns = ["record"]
                yield {"event": "columns", "columns": columns}
            shown += len(rows)
            told_s = time.monotonic()
            yield {"event": "found", "records": rows, "rows": rows, "said": said("{count} rows", count=shown)}
        elif is_last or (seconds is not None and time.monotonic() - began_s > seconds):
            yield {"event": "done", "said": said("{count} rows; the query has ended.", count=shown)}
            return
        if count is not None and shown >= count:
            return
        if time.monotonic() - told_s > BEAT_S:
            told_s = time.monotonic()
            yield {"event": "beat"}
        if not rows:
            await asyncio.sleep(TURN_S)


def _value(line: bytes) -> Any:
    """A line of JSON, or a line of PRINT as it is; None for an empty one."""
    text = line.decode("utf-8", "replace").strip()
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return [text]
