"""Asks a server of pipelines over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from barnabas.console.asking import Ask
from barnabas.console.said import Refused, said
from barnabas.http_client import Address, NoAnswer, without_login
from barnabas.http_client import ask as ask_service

TIMEOUT_S: Final = 20.0
ANSWER_BYTES_MAX: Final = 16 << 20


def server_url(ask: Ask) -> str:
    """Where the server is, without a login. Raises Refused."""
    return without_login(_address(ask).url)


def _address(ask: Ask) -> Address:
    address = ask.cluster.pipelines()
    if address is None:
        raise Refused(
            404,
            said("No server of pipelines is known for this cluster"),
            said("Start one with barnabas pipelines serve, and the console with --pipelines URL."),
        )
    return address


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
    """The answer to a request: JSON, or text. Raises Refused."""
    address = _address(ask)
    shown = without_login(address.url)
    data = json.dumps(body).encode() if body is not None else raw
    try:
        media_type = "application/json" if raw is None else "application/yaml"
        status, answer = await asyncio.to_thread(
            _exchange, address, method, path, data, media_type, timeout_s
        )
    except NoAnswer as error:
        raise Refused(
            503,
            said("The server of pipelines does not answer at {url}: {reason}", url=shown, reason=str(error)),
            said("Look whether it runs; this page tries again by itself."),
        ) from None
    if status >= 400:
        raise Refused(
            status if status < 500 or status == 503 else 502, said("{reason}", reason=_reason(answer, status))
        )
    if text:
        return answer.decode("utf-8", "replace")
    try:
        return json.loads(answer) if answer else None
    except ValueError:
        raise Refused(502, said("{url} does not answer as a server of pipelines does", url=shown)) from None


def _exchange(
    address: Address, method: str, path: str, data: bytes | None, media_type: str, timeout_s: float
) -> tuple[int, bytes]:
    headers = {} if data is None else {"Content-Type": media_type}
    answer = ask_service(
        address, method, path, data, headers, timeout_s=timeout_s, bytes_max=ANSWER_BYTES_MAX
    )
    return answer.status, answer.body


def _reason(answer: bytes, status: int) -> str:
    try:
        found = json.loads(answer)
    except ValueError:
        found = None
    told = found.get("error") if isinstance(found, dict) else None
    return str(told or f"the server of pipelines answers with status {status}")
