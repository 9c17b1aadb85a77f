"""Quotas of users, client ids and addresses. Since Kafka 2.6."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import spread, to_controller
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError
from barnabas.wire.messages import alter_client_quotas as wire_alter
from barnabas.wire.messages import describe_client_quotas as wire_describe

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
LIMITS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
"""The names of all limits."""
DEFAULT: Final = None
"""As a name: everybody who has no quota of their own."""


class EntityPart(NamedTuple):
    """One part of an entity. kind: USER, CLIENT_ID or IP. name: DEFAULT for the default of the kind."""

    kind: str
    name: str | None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name is not None else f"the default {self.kind}"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Whom a quota limits: a user, a client id, a client id of a user, or an address."""

    parts: frozenset[EntityPart]

    @classmethod
    def of(cls, parts: Mapping[str, str | None]) -> QuotaEntity:
        """`QuotaEntity.of({USER: "alice", CLIENT_ID: DEFAULT})`."""
        return cls(frozenset(EntityPart(kind, name) for kind, name in parts.items()))

    @property
    def names(self) -> Mapping[str, str | None]:
        """Names by kind."""
        return {part.kind: part.name for part in sorted(self.parts, key=lambda part: part.kind)}

    def __str__(self) -> str:
        return ", ".join(str(part) for part in sorted(self.parts, key=lambda part: part.kind))


class Match(IntEnum):
    """Which entities a filter takes; the numbers are the protocol's."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class QuotaFilter(NamedTuple):
    """Entities that have a part of this kind. name: with Match.EXACT only."""

    kind: str
    match: Match = Match.ANY
    name: str | None = None


class AsyncQuotas:
    """`AsyncAdmin.quotas`."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def describe(
        self, filters: Iterable[QuotaFilter] = (), *, strict: bool = False
    ) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """The limits by name (`producer_byte_rate`, ...) of each entity that matches all filters.

        strict: only entities without parts of other kinds. Raises ResourceError, UnsupportedByBroker.
        """
        components = [
            wire_describe.ComponentData(
                entity_type=wanted.kind,
                match_type=wanted.match,
                match=wanted.name if wanted.match is Match.EXACT else None,
            )
            for wanted in filters
        ]

        async def ask() -> Mapping[QuotaEntity, Mapping[str, float]]:
            connection = await self._cluster.any()
            request = wire_describe.DescribeClientQuotasRequest(components=components, strict=strict)
            answer = await connection.call(request, wire_describe.DescribeClientQuotasResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "describe", "quotas", answer.error_message)
            return {
                QuotaEntity(
                    frozenset(EntityPart(part.entity_type, part.entity_name) for part in entry.entity)
                ): {value.key: value.value for value in entry.values}
                for entry in answer.entries or ()
            }

        return await self._cluster.retry(ask)

    async def alter(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> Results[QuotaEntity, None]:
        """Set limits, or remove them (None), of each entity; its other limits stay."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[QuotaEntity]
        ) -> Mapping[QuotaEntity, ClientError | None]:
            entries = [
                wire_alter.EntryData(
                    entity=[
                        wire_alter.EntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity.names.items()
                    ],
                    ops=[
                        wire_alter.OpData(
                            key=key, value=0.0 if value is None else float(value), remove=value is None
                        )
                        for key, value in changes[entity].items()
                    ],
                )
                for entity in batch
            ]
            request = wire_alter.AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
            answer = await connection.call(request, wire_alter.AlterClientQuotasResponse)
            outcomes: dict[QuotaEntity, ClientError | None] = {}
            for row in answer.entries:
                parts = frozenset(EntityPart(part.entity_type, part.entity_name) for part in row.entity)
                entity = QuotaEntity(parts)
                outcomes[entity] = (
                    ResourceError(row.error_code, "change the quotas of", str(entity), row.error_message)
                    if row.error_code
                    else None
                )
            return outcomes

        return await spread(self._cluster, changes, to_controller(self._cluster), ask)


class Quotas(Family[AsyncQuotas]):
    """`Admin.quotas`."""

    describe = blocking(AsyncQuotas.describe)
    alter = blocking(AsyncQuotas.alter)
