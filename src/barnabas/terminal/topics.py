"""What commands that produce ask about their topic first."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from barnabas.admin import ConfigKind, ConfigResource
from barnabas.client.errors import BrokerError
from barnabas.terminal.administering import administering
from barnabas.terminal.connection import (
    BATCH_BYTES,
    RECORD_BYTES_MAX,
    REQUEST_TIMEOUT_SECONDS,
    ClusterAddress,
    explain,
)
from barnabas.terminal.errors import CliError
from barnabas.terminal.output import count_of
from barnabas.wire.errors import ErrorCode

LOOK_SECONDS: Final = 3.0
"""How long a command asks for the reason of a failure."""
TOPIC_PATIENCE_SECONDS: Final = {KafkaError.UNKNOWN_TOPIC_OR_PART: 1.0, KafkaError.LEADER_NOT_AVAILABLE: 5.0}
"""How long to wait for a topic: a new one has no leader yet, and an unknown one may never be created."""


def batch_limits(
    connection: ClusterAddress, topic: str, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
) -> dict[str, Any]:
    """Producer settings that keep a batch within the topic's max.message.bytes; empty when not known. Raises CliError
    if this is the first contact with the cluster and no broker answers, or the login is refused.

    A broker refuses a batch that is too large as a whole, with all its records. Within these limits a record that
    is too large is sent alone.
    """
    is_first = not connection.probed
    resource = ConfigResource(ConfigKind.TOPIC, topic)
    try:
        with administering(connection, timeout_seconds) as admin:
            # Nothing if the topic does not exist yet, or we may not describe it.
            options = admin.configs.describe([resource], names=["max.message.bytes"]).done.get(resource, {})
    except CliError:
        if is_first:
            raise
        return {}
    limit = options.get("max.message.bytes")
    if limit is None or limit.value is None:
        return {}
    limit_bytes = int(limit.value)
    return {
        "batch.size": min(limit_bytes, BATCH_BYTES),
        "message.max.bytes": min(max(8 * limit_bytes, BATCH_BYTES), RECORD_BYTES_MAX),
    }


def too_few_replicas(connection: ClusterAddress, topic: str) -> str:
    """Which partition has fewer replicas in sync than min.insync.replicas; empty if none has, or nobody answers."""
    resource = ConfigResource(ConfigKind.TOPIC, topic)
    try:
        with administering(connection, LOOK_SECONDS) as admin:
            partitions = admin.topics.describe([topic])[topic].partitions
            least = int(admin.configs.describe([resource])[resource]["min.insync.replicas"].value or 0)
    except (CliError, KeyError):
        return ""
    for part in partitions:
        if len(part.in_sync) < least:
            there = count_of(len(part.in_sync), "in-sync replica")
            return (
                f"partition {part.number} of {topic} has {there}, and min.insync.replicas is {least}; "
                "start the other brokers, or lower that option"
            )
    return ""


def read_only_copy(connection: ClusterAddress, topic: str) -> str:
    """Why a topic that a link copies cannot be written; empty if it is no copy, or nobody answers."""
    try:
        with administering(connection, LOOK_SECONDS) as admin:
            return admin.links.why_read_only(topic)
    except CliError:
        return ""


def lacks_topic(connection: ClusterAddress, topic: str) -> bool:
    """Whether the cluster says that there is no such topic; this request does not create it. Raises CliError."""
    resource = ConfigResource(ConfigKind.TOPIC, topic)
    with administering(connection) as admin:
        error = admin.configs.describe([resource]).failed.get(resource)
    return isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def require_topic(producer: Any, topic: str) -> None:
    """Wait until the topic exists: the request creates it if the broker creates topics automatically. Raises
    CliError.
    """
    began = time.monotonic()
    while True:
        try:
            metadata = producer.list_topics(topic, timeout=30).topics[topic]
        except KafkaException as error:
            raise CliError(f"cannot read the metadata of {topic}: {explain(error.args[0])}") from None
        if metadata.error is None:
            return
        patience = TOPIC_PATIENCE_SECONDS.get(metadata.error.code(), 0.0)
        if time.monotonic() - began > patience:
            why = explain(metadata.error)
            if patience:
                why = f"{metadata.error.str()}; `barnabas topic create {topic}` creates it"
            raise CliError(f"cannot produce to {topic}: {why}")
        time.sleep(0.05)
