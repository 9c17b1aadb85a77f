"""The topic behind a table: created when it is missing, and checked."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient, NewTopic
from barnabas.client.errors import BrokerError, ClientError
from barnabas.records.units import Offset
from barnabas.wire.errors import ErrorCode

log = logging.getLogger("barnabas.client")

LARGEST_DEFAULT: Final = 1_048_588
"""max.message.bytes where it is not known."""
NOT_ALLOWED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


@dataclass(frozen=True, slots=True)
class CompactedTopic:
    """A topic with one partition. what: its records, in sentences. replication: of a new topic; -1: the brokers' default."""

    name: str
    what: str
    replication: int = -1


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """start, end: the offsets that the topic has. record_bytes_max: the largest batch that it takes."""

    start: Offset
    end: Offset
    record_bytes_max: int
    cluster_id: str


def prepare(client: BlockingClient, topic: CompactedTopic) -> TopicFacts:
    """Create the topic if it does not exist, and check it. Raises ClientError."""
    name = topic.name
    if name not in client.describe([name]):
        configs = {"cleanup.policy": "compact"}
        client.create_topics([NewTopic(name, 1, topic.replication, configs)], exist_ok=True)
    try:
        configs_of_topic = client.topic_configs(name)
    except BrokerError as error:
        if error.code not in NOT_ALLOWED:
            raise
        log.warning("a topic's options cannot be checked", extra={"topic": name, "reason": str(error)})
        configs_of_topic = {"cleanup.policy": "compact"}
    policy = configs_of_topic.get("cleanup.policy") or ""
    if "compact" not in policy or "delete" in policy:
        raise ClientError(
            f"topic {name} has cleanup.policy={policy}, which would delete {topic.what}; set it to compact with "
            f"`barnabas config set topic {name} cleanup.policy=compact`"
        )
    if len(client.partitions(name)) != 1:
        raise ClientError(f"topic {name} has more than one partition; {topic.what} must be in a single one")
    largest = int(configs_of_topic.get("max.message.bytes") or LARGEST_DEFAULT)
    start, end = bounds(client, name)
    return TopicFacts(start, end, largest, client.cluster.cluster_id or "")


def bounds(client: BlockingClient, name: str) -> tuple[Offset, Offset]:
    """The first offset of the topic, and the offset of its next record. Raises ClientError."""
    start = client.list_offsets({(name, 0): EARLIEST})[name, 0].offset
    return start, client.list_offsets({(name, 0): LATEST})[name, 0].offset
