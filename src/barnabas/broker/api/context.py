"""What a handler receives besides the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.cores.acl import CLUSTER_NAME, SUPPORTED, Operation, ResourceType

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.broker.net.connection import Connection
    from barnabas.broker.partitions.fetching import ParkedFetch
    from barnabas.runtime.timing import Timing

R = TypeVar("R")


class Context:
    """The context of one request: the client, its connection and the version it speaks."""

    __slots__ = (
        "begun_s", "client_id", "connection", "correlation_id", "services", "throttle_ms", "timing", "version",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        connection: Connection,
        version: int,
        correlation_id: int,
        client_id: str | None,
        timing: Timing,
    ) -> None:
        self.services = services
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.timing = timing
        self.begun_s = 0.0
        """When the broker's thread began to work on the request, in s; 0 while it does not, and when time is not counted."""
        self.throttle_ms = 0
        """For how long the connection is not read after the answer."""

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it in group descriptions: "/127.0.0.1"."""
        return "/" + self.connection.host

    @property
    def principal(self) -> str:
        """The peer as quotas and access rules name it: "User:alice"."""
        return self.connection.principal

    def allows(self, operation: Operation, kind: ResourceType, name: str, *, quietly: bool = False) -> bool:
        """Whether the peer may do this; always true without an authorizer. quietly: a denial is not logged."""
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.allows(
            self.connection, operation, kind, name, quietly=quietly
        )

    def allows_cluster(self, operation: Operation, *, quietly: bool = False) -> bool:
        """As `allows`, for the cluster as a whole."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, quietly=quietly)

    def sees_topic(self, name: str) -> bool:
        """Whether the peer may know that a topic exists."""
        return self.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, quietly=True)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What the peer may do with a resource, as bits."""
        authorizer = self.services.authorizer
        if authorizer is None:
            return sum(1 << operation for operation in SUPPORTED[kind])
        return authorizer.operations(self.connection, kind, name)

    async def answer_of(self, waiter: ParkedFetch[R]) -> R:
        """The result of a parked fetch, which is cancelled when its connection closes."""
        self.connection.call_when_closed(waiter, waiter.give_up)
        self.connection.parked = waiter
        try:
            return await waiter.future
        finally:
            self.connection.parked = None
            self.connection.call_off(waiter)
