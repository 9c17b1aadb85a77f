"""DescribeLogDirs (key 35), versions 0 to 5: each log dir with the sizes of the logs in it. A partition that is being
moved appears twice: in its new dir `is_future_key` marks it, with the number of records that are still missing there.

Since 3 an error code for the whole request, since 4 the size and the free space of the disk.
"""

from __future__ import annotations

from collections import defaultdict

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation
from barnabas.runtime.pace import Pace
from barnabas.storage.dirs.log_manager import DirUsage
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """A row for each log dir; sizes and disk space are in bytes, `offset_lag` counts records. An offline dir has
    KAFKA_STORAGE_ERROR and no topics.
    """
    if not context.allows_cluster(Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    pace, usages = Pace(context.services.clock), context.services.partitions.logs.usage()
    await pace.rest()
    return DescribeLogDirsResponse(results=[await _described(pace, usage, wanted) for usage in usages])


async def _described(
    pace: Pace, usage: DirUsage, wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    if usage.offline:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=usage.path)
    by_topic: defaultdict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    async for piece in pace.pieces(sorted(usage.logs.items())):
        for name, current in piece:
            if wanted is None or (name.topic, name.partition) in wanted:
                # Only future logs have a lag: it says how much is still to be copied.
                by_topic[name.topic].append(
                    DescribeLogDirsPartition(
                        partition_index=name.partition, partition_size=current.size_bytes
                    )
                )
    for name, move in sorted(usage.futures.items()):
        if wanted is None or (name.topic, name.partition) in wanted:
            by_topic[name.topic].append(
                DescribeLogDirsPartition(
                    partition_index=name.partition,
                    partition_size=move.future.size_bytes,
                    offset_lag=move.lag,
                    is_future_key=True,
                )
            )
    return DescribeLogDirsResult(
        log_dir=usage.path,
        topics=[DescribeLogDirsTopic(name=topic, partitions=rows) for topic, rows in by_topic.items()],
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
    )
