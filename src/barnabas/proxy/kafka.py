"""The cluster behind the HTTP services: librdkafka for records, `barnabas.admin` for everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaException

from barnabas.admin import AsyncAdmin, Config, ConfigChange, ConfigResource, NodeId, Topic, TopicPartition
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.client.tls import for_librdkafka
from barnabas.http.errors import HttpError
from barnabas.proxy.errors import from_client, from_exception

T = TypeVar("T")

DEADLINE_S: Final = 15.0
CONTACT_S: Final = 1.0
THREADS: Final = 16
QUIET_LOG_LEVEL: Final = 2


class Kafka:
    """A cluster. properties: librdkafka's names, `bootstrap.servers` among them. Use it in one event loop."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties = for_librdkafka(properties)
        self.threads = ThreadPoolExecutor(THREADS, "rest kafka")
        self._own_properties = {name: str(value) for name, value in properties.items()}
        self._admin: AsyncAdmin | None = None
        self._cluster_id = ""

    def config(self, defaults: Mapping[str, Any], fixed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A client's configuration: the user's properties override `defaults`, and `fixed` overrides both."""
        return {
            "client.id": "rest-proxy",
            "log_level": QUIET_LOG_LEVEL,
            **defaults,
            **self.properties,
            **(fixed or {}),
        }

    @property
    def admin(self) -> AsyncAdmin:
        """The admin, created when it is first needed; its errors are those of the client, see `ask`. Raises HttpError."""
        if self._admin is None:
            self._admin = AsyncAdmin(self.client_options())
        return self._admin

    def client_options(self) -> ClientOptions:
        """How clients other than librdkafka reach the cluster. Raises HttpError."""
        try:
            options = ClientOptions.from_kafka({"client.id": "rest-proxy", **self._own_properties})
        except ClientError as error:
            raise from_client(error) from error
        return replace(
            options, deadline_s=DEADLINE_S, contact_timeout_s=CONTACT_S, request_timeout_s=DEADLINE_S
        )

    async def ask(self, request: Awaitable[T]) -> T:
        """The result of a request of `admin`. Raises HttpError if Kafka refuses or does not answer."""
        try:
            return await request
        except ClientError as error:
            raise from_client(error) from error

    async def call(self, work: Callable[[], T]) -> T:
        """Run a blocking function of librdkafka in a thread. Raises HttpError if Kafka refuses or does not answer."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self.threads, work)
        except KafkaException as error:
            raise from_exception(error) from error
        except (TypeError, ValueError) as error:  # confluent-kafka's refusal of an argument
            raise HttpError(400, str(error), 40002) from error

    async def topics(self) -> Mapping[str, Topic]:
        """All topics by name, in order. Raises HttpError."""
        return await self.ask(self.admin.topics.list())

    async def brokers(self) -> Sequence[NodeId]:
        """The ids of the brokers, in order. Raises HttpError."""
        return [broker.id for broker in (await self.ask(self.admin.cluster.describe())).brokers]

    async def cluster_id(self) -> str:
        """The cluster's id, asked for once. Raises HttpError."""
        if not self._cluster_id:
            self._cluster_id = (await self.ask(self.admin.cluster.describe())).id or "unknown"
        return self._cluster_id

    async def topic(self, name: str) -> Topic:
        """One topic. Raises HttpError 404 if it is missing."""

        async def describe() -> Topic:
            return (await self.admin.topics.describe([name]))[name]

        return await self.ask(describe())

    async def configs(self, resource: ConfigResource) -> Sequence[Config]:
        """All options, sorted by name. Raises HttpError."""

        async def describe() -> Sequence[Config]:
            configs_by_name = (await self.admin.configs.describe([resource], synonyms=True))[resource]
            return sorted(configs_by_name.values(), key=lambda config: config.name)

        return await self.ask(describe())

    async def alter(
        self, resource: ConfigResource, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change options. Raises HttpError."""

        async def alter() -> None:
            (await self.admin.configs.alter({resource: changes}, validate_only=validate_only)).require()

        await self.ask(alter())

    async def offsets(self, partitions: Iterable[tuple[str, int]], place: int) -> dict[tuple[str, int], int]:
        """The offset of a place in each partition, by topic and partition; -1 where there is none. Raises HttpError."""

        async def find() -> dict[tuple[str, int], int]:
            wanted = {TopicPartition(*key): place for key in partitions}
            offsets = (await self.admin.records.offsets(wanted)).require()
            return {
                (key.topic, key.partition): -1 if one.offset is None else one.offset
                for key, one in offsets.items()
            }

        return await self.ask(find())

    async def offsets_of(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the offset of the next record. Raises HttpError."""
        key = TopicPartition(topic, partition)

        async def find() -> tuple[int, int]:
            bounds = (await self.admin.records.bounds([key]))[key]
            return bounds.start, bounds.end

        return await self.ask(find())

    async def close(self) -> None:
        """Stop the threads and close the connections."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        if self._admin is not None:
            await self._admin.close()
            self._admin = None
