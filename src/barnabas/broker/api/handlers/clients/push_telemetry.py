"""PushTelemetry (key 72), version 0: a client's own metrics, as OTLP."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


async def handle(context: Context, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """An answer without content. Raises ApiError UNKNOWN_SUBSCRIPTION_ID if the subscriptions have changed,
    THROTTLING_QUOTA_EXCEEDED for a push that comes too early, TELEMETRY_TOO_LARGE, or INVALID_RECORD for one that
    cannot be read.
    """
    telemetry = context.services.telemetry
    telemetry.core.push(
        telemetry.client_of(context.connection, request.client_instance_id),
        request.subscription_id,
        request.compression_type,
        len(request.metrics),
        int(context.services.clock.monotonic_ms()),
        terminating=request.terminating,
    )
    if request.metrics:
        await telemetry.receive(
            context.connection, request.client_instance_id, request.compression_type, bytes(request.metrics)
        )
    return PushTelemetryResponse()
