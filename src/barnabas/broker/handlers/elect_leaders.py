"""ElectLeaders (key 43), versions 0 to 2: give leadership back to preferred replicas, or to any that is left.

Partitions that lack nothing are ELECTION_NOT_NEEDED where they are named, and left out where all are asked for. On a
single broker nothing else is left to elect: a partition without a leader has its only replica offline.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.broker.context import Context
from barnabas.cores.cluster_image import NO_LEADER
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1


def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    topics = context.broker.image.topics
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        asked = ((name, topics[name].partitions) for name in sorted(topics))
    else:
        asked = ((one.topic, one.partitions) for one in request.topic_partitions)
    found = [
        ReplicaElectionResult(
            topic=name,
            partition_result=[
                one
                for one in (_elected(context, request.election_type, name, index) for index in indexes)
                if request.topic_partitions is not None or one.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ],
        )
        for name, indexes in asked
    ]
    return ElectLeadersResponse(replica_election_results=[one for one in found if one.partition_result])


def _elected(context: Context, kind: int, name: str, index: int) -> PartitionResult:
    topic = context.broker.image.topics.get(name)
    partition = topic.partitions.get(index) if topic is not None else None
    if partition is None:
        code, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{index}."
    elif partition.leader == NO_LEADER:
        code, text = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if kind == PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"No replica of {name}-{index} is online.",
        )
    else:
        code, text = ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    return PartitionResult(partition_id=index, error_code=code, error_message=text)
