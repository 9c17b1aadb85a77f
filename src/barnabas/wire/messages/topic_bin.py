"""DescribeDeletedTopics, RestoreTopic and PurgeTopics (keys 30003 to 30005, our own): the bin of deleted topics.

Not among Kafka's: ApiVersions announces them to Barnabas' own client only. Sizes are those of the broker that answers.
"""

from __future__ import annotations

from uuid import UUID

from barnabas.wire.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class DescribeDeletedTopicsRequest(Request, key=30003, versions=(0, 0), flexible=0):
    pass


class DeletedTopic(Struct):
    name: str = string()
    topic_id: UUID = uuid()
    deleted_ms: int = int64()
    until_ms: int = int64()
    partitions: int = int32()
    size_bytes: int = int64()


class DescribeDeletedTopicsResponse(Response, key=30003, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    topics: list[DeletedTopic] = array(DeletedTopic)


class RestoreTopicRequest(Request, key=30004, versions=(0, 0), flexible=0):
    topic_id: UUID = uuid()
    name: str = string()
    """The name that it gets: that which it had, or another one."""


class RestoreTopicResponse(Response, key=30004, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    partitions: int = int32()


class PurgeTopicsRequest(Request, key=30005, versions=(0, 0), flexible=0):
    topic_ids: list[UUID] = array(uuid)


class PurgeTopicsResponse(Response, key=30005, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
