"""AlterPartitionReassignments (key 45), versions 0 and 1: move replicas to other brokers, or call a move off.

A single broker has nowhere to move replicas to: the assignment that a partition has already is accepted, everything
else refused with the reason that Kafka gives.
"""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.controller import require_topic
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_moved(context, topic.name, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _moved(context: Context, name: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
    try:
        _check(context, name, wanted)
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
    return result


def _check(context: Context, name: str, wanted: ReassignablePartition) -> None:
    """Raises ApiError unless the partition has exactly the wanted replicas."""
    image = context.services.image
    partition = require_topic(image, name).partitions.get(wanted.partition_index)
    if partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{wanted.partition_index}."
        )
    if wanted.replicas is None:
        raise ApiError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{name}-{wanted.partition_index} is not being moved."
        )
    if not wanted.replicas:
        raise _refused("The manual partition assignment includes an empty replica list.")
    if len(set(wanted.replicas)) < len(wanted.replicas):
        raise _refused(f"The manual partition assignment includes a broker twice: {wanted.replicas}.")
    unknown = [replica for replica in wanted.replicas if replica not in image.brokers]
    if unknown:
        raise _refused(
            f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
        )
    if tuple(wanted.replicas) != partition.replicas:
        raise _refused(
            f"{name}-{wanted.partition_index} lies on {list(partition.replicas)}; this version moves no replicas "
            "from broker to broker."
        )


def _refused(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
