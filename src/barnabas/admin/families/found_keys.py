"""Where in partitions a key may be, by their key indexes, which only Barnabas's own brokers have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.admin.errors import ResourceError
from barnabas.admin.values import Offset, TopicPartition
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError
from barnabas.wire.messages import find_key as wire


@dataclass(frozen=True, slots=True)
class FoundKey:
    """What the key index of a partition says. ranges: offsets (both ends included) outside of which no record has the key.

    segments_skipped: those without a range. bytes_unindexed: what the index does not cover yet.
    """

    ranges: Sequence[tuple[Offset, Offset]]
    segments: int
    segments_skipped: int
    records_skipped: int
    bytes_skipped: int
    bytes_unindexed: int


async def find_key(
    connection: AsyncConnection, partition: TopicPartition, key: bytes
) -> FoundKey | ClientError | None:
    """Ask one broker about one partition; None if the topic has no key index. Raises ClientError."""
    request = wire.FindKeyRequest(topic=partition.topic, partition=partition.partition, search_key=key)
    answer = await connection.call(request, wire.FindKeyResponse)
    if answer.error_code:
        doing = "ask for a key"
        return ResourceError(answer.error_code, doing, f"partition {partition}", answer.error_message)
    if not answer.is_indexed:
        return None
    return FoundKey(
        [(Offset(row.first_offset), Offset(row.last_offset)) for row in answer.ranges],
        answer.segments,
        answer.segments_skipped,
        answer.records_skipped,
        answer.bytes_skipped,
        answer.bytes_unindexed,
    )
