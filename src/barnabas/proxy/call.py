"""One request to the REST API: reads and checks its path, query, headers and body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from barnabas.http.bodies import LARGE_BYTES, BadJson, parse_json, read_body
from barnabas.http.errors import HttpError
from barnabas.proxy.consuming import Consuming
from barnabas.proxy.encoding import Encoding
from barnabas.proxy.errors import INVALID_PAYLOAD, JSON_MEDIA_TYPE
from barnabas.proxy.kafka import Kafka
from barnabas.proxy.producing import Producing
from barnabas.proxy.schemas import Schemas

PARTITION_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = (1 << 63) - 1


@dataclass(slots=True)
class Services:
    """What handlers use. advertised: the URL by which clients reach this service; None for the one that they called."""

    kafka: Kafka
    producing: Producing
    consuming: Consuming
    schemas: Schemas
    encoding: Encoding
    advertised: str | None = None
    request_s: float = 60.0


class ProxyCall:
    """One request."""

    def __init__(self, services: Services, request: Request) -> None:
        self.services = services
        self.request = request

    def part(self, name: str) -> str:
        """A part of the path, decoded."""
        return unquote(self.request.path_params[name])

    def number_part(self, name: str, missing: HttpError) -> int:
        """A part of the path that is a number. Raises `missing` if it is not."""
        text = self.part(name)
        if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > PARTITION_MAX:
            raise missing
        return int(text)

    def text(self, name: str) -> str | None:
        """A query parameter; None when it is not given."""
        return self.request.query_params.get(name)

    def number(self, name: str, default: int, limit: int = OFFSET_MAX) -> int:
        """A query parameter from 0 to `limit`; `default` if it is missing, empty or -1. Raises HttpError 422."""
        text = self.text(name)
        if text is None or text in ("", "-1"):
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 19 or int(text) > limit:
            raise HttpError(422, f"{name}={text[:40]!r} is not a number from 0 to {limit}")
        return int(text)

    def base_url(self) -> str:
        """The URL by which the client reaches this service."""
        if self.services.advertised is not None:
            return self.services.advertised
        host = self.request.headers.get("host") or self.request.url.netloc
        return f"{self.request.url.scheme}://{host}"

    async def body(self) -> dict[str, Any]:
        """The body, a JSON object. Raises HttpError 400, 422."""
        raw = await read_body(self.request)
        if not raw.strip():
            raise HttpError(422, "the request has no body", INVALID_PAYLOAD)
        value = await parse(raw)
        if not isinstance(value, dict):
            raise HttpError(422, "the body is not a JSON object", INVALID_PAYLOAD)
        return value

    async def has_large_body(self) -> bool:
        """Whether work with what is in the body is left to a thread."""
        return len(await read_body(self.request)) >= LARGE_BYTES

    async def optional_body(self) -> dict[str, Any] | None:
        """The body, a JSON object; None if it is empty. Raises HttpError 400, 422."""
        return await self.body() if (await read_body(self.request)).strip() else None


def negotiate(accept: str | None, offered: Sequence[str]) -> str:
    """The one of the offered media types that an Accept header wants most; the first of those wanted equally.

    Raises HttpError 406 if it allows none of them.
    """
    if not (accept or "").strip():
        return offered[0]
    wanted: dict[str, float] = {}
    for item in (accept or "").split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        try:
            wanted[name] = float(quality)
        except ValueError:
            wanted[name] = 0.0
    best, best_quality = None, 0.0
    for media_type in offered:
        ranges = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
        quality_of = next((wanted[name] for name in ranges if name in wanted), 0.0)
        if quality_of > best_quality:
            best, best_quality = media_type, quality_of
    if best is None:
        raise HttpError(406, f"HTTP 406 Not Acceptable: this answer is available as {', '.join(offered)}")
    return best


async def parse(raw: bytes) -> Any:
    """Parse JSON, large texts in a thread. Raises HttpError 400."""
    try:
        if len(raw) < LARGE_BYTES:
            return parse_json(raw)
        return await asyncio.to_thread(parse_json, raw)
    except BadJson as error:
        raise HttpError(400, f"the body cannot be parsed as JSON: {error}") from error


def dump(value: Any) -> bytes:
    """The compact JSON text of a value, in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def answer(value: Any, media_type: str = JSON_MEDIA_TYPE, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(dump(value), status, media_type=media_type)


NO_CONTENT: Final = 204


def no_content() -> Response:
    """An answer without a body."""
    return Response(status_code=NO_CONTENT)


def quoted(name: Any) -> str:
    """A name, percent-encoded as one part of a path."""
    return quote(str(name), safe="")


def require_text(body: Mapping[str, Any], name: str) -> str:
    """A non-empty text. Raises HttpError 422."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise HttpError(422, f"{name} must be a non-empty text", INVALID_PAYLOAD)
    return value


def require_list(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects. Raises HttpError 422."""
    rows = body.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise HttpError(422, f"{name} must be a list of objects", INVALID_PAYLOAD)
    return rows


def require_known(body: Mapping[str, Any], names: frozenset[str]) -> None:
    """Raises HttpError 422 for a field that is not in `names`; a misspelt one would be lost without a word otherwise."""
    for name in body:
        if name not in names:
            raise HttpError(422, f"Unrecognized field: {name[:100]}")


def as_number(value: Any, what: str, limit: int = PARTITION_MAX) -> int:
    """A number from 0 to `limit`, or its digits as a text. what: names it in the error. Raises HttpError 422."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
        raise HttpError(422, f"{what} is not a number from 0 to {limit}", INVALID_PAYLOAD)
    return value
