"""API v3: ACLs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from barnabas.admin import AclFilter, AclRule, Operation, Pattern, Permission, ResourceType
from barnabas.http.errors import HttpError
from barnabas.proxy.call import ProxyCall, answer, require_known, require_list, require_text
from barnabas.proxy.v3_cluster import BASE, Work
from barnabas.proxy.v3_shapes import Shapes, collection, shapes_of

TYPES: Final[Mapping[str, ResourceType]] = {
    kind.name: kind for kind in ResourceType if kind not in (ResourceType.DELEGATION_TOKEN, ResourceType.USER)
}
BATCH_MAX: Final = 1_000


def _row(shapes: Shapes, rule: AclRule) -> dict[str, Any]:
    fields = {
        "resource_type": rule.resource.name if rule.resource.name in TYPES else "UNKNOWN",
        "resource_name": rule.name,
        "pattern_type": rule.pattern.name,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.name,
        "permission": rule.permission.name,
    }
    query = urlencode(fields, safe="*:")
    return {
        "kind": "KafkaAcl",
        "metadata": {"self": f"{shapes.url('acls')}?{query}", "resource_name": None},
        "cluster_id": shapes.cluster_id,
        **fields,
    }


def _one_of(kinds: Mapping[str, Any], name: str, value: Any) -> Any:
    """The member of `kinds` with this name, in any case. name: of the parameter. Raises HttpError 400."""
    kind = kinds.get(value.upper()) if isinstance(value, str) else None
    if kind is None:
        raise HttpError(400, f"{name} {value!r} is not one of {', '.join(kinds)}", 400)
    return kind


def _names(kind: type[IntEnum], *without: str) -> dict[str, Any]:
    return {member.name: member for member in kind if member.name not in without}


OPERATIONS: Final = _names(Operation)
PATTERNS: Final = _names(Pattern)
PERMISSIONS: Final = _names(Permission)


def _filter(call: ProxyCall, *, needed: bool) -> AclFilter:
    """The filter in the query. needed: types must be named, so that no omission deletes ACLs. Raises HttpError 400."""

    def chosen(kinds: Mapping[str, Any], name: str) -> Any:
        value = call.text(name)
        if value is None:
            if needed:
                raise HttpError(400, f"{name} is missing; it must be one of {', '.join(kinds)}", 400)
            return kinds["ANY"]
        return _one_of(kinds, name, value)

    return AclFilter(
        resource=chosen(TYPES, "resource_type"),
        name=call.text("resource_name"),
        pattern=chosen(PATTERNS, "pattern_type"),
        principal=call.text("principal"),
        host=call.text("host"),
        operation=chosen(OPERATIONS, "operation"),
        permission=chosen(PERMISSIONS, "permission"),
    )


async def search(call: ProxyCall) -> Response:
    """GET .../acls: the ACLs that match the query."""
    shapes, wanted, kafka = await shapes_of(call), _filter(call, needed=False), call.services.kafka
    rules = await kafka.ask(kafka.admin.acls.list(wanted))
    url = shapes.url("acls")
    if call.request.url.query:
        url += f"?{call.request.url.query}"
    return collection("KafkaAclList", url, [_row(shapes, rule) for rule in rules])


BINDING: Final = frozenset(
    {"resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission"}
)


def _binding(row: dict[str, Any]) -> AclRule:
    """The ACL that a row of a request describes. Raises HttpError."""
    require_known(row, BINDING)
    exact = {name: kind for name, kind in TYPES.items() if name != "ANY"}
    return AclRule(
        resource=_one_of(exact, "resource_type", row.get("resource_type")),
        name=require_text(row, "resource_name"),
        pattern=_one_of(_names(Pattern, "ANY", "MATCH"), "pattern_type", row.get("pattern_type")),
        principal=require_text(row, "principal"),
        host=require_text(row, "host"),
        operation=_one_of(_names(Operation, "ANY"), "operation", row.get("operation")),
        permission=_one_of(_names(Permission, "ANY"), "permission", row.get("permission")),
    )


async def _create(call: ProxyCall, rows: list[dict[str, Any]]) -> None:
    kafka = call.services.kafka
    bindings = list(dict.fromkeys(_binding(row) for row in rows))

    async def add() -> None:
        (await kafka.admin.acls.create(bindings)).require()

    await kafka.ask(add())


async def create(call: ProxyCall) -> Response:
    """POST .../acls: creates an ACL."""
    await shapes_of(call)
    await _create(call, [await call.body()])
    return Response(status_code=201)


async def create_batch(call: ProxyCall) -> Response:
    """POST .../acls:batch: creates ACLs."""
    await shapes_of(call)
    rows = require_list(await call.body(), "data")
    if not 0 < len(rows) <= BATCH_MAX:
        raise HttpError(400, f"data has {len(rows)} ACLs; 1 to {BATCH_MAX} are allowed", 400)
    await _create(call, rows)
    return Response(status_code=201)


async def delete(call: ProxyCall) -> Response:
    """DELETE .../acls: deletes the ACLs that match the query."""
    shapes, wanted, kafka = await shapes_of(call), _filter(call, needed=True), call.services.kafka

    async def remove() -> Sequence[AclRule]:
        return (await kafka.admin.acls.delete([wanted]))[wanted]

    rules = await kafka.ask(remove())
    return answer({"data": [_row(shapes, rule) for rule in rules]})


ROUTES: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", f"{BASE}/acls", search),
    ("POST", f"{BASE}/acls", create),
    ("DELETE", f"{BASE}/acls", delete),
    ("POST", f"{BASE}/acls:batch", create_batch),
)
