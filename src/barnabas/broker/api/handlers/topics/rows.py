"""A topic's partitions as clients see them. Both Metadata and DescribeTopicPartitions get their rows here."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.cores.cluster_image import NO_LEADER
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.broker.api.services import Services
    from barnabas.cores.cluster_image import PartitionImage, TopicImage

Row = TypeVar("Row")


def partition_rows(
    services: Services, topic: TopicImage, row: Callable[..., Row], first: int = 0, limit: int | None = None
) -> list[Row]:
    """One row for each partition from the number `first` on, at most `limit`.

    row: the message's class, called with its fields. A partition whose leader has died, or whose log dir has failed on this
    broker, has no leader, so that producers without keys use the other partitions.
    """
    node_id, live = services.controller.node_id, services.image.brokers.keys()
    offline = services.partitions.offline_of(topic.name)
    partitions = sorted(topic.partitions.items())
    return [
        row(**_fields(topic.partitions[index], index, live - {node_id} if index in offline else live))
        for index, _ in islice(partitions, first, None if limit is None else first + limit)
    ]


def _fields(partition: PartitionImage, index: int, live: Collection[int]) -> dict[str, Any]:
    """live: the brokers on which a replica can be used."""
    leader = partition.leader if partition.leader in live else NO_LEADER
    return {
        "error_code": ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.isr),
        "offline_replicas": [replica for replica in partition.replicas if replica not in live],
    }
