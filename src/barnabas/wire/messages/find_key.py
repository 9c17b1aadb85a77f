"""FindKey (key 30008, our own): where in a partition records with a key may be, by its key index.

Not one of Kafka's: ApiVersions announces it to Barnabas' own client only. The ranges have all records with the key, and
others; what they leave out has none.
"""

from __future__ import annotations

from barnabas.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    bytes_,
    int16,
    int32,
    int64,
    string,
)


class FindKeyRequest(Request, key=30008, versions=(0, 0), flexible=0):
    topic: str = string()
    partition: int = int32()
    search_key: bytes = bytes_()


class KeyRange(Struct):
    first_offset: int = int64()
    last_offset: int = int64()


class FindKeyResponse(Response, key=30008, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    is_indexed: bool = boolean()
    """Whether the topic has a key index (`barnabas.key.index`); without one there are no ranges."""
    ranges: list[KeyRange] = array(KeyRange)
    """In order, without overlaps."""
    segments: int = int32()
    segments_skipped: int = int32()
    """Segments of which nothing is in a range."""
    records_skipped: int = int64()
    bytes_skipped: int = int64()
    bytes_unindexed: int = int64()
    """What the index does not cover yet, all of it in ranges."""
