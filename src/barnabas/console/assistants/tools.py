"""The tools of assistants, made from the same table of pages and actions as the API, and calls of them through that API.

Roles, masks and the audit are those of the API: a tool is nothing but a request of the user who has logged in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message, Scope

from barnabas.console.rendering import encoded
from barnabas.console.site import Page
from barnabas.http.errors import HttpError
from barnabas.http.openapi import NUMBERS, names_in, operation_id, summary_of

CALL_S: Final = 60.0
CLUSTERS: Final = "get_clusters"
"""The tool that belongs to no cluster."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One request of the API. path: with its names in braces, from the API's root. about: what it does, and its fields.

    is_change: whether it may change something.
    """

    name: str
    method: str
    path: str
    about: str
    is_change: bool = False

    @property
    def names(self) -> list[str]:
        """The names in the path that have to be given; the cluster can often be left out."""
        return [name for name in names_in(self.path) if name != "cluster"]

    def schema(self, clusters: Sequence[str]) -> dict[str, Any]:
        """The arguments as a JSON schema. clusters: those that may be named."""
        properties: dict[str, Any] = {
            name: {"type": "integer", "minimum": 0} if name in NUMBERS else {"type": "string"}
            for name in self.names
        }
        required = list(self.names)
        if self.name != CLUSTERS:
            properties["cluster"] = {"type": "string", "enum": list(clusters)}
            if len(clusters) != 1:
                required.append("cluster")
            properties["fields"] = {
                "type": "object",
                "description": "Fields that the description names, and others of the console's form or page.",
                "additionalProperties": True,
            }
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }


class BadCall(ValueError):
    """The arguments of a call do not fit its tool."""


def tools_of(pages: Sequence[Page], api: str, *, with_changes: bool) -> Iterator[Tool]:
    """Each page as a tool that reads it, and each action as one. api: the path before all others."""
    yield Tool(CLUSTERS, "GET", f"{api}/clusters", "The clusters that there are, with their brokers")
    base = f"{api}/clusters/{{cluster}}"
    for page in pages:
        yield Tool(operation_id("get", page.path or page.folder), "GET", base + page.path, _about(page.read))
        for action in page.actions:
            if action.is_change and not with_changes:
                continue
            yield Tool(
                operation_id("post", action.path), "POST", base + action.path, _about(action.run),
                is_change=action.is_change,
            )  # fmt: skip


def _about(work: Callable[..., Any]) -> str:
    """The whole docstring: its first line is the summary, and what follows goes on with the fields."""
    rest = (work.__doc__ or "").strip().partition("\n")[2]
    return " ".join([summary_of(work), *rest.split()])


def request_of(
    tool: Tool, arguments: Mapping[str, Any], clusters: Sequence[str]
) -> tuple[str, Mapping[str, Any]]:
    """The path and the fields of a call. Raises BadCall."""
    named = dict(arguments)
    fields = named.pop("fields", None) or {}
    if not isinstance(fields, dict):
        raise BadCall("`fields` is not an object")
    names = {"cluster": clusters[0], **named} if len(clusters) == 1 else named
    needed = names_in(tool.path)
    missing = [name for name in needed if name not in names]
    if missing:
        raise BadCall(f"{tool.name} needs {', '.join(missing)}")
    unknown = sorted(set(named) - {*needed, "cluster"})
    if unknown:
        raise BadCall(f"{tool.name} has no argument {', '.join(unknown)}: fields are given in `fields`")
    return tool.path.format_map({name: encoded(names[name]) for name in needed}), fields


async def call(
    api: ASGIApp, tool: Tool, path: str, fields: Mapping[str, Any], user: str | None
) -> tuple[int, str]:
    """The status and the JSON text that the API answers."""
    query, body = b"", b""
    if tool.method == "GET":
        query = urlencode(list(_query(fields))).encode()
    else:
        body = json.dumps(fields).encode()
    scope: Scope = {
        "type": "http",
        "method": tool.method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "scheme": "http",
        "server": ("localhost", 80),
        "state": {"user": user},
    }
    status, parts = 500, []

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    try:
        async with asyncio.timeout(CALL_S):
            await api(scope, receive, send)
    except HttpError as error:
        return error.status, json.dumps({"error_code": error.code, "message": error.message})
    except TimeoutError:
        return 503, json.dumps({"error_code": 503, "message": f"there was no answer within {CALL_S:g} s"})
    return status, b"".join(parts).decode("utf-8", "replace")


def _query(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, bool):
                yield name, "1" if one else ""
            elif one is not None:
                yield name, str(one)
