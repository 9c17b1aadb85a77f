"""AlterPartitionReassignments (key 45), versions 0 and 1: move replicas to other brokers, or cancel a move.

Only the controller moves replicas. Version 1 can refuse to change the number of replicas (KIP-860).
"""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.reassignment import Move
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """A result for each partition: INVALID_REPLICA_ASSIGNMENT, or NO_REASSIGNMENT_IN_PROGRESS where a move is to be
    called off and there is none.
    """
    pace = Pace(context.services.clock)
    moves = []
    for topic in request.topics:
        await pace.rest()
        moves += [
            Move(
                topic.name,
                partition.partition_index,
                None if partition.replicas is None else tuple(partition.replicas),
                request.allow_replication_factor_change,
            )
            for partition in topic.partitions
        ]
    try:
        refused = await context.services.controller.reassigning.alter(moves)
    except ApiError as error:
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=error.code,
            error_message=error.message,
            responses=[],
        )
    rows = []
    for topic in request.topics:
        await pace.rest()
        partitions = [
            _row(partition.partition_index, refused.get((topic.name, partition.partition_index)))
            for partition in topic.partitions
        ]
        rows.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=rows,
    )


def _row(index: int, error: ApiError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
