"""The SQL server, for commands: what goes wrong is said as every command says it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnabas import sql
from barnabas.sql.client import Client
from barnabas.terminal.errors import CliError, UsageError


class Refused(CliError):
    """The server refused a statement; the message may have several lines, the last with a caret."""


class SqlClient:
    """One server."""

    def __init__(self, url: str) -> None:
        """Raises UsageError."""
        try:
            self.client = Client(url)
        except sql.InterfaceError as error:
            raise UsageError(f"--url {error}") from None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer. Raises Refused, CliError."""
        try:
            return self.client.call(method, path, body)
        except sql.Error as error:
            raise _as_told(error) from None

    def statements(self, text: str, properties: Mapping[str, str]) -> list[dict[str, Any]]:
        """Carries out statements. Raises Refused, CliError."""
        try:
            return self.client.statements(text, properties)
        except sql.Error as error:
            raise _as_told(error) from None

    def lines(self, text: str, properties: Mapping[str, str], seconds: float | None = None) -> Iterator[str]:
        """The lines of a query or of PRINT, as they come. seconds: how long they are followed. Raises Refused, CliError."""
        try:
            yield from self.client.lines(text, properties, seconds)
        except sql.Error as error:
            raise _as_told(error) from None


def _as_told(error: sql.Error) -> CliError:
    return Refused(str(error)) if isinstance(error, sql.ProgrammingError) else CliError(str(error))
