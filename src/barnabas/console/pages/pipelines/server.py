"""Asks a server of pipelines over HTTP."""

from __future__ import annotations

from typing import Any

from barnabas.console import services
from barnabas.console.asking import Ask
from barnabas.console.services import PIPELINES, TIMEOUT_S


def server_url(ask: Ask) -> str:
    """Where the server is, without a login. Raises Refused."""
    return services.service_url(ask, PIPELINES)


async def call(
    ask: Ask,
    method: str,
    path: str,
    body: Any = None,
    *,
    raw: bytes | None = None,
    text: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """The answer to a request: JSON, or text. raw: YAML. Raises Refused."""
    media_type = "application/json" if raw is None else "application/yaml"
    return await services.call(
        ask, PIPELINES, method, path, body, raw=raw, media_type=media_type, text=text, timeout_s=timeout_s
    )
