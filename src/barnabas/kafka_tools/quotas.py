"""Client quotas: reading and writing them, for kafka-configs and `barnabas quota`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.kafka_tools.common import Admin, ToolError, check_code, java_error
from barnabas.wire.messages import alter_client_quotas as alter
from barnabas.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
TITLES: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
DEFAULT_TITLES: Final = {
    "user": "the default user-principal",
    "client-id": "the default client-id",
    "ip": "the default ip",
}
NAMES: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)

Entity = dict[str, str | None]
"""Kind (user, client-id, ip) to name; None is the kind's default."""


def read(admin: Admin, wanted: Mapping[str, str | None]) -> list[tuple[Entity, dict[str, float]]]:
    """Quotas of the entities of exactly these kinds. The name None stands for all, "" for the default. Raises
    ToolError.
    """
    components = [
        ComponentData(
            entity_type=kind,
            match_type=ANY if name is None else EXACT if name else DEFAULT,
            match=name or None,
        )
        for kind, name in wanted.items()
    ]
    answer: Any = admin.any(
        DescribeClientQuotasRequest(components=components, strict=bool(wanted)), DescribeClientQuotasResponse
    )
    check_code(answer.error_code, answer.error_message, "cannot read the quotas")
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or []
    ]


def write(admin: Admin, entity: Entity, add: Mapping[str, str], remove: Sequence[str]) -> None:
    """Set and remove quotas of one entity. Raises ToolError."""
    ops = []
    for name, text in add.items():
        if name not in NAMES:
            raise ToolError(f"Unknown quota {name}; there are {', '.join(NAMES)}")
        try:
            ops.append(alter.OpData(key=name, value=float(text), remove=False))
        except ValueError:
            raise ToolError(f"Cannot parse quota configuration value for {name}: {text}") from None
    ops += [alter.OpData(key=name, value=0.0, remove=True) for name in remove]
    rows = [alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = alter.AlterClientQuotasRequest(
        entries=[alter.EntryData(entity=rows, ops=ops)], validate_only=False
    )
    for result in admin.controller(request, alter.AlterClientQuotasResponse).entries:
        if result.error_code:
            raise ToolError(java_error(result.error_code, result.error_message))


def title(entity: Entity) -> str:
    """An entity as Kafka's tool names it."""
    order = [kind for kind in ("user", "client-id", "ip") if kind in entity]
    return ", ".join(
        DEFAULT_TITLES[kind] if entity[kind] is None else f"{TITLES[kind]} '{entity[kind]}'" for kind in order
    )
