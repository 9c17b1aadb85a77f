"""PushTelemetry (key 72): a client's metrics (KIP-714)."""

from __future__ import annotations

from uuid import UUID

from barnabas.wire.schema import Request, Response, boolean, bytes_, int8, int16, int32, uuid


class PushTelemetryRequest(Request, key=72, versions=(0, 0), flexible=0):
    client_instance_id: UUID = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = bytes_()


class PushTelemetryResponse(Response, key=72, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
