"""FindKey (key 30008, our own), version 0: where a key may be, for searches of the console."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.storage.segments.key_search import search
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.find_key import FindKeyRequest, FindKeyResponse, KeyRange


async def handle(context: Context, request: FindKeyRequest) -> FindKeyResponse:
    """Asks the filters in a thread."""
    services = context.services
    try:
        partition = services.partitions.require_leader(request.topic, request.partition)
        if partition.offline is not None:
            raise partition.unavailable()
        log = partition.log
        if not log.config.barnabas_key_index:
            return FindKeyResponse()
        ranges = await services.loop.run_in_executor(
            None, search, log.segments, log.log_end_offset, request.search_key
        )
    except ApiError as error:
        return FindKeyResponse(error_code=error.code, error_message=error.message)
    except OSError as error:
        return FindKeyResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))
    return FindKeyResponse(
        is_indexed=True,
        ranges=[KeyRange(first_offset=first, last_offset=last) for first, last in ranges.ranges],
        segments=ranges.segments,
        segments_skipped=ranges.segments_skipped,
        records_skipped=ranges.records_skipped,
        bytes_skipped=ranges.bytes_skipped,
        bytes_unindexed=ranges.bytes_unindexed,
    )
