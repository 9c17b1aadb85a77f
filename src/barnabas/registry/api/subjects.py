"""Subjects and their versions: registering, looking up, checking, deleting."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from barnabas.registry import decisions, listing, requests
from barnabas.registry.api.call import MEDIA_TYPE, RegistryCall
from barnabas.registry.api.schemas import formatted
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.queries import find_version, require_versions, same_as
from barnabas.registry.service import Answer
from barnabas.registry.subjects import DEFAULT_CONTEXT


async def list_subjects(call: RegistryCall) -> Any:
    """GET /subjects."""
    prefix = call.text("subjectPrefix") or (":*:" if call.context == DEFAULT_CONTEXT else f":{call.context}:")
    names = listing.subject_names(
        call.state, prefix, deleted=call.flag("deleted"), deleted_only=call.flag("deletedOnly")
    )
    return call.page(names)


async def look_up(call: RegistryCall) -> Any:
    """POST /subjects/{subject}."""
    subject = call.subject()
    wanted = await call.wanted()
    versions = require_versions(call.state, subject, deleted=call.flag("deleted"))
    normalize = call.flag("normalize")

    def find() -> Any:
        content, _ = decisions.prepare(
            call.state, call.registry.library, subject, wanted, normalize=normalize
        )
        return same_as(versions, content)

    version = await call.registry.look(find)
    if version is None:
        raise RegistryError(Code.SCHEMA_NOT_FOUND, "Schema not found")
    return call.shaped(listing.version_json(version))


async def delete_subject(call: RegistryCall) -> Any:
    """DELETE /subjects/{subject}."""
    subject, permanent = call.subject(), call.flag("permanent")
    return await call.change(
        lambda: decisions.decide_delete_subject(call.state, subject, permanent=permanent)
    )


async def subject_metadata(call: RegistryCall) -> Any:
    """GET /subjects/{subject}/metadata: the newest version with these properties."""
    query = call.request.query_params
    wanted = dict(zip(query.getlist("key"), query.getlist("value"), strict=False))
    versions = require_versions(call.state, call.subject(), deleted=call.flag("deleted"))
    for version in reversed(versions):
        properties = (version.content.metadata or {}).get("properties") or {}
        if all(properties.get(name) == value for name, value in wanted.items()):
            return call.shaped(listing.version_json(version))
    raise RegistryError(Code.SCHEMA_NOT_FOUND, "Schema not found")


async def list_versions(call: RegistryCall) -> Any:
    """GET /subjects/{subject}/versions."""
    deleted, only = call.flag("deleted"), call.flag("deletedOnly")
    versions = require_versions(call.state, call.subject(), deleted=deleted or only)
    negative = call.flag("deletedAsNegative")
    rows = [-v.version if negative and v.deleted else v.version for v in versions if v.deleted or not only]
    return call.page(rows)


async def register(call: RegistryCall) -> Any:
    """POST /subjects/{subject}/versions."""
    subject = call.subject()
    wanted = await call.wanted()
    normalize, force = call.flag("normalize"), call.flag("force")
    registry = call.registry

    def find_existing() -> Any:
        return decisions.existing(call.state, registry.library, subject, wanted, normalize=normalize)

    # Most registrations come from starting producers and change nothing: they wait neither for the writer nor the lock.
    version = await registry.look(find_existing)
    if version is not None:
        return _registered(call, decisions.registered(version))
    reply = await call.change(
        lambda: decisions.decide_register(
            call.state, registry.library, subject, wanted, normalize=normalize, force=force
        )
    )
    return reply if isinstance(reply, Answer) else _registered(call, reply)


def _registered(call: RegistryCall, reply: dict[str, Any]) -> dict[str, Any]:
    """The answer to a registration; to clients of versions before 8.0 only the id."""
    body = call.shaped(reply)
    return body if body == reply else {"id": reply["id"]}


async def one_version(call: RegistryCall) -> Any:
    """GET /subjects/{subject}/versions/{version}."""
    version = find_version(call.state, call.subject(), call.version(), deleted=call.flag("deleted"))
    body = call.shaped(listing.version_json(version))
    if call.text("format"):
        body["schema"] = await formatted(call, version.content, version.subject.context, call.text("format"))
    if call.text("findTags"):
        body["schemaTags"] = listing.tags_of(version.content, call.text("findTags").split(","))
    return body


async def version_text(call: RegistryCall) -> Any:
    """GET /subjects/{subject}/versions/{version}/schema."""
    version = find_version(call.state, call.subject(), call.version(), deleted=call.flag("deleted"))
    text = version.content.text
    if call.text("format"):
        text = await formatted(call, version.content, version.subject.context, call.text("format"))
    return Response(text.encode("utf-8", "surrogatepass"), media_type=MEDIA_TYPE)


async def referenced_by(call: RegistryCall) -> Any:
    """GET /subjects/{subject}/versions/{version}/referencedby: ids."""
    version = find_version(call.state, call.subject(), call.version(), deleted=call.flag("deleted"))
    ids = set()
    for subject, number in call.state.referrers.get((version.subject, version.version), ()):
        referrer = call.state.subjects[subject].by_number[number]
        if not referrer.deleted or call.flag("deleted"):
            ids.add(referrer.id)
    return call.page(sorted(ids))


async def delete_version(call: RegistryCall) -> Any:
    """DELETE /subjects/{subject}/versions/{version}."""
    subject, number, permanent = call.subject(), call.version(), call.flag("permanent")
    return await call.change(
        lambda: decisions.decide_delete_version(call.state, subject, number, permanent=permanent)
    )


async def change_tags(call: RegistryCall) -> Any:
    """POST /subjects/{subject}/versions/{version}/tags: a new version with tags added and removed."""
    subject = call.subject()
    version = find_version(call.state, subject, call.version())
    body = await call.body()
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
    reply = await call.change(lambda: decisions.decide_register(call.state, library, subject, wanted))
    if isinstance(reply, Answer):
        return reply
    return call.shaped(listing.version_json(find_version(call.state, subject, reply["version"])))


async def check(call: RegistryCall) -> Any:
    """POST /compatibility/subjects/{subject}/versions[/{version}]."""
    subject = call.subject()
    number = call.version() if "version" in call.request.path_params else None
    wanted = await call.wanted()
    verbose, normalize = call.flag("verbose"), call.flag("normalize")
    return await call.registry.look(
        lambda: decisions.decide_check(
            call.state, call.registry.library, subject, wanted, number, normalize=normalize, verbose=verbose
        )
    )
