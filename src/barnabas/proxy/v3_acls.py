"""API v3: ACLs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final
from urllib.parse import urlencode

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from starlette.responses import Response

from barnabas.http.errors import HttpError
from barnabas.proxy.call import Call, answer, require_known, require_list, require_text
from barnabas.proxy.kafka import REQUEST_TIMEOUT_S
from barnabas.proxy.v3_cluster import BASE, Work
from barnabas.proxy.v3_shapes import Shapes, collection, shapes_of

# librdkafka calls the cluster a broker.
TYPES: Final[Mapping[str, Any]] = {
    "ANY": ResourceType.ANY,
    "TOPIC": ResourceType.TOPIC,
    "GROUP": ResourceType.GROUP,
    "CLUSTER": ResourceType.BROKER,
    "TRANSACTIONAL_ID": ResourceType.TRANSACTIONAL_ID,
}
TYPE_NAMES: Final = {value: name for name, value in TYPES.items()}
BATCH_MAX: Final = 1_000


def _row(shapes: Shapes, held: Any) -> dict[str, Any]:
    fields = {
        "resource_type": TYPE_NAMES.get(held.restype, "UNKNOWN"),
        "resource_name": held.name,
        "pattern_type": held.resource_pattern_type.name,
        "principal": held.principal,
        "host": held.host,
        "operation": held.operation.name,
        "permission": held.permission_type.name,
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
    found = kinds.get(value.upper()) if isinstance(value, str) else None
    if found is None:
        raise HttpError(400, f"{name} {value!r} is not one of {', '.join(kinds)}", 400)
    return found


def _names(kind: type[Enum], *without: str) -> dict[str, Any]:
    return {member.name: member for member in kind if member.name not in ("UNKNOWN", *without)}


OPERATIONS: Final = _names(AclOperation)
PATTERNS: Final = _names(ResourcePatternType)
PERMISSIONS: Final = _names(AclPermissionType)


def _filter(call: Call, *, needed: bool) -> Any:
    """The filter in the query. needed: types must be named, so that no omission deletes ACLs. Raises HttpError 400."""

    def chosen(kinds: Mapping[str, Any], name: str) -> Any:
        value = call.text(name)
        if value is None:
            if needed:
                raise HttpError(400, f"{name} is missing; it must be one of {', '.join(kinds)}", 400)
            return kinds["ANY"]
        return _one_of(kinds, name, value)

    return AclBindingFilter(
        chosen(TYPES, "resource_type"),
        call.text("resource_name"),
        chosen(PATTERNS, "pattern_type"),
        call.text("principal"),
        call.text("host"),
        chosen(OPERATIONS, "operation"),
        chosen(PERMISSIONS, "permission"),
    )


async def search(call: Call) -> Response:
    """GET .../acls: the ACLs that match the query."""
    shapes, wanted, kafka = await shapes_of(call), _filter(call, needed=False), call.services.kafka
    found = await kafka.result(lambda: kafka.admin.describe_acls(wanted, request_timeout=REQUEST_TIMEOUT_S))
    url = shapes.url("acls")
    if call.request.url.query:
        url += f"?{call.request.url.query}"
    return collection("KafkaAclList", url, [_row(shapes, held) for held in found])


BINDING: Final = frozenset(
    {"resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission"}
)


def _binding(row: dict[str, Any]) -> Any:
    """The ACL that a row of a request describes. Raises HttpError."""
    require_known(row, BINDING)
    exact = {name: kind for name, kind in TYPES.items() if name != "ANY"}
    return AclBinding(
        _one_of(exact, "resource_type", row.get("resource_type")),
        require_text(row, "resource_name"),
        _one_of(_names(ResourcePatternType, "ANY", "MATCH"), "pattern_type", row.get("pattern_type")),
        require_text(row, "principal"),
        require_text(row, "host"),
        _one_of(_names(AclOperation, "ANY"), "operation", row.get("operation")),
        _one_of(_names(AclPermissionType, "ANY"), "permission", row.get("permission")),
    )


async def _create(call: Call, rows: list[dict[str, Any]]) -> None:
    kafka = call.services.kafka
    bindings = list(dict.fromkeys(_binding(row) for row in rows))
    futures = await kafka.call(lambda: kafka.admin.create_acls(bindings, request_timeout=REQUEST_TIMEOUT_S))
    for future in futures.values():
        await kafka.wait(future)


async def create(call: Call) -> Response:
    """POST .../acls: creates an ACL."""
    await shapes_of(call)
    await _create(call, [await call.body()])
    return Response(status_code=201)


async def create_batch(call: Call) -> Response:
    """POST .../acls:batch: creates ACLs."""
    await shapes_of(call)
    rows = require_list(await call.body(), "data")
    if not 0 < len(rows) <= BATCH_MAX:
        raise HttpError(400, f"data has {len(rows)} ACLs; 1 to {BATCH_MAX} are allowed", 400)
    await _create(call, rows)
    return Response(status_code=201)


async def delete(call: Call) -> Response:
    """DELETE .../acls: deletes the ACLs that match the query."""
    shapes, wanted, kafka = await shapes_of(call), _filter(call, needed=True), call.services.kafka
    found = await kafka.only(lambda: kafka.admin.delete_acls([wanted], request_timeout=REQUEST_TIMEOUT_S))
    return answer({"data": [_row(shapes, held) for held in found]})


ROUTES: Final[tuple[tuple[str, str, Work], ...]] = (
    ("GET", f"{BASE}/acls", search),
    ("POST", f"{BASE}/acls", create),
    ("DELETE", f"{BASE}/acls", delete),
    ("POST", f"{BASE}/acls:batch", create_batch),
)
