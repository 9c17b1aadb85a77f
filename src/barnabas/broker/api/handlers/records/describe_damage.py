"""DescribeDamage (key 30002, our own), version 0: what `barnabas verify log` and `barnabas status` show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.storage.logs.log import Log
from barnabas.storage.segments.damage import Place, View, check, known, views
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.describe_damage import (
    DamagedPlace,
    DescribeDamageRequest,
    DescribeDamageResponse,
)

STEP_BYTES: Final = 64 << 20
"""One request stops reading segments once it has read this much."""
PLACES_MAX: Final = 10_000


async def handle(context: Context, request: DescribeDamageRequest) -> DescribeDamageResponse:
    """Without a topic, the places that were met since the start. With one, the segments from `base_offset` on are read
    now, and `next_base_offset` says where to continue, -1 at the end.
    """
    try:
        if request.topic is None:
            return await _known(context)
        return await _checked(context, request.topic, request.partition, request.base_offset)
    except ApiError as error:
        return DescribeDamageResponse(error_code=error.code, error_message=error.message)
    except OSError as error:
        return DescribeDamageResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(error))


async def _known(context: Context) -> DescribeDamageResponse:
    """The damage met in all partitions since the start."""
    services = context.services
    rows: list[DamagedPlace] = []
    for name, log in services.partitions.logs.logs.copy().items():
        if any(segment.damaged for segment in log.segments) and len(rows) < PLACES_MAX:
            seen = views(log.segments, log.log_end_offset)
            places = await services.loop.run_in_executor(None, list, known(seen))
            rows += _rows(name.topic, name.partition, _above(places, log))
    return DescribeDamageResponse(places=rows[:PLACES_MAX])


async def _checked(context: Context, topic: str, index: int, base_offset: int) -> DescribeDamageResponse:
    """Check some segments of one partition by reading them now. Raises ApiError, OSError."""
    services = context.services
    partition = services.partitions.require(topic, index)
    if partition.offline is not None:
        raise partition.unavailable()
    log = partition.log
    todo = [view for view in views(log.segments, log.log_end_offset) if view.ceiling > base_offset]
    compacted = log.config.compact or log.first_dirty_offset > 0
    places: list[Place] = []
    checked_bytes, next_base_offset = 0, -1
    for view in todo:
        if checked_bytes >= STEP_BYTES or len(places) >= PLACES_MAX:
            next_base_offset = view.segment.base_offset
            break
        async with services.partitions.checking:
            places += await services.loop.run_in_executor(None, _check, view, compacted)
        checked_bytes += view.size_bytes
    return DescribeDamageResponse(
        places=_rows(topic, index, _above(places, log)),
        checked_bytes=checked_bytes,
        left_bytes=sum(view.size_bytes for view in todo) - checked_bytes,
        next_base_offset=next_base_offset,
    )


def _check(view: View, compacted: bool) -> list[Place]:
    try:
        return list(
            check(view.path, view.size_bytes, view.segment.base_offset, view.ceiling, compacted=compacted)
        )
    except FileNotFoundError:
        return []  # retention or compaction has removed it meanwhile


def _above(places: Iterable[Place], log: Log) -> list[Place]:
    """The places that are not entirely below the log's start, where damage affects nobody."""
    start = log.log_start_offset
    return [
        place._replace(first_offset=max(place.first_offset, start))
        for place in places
        if place.last_offset >= start or place.last_offset < place.first_offset
    ]


def _rows(topic: str, partition: int, places: Iterable[Place]) -> list[DamagedPlace]:
    return [DamagedPlace(topic=topic, partition=partition, **place._asdict()) for place in places]
