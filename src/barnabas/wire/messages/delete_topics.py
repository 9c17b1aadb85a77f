"""DeleteTopics (key 20): delete topics by name or id."""

from __future__ import annotations

from uuid import UUID

from barnabas.wire.schema import Request, Response, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string("6+", null="6+", default=None)
    topic_id: UUID = uuid("6+")


class DeleteTopicsRequest(Request, key=20, versions=(0, 6), flexible=4):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(null="6+")
    topic_id: UUID = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", null="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, key=20, versions=(0, 6), flexible=4):
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
