"""DescribeShareGroupOffsets (key 90), versions 0 and 1: the start offsets of share groups, and since 1 their lag.

The lag counts the offsets from the start offset on that are not finished. A partition whose state has no start offset
yet has offset and lag -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.shares.share_group_describe import describe
from barnabas.broker.coordinators.shares.ends import ends_of
from barnabas.cores.group.share.state import ShareKey, ShareState
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

UNKNOWN: Final = -1


async def handle(
    context: Context, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """The topics that are named, or all that the group has begun to read; topics that the client may not see have
    TOPIC_AUTHORIZATION_FAILED if they are named, and are left out otherwise.
    """
    pace, groups = Pace(context.services.clock), []
    for asked in request.groups:
        await pace.rest()
        groups.append(await _group(context, asked, pace))
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _group(
    context: Context, asked: DescribeShareGroupOffsetsRequestGroup, pace: Pace
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = asked.group_id
    reply = await describe(context, group_id)
    if reply.error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group_id, error_code=reply.error, error_message=reply.message
        )
    if asked.topics is None:
        wanted = [
            (name, sorted(indexes)) for _, name, indexes in reply.initialized if context.sees_topic(name)
        ]
    else:
        wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    topics = []
    for name, indexes in wanted:
        await pace.rest()
        topics.append(await _topic(context, pace, group_id, name, sorted(dict.fromkeys(indexes))))
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=topics)


async def _topic(
    context: Context, pace: Pace, group_id: str, name: str, indexes: list[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = DescribeShareGroupOffsetsResponseTopic(topic_name=name, partitions=[])
    is_seen = context.sees_topic(name)
    topic_id = context.services.partitions.id_of(name) if is_seen else None
    if topic_id is not None:
        topic.topic_id = topic_id
    async for piece in pace.pieces(indexes):
        known: dict[int, DescribeShareGroupOffsetsResponsePartition] = {}
        for index in piece:
            row = DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, start_offset=UNKNOWN, lag=UNKNOWN
            )
            topic.partitions.append(row)
            if not is_seen:
                row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic_id is None or not context.services.partitions.exists(name, index):
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                row.error_message = f"there is no {name}-{index}"
            else:
                known[index] = row
        if topic_id is not None and known:
            keys = {index: ShareKey(group_id, topic_id, index) for index in known}
            await _fill(context, name, known, keys)
    return topic


async def _fill(
    context: Context,
    name: str,
    rows: Mapping[int, DescribeShareGroupOffsetsResponsePartition],
    keys: Mapping[int, ShareKey],
) -> None:
    """Fill in what the share coordinators have stored, and the lag up to the partitions' ends."""
    persister = context.services.shares.persister
    asked = {index: persister.summary(key) for index, key in keys.items()}
    begun: dict[int, ShareState] = {}
    for index, answer in asked.items():
        row, reply = rows[index], await answer
        if reply.error is not ErrorCode.NONE:
            row.error_code, row.error_message = reply.error, reply.message
        elif reply.state is not None and reply.state.start_offset >= 0:
            begun[index] = reply.state
    services = context.services
    ends = await ends_of(services.partitions, services.image, services.peers, name, begun)
    for index, state in begun.items():
        row = rows[index]
        end = ends[index]
        if isinstance(end, ApiError):
            row.error_code, row.error_message = end.code, end.message
            continue
        row.start_offset, row.leader_epoch = state.start_offset, state.leader_epoch
        row.lag = max(end - state.start_offset - max(state.delivery_complete_count, 0), 0)
