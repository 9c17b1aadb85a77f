"""DescribeDamage (key 30002, our own): which records of a broker's logs cannot be read.

Not one of Kafka's: ApiVersions announces it to Barnabas' own client only. Without a topic the answer holds what recovery and
readers have met since the broker's start. With one, a partition's segments are read from `base_offset` on, as many as
take a moment; `next_base_offset` is where the next request goes on, -1 at the end.
"""

from __future__ import annotations

from barnabas.wire.schema import Request, Response, Struct, array, int16, int32, int64, string


class DescribeDamageRequest(Request, key=30002, versions=(0, 0), flexible=0):
    topic: str | None = string(null="0+", default=None)
    partition: int = int32()
    base_offset: int = int64()


class DamagedPlace(Struct):
    topic: str = string()
    partition: int = int32()
    kind: str = string()
    """damaged, misplaced or missing, see storage/segments/damage.py."""
    file: str = string()
    position: int = int64()
    size_bytes: int = int64()
    first_offset: int = int64()
    last_offset: int = int64()
    reason: str = string()


class DescribeDamageResponse(Response, key=30002, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    places: list[DamagedPlace] = array(DamagedPlace)
    checked_bytes: int = int64()
    left_bytes: int = int64()
    next_base_offset: int = int64(default=-1)
