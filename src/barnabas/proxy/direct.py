"""Requests that librdkafka does not support: the default options of all brokers, synonyms of options, reassignments.

They are sent by our own client, in one thread, because it is not thread-safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import AuthenticationFailed, BrokerError, BrokerUnavailable, ClientError
from barnabas.client.options import ClientOptions
from barnabas.http.errors import HttpError
from barnabas.proxy.errors import KAFKA_ERROR, RETRIABLE_ERROR, from_kafka
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.wire.messages.incremental_alter_configs import (
    DELETE,
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

T = TypeVar("T")

DEADLINE_S: Final = 15.0


class Kind(IntEnum):
    """A kind of resource that has options."""

    TOPIC = 2
    BROKER = 4


class Owner(NamedTuple):
    """The owner of options: a topic, a broker, or all brokers together (BROKER with an empty name)."""

    kind: Kind
    name: str


class Move(NamedTuple):
    """A reassignment in progress: the brokers that are to be added to a partition's replicas, and removed from them."""

    topic: str
    partition: int
    adding: list[int]
    removing: list[int]


class Direct:
    """Our client in a thread. properties: Kafka's client options. It connects with the first request."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = {name: str(value) for name, value in properties.items()}
        self._thread = ThreadPoolExecutor(1, "rest direct")
        self._client: BlockingClient | None = None

    async def configs(self, owner: Owner) -> list[Any]:
        """All options, sorted by name. Raises HttpError."""
        return await self._run(lambda client: _configs(client, owner))

    async def alter(
        self, owner: Owner, changes: Sequence[tuple[str, str | None]], *, validate_only: bool = False
    ) -> None:
        """Set options; None resets one to its default. Raises HttpError."""
        await self._run(lambda client: _alter(client, owner, changes, validate_only))

    async def moves(self, topic: str | None = None, partitions: Sequence[int] = ()) -> list[Move]:
        """Reassignments in progress, of partitions of one topic, or of all topics. Raises HttpError."""
        return await self._run(lambda client: _moves(client, topic, partitions))

    async def _run(self, work: Callable[[BlockingClient], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._with_client, work)

    def _with_client(self, work: Callable[[BlockingClient], T]) -> T:
        try:
            if self._client is None:
                options = ClientOptions.from_kafka(self._properties)
                self._client = BlockingClient(
                    replace(
                        options, deadline_s=DEADLINE_S, contact_timeout_s=1.0, request_timeout_s=DEADLINE_S
                    )
                )
            return work(self._client)
        except BrokerError as error:
            raise from_kafka(KafkaError(error.code, str(error))) from error
        except AuthenticationFailed as error:
            raise HttpError(401, str(error), 40101) from error
        except BrokerUnavailable as error:
            self._forget()
            raise HttpError(500, f"{error}; the same request may succeed later", RETRIABLE_ERROR) from error
        except ClientError as error:
            raise HttpError(500, str(error), KAFKA_ERROR) from error
        except BaseException:
            self._forget()  # a request may have been sent only in part
            raise

    def _forget(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        """Close the client and stop the thread."""
        self._thread.submit(self._forget)
        self._thread.shutdown(wait=False)


def _connection(client: BlockingClient, owner: Owner) -> Any:
    """A connection to the broker that owns the options; to any broker for those of topics and of all brokers."""
    client.cluster.refresh()
    if owner.kind is not Kind.BROKER or not owner.name:
        return client.cluster.any()
    if int(owner.name) not in client.cluster.brokers:
        raise HttpError(404, f"Broker {owner.name} cannot be found.")
    return client.cluster.node(int(owner.name))


def _configs(client: BlockingClient, owner: Owner) -> list[Any]:
    resource = DescribeConfigsResource(
        resource_type=int(owner.kind), resource_name=owner.name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    answer = client.cluster.retry(
        lambda: client.call(_connection(client, owner), request, DescribeConfigsResponse)
    )
    result = answer.results[0]
    if result.error_code:
        raise BrokerError(result.error_code, "describing options", result.error_message)
    return sorted(result.configs, key=lambda entry: str(entry.name))


def _alter(
    client: BlockingClient, owner: Owner, changes: Sequence[tuple[str, str | None]], validate_only: bool
) -> None:
    rows = [
        AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in changes
    ]
    resource = AlterConfigsResource(resource_type=int(owner.kind), resource_name=owner.name, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = client.cluster.retry(
        lambda: client.call(_connection(client, owner), request, IncrementalAlterConfigsResponse)
    )
    for result in answer.responses:
        if result.error_code:
            raise BrokerError(result.error_code, "changing options", result.error_message)


def _moves(client: BlockingClient, topic: str | None, partitions: Sequence[int]) -> list[Move]:
    wanted = (
        None
        if topic is None
        else [ListPartitionReassignmentsTopics(name=topic, partition_indexes=list(partitions))]
    )
    request = ListPartitionReassignmentsRequest(topics=wanted, timeout_ms=int(DEADLINE_S * 1000))

    def attempt() -> Any:
        client.cluster.refresh()
        controller = client.cluster.controller
        connection = client.cluster.node(controller) if controller >= 0 else client.cluster.any()
        answer = client.call(connection, request, ListPartitionReassignmentsResponse)
        if answer.error_code:
            raise BrokerError(answer.error_code, "listing reassignments", answer.error_message)
        return answer

    return [
        Move(row.name, p.partition_index, list(p.adding_replicas), list(p.removing_replicas))
        for row in client.cluster.retry(attempt).topics
        for p in row.partitions
    ]
