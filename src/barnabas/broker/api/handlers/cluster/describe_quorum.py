"""DescribeQuorum (key 55), versions 0 to 2: who leads the cluster's metadata, and who votes.

There is no KRaft quorum here. The controller answers as a quorum of one: it leads, with its controller epoch as the leader
epoch, and is the only voter. Offsets count the metadata changes that this broker has seen since it started.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.context import Context
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)

METADATA_TOPIC: Final = "__cluster_metadata"


def handle(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The quorum of the metadata topic's partition 0; UNKNOWN_TOPIC_OR_PARTITION if the request asks for anything else."""
    asked = [
        (topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, 0)]:
        return _unknown(request)
    services = context.services
    image, now_ms = services.image, services.clock.now_ms()
    voter = ReplicaState(
        replica_id=image.controller_id,
        log_end_offset=image.changes,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    quorum = PartitionDataResponse(
        error_message=None,
        leader_id=image.controller_id,
        leader_epoch=image.controller_epoch,
        high_watermark=image.changes,
        current_voters=[voter],
    )
    own = services.endpoints.own(context.connection)
    listener = Listener(name=context.connection.listener, host=own.host, port=own.port)
    return DescribeQuorumResponse(
        error_message=None,
        topics=[TopicDataResponse(topic_name=METADATA_TOPIC, partitions=[quorum])],
        nodes=[Node(node_id=own.node_id, listeners=[listener])],
    )


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """The answer for partitions other than the metadata partition, the only one that has a quorum."""
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeQuorumResponse(
        error_message=None,
        topics=[
            TopicDataResponse(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionDataResponse(
                        partition_index=part.partition_index,
                        error_code=error,
                        error_message=f"only {METADATA_TOPIC}-0 has a quorum",
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
