"""librdkafka behind the HTTP services: one configuration, calls that do not block the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from barnabas.client.tls import for_librdkafka
from barnabas.http.errors import HttpError
from barnabas.proxy.direct import Direct
from barnabas.proxy.errors import from_exception

T = TypeVar("T")

REQUEST_TIMEOUT_S: Final = 20.0
ADMIN_THREADS: Final = 16
QUIET_LOG_LEVEL: Final = 2


class PartitionView(NamedTuple):
    """A partition's replicas by broker id. leader: -1 while there is none."""

    id: int
    leader: int
    replicas: list[int]
    isrs: list[int]


class TopicView(NamedTuple):
    """A topic with its partitions by number."""

    topic: str
    partitions: dict[int, PartitionView]


class Kafka:
    """A cluster. properties: librdkafka's names, `bootstrap.servers` among them."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties = for_librdkafka(properties)
        self.admin_threads = ThreadPoolExecutor(ADMIN_THREADS, "rest admin")
        self.direct = Direct(properties)
        self._admin: Any = None
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
    def admin(self) -> Any:
        """The AdminClient, created when it is first needed."""
        if self._admin is None:
            names = [n for n in self.properties if n.startswith(("security.", "sasl.", "ssl.", "socket."))]
            kept = {name: self.properties[name] for name in [*names, "bootstrap.servers"]}
            self._admin = AdminClient({"client.id": "rest-proxy", "log_level": QUIET_LOG_LEVEL, **kept})
        return self._admin

    async def call(self, work: Callable[[], T]) -> T:
        """Run a blocking function in a thread. Raises HttpError if Kafka refuses or does not answer."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self.admin_threads, work)
        except KafkaException as error:
            raise from_exception(error) from error
        except (TypeError, ValueError) as error:  # confluent-kafka's refusal of an argument
            raise HttpError(400, str(error), 40002) from error

    async def result(self, begin: Callable[[], concurrent.futures.Future[T]]) -> T:
        """The result of an admin call. Raises HttpError."""
        return await self.wait(await self.call(begin))

    async def wait(self, future: concurrent.futures.Future[T]) -> T:
        """Wait for the result of an admin call. Raises HttpError."""
        try:
            return await asyncio.wrap_future(future)
        except KafkaException as error:
            raise from_exception(error) from error
        except (TypeError, ValueError) as error:
            raise HttpError(400, str(error), 40002) from error

    async def only(self, begin: Callable[[], Mapping[Any, concurrent.futures.Future[T]]]) -> T:
        """The result of an admin call for a single resource. Raises HttpError."""
        return await self.result(lambda: next(iter(begin().values())))

    async def metadata(self) -> Any:
        """Brokers, topics and partitions. Raises HttpError."""
        return await self.call(lambda: self.admin.list_topics(timeout=REQUEST_TIMEOUT_S))

    async def cluster_id(self) -> str:
        """The cluster's id, asked for once. Raises HttpError."""
        if not self._cluster_id:
            self._cluster_id = str((await self.metadata()).cluster_id or "unknown")
        return self._cluster_id

    async def topic(self, name: str) -> TopicView:
        """One topic; does not create it, as librdkafka's metadata request would. Raises HttpError 404 if missing."""
        wanted = TopicCollection([name])
        held = await self.only(lambda: self.admin.describe_topics(wanted, request_timeout=REQUEST_TIMEOUT_S))
        partitions = {
            p.id: PartitionView(
                p.id,
                -1 if p.leader is None else p.leader.id,
                [node.id for node in p.replicas],
                [node.id for node in p.isr],
            )
            for p in held.partitions
        }
        return TopicView(name, dict(sorted(partitions.items())))

    async def offsets(self, partitions: Sequence[TopicPartition], spec: Any) -> dict[tuple[str, int], int]:
        """The offsets of partitions that `spec` asks for, by topic and partition. Raises HttpError."""
        if not partitions:
            return {}
        wanted = {TopicPartition(p.topic, p.partition): spec for p in partitions}
        futures = await self.call(lambda: self.admin.list_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S))
        return {
            (place.topic, place.partition): (await self.wait(future)).offset
            for place, future in futures.items()
        }

    async def offsets_of(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the offset of the next record. Raises HttpError."""
        place = [TopicPartition(topic, partition)]
        first = await self.offsets(place, OffsetSpec.earliest())
        last = await self.offsets(place, OffsetSpec.latest())
        return first[topic, partition], last[topic, partition]

    def close(self) -> None:
        """Stop the threads."""
        self.admin_threads.shutdown(wait=False, cancel_futures=True)
        self.direct.close()
        self._admin = None
