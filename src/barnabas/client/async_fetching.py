"""Fetches of one partition for asynchronous callers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.errors import ClientError
from barnabas.client.fetching import Fetched, fetched_of, fetched_partition
from barnabas.records.units import Offset
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic


async def fetch(
    cluster: AsyncCluster,
    topic: str,
    partition: int,
    offset: Offset,
    *,
    max_bytes: int,
    max_wait_ms: int = 0,
    read_committed: bool = False,
) -> Fetched:
    """One fetch from the leader; `records` may be empty. The broker sends the first batch whole, however small max_bytes is.

    Raises OffsetOutOfRange, and what `AsyncCluster.retry` raises.
    """
    rows = [FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=rows)],
    )

    async def attempt() -> Fetched:
        place = (await cluster.leaders([(topic, partition)]))[topic, partition]
        if isinstance(place, ClientError):
            raise place
        connection = await cluster.node(place)
        answer = await connection.call(request, FetchResponse)
        return fetched_of(answer, topic, partition, offset, max_bytes)

    return await cluster.retry(attempt)


async def fetch_many(
    cluster: AsyncCluster,
    offsets: Mapping[tuple[str, int], Offset],
    *,
    partition_bytes: int,
    max_bytes: int,
    read_committed: bool = False,
) -> dict[tuple[str, int], Fetched | ClientError]:
    """What is there at these offsets now: one request to each leader, without waiting and without retries.

    Partitions for which there was no room in an answer are left out; the caller asks again for them. A failure that may come
    from a moved leader makes the next call look for leaders.
    """
    answers: dict[tuple[str, int], Fetched | ClientError] = {}
    by_node: dict[int, list[tuple[str, int]]] = {}
    for key, place in (await cluster.leaders(offsets)).items():
        if isinstance(place, ClientError):
            answers[key] = place
        else:
            by_node.setdefault(place, []).append(key)

    async def ask(node: int, keys: list[tuple[str, int]]) -> None:
        topics: dict[str, list[FetchPartition]] = {}
        for topic, number in keys:
            row = FetchPartition(
                partition=number, fetch_offset=offsets[topic, number], partition_max_bytes=partition_bytes
            )
            topics.setdefault(topic, []).append(row)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=rows) for topic, rows in topics.items()],
        )
        try:
            answer = await (await cluster.node(node)).call(request, FetchResponse)
        except ClientError as error:
            answers.update(dict.fromkeys(keys, error))
            return
        for topic_row in answer.responses:
            for row in topic_row.partitions:
                key = (topic_row.topic, row.partition_index)
                try:
                    answers[key] = fetched_partition(row, *key, offsets[key], max_bytes)
                except ClientError as error:
                    answers[key] = error

    await asyncio.gather(*(ask(node, keys) for node, keys in by_node.items()))
    if any(isinstance(outcome, ClientError) for outcome in answers.values()):
        cluster.forget_routes()
    return answers
