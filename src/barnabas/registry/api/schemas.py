"""Schemas by id and by GUID, and all schemas."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from barnabas.registry import listing
from barnabas.registry.api.call import MEDIA_TYPE, RegistryCall
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.queries import find_id
from barnabas.registry.subjects import Subject
from barnabas.schemas.model import TYPES


async def schema_by_id(call: RegistryCall) -> Any:
    """GET /schemas/ids/{id}."""
    context, identified = find_id(call.state, _id(call), call.id_scope())
    content = identified.content
    body = call.shaped({**content.as_json(), "guid": identified.guid})
    style = call.text("format")
    if style:
        body["schema"] = await formatted(call, content, context, style)
    if call.flag("fetchMaxId"):
        body["maxId"] = call.state.contexts[context].id_max
    if call.text("findTags"):
        body["schemaTags"] = listing.tags_of(content, call.text("findTags").split(","))
    return body


async def formatted(call: RegistryCall, content: Any, context: str, style: str) -> str:
    """The text of a schema in one of its language's formats. Raises InvalidSchema for an unknown one."""
    library = call.registry.library
    text: str = await call.registry.look(lambda: library.read(content, context).formatted(style))
    return text


async def schema_text(call: RegistryCall) -> Any:
    """GET /schemas/ids/{id}/schema."""
    context, identified = find_id(call.state, _id(call), call.id_scope())
    text = identified.content.text
    if call.text("format"):
        text = await formatted(call, identified.content, context, call.text("format"))
    return Response(text.encode("utf-8", "surrogatepass"), media_type=MEDIA_TYPE)


async def subjects_of_id(call: RegistryCall) -> Any:
    """GET /schemas/ids/{id}/subjects."""
    return call.page(sorted({str(subject) for subject, _ in _places(call)}))


async def versions_of_id(call: RegistryCall) -> Any:
    """GET /schemas/ids/{id}/versions."""
    rows = [{"subject": str(subject), "version": number} for subject, number in sorted(_places(call))]
    return call.page(rows)


def _places(call: RegistryCall) -> list[tuple[Subject, int]]:
    _, identified = find_id(call.state, _id(call), call.id_scope())
    subjects = call.state.subjects
    deleted = call.flag("deleted")
    return [p for p in identified.places if deleted or not subjects[p[0]].by_number[p[1]].deleted]


def _id(call: RegistryCall) -> int:
    text = call.part("id")
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise RegistryError(Code.SCHEMA_NOT_FOUND, f"Schema {text[:40]} not found")
    return int(text)


async def schema_by_guid(call: RegistryCall) -> Any:
    """GET /schemas/guids/{guid}."""
    owners = _owners(call)
    context, schema_id = owners[0]
    identified = call.state.identified(context, schema_id)
    assert identified is not None
    body = call.shaped({**identified.content.as_json(), "guid": identified.guid})
    if call.text("format"):
        body["schema"] = await formatted(call, identified.content, context, call.text("format"))
    return body


async def ids_of_guid(call: RegistryCall) -> Any:
    """GET /schemas/guids/{guid}/ids."""
    return [{"context": context, "id": schema_id} for context, schema_id in _owners(call)]


def _owners(call: RegistryCall) -> list[tuple[str, int]]:
    guid = call.part("guid").lower()
    owners = sorted(call.state.guids.get(guid, ()))
    if not owners:
        raise RegistryError(Code.SCHEMA_NOT_FOUND, f"Schema {guid[:40]} not found")
    return owners


async def schema_types(call: RegistryCall) -> Any:
    """GET /schemas/types."""
    return list(TYPES)


async def all_schemas(call: RegistryCall) -> Any:
    """GET /schemas."""
    versions = listing.all_versions(
        call.state,
        call.prefix() or ":*:",
        deleted=call.flag("deleted"),
        latest_only=call.flag("latestOnly"),
        rule_type=call.text("ruleType"),
    )
    return [call.shaped(listing.version_json(version)) for version in call.page(versions)]
