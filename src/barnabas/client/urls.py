"""Addresses of HTTP services with a login in them: https://USER:PASSWORD@HOST:PORT."""

from __future__ import annotations

import base64
from urllib.parse import SplitResult, unquote


def login_of(parts: SplitResult) -> dict[str, str]:
    """The header with which the login of an address is sent; none for an address without one."""
    if parts.username is None:
        return {}
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def without_login(url: str) -> str:
    """The address as messages may show it."""
    head, at, rest = url.rpartition("@")
    return f"{head.partition('://')[0]}://{rest}" if at and "://" in head else rest if at else url
