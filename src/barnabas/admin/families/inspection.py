"""What only Barnabas's own brokers tell: who is connected, what clients push of their metrics, which records are damaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import each_node
from barnabas.admin.values import NodeId, Offset, TimestampMs, TopicPartition
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.wire.messages import api_name
from barnabas.wire.messages import client_metrics as wire_metrics
from barnabas.wire.messages import connected_clients as wire_clients
from barnabas.wire.messages import describe_damage as wire_damage

MISPLACED: Final = "misplaced"
"""The kind of damage that loses no record."""


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A connection. software: its name and version, empty before 2019. apis: the versions it has used, by API.
    received_bytes, sent_bytes: by the broker, with encryption; None if it does not tell."""

    client_id: str | None
    software: str
    address: str
    listener: str
    principal: str
    connected_ms: int
    idle_ms: int
    apis: Mapping[str, int]
    received_bytes: int | None = None
    sent_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Conversion:
    """Records that a broker converted for an old client. direction: of the records, `produce` or `fetch`."""

    client_id: str
    software: str
    direction: str
    requests: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Clients:
    """Who is connected to a broker, and whose records it has converted."""

    clients: Sequence[ConnectedClient]
    conversions: Sequence[Conversion]


@dataclass(frozen=True, slots=True)
class PushedMetric:
    """One metric of a client."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class ClientInstance:
    """What one client has pushed last. pushes: how often it has pushed."""

    instance_id: UUID
    client_id: str
    software: str
    address: str
    received_ms: TimestampMs
    pushes: int
    metrics: Sequence[PushedMetric]


@dataclass(frozen=True, slots=True)
class DamagedPlace:
    """A part of a log that cannot be read. kind: `damaged`, `misplaced` (read elsewhere) or `missing`."""

    partition: TopicPartition
    kind: str
    file: str
    position: int
    size_bytes: int
    first_offset: Offset
    last_offset: Offset
    reason: str

    @property
    def records(self) -> int:
        """How many offsets cannot be read."""
        return 0 if self.kind == MISPLACED else self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """What a broker has just read of a partition. next_offset: where to go on; None at the end."""

    places: Sequence[DamagedPlace]
    checked_bytes: int
    left_bytes: int
    next_offset: Offset | None


class AsyncInspection:
    """`AsyncAdmin.inspection`. Brokers other than Barnabas fail with UnsupportedByBroker."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def clients(self) -> Results[NodeId, Clients]:
        """The clients of each broker."""

        async def ask(connection: AsyncConnection) -> Clients:
            answer = await connection.call(
                wire_clients.ConnectedClientsRequest(), wire_clients.ConnectedClientsResponse
            )
            _check(answer.error_code, answer.error_message, "list the clients of", connection)
            return Clients(
                [_client(row) for row in answer.clients],
                [
                    Conversion(
                        row.client_id, row.software, row.direction, row.requests, row.records, row.size_bytes
                    )
                    for row in answer.conversions
                ],
            )

        return await each_node(self._cluster, None, ask)

    async def client_metrics(self, prefix: str = "") -> Results[NodeId, Sequence[ClientInstance]]:
        """The newest metrics that clients have pushed to each broker, those whose names begin with `prefix`."""

        async def ask(connection: AsyncConnection) -> Sequence[ClientInstance]:
            answer = await connection.call(
                wire_metrics.ClientMetricsRequest(name_prefix=prefix), wire_metrics.ClientMetricsResponse
            )
            _check(answer.error_code, answer.error_message, "read the clients' metrics of", connection)
            return [_instance(row) for row in answer.clients]

        return await each_node(self._cluster, None, ask)

    async def damage(self) -> Results[NodeId, Sequence[DamagedPlace]]:
        """The damage that each broker has met since it was started."""

        async def ask(connection: AsyncConnection) -> Sequence[DamagedPlace]:
            answer = await connection.call(
                wire_damage.DescribeDamageRequest(), wire_damage.DescribeDamageResponse
            )
            _check(answer.error_code, answer.error_message, "read the damage of", connection)
            return [_place(row) for row in answer.places]

        return await each_node(self._cluster, None, ask)

    async def check(self, node: int, partition: tuple[str, int], offset: int = 0) -> CheckedPart:
        """Have a broker read its log of a partition from an offset on, as much as takes a moment. Raises ClientError."""

        async def ask(connection: AsyncConnection) -> CheckedPart:
            request = wire_damage.DescribeDamageRequest(
                topic=partition[0], partition=partition[1], base_offset=offset
            )
            answer = await connection.call(request, wire_damage.DescribeDamageResponse)
            _check(
                answer.error_code, answer.error_message, f"check {TopicPartition(*partition)} on", connection
            )
            return CheckedPart(
                [_place(row) for row in answer.places],
                answer.checked_bytes,
                answer.left_bytes,
                Offset(answer.next_base_offset) if answer.next_base_offset >= 0 else None,
            )

        return (await each_node(self._cluster, [node], ask))[NodeId(node)]


class Inspection(Family[AsyncInspection]):
    """`Admin.inspection`."""

    clients = blocking(AsyncInspection.clients)
    client_metrics = blocking(AsyncInspection.client_metrics)
    damage = blocking(AsyncInspection.damage)
    check = blocking(AsyncInspection.check)


def _check(code: int, message: str | None, action: str, connection: AsyncConnection) -> None:
    if code:
        raise ResourceError(code, action, connection.address, message)


def _client(row: wire_clients.ConnectedClient) -> ConnectedClient:
    return ConnectedClient(
        row.client_id,
        f"{row.software_name} {row.software_version}".strip(),
        row.address,
        row.listener,
        row.principal,
        row.connected_ms,
        row.idle_ms,
        {api_name(used.api_key): used.api_version for used in row.apis},
        row.received_bytes if row.received_bytes >= 0 else None,
        row.sent_bytes if row.sent_bytes >= 0 else None,
    )


def _instance(row: wire_metrics.ClientInstance) -> ClientInstance:
    return ClientInstance(
        row.instance_id,
        row.client_id,
        f"{row.software_name} {row.software_version}".strip(),
        row.address,
        TimestampMs(row.received_ms),
        row.pushes,
        [
            PushedMetric(metric.name, {label.key: label.value for label in metric.labels}, metric.value)
            for metric in row.metrics
        ],
    )


def _place(row: wire_damage.DamagedPlace) -> DamagedPlace:
    return DamagedPlace(
        TopicPartition(row.topic, row.partition),
        row.kind,
        row.file,
        row.position,
        row.size_bytes,
        Offset(row.first_offset),
        Offset(row.last_offset),
        row.reason,
    )
