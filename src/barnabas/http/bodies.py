"""Request bodies: read whole within the limits of the guard, and decoded as JSON without surprises."""

from __future__ import annotations

from typing import Any

from starlette.requests import ClientDisconnect, Request

from barnabas.http.errors import HttpError
from barnabas.http.json_text import BadJson, parse_json

__all__ = ["BadJson", "json_object", "object_of", "parse_json", "read_body"]


async def read_body(request: Request) -> bytes:
    """The whole body. Raises HttpError when the client goes away first."""
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise HttpError(400, "the client closed the connection before its body was complete") from error


async def json_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object; an empty body is an empty one. Raises HttpError 400."""
    return object_of(await read_body(request))


def object_of(raw: bytes) -> dict[str, Any]:
    """See json_object."""
    if not raw.strip():
        return {}
    try:
        value = parse_json(raw)
    except BadJson as error:
        raise HttpError(400, f"the body is not JSON that can be taken: {error}") from error
    if not isinstance(value, dict):
        raise HttpError(400, "the body is not a JSON object")
    return value
