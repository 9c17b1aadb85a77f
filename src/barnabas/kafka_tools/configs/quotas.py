"""Client quotas: reading and writing them, for kafka-configs and `barnabas quota`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.admin import Admin, Match, QuotaEntity, QuotaFilter
from barnabas.kafka_tools.shared.common import ToolError

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


def read(admin: Admin, wanted: Mapping[str, str | None]) -> list[tuple[Entity, Mapping[str, float]]]:
    """Quotas of the entities of exactly these kinds. The name None stands for all, "" for the default. Raises
    ResourceError.
    """
    filters = [
        QuotaFilter(kind, Match.ANY if name is None else Match.EXACT if name else Match.DEFAULT, name or None)
        for kind, name in wanted.items()
    ]
    quotas = admin.quotas.describe(filters, strict=bool(wanted))
    return [(dict(entity.names), limits) for entity, limits in quotas.items()]


def write(admin: Admin, entity: Entity, add: Mapping[str, str], remove: Sequence[str]) -> None:
    """Set and remove quotas of one entity. Raises ToolError, ResourceError."""
    changes: dict[str, float | None] = {}
    for name, text in add.items():
        if name not in NAMES:
            raise ToolError(f"Unknown quota {name}; there are {', '.join(NAMES)}")
        try:
            changes[name] = float(text)
        except ValueError:
            raise ToolError(f"Cannot parse quota configuration value for {name}: {text}") from None
    changes |= dict.fromkeys(remove)
    admin.quotas.alter({QuotaEntity.of(entity): changes}).require()


def title(entity: Entity) -> str:
    """An entity as Kafka's tool names it."""
    order = [kind for kind in ("user", "client-id", "ip") if kind in entity]
    return ", ".join(
        DEFAULT_TITLES[kind] if entity[kind] is None else f"{TITLES[kind]} '{entity[kind]}'" for kind in order
    )
