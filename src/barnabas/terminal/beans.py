"""Asks a broker's metrics service, for the commands that show metrics."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from barnabas.client.urls import login_of, without_login
from barnabas.terminal.errors import CliError, UsageError

DEFAULT_URL: Final = "http://localhost:9644"
TIMEOUT_S: Final = 60


def ask(url: str, path: str, patterns: Sequence[str] = ()) -> dict[str, Any]:
    """The answer of the metrics service at `url`, as JSON. Raises CliError."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"{without_login(url)!r} is not the address of a broker's metrics, for example {DEFAULT_URL}"
        )
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
    query = urlencode([("name", pattern) for pattern in patterns])
    try:
        connection.request("GET", f"/{path}?{query}" if query else f"/{path}", headers=dict(login_of(parts)))
        answer = connection.getresponse()
        raw = answer.read()
        if answer.status == http.client.UNAUTHORIZED:
            raise CliError(f"{without_login(url)} asks for a login: write https://USER:PASSWORD@HOST:PORT")
        if answer.status != http.client.OK:
            raise CliError(f"{without_login(url)} answers {answer.status} {answer.reason}")
        found: dict[str, Any] = json.loads(raw)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or error
        raise CliError(
            f"no broker shows its metrics at {without_login(url)}: {reason}; start it with `barnabas start --with metrics`, "
            "or name another address"
        ) from None
    except ValueError:
        raise CliError(f"{without_login(url)} does not answer as a broker's metrics do") from None
    finally:
        connection.close()
    return found
