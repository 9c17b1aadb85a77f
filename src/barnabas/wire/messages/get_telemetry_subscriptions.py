"""GetTelemetrySubscriptions (key 71): which metrics a client should push (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from barnabas.wire.schema import Request, Response, array, boolean, int8, int16, int32, string, uuid


class GetTelemetrySubscriptionsRequest(Request, key=71, versions=(0, 0), flexible=0):
    client_instance_id: UUID = uuid()


class GetTelemetrySubscriptionsResponse(Response, key=71, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
