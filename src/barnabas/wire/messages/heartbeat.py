"""Heartbeat (key 12): keep a member of a classic group alive."""

from __future__ import annotations

from barnabas.wire.schema import Request, Response, int16, int32, string


class HeartbeatRequest(Request, key=12, versions=(0, 4), flexible=4):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", null="3+", default=None)


class HeartbeatResponse(Response, key=12, versions=(0, 4), flexible=4):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
