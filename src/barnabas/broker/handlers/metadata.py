"""Metadata (key 3), versions 0 to 13: brokers, topics, who leads what.

In version 0 an empty list means all topics; from 1 on null does. Since 4 the client says whether an unknown
topic may be created, 10 topics have ids, 12 they may be asked for by id alone.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from barnabas.broker.context import Context
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
    from barnabas.broker.server import BrokerServer
    from barnabas.cores.cluster_image import TopicImage

NULL_MEANS_ALL_FROM: Final = 1
AUTO_CREATE_SAID_FROM: Final = 4
IDS_ALONE_FROM: Final = 12
WHOLE_ANSWERS_MAX: Final = 8
OPERATIONS_UNKNOWN: Final = -(1 << 31)
# Every operation bit that Kafka defines for a topic and for the cluster: without an authorizer, all are allowed.
TOPIC_OPERATIONS: Final = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


class Whole(NamedTuple):
    """What the answer about all topics depends on."""

    changes: int
    topology: int
    version: int
    endpoints: tuple[object, ...]
    topic_operations: bool
    cluster_operations: bool


class WholeAnswers:
    """Answers about all topics: with 10,000 partitions one takes 20 ms to make, and nothing else runs meanwhile.

    The last few are kept while nothing changes. Everybody may see everything as long as there is no authorizer;
    what one principal may see has to become part of the key then.
    """

    def __init__(self) -> None:
        self._kept: dict[Whole, Encoded] = {}

    def get(self, context: Context, request: MetadataRequest) -> Encoded:
        broker = context.broker
        key = Whole(
            broker.image.changes,
            broker.partitions.topology,
            context.version,
            tuple(broker.endpoints_for(context.connection)),
            request.include_topic_authorized_operations,
            request.include_cluster_authorized_operations,
        )
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= WHOLE_ANSWERS_MAX or any(k.changes != key.changes for k in self._kept):
                self._kept.clear()
            answer = _answer(context, request, None, {})
            found = self._kept[key] = Encoded(answer.API_KEY, answer.encode(context.version))
        return found


_WHOLE: Final[WeakKeyDictionary[BrokerServer, WholeAnswers]] = WeakKeyDictionary()


def handle(
    context: Context, request: MetadataRequest
) -> MetadataResponse | Encoded | Awaitable[MetadataResponse]:
    asked = _asked(context, request)
    if asked is None and context.broker.shard.dispatcher.quotas is None:
        return _WHOLE.setdefault(context.broker, WholeAnswers()).get(context, request)
    may_create = request.allow_auto_topic_creation or context.version < AUTO_CREATE_SAID_FROM
    if asked is not None and may_create and context.broker.auto_create_topics:
        absent = [
            topic.name for topic in asked if topic.name and topic.name not in context.broker.image.topics
        ]
        if absent:
            return _create_and_answer(context, request, asked, absent)
    return _answer(context, request, asked, {})


def _asked(context: Context, request: MetadataRequest) -> list[MetadataRequestTopic] | None:
    if not request.topics and context.version < NULL_MEANS_ALL_FROM:
        return None
    return request.topics


async def _create_and_answer(
    context: Context, request: MetadataRequest, asked: list[MetadataRequestTopic], absent: list[str]
) -> MetadataResponse:
    refused: dict[str, ErrorCode] = {}
    charge = partial(context.broker.quotas.charge_mutation, context, strict=False)
    for name in absent:
        try:
            await context.broker.auto_create(name, charge)
        except ApiError as error:
            refused[name] = error.code
    return _answer(context, request, asked, refused)


def _answer(
    context: Context,
    request: MetadataRequest,
    asked: list[MetadataRequestTopic] | None,
    refused: dict[str, ErrorCode],
) -> MetadataResponse:
    broker = context.broker
    image = broker.image
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else OPERATIONS_UNKNOWN
    if asked is None:
        topics = [_topic(context, image.topics[name], operations) for name in sorted(image.topics)]
    else:
        topics = [_one(context, topic, refused, operations) for topic in asked]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.endpoints_for(context.connection)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_UNKNOWN
        ),
    )


def _one(
    context: Context, asked: MetadataRequestTopic, refused: dict[str, ErrorCode], operations: int
) -> MetadataResponseTopic:
    image = context.broker.image
    if context.version < IDS_ALONE_FROM and (asked.name is None or asked.topic_id != ZERO_UUID):
        return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=asked.name or "")
    if asked.name is None or asked.topic_id != ZERO_UUID:
        return _by_id(context, asked.topic_id, operations)
    topic = image.topics.get(asked.name)
    if topic is not None:
        return _topic(context, topic, operations)
    error = (
        refused.get(asked.name)
        or context.broker.name_error(asked.name)
        or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    return MetadataResponseTopic(error_code=error, name=asked.name)


def _by_id(context: Context, topic_id: UUID, operations: int) -> MetadataResponseTopic:
    topic = context.broker.image.by_id.get(topic_id)
    if topic is None:
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return _topic(context, topic, operations)


def _topic(context: Context, topic: TopicImage, operations: int) -> MetadataResponseTopic:
    # A partition whose log dir has failed has no leader; producers without keys go to the others.
    offline = context.broker.partitions.offline_of(topic.name)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        topic_authorized_operations=operations,
        partitions=[
            MetadataResponsePartition(
                error_code=(
                    ErrorCode.NONE
                    if partition.leader >= 0 and index not in offline
                    else ErrorCode.LEADER_NOT_AVAILABLE
                ),
                partition_index=index,
                leader_id=-1 if index in offline else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=list(partition.replicas) if index in offline else [],
            )
            for index, partition in sorted(topic.partitions.items())
        ],
    )
