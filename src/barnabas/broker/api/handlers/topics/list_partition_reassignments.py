"""ListPartitionReassignments (key 46), version 0: replicas that are being moved. Only the controller knows them."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.cluster_image import TopicImage
from barnabas.wire.errors import ApiError
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    context: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Of the named partitions, or of all partitions, those that are being moved."""
    try:
        context.services.controller.require_office()
    except ApiError as error:
        return ListPartitionReassignmentsResponse(
            error_code=error.code, error_message=error.message, topics=[]
        )
    topics = context.services.image.topics
    if request.topics is None:
        ongoing = [_ongoing(topic, set(topic.partitions)) for _, topic in sorted(topics.items())]
    else:
        ongoing = [
            _ongoing(topics[topic.name], set(topic.partition_indexes))
            for topic in request.topics
            if topic.name in topics
        ]
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[topic for topic in ongoing if topic.partitions]
    )


def _ongoing(topic: TopicImage, wanted: set[int]) -> OngoingTopicReassignment:
    return OngoingTopicReassignment(
        name=topic.name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
            for index, partition in sorted(topic.partitions.items())
            if index in wanted and (partition.adding or partition.removing)
        ],
    )
