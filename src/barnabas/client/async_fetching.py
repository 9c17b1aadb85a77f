"""Fetches of one partition for asynchronous callers."""

from __future__ import annotations

from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.errors import ClientError
from barnabas.client.fetching import Fetched, fetched_of
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic


async def fetch(
    cluster: AsyncCluster,
    topic: str,
    partition: int,
    offset: int,
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
