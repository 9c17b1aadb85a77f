"""OffsetForLeaderEpoch (key 23), versions 0 to 4: the offset at which a leader epoch ended in a partition's log.

A consumer asks after a change of leader, to find out whether the records it has read are still valid. Since 1 the answer
also has the epoch, since 2 the client sends the leader epoch that it knows, since 3 the replica id of the asking broker.
"""

from __future__ import annotations

from functools import partial

from barnabas.broker.api.context import Context
from barnabas.records.units import LeaderEpoch
from barnabas.runtime.pace import Pace
from barnabas.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


async def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """A row for each partition, with epoch and offset -1 if the epoch is not known; FENCED_LEADER_EPOCH if the client
    knows an older leader epoch.
    """
    pace, answer = Pace(context.services.clock), OffsetForLeaderEpochResponse()
    for topic in request.topics:
        rows = await pace.map(partial(_answer, context, topic.topic), topic.partitions)
        answer.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
        await pace.rest()
    return answer


def _answer(context: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition, leader_epoch=-1, end_offset=-1)
    partition = context.services.partitions.get(topic, asked.partition)
    if partition is None:
        answer.error_code = context.services.partitions.why_missing(topic, asked.partition)
        return answer
    answer.error_code = partition.leader_error(asked.current_leader_epoch)
    if not answer.error_code:
        end = partition.end_of_epoch(LeaderEpoch(asked.leader_epoch))
        answer.leader_epoch, answer.end_offset = end.epoch, end.end_offset
    return answer
