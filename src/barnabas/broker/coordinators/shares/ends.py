"""Where partitions end for consumers, according to their leaders, on whichever broker these are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from barnabas.broker.net.peers import PeerLost, Peers
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.cores.cluster_image import ClusterImage

LIST_VERSION: Final = 6
LATEST: Final = -1
TIMEOUT_S: Final = 10.0


async def ends_of(
    partitions: Partitions, image: ClusterImage, peers: Peers, topic: str, indexes: Iterable[int]
) -> dict[int, int | ApiError]:
    """The high watermarks of partitions of one topic, or for each partition the error instead."""
    ends: dict[int, int | ApiError] = {}
    elsewhere: dict[int, list[int]] = {}
    for index in indexes:
        here = partitions.get(topic, index)
        known = image.partition(topic, index)
        if here is not None and here.is_leader:
            ends[index] = here.high_watermark
        elif known is None or known.leader < 0:
            ends[index] = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader")
        else:
            elsewhere.setdefault(known.leader, []).append(index)
    answers = await asyncio.gather(
        *(_ask(peers, leader, topic, asked) for leader, asked in elsewhere.items())
    )
    for of_leader in answers:
        ends.update(of_leader)
    return ends


async def _ask(peers: Peers, leader: int, topic: str, indexes: list[int]) -> dict[int, int | ApiError]:
    ends: dict[int, int | ApiError] = {
        index: ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"the leader of {topic}-{index} did not say")
        for index in indexes
    }
    rows = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=rows)])
    try:
        answer = await peers.call(leader, request, LIST_VERSION, TIMEOUT_S)
    except PeerLost as error:
        refusal = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {leader} does not answer: {error}")
        return dict.fromkeys(indexes, refusal)
    for of_topic in answer.topics:
        for row in of_topic.partitions:
            code = ErrorCode(row.error_code)
            ends[row.partition_index] = ApiError(code, code.name) if code else row.offset
    return ends
