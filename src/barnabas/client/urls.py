"""Addresses of HTTP services that may contain a login: https://USER:PASSWORD@HOST:PORT."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, unquote

if TYPE_CHECKING:
    import http.client
    import ssl


class Address(NamedTuple):
    """The address of a service. context: verifies the service; None for the system's authorities."""

    url: str
    context: ssl.SSLContext | None = None


def login_of(parts: SplitResult) -> dict[str, str]:
    """The header that sends an address's login; empty for an address without one."""
    if parts.username is None:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def connect(
    parts: SplitResult, context: ssl.SSLContext | None, timeout_s: float
) -> http.client.HTTPConnection:
    """A connection to where an address points; it is opened by the first request."""
    import http.client  # imported late: not needed when a broker starts

    host = parts.hostname or "localhost"
    # Without a port, http.client would look for one in the host, and find one in [::1].
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, parts.port or 443, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(host, parts.port or 80, timeout=timeout_s)


def without_login(url: str) -> str:
    """The address without its login, for messages."""
    head, at, rest = url.rpartition("@")
    return f"{head.partition('://')[0]}://{rest}" if at and "://" in head else rest if at else url
