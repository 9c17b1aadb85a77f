"""One request to the API: its parameters, the registry, and the forms of responses and errors."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request

from barnabas.client.registry import TAKES_NEW_FIELDS
from barnabas.http.bodies import object_of, read_body
from barnabas.http.errors import HttpError
from barnabas.registry import decisions, requests
from barnabas.registry.service import FORWARDED, Handed, Registry
from barnabas.registry.subjects import DEFAULT_CONTEXT, Subject, context_name, parse_subject, require_subject
from barnabas.registry.tasks import Asks

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
Work = Callable[["RegistryCall"], Awaitable[Any]]
"""Handles one method of one path; returns a JSON value, a Response, or the writer's Answer."""


INLINE_BYTES_MAX: Final = 16 << 10
"""Larger bodies are parsed by the worker."""
REMEMBERED_MAX: Final = 1_000
NEW_FIELDS: Final = frozenset(("guid", "ts", "deleted"))


@lru_cache(REMEMBERED_MAX)
def _read_plain(raw: bytes) -> requests.Wanted | None:
    """None for a schema with metadata, rules or tags, which occupy a multiple of the body's size once parsed."""
    wanted = requests.read_wanted(object_of(raw))
    content = wanted.content
    more = (content.metadata, content.rules, wanted.tags_to_add, wanted.tags_to_remove)
    return None if any(more) else wanted


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """The body and media type of an error in Confluent's API."""
    return dump({"error_code": error.code, "message": error.message}), MEDIA_TYPE


def dump(value: Any) -> bytes:
    """A JSON value as the body of a response."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


class RegistryCall:
    """One request: its parameters and the registry."""

    def __init__(self, registry: Registry, request: Request) -> None:
        self.registry = registry
        self.state = registry.state
        self.request = request
        name = request.path_params.get("context")
        self.context = DEFAULT_CONTEXT if name is None else context_name(unquote(name))

    def part(self, name: str) -> str:
        """A part of the path, decoded."""
        return unquote(self.request.path_params[name])

    def text(self, name: str, default: str = "") -> str:
        """A query parameter."""
        return self.request.query_params.get(name, default)

    def flag(self, name: str) -> bool:
        """A query parameter that is true or false."""
        return self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A query parameter that is a number. Raises HttpError."""
        text = self.text(name)
        if not text:
            return default
        try:
            return int(text[:20])
        except ValueError:
            raise HttpError(400, f"{name}={text!r} is not a number") from None

    def page(self, rows: Sequence[Any]) -> list[Any]:
        """The rows that the parameters `offset` and `limit` select; without them, all. Raises HttpError."""
        offset, limit = max(self.number("offset", 0), 0), self.number("limit", -1)
        return list(rows[offset:] if limit < 0 else rows[offset : offset + limit])

    def subject(self) -> Subject:
        """The subject in the path, or the one that it is an alias of. Raises RegistryError."""
        return self.state.resolve_alias(require_subject(self.part("subject"), self.context))

    def scope(self) -> Subject:
        """The scope that the path names: a subject, a context or the whole registry. Raises RegistryError."""
        text = self.request.path_params.get("subject")
        if text is None:
            return Subject(self.context, "")
        subject = parse_subject(unquote(text), self.context)
        return subject if not subject.name else require_subject(unquote(text), self.context)

    def version(self) -> int:
        """The version in the path; -1 for the latest. Raises RegistryError."""
        return requests.read_version_number(self.part("version"))

    def prefix(self) -> str:
        """The requested prefix of subjects; by default, that of the context in the path."""
        default = "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"
        return self.text("subjectPrefix", default)

    def id_scope(self) -> str:
        """The subject or context in which an id is looked up, as text; empty for the default context."""
        text = self.text("subject")
        if text:
            return str(parse_subject(text, self.context))
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    def shaped(self, answer: dict[str, Any]) -> dict[str, Any]:
        """An answer without the fields that are new in Confluent's 8.0, unless the client says that it can take them.

        Clients of earlier versions fail on fields that they do not know.
        """
        if self.request.headers.get(TAKES_NEW_FIELDS.lower(), "").lower() == "true":
            return answer
        return {name: value for name, value in answer.items() if name not in NEW_FIELDS}

    async def body(self) -> dict[str, Any]:
        """The body as a JSON object, {} for an empty body. Raises HttpError, RegistryError."""
        raw = await read_body(self.request)
        if len(raw) <= INLINE_BYTES_MAX:
            return object_of(raw)
        body_read: dict[str, Any] = await self.registry.parse(raw, Asks.BODY)
        return body_read

    async def wanted(self) -> requests.Wanted:
        """The schema in the body. Raises HttpError, RegistryError."""
        raw = await read_body(self.request)
        if len(raw) <= INLINE_BYTES_MAX:
            # Starting producers send the same schema again and again, so plain ones are cached.
            return _read_plain(raw) or requests.read_wanted(object_of(raw))
        wanted_schema: requests.Wanted = await self.registry.parse(raw, Asks.REQUEST)
        return wanted_schema

    async def change(self, decide: Callable[[], decisions.Decision]) -> Any:
        """Make a change here or at the writer, see `Registry.change`. Raises RegistryError."""
        request = self.request
        target = request.scope["raw_path"].decode("latin-1")
        query = request.scope["query_string"].decode("latin-1")
        kept = ("content-type", "accept", "authorization", "x-request-id", TAKES_NEW_FIELDS.lower())
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        headers.setdefault("x-request-id", request.state.request_id)
        handed = Handed(
            request.method,
            f"{target}?{query}" if query else target,
            await read_body(request),
            headers,
            FORWARDED.lower() in request.headers,
        )
        return await self.registry.change(decide, handed)
