"""AlterReplicaLogDirs (key 34), versions 0 to 2: move partitions to other log dirs of this broker.

The answer says that a move has begun; DescribeLogDirs shows its progress. Naming the dir that a partition is in
cancels its move. A partition that does not exist here yet will be created in the named dir.
"""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.errors import LogDirOffline, LogDirUnknown, NameTooLong, PartitionUnknown
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """An error code for each partition: LOG_DIR_NOT_FOUND if the broker has no such dir, REPLICA_NOT_AVAILABLE if the
    partition is on other brokers only, KAFKA_STORAGE_ERROR if a dir is offline.
    """
    wanted = {
        TopicPartition(topic.name, index): log_dir.path
        for log_dir in request.dirs
        for topic in log_dir.topics
        for index in topic.partitions
    }
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for name, path in wanted.items():
        row = results.setdefault(name.topic, AlterReplicaLogDirTopicResult(topic_name=name.topic))
        row.partitions.append(
            AlterReplicaLogDirPartitionResult(
                partition_index=name.partition,
                error_code=_begin(context, name, path),
            )
        )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _begin(context: Context, name: TopicPartition, path: str) -> ErrorCode:
    services = context.services
    if not context.allows_cluster(Operation.ALTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    partition = services.partitions.get(*name)
    if partition is not None and partition.offline is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        services.moving.begin(name, path)
    except LogDirUnknown:
        return ErrorCode.LOG_DIR_NOT_FOUND
    except LogDirOffline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    except NameTooLong:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    except PartitionUnknown:
        topic = services.image.topics.get(name.topic)
        known = topic is not None and name.partition in topic.partitions
        return ErrorCode.REPLICA_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
