"""ElectLeaders (key 43), versions 0 to 2: give leadership back to preferred replicas, or to any that is left.

Partitions that lack nothing are ELECTION_NOT_NEEDED where they are named, and left out where all are asked for. On a
single broker nothing else is left to elect: a partition without a leader has its only replica offline.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.broker.api.context import Context
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
    topics = context.services.image.topics
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        asked = ((name, topics[name].partitions) for name in sorted(topics))
    else:
        asked = ((partition.topic, partition.partitions) for partition in request.topic_partitions)
    found = [
        ReplicaElectionResult(
            topic=name,
            partition_result=[
                row
                for row in (_elected(context, request.election_type, name, index) for index in indexes)
                if request.topic_partitions is not None or row.error_code != ErrorCode.ELECTION_NOT_NEEDED
            ],
        )
        for name, indexes in asked
    ]
    known = request.election_type in (PREFERRED, UNCLEAN)
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if known else ErrorCode.INVALID_REQUEST, replica_election_results=found
    )


def _elected(context: Context, kind: int, name: str, index: int) -> PartitionResult:
    topic = context.services.image.topics.get(name)
    partition = topic.partitions.get(index) if topic is not None else None
    if kind not in (PREFERRED, UNCLEAN):
        code, text = ErrorCode.INVALID_REQUEST, f"{kind} is no type of election: 0 (preferred) or 1 (unclean)"
    elif partition is None:
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
