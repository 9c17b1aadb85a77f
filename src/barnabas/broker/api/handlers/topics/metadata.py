"""Metadata (key 3), versions 0 to 13: brokers, topics, and the leaders of partitions.

In version 0 an empty list means all topics; from 1 on null does. Since 4 the client says whether an unknown topic may be
created, since 10 topics have ids, since 12 topics may be requested by id alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import once
from barnabas.broker.api.handlers.topics.rows import partition_rows
from barnabas.config import broker_log
from barnabas.cores.acl import Operation, ResourceType
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.header import Encoded
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.cores.cluster_image import TopicImage

NULL_MEANS_ALL_FROM: Final = 1
AUTO_CREATE_SAID_FROM: Final = 4
IDS_ALONE_FROM: Final = 12
ANSWERS_KEPT_MAX: Final = 8
LARGE_ANSWER_ROWS: Final = 1_000
"""An answer with more rows (partitions, and topics that do not exist) is not made in one turn of the loop."""
CREATION_WAIT_S: Final = 2.0
OPERATIONS_UNKNOWN: Final = -(1 << 31)


class Key(NamedTuple):
    """What a cached answer depends on. asked: names and ids, None for all topics."""

    asked: tuple[tuple[str | None, int], ...] | None
    changes: int
    topology: int
    version: int
    endpoints: tuple[object, ...]
    topic_operations: bool
    cluster_operations: bool
    reader: tuple[str, str]


class Answers:
    """Caches encoded answers about all topics, and about topics with thousands of partitions.

    With 10,000 partitions an answer takes 20 ms or more to make, so it is made in a thread, or in many turns of the loop if
    there is an authorizer, which belongs to the loop. The last few answers are kept while nothing changes. With an
    authorizer, each principal at each address has separate answers; `changes` grows with every change of access rules.
    """

    def __init__(self) -> None:
        self._kept: dict[Key, Encoded] = {}
        self._making: dict[Key, asyncio.Future[Encoded]] = {}

    def get(
        self, context: Context, request: MetadataRequest, asked: list[MetadataRequestTopic] | None
    ) -> Encoded | Awaitable[Encoded]:
        """The encoded answer: a cached one, or a new one that is cached while the cluster does not change."""
        services = context.services
        key = Key(
            None if asked is None else tuple(map(_name_of, asked)),
            services.image.changes,
            services.partitions.topology,
            context.version,
            tuple(services.endpoints.all(context.connection)),
            request.include_topic_authorized_operations,
            request.include_cluster_authorized_operations,
            ("", "")
            if services.authorizer is None
            else (context.connection.principal, context.connection.plain_host),
        )
        kept = self._kept.get(key)
        if kept is not None:
            return kept

        def make() -> Encoded:
            answer = _answer(context, request, asked, {})
            return Encoded(answer.API_KEY, answer.encode(key.version))

        if _rows_asked(services, asked) <= LARGE_ANSWER_ROWS:
            return self._keep(key, make())
        making = self._making.get(key)
        if making is None:
            if services.authorizer is None:
                making = services.loop.run_in_executor(None, make)
            else:
                making = asyncio.ensure_future(_encoded_in_pieces(context, request, asked))
            self._making[key] = making
            making.add_done_callback(lambda _: self._making.pop(key, None))
        return self._shared_answer(key, making, services)

    async def _shared_answer(self, key: Key, making: asyncio.Future[Encoded], services: Services) -> Encoded:
        """An answer that is being made; all requests for the same answer share the result.

        A change made meanwhile is visible or not, topic by topic, as in any answer that crosses a change on its way.
        """
        answer = await asyncio.shield(making)
        if (services.image.changes, services.partitions.topology) == (key.changes, key.topology):
            self._keep(key, answer)
        return answer

    def _keep(self, key: Key, answer: Encoded) -> Encoded:
        if len(self._kept) >= ANSWERS_KEPT_MAX or any(kept.changes != key.changes for kept in self._kept):
            self._kept.clear()
        self._kept[key] = answer
        return answer


def _rows_asked(services: Services, asked: list[MetadataRequestTopic] | None) -> int:
    image = services.image
    if asked is None:
        return sum(len(topic.partitions) for topic in image.topics.values())
    topics = (image.topics.get(topic.name or "") or image.by_id.get(topic.topic_id) for topic in asked)
    return sum(1 if topic is None else len(topic.partitions) for topic in topics)


_ANSWERS: Final[WeakKeyDictionary[Services, Answers]] = WeakKeyDictionary()


def handle(
    context: Context, request: MetadataRequest
) -> MetadataResponse | Encoded | Awaitable[MetadataResponse | Encoded]:
    """All brokers and the topics that were asked for; a topic that does not exist is created first if the client and the
    options allow it.
    """
    asked = _asked(context, request)
    services = context.services
    may_create = request.allow_auto_topic_creation or context.version < AUTO_CREATE_SAID_FROM
    refused: dict[str, ErrorCode] = {}
    if asked is not None and may_create and services.config.get(broker_log.AUTO_CREATE_TOPICS_ENABLE):
        absent = [
            topic.name
            for topic in asked
            if topic.name and topic.name not in services.image.topics and context.sees_topic(topic.name)
        ]
        # A client that was told "unknown" would ask again until its time is up.
        refused = {
            name: ErrorCode.TOPIC_AUTHORIZATION_FAILED for name in absent if not _may_create(context, name)
        }
        if len(refused) < len(absent):
            return _create_and_answer(
                context, request, asked, [name for name in absent if name not in refused], refused
            )
    # With quotas, the answer contains the client's throttle time and cannot be shared. Names that a client makes up must
    # not fill the cache.
    if not services.quotas.in_use and (
        asked is None or (_rows_asked(services, asked) > LARGE_ANSWER_ROWS and _all_exist(services, asked))
    ):
        return _ANSWERS.setdefault(services, Answers()).get(context, request, asked)
    if _rows_asked(services, asked) > LARGE_ANSWER_ROWS:
        return _answer_in_pieces(context, request, asked, refused)
    return _answer(context, request, asked, refused)


def _name_of(topic: MetadataRequestTopic) -> tuple[str | None, int]:
    """What tells topics of a request apart; a number is quicker to compare than a UUID."""
    return topic.name, topic.topic_id.int


def _all_exist(services: Services, asked: list[MetadataRequestTopic]) -> bool:
    image = services.image
    return all(topic.name in image.topics or topic.topic_id in image.by_id for topic in asked)


def _asked(context: Context, request: MetadataRequest) -> list[MetadataRequestTopic] | None:
    if not request.topics and context.version < NULL_MEANS_ALL_FROM:
        return None
    return request.topics


def _may_create(context: Context, name: str) -> bool:
    """Whether an unknown topic, which the peer may see, may be created for it."""
    return context.allows_cluster(Operation.CREATE, quietly=True) or context.allows(
        Operation.CREATE, ResourceType.TOPIC, name
    )


async def _create_and_answer(
    context: Context,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic],
    absent: list[str],
    refused: dict[str, ErrorCode],
) -> MetadataResponse:
    """Wait for a limited time until the topics are created: other requests of this connection wait behind this one.

    refused: topics that cannot be created, with the error of each; those that fail here are added.
    """
    charge = partial(context.services.quotas.charge_mutation, context, strict=False)
    making = {
        name: asyncio.ensure_future(_refusal(context.services.controller.topics.auto_create(name, charge)))
        for name in absent
    }
    await asyncio.wait(making.values(), timeout=CREATION_WAIT_S)
    for name, task in making.items():
        # The creation goes on; the client retries, as clients of Kafka always have to.
        code = task.result() if task.done() else ErrorCode.LEADER_NOT_AVAILABLE
        if code is not None:
            refused[name] = code
    return await _answer_in_pieces(context, request, asked, refused)


async def _refusal(creation: Awaitable[None]) -> ErrorCode | None:
    try:
        await creation
    except ApiError as error:
        return error.code
    return None


def _answer(
    context: Context,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic] | None,
    refused: dict[str, ErrorCode],
) -> MetadataResponse:
    return _around(context, request, list(_rows(context, request, asked, refused)))


async def _answer_in_pieces(
    context: Context,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic] | None,
    refused: dict[str, ErrorCode],
) -> MetadataResponse:
    pace, topics = Pace(context.services.clock), []
    for row in _rows(context, request, asked, refused):
        topics.append(row)
        await pace.rest()
    return _around(context, request, topics)


async def _encoded_in_pieces(
    context: Context, request: MetadataRequest, asked: list[MetadataRequestTopic] | None
) -> Encoded:
    answer = await _answer_in_pieces(context, request, asked, {})
    body = await context.services.loop.run_in_executor(None, answer.encode, context.version)
    return Encoded(answer.API_KEY, body)


def _rows(
    context: Context,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic] | None,
    refused: dict[str, ErrorCode],
) -> Iterator[MetadataResponseTopic]:
    image = context.services.image
    operations = request.include_topic_authorized_operations
    if asked is None:
        for name in sorted(image.topics):
            topic_image = image.topics.get(name)  # it may be deleted while the rows are made
            if topic_image is not None and context.sees_topic(name):
                yield _topic(context, topic_image, operations)
    else:
        for topic in once(asked, _name_of):
            yield _one(context, topic, refused, operations)


def _around(
    context: Context, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    services = context.services
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in services.endpoints.all(context.connection)
        ],
        cluster_id=services.controller.cluster_id,
        controller_id=services.image.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            context.operations(ResourceType.CLUSTER)
            if request.include_cluster_authorized_operations
            else OPERATIONS_UNKNOWN
        ),
    )


def _one(
    context: Context, asked: MetadataRequestTopic, refused: dict[str, ErrorCode], operations: bool
) -> MetadataResponseTopic:
    image = context.services.image
    if context.version < IDS_ALONE_FROM and (asked.name is None or asked.topic_id != ZERO_UUID):
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "")
    if asked.name is None or asked.topic_id != ZERO_UUID:
        return _by_id(context, asked.topic_id, operations)
    if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, asked.name):
        return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=asked.name)
    topic = image.topics.get(asked.name)
    if topic is not None:
        return _topic(context, topic, operations)
    error = (
        refused.get(asked.name)
        or context.services.controller.topics.name_error(asked.name)
        or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    return MetadataResponseTopic(error_code=error, name=asked.name)


def _by_id(context: Context, topic_id: UUID, operations: bool) -> MetadataResponseTopic:
    topic = context.services.image.by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        return MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id
        )
    return _topic(context, topic, operations)


def _topic(context: Context, topic: TopicImage, operations: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=(
            context.operations(ResourceType.TOPIC, topic.name) if operations else OPERATIONS_UNKNOWN
        ),
        partitions=partition_rows(context.services, topic, MetadataResponsePartition),
    )
