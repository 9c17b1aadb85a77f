"""Asks a broker's metrics service, for the commands that show metrics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from barnabas.http_client import Address, BadAddress, NoAnswer, without_login
from barnabas.http_client import ask as ask_service
from barnabas.terminal.errors import CliError, UsageError

DEFAULT_URL: Final = "http://localhost:9644"
TIMEOUT_S: Final = 60


def ask(url: str, path: str, patterns: Sequence[str] = ()) -> dict[str, Any]:
    """The answer of the metrics service at `url`, as JSON. Raises CliError."""
    query = urlencode([("name", pattern) for pattern in patterns])
    address = Address(url if "://" in url else f"http://{url}")
    try:
        answer = ask_service(address, "GET", f"/{path}?{query}" if query else f"/{path}", timeout_s=TIMEOUT_S)
    except BadAddress:
        raise UsageError(
            f"{without_login(url)!r} is not the address of a broker's metrics, for example {DEFAULT_URL}"
        ) from None
    except NoAnswer as error:
        raise CliError(
            f"no broker shows its metrics at {without_login(url)}: {error}; start it with `barnabas start --with metrics`, "
            "or name another address"
        ) from None
    if answer.status == HTTPStatus.UNAUTHORIZED:
        raise CliError(f"{without_login(url)} asks for a login: write https://USER:PASSWORD@HOST:PORT")
    if answer.status != HTTPStatus.OK:
        raise CliError(f"{without_login(url)} answers {answer.status}")
    try:
        document: dict[str, Any] = json.loads(answer.body)
    except ValueError:
        raise CliError(f"{without_login(url)} does not answer as a broker's metrics do") from None
    return document
