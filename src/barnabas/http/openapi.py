"""Describes an API for programs (`/openapi.json`) and for people (`/docs`), from the table of its routes."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from barnabas import __version__

Table = Sequence[tuple[str, str, Callable[..., Any]]]

_PART: Final = re.compile(r"\{(\w+)\}")
_LEAD: Final = re.compile(r"^(?:GET|POST|PUT|PATCH|DELETE) \S+?(?::\s+|\s+|:?$)")
NUMBERS: Final = frozenset({"partition", "broker"})
JSON: Final = "application/json"
ERROR: Final = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
}


def names_in(path: str) -> list[str]:
    """The names in braces."""
    return _PART.findall(path)


def summary_of(work: Callable[..., Any]) -> str:
    """What an operation does, in a few words: the first line of its handler's docstring."""
    line = (work.__doc__ or "").strip().partition("\n")[0]
    text = _LEAD.sub("", line).rstrip(".")
    return (text[:1].upper() + text[1:]) or work.__name__.replace("_", " ").capitalize()


def document(title: str, table: Table, media_types: Sequence[str] = (JSON,)) -> dict[str, Any]:
    """The OpenAPI document. media_types: of errors and of request bodies."""
    refusal = {"schema": {"$ref": "#/components/schemas/Error"}}
    paths: dict[str, dict[str, Any]] = {}
    for method, path, work in table:
        if path.endswith("/") and path != "/":
            continue  # the same operation without the slash is in the table, too
        names = names_in(path)
        operation: dict[str, Any] = {
            "summary": summary_of(work),
            "operationId": operation_id(method, path),
            "parameters": [
                {
                    "name": name,
                    "in": "path",
                    "required": True,
                    "schema": {"type": "integer", "minimum": 0} if name in NUMBERS else {"type": "string"},
                }
                for name in names
            ],
            "responses": {
                "2XX": {"description": "done"},
                "default": {
                    "description": "refused, with the reason",
                    "content": dict.fromkeys(media_types, refusal),
                },
            },
        }
        if method in ("POST", "PUT", "PATCH"):
            body = {"schema": {"type": "object"}}
            operation["requestBody"] = {"content": dict.fromkeys(media_types, body)}
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def operation_id(method: str, path: str) -> str:
    """The name of an operation: its method and the words of its path."""
    return "_".join([method.lower(), *(p for p in re.split(r"[^A-Za-z0-9]+", path) if p)])


PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; }}
details {{ border-bottom: 1px solid #ccc; padding: .4em 0; }} code, textarea, pre, input {{ font: 13px monospace; }}
b {{ display: inline-block; width: 4.5em; }} textarea {{ width: 100%; height: 6em; }}
input[name=url], input[name=type] {{ width: 100%; }} pre {{ background: #f4f4f4; padding: .6em; overflow: auto; }}
</style></head><body><h1>{title}</h1>
<p>Every call can be tried here; it is sent to this service. <a href="openapi.json">openapi.json</a></p>
{operations}
<script>
document.addEventListener("submit", async (event) => {{
  event.preventDefault();
  const form = event.target, shown = form.querySelector("pre");
  const request = {{ method: form.dataset.method, headers: {{}} }};
  if (form.body && form.body.value) {{ request.body = form.body.value; request.headers["content-type"] = form.type.value; }}
  shown.textContent = "...";
  try {{
    const answer = await fetch(form.url.value, request), text = await answer.text();
    shown.textContent = answer.status + "\\n" + text;
  }} catch (error) {{ shown.textContent = error; }}
}});
</script></body></html>
"""
OPERATION: Final = (
    "<details><summary><b>{method}</b> <code>{path}</code> {summary}</summary>"
    '<form data-method="{method}"><input name="url" value="{path}">{body}<button>Send</button><pre></pre></form>'
    "</details>\n"
)
BODY: Final = '<input name="type" value="application/json"><textarea name="body"></textarea>'


def page(title: str, table: Table) -> str:
    """An HTML page to try out the API. It loads no scripts or styles from other servers."""
    operations = "".join(
        OPERATION.format(
            method=method,
            path=html.escape(path, quote=True),
            summary=html.escape(summary_of(work)),
            body=BODY if method in ("POST", "PUT", "PATCH") else "",
        )
        for method, path, work in table
    )
    return PAGE.format(title=html.escape(title), operations=operations)


def routes(title: str, table: Table, media_types: Sequence[str] = (JSON,)) -> list[BaseRoute]:
    """`/openapi.json` and `/docs`."""

    async def machine(request: Request) -> Response:
        return JSONResponse(document(title, table, media_types))

    async def human(request: Request) -> Response:
        return HTMLResponse(page(title, table))

    return [Route("/openapi.json", machine), Route("/docs", human)]
