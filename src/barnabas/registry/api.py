"""Confluent's HTTP API over one registry. Every path also exists below `/contexts/{context}`.

An error is {"error_code": number, "message": "one sentence"}.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from barnabas import __version__
from barnabas.http import openapi
from barnabas.http.bodies import json_object, object_of, read_body
from barnabas.http.errors import HttpError
from barnabas.registry import decisions, listing, records, requests
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.model import DEFAULT_CONFIG, TYPES, Mode
from barnabas.registry.queries import find_id, find_version, require_versions, same_as
from barnabas.registry.service import FORWARDED, Answer, Handed, Registry
from barnabas.registry.subjects import (
    DEFAULT_CONTEXT,
    GLOBAL,
    Subject,
    context_name,
    parse_subject,
    require_subject,
)

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
TAKEN: Final = frozenset(
    {MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream"}
)
REMEMBERED_BYTES_MAX: Final = 16 << 10
REMEMBERED_MAX: Final = 1_000
Work = Callable[["Call"], Awaitable[Any]]


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """An error as Confluent's API writes it."""
    return _dump({"error_code": error.code, "message": error.message}), MEDIA_TYPE


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


class Call:
    """One request: its parameters and the registry."""

    def __init__(self, registry: Registry, request: Request) -> None:
        self.registry = registry
        self.state = registry.state
        self.request = request
        given = request.path_params.get("context")
        self.context = DEFAULT_CONTEXT if given is None else context_name(unquote(given))

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
        """The rows that offset and limit ask for; all without them."""
        offset, limit = max(self.number("offset", 0), 0), self.number("limit", -1)
        return list(rows[offset:] if limit < 0 else rows[offset : offset + limit])

    def subject(self) -> Subject:
        """The subject of the path, or what its alias stands for."""
        return self.state.resolve_alias(require_subject(self.part("subject"), self.context))

    def scope(self) -> Subject:
        """The scope of settings that the path names: a subject, a context, everything."""
        given = self.request.path_params.get("subject")
        if given is None:
            return Subject(self.context, "")
        found = parse_subject(unquote(given), self.context)
        return found if not found.name else require_subject(unquote(given), self.context)

    def version(self) -> int:
        """The version of the path; -1 for the latest."""
        return requests.read_version_number(self.part("version"))

    def prefix(self) -> str:
        """The subject prefix asked for."""
        default = "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"
        return self.text("subjectPrefix", default)

    def id_scope(self) -> str:
        """Where ids are looked for."""
        given = self.text("subject")
        if given:
            return str(parse_subject(given, self.context))
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    async def change(self, decide: Callable[[], decisions.Decision], *, size: int = 0) -> Any:
        """A change, made here or at the writer."""
        request = self.request
        target = request.scope["raw_path"].decode("latin-1")
        query = request.scope["query_string"].decode("latin-1")
        kept = ("content-type", "accept", "authorization", "x-request-id")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        headers.setdefault("x-request-id", request.state.request_id)
        handed = Handed(
            request.method,
            f"{target}?{query}" if query else target,
            await read_body(request),
            headers,
            FORWARDED.lower() in request.headers,
        )
        return await self.registry.change(decide, handed, size=size)


# --- schemas by id ------------------------------------------------------------------------------------


async def schema_by_id(call: Call) -> Any:
    """GET /schemas/ids/{id}."""
    context, found = find_id(call.state, _id(call), call.id_scope())
    content = found.content
    made = {**content.as_json(), "guid": found.guid}
    style = call.text("format")
    if style:
        made["schema"] = await _formatted(call, content, context, style)
    if call.flag("fetchMaxId"):
        made["maxId"] = call.state.contexts[context].id_max
    if call.text("findTags"):
        made["schemaTags"] = listing.tags_of(content, call.text("findTags").split(","))
    return made


async def _formatted(call: Call, content: Any, context: str, style: str) -> str:
    library = call.registry.library
    text: str = await call.registry.look(
        lambda: library.read(content, context).formatted(style), len(content.text)
    )
    return text


async def schema_text(call: Call) -> Any:
    """GET /schemas/ids/{id}/schema."""
    context, found = find_id(call.state, _id(call), call.id_scope())
    text = found.content.text
    if call.text("format"):
        text = await _formatted(call, found.content, context, call.text("format"))
    return Response(text.encode("utf-8", "surrogatepass"), media_type=MEDIA_TYPE)


async def subjects_of_id(call: Call) -> Any:
    """GET /schemas/ids/{id}/subjects."""
    return call.page(sorted({str(subject) for subject, _ in _places(call)}))


async def versions_of_id(call: Call) -> Any:
    """GET /schemas/ids/{id}/versions."""
    rows = [{"subject": str(subject), "version": number} for subject, number in sorted(_places(call))]
    return call.page(rows)


def _places(call: Call) -> list[tuple[Subject, int]]:
    _, found = find_id(call.state, _id(call), call.id_scope())
    subjects = call.state.subjects
    deleted = call.flag("deleted")
    return [p for p in found.places if deleted or not subjects[p[0]].by_number[p[1]].deleted]


def _id(call: Call) -> int:
    text = call.part("id")
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise RegistryError(Code.SCHEMA_NOT_FOUND, f"Schema {text[:40]} not found")
    return int(text)


async def schema_by_guid(call: Call) -> Any:
    """GET /schemas/guids/{guid}."""
    owners = _owners(call)
    context, schema_id = owners[0]
    found = call.state.identified(context, schema_id)
    assert found is not None
    made = {**found.content.as_json(), "guid": found.guid}
    if call.text("format"):
        made["schema"] = await _formatted(call, found.content, context, call.text("format"))
    return made


async def ids_of_guid(call: Call) -> Any:
    """GET /schemas/guids/{guid}/ids."""
    return [{"context": context, "id": schema_id} for context, schema_id in _owners(call)]


def _owners(call: Call) -> list[tuple[str, int]]:
    guid = call.part("guid").lower()
    owners = sorted(call.state.guids.get(guid, ()))
    if not owners:
        raise RegistryError(Code.SCHEMA_NOT_FOUND, f"Schema {guid[:40]} not found")
    return owners


async def schema_types(call: Call) -> Any:
    """GET /schemas/types."""
    return list(TYPES)


async def all_schemas(call: Call) -> Any:
    """GET /schemas."""
    found = listing.all_versions(
        call.state,
        call.prefix() or ":*:",
        deleted=call.flag("deleted"),
        latest_only=call.flag("latestOnly"),
        rule_type=call.text("ruleType"),
    )
    return [listing.version_json(version) for version in call.page(found)]


# --- subjects -----------------------------------------------------------------------------------------


async def list_subjects(call: Call) -> Any:
    """GET /subjects."""
    prefix = call.text("subjectPrefix") or (":*:" if call.context == DEFAULT_CONTEXT else f":{call.context}:")
    found = listing.subject_names(
        call.state, prefix, deleted=call.flag("deleted"), deleted_only=call.flag("deletedOnly")
    )
    return call.page(found)


async def look_up(call: Call) -> Any:
    """POST /subjects/{subject}."""
    subject = call.subject()
    wanted = await _wanted(call)
    versions = require_versions(call.state, subject, deleted=call.flag("deleted"))
    normalize = call.flag("normalize")

    def find() -> Any:
        content, _ = decisions.prepare(
            call.state, call.registry.library, subject, wanted, normalize=normalize
        )
        return same_as(versions, content)

    found = await call.registry.look(find, len(wanted.content.text))
    if found is None:
        raise RegistryError(Code.SCHEMA_NOT_FOUND, "Schema not found")
    return listing.version_json(found)


async def delete_subject(call: Call) -> Any:
    """DELETE /subjects/{subject}."""
    subject, permanent = call.subject(), call.flag("permanent")
    return await call.change(
        lambda: decisions.decide_delete_subject(call.state, subject, permanent=permanent)
    )


async def subject_metadata(call: Call) -> Any:
    """GET /subjects/{subject}/metadata: the newest version with these properties."""
    query = call.request.query_params
    wanted = dict(zip(query.getlist("key"), query.getlist("value"), strict=False))
    versions = require_versions(call.state, call.subject(), deleted=call.flag("deleted"))
    for version in reversed(versions):
        held = (version.content.metadata or {}).get("properties") or {}
        if all(held.get(name) == value for name, value in wanted.items()):
            return listing.version_json(version)
    raise RegistryError(Code.SCHEMA_NOT_FOUND, "Schema not found")


async def list_versions(call: Call) -> Any:
    """GET /subjects/{subject}/versions."""
    deleted, only = call.flag("deleted"), call.flag("deletedOnly")
    found = require_versions(call.state, call.subject(), deleted=deleted or only)
    negative = call.flag("deletedAsNegative")
    rows = [-v.version if negative and v.deleted else v.version for v in found if v.deleted or not only]
    return call.page(rows)


async def _wanted(call: Call) -> requests.Wanted:
    """The schema in the body. Producers that start send the same one again and again: it is read once."""
    raw = await read_body(call.request)
    if len(raw) > REMEMBERED_BYTES_MAX:
        wanted = requests.read_wanted(await json_object(call.request))
        await call.registry.require_fitting(wanted.content)
        return wanted
    return _read_plain(raw) or requests.read_wanted(object_of(raw))


@lru_cache(REMEMBERED_MAX)
def _read_plain(raw: bytes) -> requests.Wanted | None:
    """None for a schema with more than references: rules and tags take a multiple of the body's size."""
    wanted = requests.read_wanted(object_of(raw))
    content = wanted.content
    more = (content.metadata, content.rules, wanted.tags_to_add, wanted.tags_to_remove)
    return None if any(more) else wanted


async def register(call: Call) -> Any:
    """POST /subjects/{subject}/versions."""
    subject = call.subject()
    wanted = await _wanted(call)
    normalize, force = call.flag("normalize"), call.flag("force")
    registry = call.registry
    size = len(wanted.content.text) + sum(
        len(version.content.text) for version in call.state.versions(subject)[-1:]
    )

    def there() -> Any:
        return decisions.existing(call.state, registry.library, subject, wanted, normalize=normalize)

    # Most registrations are of what is there: producers that start. They wait for no writer, and for no other change.
    found = await registry.look(there, size)
    if found is not None:
        return decisions.registered(found)
    return await call.change(
        lambda: decisions.decide_register(
            call.state, registry.library, subject, wanted, normalize=normalize, force=force
        ),
        size=size,
    )


async def one_version(call: Call) -> Any:
    """GET /subjects/{subject}/versions/{version}."""
    version = find_version(call.state, call.subject(), call.version(), deleted=call.flag("deleted"))
    made = listing.version_json(version)
    if call.text("format"):
        made["schema"] = await _formatted(call, version.content, version.subject.context, call.text("format"))
    if call.text("findTags"):
        made["schemaTags"] = listing.tags_of(version.content, call.text("findTags").split(","))
    return made


async def version_text(call: Call) -> Any:
    """GET /subjects/{subject}/versions/{version}/schema."""
    version = find_version(call.state, call.subject(), call.version(), deleted=call.flag("deleted"))
    text = version.content.text
    if call.text("format"):
        text = await _formatted(call, version.content, version.subject.context, call.text("format"))
    return Response(text.encode("utf-8", "surrogatepass"), media_type=MEDIA_TYPE)


async def referenced_by(call: Call) -> Any:
    """GET /subjects/{subject}/versions/{version}/referencedby: ids."""
    version = find_version(call.state, call.subject(), call.version(), deleted=call.flag("deleted"))
    found = set()
    for subject, number in call.state.referrers.get((version.subject, version.version), ()):
        referrer = call.state.subjects[subject].by_number[number]
        if not referrer.deleted or call.flag("deleted"):
            found.add(referrer.id)
    return call.page(sorted(found))


async def delete_version(call: Call) -> Any:
    """DELETE /subjects/{subject}/versions/{version}."""
    subject, number, permanent = call.subject(), call.version(), call.flag("permanent")
    return await call.change(
        lambda: decisions.decide_delete_version(call.state, subject, number, permanent=permanent)
    )


async def change_tags(call: Call) -> Any:
    """POST /subjects/{subject}/versions/{version}/tags: a new version with tags added and taken away."""
    subject = call.subject()
    version = find_version(call.state, subject, call.version())
    body = await json_object(call.request)
    content = version.content
    wanted = requests.read_wanted(
        {
            **content.as_json(),
            "schemaTagsToAdd": body.get("tagsToAdd"),
            "schemaTagsToRemove": body.get("tagsToRemove"),
            "metadata": body.get("metadata") or content.metadata,
            "ruleSet": body.get("ruleSet") or content.rules,
        }
    )
    library = call.registry.library
    reply = await call.change(
        lambda: decisions.decide_register(call.state, library, subject, wanted), size=len(content.text)
    )
    if isinstance(reply, Answer):
        return reply
    return listing.version_json(find_version(call.state, subject, reply["version"]))


async def check(call: Call) -> Any:
    """POST /compatibility/subjects/{subject}/versions[/{version}]."""
    subject = call.subject()
    number = call.version() if "version" in call.request.path_params else None
    wanted = requests.read_wanted(await json_object(call.request))
    await call.registry.require_fitting(wanted.content)
    verbose, normalize = call.flag("verbose"), call.flag("normalize")
    earlier = sum(len(version.content.text) for version in call.state.versions(subject))
    return await call.registry.look(
        lambda: decisions.decide_check(
            call.state, call.registry.library, subject, wanted, number, normalize=normalize, verbose=verbose
        ),
        len(wanted.content.text) + earlier,
    )


# --- settings -----------------------------------------------------------------------------------------


async def get_config(call: Call) -> Any:
    """GET /config[/{subject}]."""
    scope = call.scope()
    held = call.state.configs.get(scope)
    if scope == GLOBAL or call.flag("defaultToGlobal"):
        return records.config_json(call.state.config(scope))
    if held is None:
        raise RegistryError(
            Code.SUBJECT_CONFIG_NOT_FOUND,
            f"Subject '{scope}' does not have subject-level compatibility configured",
        )
    return records.config_json(held)


async def put_config(call: Call) -> Any:
    """PUT /config[/{subject}]."""
    body = await json_object(call.request)
    config, scope = requests.read_config(body), call.scope()
    return await call.change(lambda: decisions.decide_config(call.state, scope, config, body))


async def delete_config(call: Call) -> Any:
    """DELETE /config[/{subject}]."""
    scope = call.scope()
    return await call.change(lambda: decisions.decide_delete_config(call.state, scope))


async def get_mode(call: Call) -> Any:
    """GET /mode[/{subject}]."""
    scope = call.scope()
    if scope == GLOBAL or call.flag("defaultToGlobal"):
        return {"mode": call.state.mode(scope).value}
    held = call.state.modes.get(scope)
    if held is None:
        raise RegistryError(
            Code.SUBJECT_MODE_NOT_FOUND, f"Subject '{scope}' does not have subject-level mode configured"
        )
    return {"mode": held.value}


async def put_mode(call: Call) -> Any:
    """PUT /mode[/{subject}]."""
    mode, scope = requests.read_mode(await json_object(call.request)), call.scope()
    force = call.flag("force")
    return await call.change(lambda: decisions.decide_mode(call.state, scope, mode, force=force))


async def delete_mode(call: Call) -> Any:
    """DELETE /mode[/{subject}]."""
    scope, recursive = call.scope(), call.flag("recursive")
    return await call.change(lambda: decisions.decide_delete_mode(call.state, scope, recursive=recursive))


async def list_contexts(call: Call) -> Any:
    """GET /contexts."""
    prefix = call.text("contextPrefix")
    return call.page([name for name in call.state.context_names() if name.startswith(prefix)])


async def delete_context(call: Call) -> Any:
    """DELETE /contexts/{name}."""
    name = context_name(call.part("name"))
    reply = await call.change(lambda: decisions.decide_delete_context(call.state, name))
    return reply if isinstance(reply, Answer) else Response(status_code=204)


# --- the service itself -------------------------------------------------------------------------------


async def root(call: Call) -> Any:
    """GET /."""
    return {}


async def cluster_ids(call: Call) -> Any:
    """GET /v1/metadata/id."""
    clusters = {
        "kafka-cluster": call.registry.store.cluster_id,
        "schema-registry-cluster": call.registry.options.group,
    }
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


async def server_version(call: Call) -> Any:
    """GET /v1/metadata/version."""
    return {"version": __version__, "commitId": ""}


async def deployment(call: Call) -> Any:
    """GET /v1/metadata/deployment."""
    return {"attributes": []}


ROUTES: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", "/schemas/ids/{id}", schema_by_id),
    ("POST", "/subjects/{subject}/versions", register),
    ("POST", "/subjects/{subject}", look_up),
    ("GET", "/subjects/{subject}/versions/{version}", one_version),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", check),
    ("POST", "/compatibility/subjects/{subject}/versions", check),
    ("GET", "/schemas/ids/{id}/schema", schema_text),
    ("GET", "/schemas/ids/{id}/subjects", subjects_of_id),
    ("GET", "/schemas/ids/{id}/versions", versions_of_id),
    ("GET", "/schemas/guids/{guid}", schema_by_guid),
    ("GET", "/schemas/guids/{guid}/ids", ids_of_guid),
    ("GET", "/schemas/types", schema_types),
    ("GET", "/schemas/types/", schema_types),
    ("GET", "/schemas", all_schemas),
    ("GET", "/subjects", list_subjects),
    ("DELETE", "/subjects/{subject}", delete_subject),
    ("GET", "/subjects/{subject}/metadata", subject_metadata),
    ("GET", "/subjects/{subject}/versions", list_versions),
    ("GET", "/subjects/{subject}/versions/{version}/schema", version_text),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", referenced_by),
    ("DELETE", "/subjects/{subject}/versions/{version}", delete_version),
    ("POST", "/subjects/{subject}/versions/{version}/tags", change_tags),
    ("GET", "/config", get_config),
    ("PUT", "/config", put_config),
    ("DELETE", "/config", delete_config),
    ("GET", "/config/{subject}", get_config),
    ("PUT", "/config/{subject}", put_config),
    ("DELETE", "/config/{subject}", delete_config),
    ("GET", "/mode", get_mode),
    ("PUT", "/mode", put_mode),
    ("DELETE", "/mode", delete_mode),
    ("GET", "/mode/{subject}", get_mode),
    ("PUT", "/mode/{subject}", put_mode),
    ("DELETE", "/mode/{subject}", delete_mode),
)
OUTSIDE: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", "/", root),
    ("GET", "/contexts", list_contexts),
    ("DELETE", "/contexts/{name}", delete_context),
    ("GET", "/v1/metadata/id", cluster_ids),
    ("GET", "/v1/metadata/version", server_version),
    ("GET", "/v1/metadata/deployment", deployment),
)


def routes(registry: Registry) -> list[BaseRoute]:
    """Every path of the API; the busiest come first."""
    inside = _routes(registry, ROUTES)
    return [
        *inside,
        *_routes(registry, OUTSIDE),
        *openapi.routes("Schema registry", (*ROUTES, *OUTSIDE), (MEDIA_TYPE, openapi.JSON)),
        Mount("/contexts/{context}", routes=_routes(registry, ROUTES)),
    ]


def _routes(registry: Registry, table: Sequence[tuple[str, str, Work]]) -> list[BaseRoute]:
    by_path: dict[str, dict[str, Work]] = {}
    for method, path, work in table:
        by_path.setdefault(path, {})[method] = work
    return [Route(path, _endpoint(registry, works), methods=list(works)) for path, works in by_path.items()]


def _endpoint(registry: Registry, works: Mapping[str, Work]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if request.method in ("POST", "PUT"):
            _check_media_type(request)
        try:
            reply = await works["GET" if request.method == "HEAD" else request.method](
                Call(registry, request)
            )
        except RegistryError as error:
            raise HttpError(error.status, error.message, error.code) from error
        if isinstance(reply, Answer):
            return Response(reply.body, reply.status, media_type=reply.media_type)
        return reply if isinstance(reply, Response) else Response(_dump(reply), media_type=MEDIA_TYPE)

    return endpoint


def _check_media_type(request: Request) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given and given not in TAKEN:
        raise HttpError(415, f"content type {given} is not taken here; send {MEDIA_TYPE} or application/json")


__all__ = ["DEFAULT_CONFIG", "MEDIA_TYPE", "Mode", "error_shape", "routes"]
