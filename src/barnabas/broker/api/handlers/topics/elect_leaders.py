"""ElectLeaders (key 43), versions 0 to 2: move leadership back to preferred replicas, or to any replica that is left.

Partitions that need no election are answered with ELECTION_NOT_NEEDED if the request names them, and left out if it asks for
all partitions. Only the controller elects leaders.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.access import refuse
from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation
from barnabas.cores.elections import decide_preferred_leader, decide_unclean_leader
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1
DECIDE: Final = {PREFERRED: decide_preferred_leader, UNCLEAN: decide_unclean_leader}


async def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """A result for each partition; those whose leader is the preferred one already are left out unless they were named."""
    topics = context.services.image.topics
    if request.topic_partitions is None:
        asked = [(name, index) for name in sorted(topics) for index in topics[name].partitions]
    else:
        asked = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    decide = DECIDE.get(request.election_type)
    pace, all_named = Pace(context.services.clock), request.topic_partitions is not None
    try:
        if not context.allows_cluster(Operation.ALTER):
            asked = asked if request.topic_partitions is not None else []
            raise refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if decide is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{request.election_type} is not a type of election: 0 (preferred) or 1 (unclean)",
            )
        refused = await context.services.controller.elect(asked, decide)
    except ApiError as error:
        refused = dict.fromkeys(asked, error)
        return ElectLeadersResponse(
            error_code=error.code,
            replica_election_results=await _rows(pace, asked, refused, all_named=all_named),
        )
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE,
        replica_election_results=await _rows(pace, asked, refused, all_named=all_named),
    )


async def _rows(
    pace: Pace, asked: list[tuple[str, int]], refused: dict[tuple[str, int], ApiError], *, all_named: bool
) -> list[ReplicaElectionResult]:
    topics: dict[str, ReplicaElectionResult] = {}
    for name, index in asked:
        await pace.rest()
        topic = topics.setdefault(name, ReplicaElectionResult(topic=name, partition_result=[]))
        error = refused.get((name, index))
        if error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED and not all_named:
            continue
        topic.partition_result.append(
            PartitionResult(
                partition_id=index,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
        )
    return list(topics.values())
