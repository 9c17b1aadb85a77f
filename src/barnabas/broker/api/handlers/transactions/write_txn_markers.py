"""WriteTxnMarkers (key 27), versions 0 to 2: ends of transactions, sent by other brokers or by an administrator.

An administrator ends a transaction that hangs in a partition, that is, one that its coordinator no longer knows. Since 2
it carries the transaction version, which determines how strictly the epoch is compared. The right to act as a broker of the
cluster suffices, and so does the right to alter the cluster (KIP-1037).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import by_topic
from barnabas.broker.partitions.acknowledgement import Acknowledgement, all_ready
from barnabas.cores.acl import Operation
from barnabas.cores.decision import Producer
from barnabas.runtime.pace import in_pieces
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

WAIT_MS_MAX: Final = 30_000

Pending = list[tuple[WritableTxnMarkerPartitionResult, Acknowledgement]]


async def handle(context: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """An error code for each partition, once the markers are acknowledged."""
    pending: Pending = []
    results: list[WritableTxnMarkerResult] = []
    allowed = context.allows_cluster(Operation.CLUSTER_ACTION, quietly=True) or context.allows_cluster(
        Operation.ALTER
    )

    def write() -> Iterator[None]:
        for marker in request.markers:
            topics: list[WritableTxnMarkerTopicResult] = []
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
            for topic, indexes in by_topic(
                marker.topics, lambda t: t.name, lambda t: t.partition_indexes, lambda p: p
            ):
                rows: list[WritableTxnMarkerPartitionResult] = []
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=rows))
                for index in indexes:
                    if allowed:
                        rows.append(_write(context, marker, topic.name, index, pending))
                    else:
                        rows.append(_refused(index, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
                    yield

    await in_pieces(asyncio.get_running_loop(), context.services.clock, write())
    await all_ready([acknowledgement for _, acknowledgement in pending], WAIT_MS_MAX)
    for result, acknowledgement in pending:
        if acknowledgement.error is not None:
            result.error_code = acknowledgement.error.code
    return WriteTxnMarkersResponse(markers=results)


def _refused(index: int, code: ErrorCode) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)


def _write(
    context: Context, marker: WritableTxnMarker, topic: str, index: int, pending: Pending
) -> WritableTxnMarkerPartitionResult:
    result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.NONE)
    try:
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a marker names a producer id and its epoch")
        acknowledgement = context.services.transactions.markers.append(
            topic,
            index,
            Producer(marker.producer_id, marker.producer_epoch),
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
    except ApiError as error:
        result.error_code = error.code
        return result
    if not acknowledgement.is_ready:
        pending.append((result, acknowledgement))
    return result
