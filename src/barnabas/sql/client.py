"""Talks to a SQL server: statements, and queries whose rows come one after the other."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from barnabas.http_client import login_of, without_login
from barnabas.sql.errors import InterfaceError, InternalError, OperationalError, ProgrammingError

CONNECT_S: Final = 30.0
PORT: Final = 8088


class Client:
    """One server. Each request has a connection of its own, so that closing it ends a query."""

    def __init__(self, url: str) -> None:
        """Raises InterfaceError."""
        self.parts = urlsplit(url)
        self.shown = without_login(url)
        if self.parts.scheme not in ("http", "https") or not self.parts.hostname:
            raise InterfaceError(f"{self.shown!r} is not a URL like http://127.0.0.1:{PORT}")

    def _sent(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse, socket.socket]:
        kind = http.client.HTTPSConnection if self.parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.parts.hostname or "", self.parts.port or PORT, timeout=CONNECT_S)
        headers = {**login_of(self.parts), "content-type": "application/json", "accept": "*/*"}
        raw = None if body is None else json.dumps(body).encode()
        try:
            connection.connect()
            wire = connection.sock  # which the connection forgets if the server is going to close it
            wire.settimeout(None)  # a query may have no rows for a long time
            connection.request(method, path, raw, headers)
            return connection, connection.getresponse(), wire
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise OperationalError(
                f"no SQL server answers at {self.shown}: {error}; start one with `barnabas sql start -b HOST:PORT`"
            ) from None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer. Raises ProgrammingError, OperationalError, InternalError."""
        connection, answer, _ = self._sent(method, path, body)
        try:
            raw = answer.read()
        finally:
            connection.close()
        return self._read(answer.status, raw)

    def _read(self, status: int, raw: bytes) -> Any:
        try:
            value = json.loads(raw) if raw else None
        except ValueError:
            raise InternalError(f"{self.shown} is not a SQL server: it answered {status}") from None
        if status >= 400:
            reason = value.get("message") or value.get("error") if isinstance(value, dict) else None
            kind = OperationalError if status >= 500 else ProgrammingError
            raise kind(reason or f"{self.shown} answered {status}")
        return value

    def statements(self, text: str, properties: Mapping[str, str]) -> list[dict[str, Any]]:
        """Carries out statements. Raises Error."""
        answers = self.call("POST", "/ksql", {"ksql": text, "streamsProperties": dict(properties)})
        if not isinstance(answers, list):
            raise InternalError(f"{self.shown} is not a SQL server: a list was expected")
        return answers

    def lines(self, text: str, properties: Mapping[str, str], seconds: float | None = None) -> Iterator[str]:
        """The lines of a query or of PRINT, as they come. seconds: how long they are followed. Raises Error."""
        connection, answer, wire = self._sent(
            "POST", "/query-stream", {"sql": text, "properties": dict(properties)}
        )
        give_up = None if seconds is None else time.monotonic() + seconds
        try:
            if answer.status >= 400:
                self._read(answer.status, answer.read())
            while line := self._line(wire, answer, give_up):
                yield line.decode().rstrip("\n")
        finally:
            # Not answer.close(): it would wait for the rest.
            connection.close()

    @staticmethod
    def _line(wire: socket.socket, answer: http.client.HTTPResponse, give_up: float | None) -> bytes:
        """The next line; empty at the end, and when the time is over."""
        if give_up is not None:
            left = give_up - time.monotonic()
            if left <= 0:
                return b""
            wire.settimeout(left)
        try:
            return answer.readline()
        except TimeoutError:
            return b""
