"""Reads whole request bodies, within the limits of the guard, and parses them as strict JSON."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request

from barnabas.http.errors import HttpError
from barnabas.schemas.json_text import BadJson, parse_json

LARGE_BYTES: Final = 64 << 10
"""JSON of this size or more is parsed in a thread."""
__all__ = ["LARGE_BYTES", "BadJson", "json_object", "object_of", "parse_json", "read_body"]


async def read_body(request: Request) -> bytes:
    """The whole body. Raises HttpError 400 if the client disconnects first."""
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise HttpError(400, "the client closed the connection before its body was complete") from error


async def json_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object, {} for an empty body. Raises HttpError 400."""
    raw = await read_body(request)
    return object_of(raw) if len(raw) < LARGE_BYTES else await asyncio.to_thread(object_of, raw)


def object_of(raw: bytes) -> dict[str, Any]:
    """The JSON object in the bytes of a body, {} if it is empty. Raises HttpError 400."""
    if not raw.strip():
        return {}
    try:
        value = parse_json(raw)
    except BadJson as error:
        raise HttpError(400, f"the body cannot be parsed as JSON: {error}") from error
    if not isinstance(value, dict):
        raise HttpError(400, "the body is not a JSON object")
    return value
