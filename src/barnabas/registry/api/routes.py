"""The table of all paths and methods, and the endpoints that handle them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from barnabas import __version__
from barnabas.http import openapi
from barnabas.http.errors import HttpError
from barnabas.registry.api import schemas, settings, subjects
from barnabas.registry.api.call import MEDIA_TYPE, RegistryCall, Work, dump
from barnabas.registry.errors import client_message, status_of
from barnabas.registry.service import Answer, Registry
from barnabas.schemas.errors import SchemaError

TAKEN: Final = frozenset(
    {MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream"}
)

# --- the service itself -------------------------------------------------------------------------------


async def root(call: RegistryCall) -> Any:
    """GET /."""
    return {}


async def cluster_ids(call: RegistryCall) -> Any:
    """GET /v1/metadata/id."""
    clusters = {
        "kafka-cluster": call.registry.store.topic.cluster_id,
        "schema-registry-cluster": call.registry.options.group,
    }
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


async def server_version(call: RegistryCall) -> Any:
    """GET /v1/metadata/version."""
    return {"version": __version__, "commitId": ""}


async def deployment(call: RegistryCall) -> Any:
    """GET /v1/metadata/deployment."""
    return {"attributes": []}


# --- all paths ----------------------------------------------------------------------------------------

ROUTES: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", "/schemas/ids/{id}", schemas.schema_by_id),
    ("POST", "/subjects/{subject}/versions", subjects.register),
    ("POST", "/subjects/{subject}", subjects.look_up),
    ("GET", "/subjects/{subject}/versions/{version}", subjects.one_version),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", subjects.check),
    ("POST", "/compatibility/subjects/{subject}/versions", subjects.check),
    ("GET", "/schemas/ids/{id}/schema", schemas.schema_text),
    ("GET", "/schemas/ids/{id}/subjects", schemas.subjects_of_id),
    ("GET", "/schemas/ids/{id}/versions", schemas.versions_of_id),
    ("GET", "/schemas/guids/{guid}", schemas.schema_by_guid),
    ("GET", "/schemas/guids/{guid}/ids", schemas.ids_of_guid),
    ("GET", "/schemas/types", schemas.schema_types),
    ("GET", "/schemas/types/", schemas.schema_types),
    ("GET", "/schemas", schemas.all_schemas),
    ("GET", "/subjects", subjects.list_subjects),
    ("DELETE", "/subjects/{subject}", subjects.delete_subject),
    ("GET", "/subjects/{subject}/metadata", subjects.subject_metadata),
    ("GET", "/subjects/{subject}/versions", subjects.list_versions),
    ("GET", "/subjects/{subject}/versions/{version}/schema", subjects.version_text),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", subjects.referenced_by),
    ("DELETE", "/subjects/{subject}/versions/{version}", subjects.delete_version),
    ("POST", "/subjects/{subject}/versions/{version}/tags", subjects.change_tags),
    ("GET", "/config", settings.get_config),
    ("PUT", "/config", settings.put_config),
    ("DELETE", "/config", settings.delete_config),
    ("GET", "/config/{subject}", settings.get_config),
    ("PUT", "/config/{subject}", settings.put_config),
    ("DELETE", "/config/{subject}", settings.delete_config),
    ("GET", "/mode", settings.get_mode),
    ("PUT", "/mode", settings.put_mode),
    ("DELETE", "/mode", settings.delete_mode),
    ("GET", "/mode/{subject}", settings.get_mode),
    ("PUT", "/mode/{subject}", settings.put_mode),
    ("DELETE", "/mode/{subject}", settings.delete_mode),
)
OUTSIDE: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", "/", root),
    ("GET", "/contexts", settings.list_contexts),
    ("DELETE", "/contexts/{name}", settings.delete_context),
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
                RegistryCall(registry, request)
            )
        except SchemaError as error:
            raise HttpError(status_of(error), client_message(error), error.code) from error
        if isinstance(reply, Answer):
            return Response(reply.body, reply.status, media_type=reply.media_type)
        return reply if isinstance(reply, Response) else Response(dump(reply), media_type=MEDIA_TYPE)

    return endpoint


def _check_media_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type and media_type not in TAKEN:
        raise HttpError(
            415, f"content type {media_type} is not accepted here; send {MEDIA_TYPE} or application/json"
        )
