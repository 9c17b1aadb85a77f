"""Asks a monitor over HTTP."""

from __future__ import annotations

import http.client
import json
from typing import Annotated, Any, Final
from urllib.parse import urlencode, urlsplit

import typer

from barnabas.client.urls import connect, login_of, without_login
from barnabas.terminal.errors import CliError, UsageError

TIMEOUT_S: Final = 60.0

MonitorUrl = Annotated[
    str,
    typer.Option("--monitor", envvar="BARNABAS_MONITOR", metavar="URL", help="The monitor to ask."),
]
DEFAULT_URL: Final = "http://localhost:8087"


def ask(url: str, path: str, query: list[tuple[str, str]] | None = None, *, method: str = "GET") -> Any:
    """The monitor's answer. Raises CliError."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--monitor {without_login(url)!r} is not a URL, for example {DEFAULT_URL}")
    asked = parts.path.rstrip("/") + path + ("?" + urlencode(query) if query else "")
    try:
        connection = connect(parts, None, TIMEOUT_S)
        try:
            connection.request(method, asked, headers=login_of(parts))
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CliError(
            f"no monitor answers at {without_login(url)}: {reason}; start one with `barnabas monitor`, or name another with "
            "--monitor"
        ) from None
    try:
        found = json.loads(body)
    except ValueError:
        raise CliError(
            f"{without_login(url)} is no monitor: its answer is not JSON (status {status})"
        ) from None
    if status >= 400:
        said = found.get("message") if isinstance(found, dict) else None
        raise CliError(f"the monitor answers: {said or f'status {status}'}")
    return found
