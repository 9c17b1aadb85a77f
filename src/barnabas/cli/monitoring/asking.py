"""Asks a monitor over HTTP."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import typer

from barnabas.http_client import Address, BadAddress, NoAnswer, without_login
from barnabas.http_client import ask as ask_service
from barnabas.terminal.errors import CliError, UsageError

TIMEOUT_S: Final = 60.0

MonitorUrl = Annotated[
    str,
    typer.Option("--monitor", envvar="BARNABAS_MONITOR", metavar="URL", help="The monitor to ask."),
]
DEFAULT_URL: Final = "http://localhost:8087"


def ask(url: str, path: str, query: list[tuple[str, str]] | None = None, *, method: str = "GET") -> Any:
    """The monitor's answer. Raises CliError."""
    address = Address(url if "://" in url else f"http://{url}")
    asked = path + ("?" + urlencode(query) if query else "")
    try:
        answer = ask_service(address, method, asked, timeout_s=TIMEOUT_S)
    except BadAddress:
        raise UsageError(
            f"--monitor {without_login(url)!r} is not a URL, for example {DEFAULT_URL}"
        ) from None
    except NoAnswer as error:
        raise CliError(
            f"no monitor answers at {without_login(url)}: {error}; start one with `barnabas monitor`, or name another with "
            "--monitor"
        ) from None
    status = answer.status
    try:
        body = json.loads(answer.body)
    except ValueError:
        raise CliError(
            f"{without_login(url)} is no monitor: its answer is not JSON (status {status})"
        ) from None
    if status >= 400:
        message = body.get("message") if isinstance(body, dict) else None
        raise CliError(f"the monitor answers: {message or f'status {status}'}")
    return body
