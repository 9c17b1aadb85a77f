"""Requests to a Connect worker."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from barnabas.http_client import Address, BadAddress, NoAnswer, without_login
from barnabas.http_client import ask as ask_service
from barnabas.services.rows.connect import CONNECT
from barnabas.terminal.errors import CliError, UsageError

DEFAULT_URL: Final = f"http://{CONNECT.listen}"
TIMEOUT_S: Final = 120.0

Url = Annotated[
    str,
    typer.Option("-u", "--url", envvar="BARNABAS_CONNECT", metavar="URL", help="The worker to talk to."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


class Refused(CliError):
    """The worker refused a request. status: HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """The JSON of an answer; None if it has no body. Raises Refused, CliError, UsageError."""
    address = Address(url if "://" in url else f"http://{url}")
    raw = b"" if body is None else json.dumps(body).encode()
    try:
        answer = ask_service(
            address, method, path, raw, {"Content-Type": "application/json"}, timeout_s=TIMEOUT_S
        )
    except BadAddress:
        raise UsageError(
            f"-u {without_login(url)!r} is not the address of a worker, for example {DEFAULT_URL}"
        ) from None
    except NoAnswer as error:
        raise CliError(
            f"no Connect worker answers at {without_login(url)}: {error}; start one with `barnabas connect start`, or name "
            "another with -u"
        ) from None
    try:
        answered = json.loads(answer.body) if answer.body else None
    except ValueError:
        raise CliError(f"{without_login(url)} does not answer as a Connect worker does") from None
    if answer.status >= 400:
        message = answered.get("message") if isinstance(answered, dict) else None
        raise Refused(
            answer.status, str(message or f"{without_login(url)} answers with status {answer.status}")
        )
    return answered


def at(name: str, *parts: str) -> str:
    """The path of a connector."""
    return "/".join(("/connectors", quote(name, safe=""), *parts))
