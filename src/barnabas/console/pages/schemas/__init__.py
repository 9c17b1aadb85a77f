"""Schemas of the registry: subjects, versions with their differences, and new versions that are checked first."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from barnabas.client.registry import NoRegistry, RegistryError, request
from barnabas.console.apart import apart
from barnabas.console.asking import Ask, Done
from barnabas.console.listing import cut
from barnabas.console.rendering import encoded
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.shell import command
from barnabas.console.site import Action, Data, Page
from barnabas.http_client import without_login

TIMEOUT_S: Final = 8.0
LEVELS: Final = (
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE",
)  # fmt: skip
KINDS: Final = ("AVRO", "PROTOBUF", "JSON")
NOT_FOUND: Final = 404


def registry_url(ask: Ask) -> str:
    """Where the registry is, without a login. Raises Refused."""
    address = ask.cluster.registry()
    if address is None:
        raise Refused(
            404,
            said("No schema registry is known for this cluster"),
            said("Start the console with --registry URL."),
        )
    return without_login(address.url)


async def call(ask: Ask, method: str, path: str, body: Any = None) -> Any:
    """Ask the registry. Raises Refused, RegistryError."""
    registry_url(ask)
    address = ask.cluster.registry()
    assert address is not None
    try:
        return await apart(
            address.url,
            lambda: request(address.url, method, path, body, timeout_s=TIMEOUT_S, context=address.context),
            TIMEOUT_S + 1,
        )
    except TimeoutError:
        raise NoRegistry(
            f"no registry answers at {without_login(address.url)} within {TIMEOUT_S:g} seconds"
        ) from None


def _subject(ask: Ask) -> str:
    return quote(ask.path["subject"], safe="")


def _shell(ask: Ask, *words: str) -> str:
    return command("barnabas", "schema", *words, "--registry", registry_url(ask))


async def read(ask: Ask) -> Data:
    """The subjects with their newest version, id and kind"""
    schemas = await call(ask, "GET", "/schemas?latestOnly=true")
    level = await call(ask, "GET", "/config")
    rows = [
        {
            "subject": row["subject"],
            "version": row["version"],
            "id": row["id"],
            "kind": row.get("schemaType", "AVRO"),
        }
        for row in schemas
        if ask.sees(row["subject"])
    ]
    page, list_ = cut(
        ask, rows, lambda row: str(row["subject"]),
        {"name": lambda row: row["subject"], "version": lambda row: row["version"], "id": lambda row: row["id"],
         "kind": lambda row: row["kind"]},
        "name",
    )  # fmt: skip
    return {
        "subjects": page,
        "list": list_,
        "level": level.get("compatibilityLevel"),
        "kinds": KINDS,
        "commands": [_shell(ask, "get")],
    }


async def read_one(ask: Ask) -> Data:
    """A subject's versions; one of them whole (version), and what changed from another one (against)"""
    subject = ask.path["subject"]
    versions: list[int] = await call(ask, "GET", f"/subjects/{_subject(ask)}/versions")
    shown = ask.number("version", versions[-1], 1, 1 << 30)
    one = await call(ask, "GET", f"/subjects/{_subject(ask)}/versions/{shown}")
    earlier = [version for version in versions if version < shown]
    against = ask.number("against", earlier[-1] if earlier else 0, 0, 1 << 30)
    other = await call(ask, "GET", f"/subjects/{_subject(ask)}/versions/{against}") if against else None
    kind = one.get("schemaType", "AVRO")
    text = pretty(one["schema"], kind)
    return {
        "subject": subject,
        "versions": versions,
        "version": shown,
        "id": one["id"],
        "kind": kind,
        "schema": text,
        "references": one.get("references") or [],
        "used_by": await _used_by(ask, shown),
        "against": against or None,
        "diff": [] if other is None else difference(pretty(other["schema"], kind), text),
        "level": await _level(ask),
        "levels": LEVELS,
        "commands": [
            _shell(ask, "get", subject, str(shown)),
            *([_shell(ask, "diff", subject, str(against), str(shown))] if against else []),
        ],
    }


async def _level(ask: Ask) -> dict[str, Any]:
    """The subject's own level of compatibility, otherwise the registry's."""
    try:
        own = await call(ask, "GET", f"/config/{_subject(ask)}")
        return {"level": own.get("compatibilityLevel"), "is_own": True}
    except RegistryError as error:
        if error.code // 100 != NOT_FOUND:
            raise
    whole = await call(ask, "GET", "/config")
    return {"level": whole.get("compatibilityLevel"), "is_own": False}


async def _used_by(ask: Ask, version: int) -> list[int]:
    try:
        referrers: list[int] = await call(
            ask, "GET", f"/subjects/{_subject(ask)}/versions/{version}/referencedby"
        )
    except RegistryError:
        return []
    return referrers


def pretty(text: str, kind: str) -> str:
    """A schema as people read it."""
    if kind == "PROTOBUF":
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def difference(before: str, after: str) -> list[dict[str, str]]:
    """Lines with what happened to them: same, add, del."""
    kinds = {"+": "add", "-": "del", " ": "same"}
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    return [
        {"kind": kinds.get(line[:1], "same"), "text": line}
        for line in lines
        if not line.startswith(("---", "+++"))
    ]


def _schema_asked(ask: Ask) -> dict[str, Any]:
    kind = ask.text("kind", "AVRO").upper()
    if kind not in KINDS:
        raise Refused(400, said("{name} must be one of {choices}", name="kind", choices=", ".join(KINDS)))
    schema = ask.fields.get("schema")
    text = json.dumps(schema) if isinstance(schema, (dict, list)) else ask.required("schema")
    body: dict[str, Any] = {"schema": text, "schemaType": kind}
    references = ask.fields.get("references")
    if isinstance(references, str) and references.strip():
        try:
            references = json.loads(references)
        except ValueError as error:
            raise Refused(400, said("{name} is not {format}: {reason}", name="references", format="json",
                                    reason=str(error))) from None  # fmt: skip
    if references:
        body["references"] = references
    return body


async def check(ask: Ask) -> Done:
    """Check a new version against the subject's rules, without registering it: schema, kind, references"""
    body = _schema_asked(ask)
    try:
        answer = await call(
            ask, "POST", f"/compatibility/subjects/{_subject(ask)}/versions?verbose=true", body
        )
    except RegistryError as error:
        if error.code // 100 != NOT_FOUND:
            raise
        answer = {"is_compatible": True}
    is_fine = bool(answer.get("is_compatible"))
    messages = [str(message) for message in answer.get("messages") or []]
    what = said("The schema is compatible") if is_fine else said("The schema is not compatible")
    return Done(what, data={"is_compatible": is_fine, "messages": messages})


async def register(ask: Ask) -> Done:
    """Register a new version of a subject: schema, kind, references"""
    if "subject" not in ask.path:
        ask.path = {**ask.path, "subject": ask.required("subject")}
        if ask.role_for(ask.path["subject"]) < Role.ADMIN:
            raise Refused(403, said("You may not create a subject of this name"))
    subject = ask.path["subject"]
    checked = await check(ask)
    if not checked.data["is_compatible"]:
        reasons = "; ".join(checked.data["messages"])[:2_000]
        raise Refused(409, said("The schema is not compatible: {reason}", reason=reasons))
    answer: Mapping[str, Any] = await call(
        ask, "POST", f"/subjects/{_subject(ask)}/versions", _schema_asked(ask)
    )
    return Done(
        said("Schema {id} is a version of {subject}", id=answer["id"], subject=subject),
        f"/schemas/{encoded(subject)}",
        {"subject": subject, "id": answer["id"]},
        (_shell(ask, "register", subject, "FILE"),),
    )


async def set_level(ask: Ask) -> Done:
    """Set the compatibility of a subject: level; empty: as the registry's"""
    level = ask.text("level").upper()
    if level and level not in LEVELS:
        raise Refused(400, said("{name} must be one of {choices}", name="level", choices=", ".join(LEVELS)))
    if level:
        await call(ask, "PUT", f"/config/{_subject(ask)}", {"compatibility": level})
    else:
        await call(ask, "DELETE", f"/config/{_subject(ask)}")
    return Done(
        said("Compatibility is set"), f"/schemas/{encoded(ask.path['subject'])}", {"level": level or None}
    )


async def delete(ask: Ask) -> Done:
    """Delete a version, or without one the whole subject: version, confirm (the subject); records can still be read"""
    subject = ask.path["subject"]
    if ask.text("confirm") != subject:
        raise Refused(400, said("Not done: type {name} to confirm", name=subject))
    version = ask.text("version")
    path = f"/subjects/{_subject(ask)}" + (
        f"/versions/{ask.number('version', 0, 1, 1 << 30)}" if version else ""
    )
    await call(ask, "DELETE", path)
    words = ["delete", subject] + ([version] if version else [])
    return Done(said("It is deleted; records with its id can still be read"), "/schemas",
                {"subject": subject, "version": version or None}, (_shell(ask, *words),))  # fmt: skip


PAGES: Final = (
    Page("schemas", "/schemas", "schemas", read, actions=(Action("/schemas", register),)),
    Page(
        "schemas", "/schemas/{subject}", "schemas", read_one, named="subject", template="one.html",
        actions=(
            Action("/schemas/{subject}/check", check, Role.READ, "subject", is_change=False),
            Action("/schemas/{subject}/versions", register, Role.ADMIN, "subject"),
            Action("/schemas/{subject}/level", set_level, Role.ADMIN, "subject"),
            Action("/schemas/{subject}/delete", delete, Role.ADMIN, "subject"),
        ),
    ),
)  # fmt: skip
