"""GetTelemetrySubscriptions (key 71), version 0: which of its metrics a client should push, and how often."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.telemetry import COMPRESSIONS
from barnabas.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.wire.primitives import ZERO_UUID


def handle(context: Context, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    """The subscriptions that match the client, and the interval of its pushes in ms. A client that sends no instance id
    receives one, which it uses from then on.
    """
    telemetry = context.services.telemetry
    instance_id = request.client_instance_id
    if instance_id == ZERO_UUID:
        instance_id = context.services.entropy.uuid()
    client = telemetry.client_of(context.connection, instance_id)
    wanted = telemetry.core.subscribe(client, int(context.services.clock.monotonic_ms()))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=telemetry.core.bytes_max,
        delta_temporality=True,
        requested_metrics=list(wanted.metrics),
    )
