"""ClientMetrics (key 30001, our own), version 0: what `barnabas clients --metrics` shows."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.broker.api.telemetry import Values
from barnabas.wire.messages.client_metrics import (
    ClientInstance,
    ClientMetric,
    ClientMetricsRequest,
    ClientMetricsResponse,
    Label,
)


def handle(context: Context, request: ClientMetricsRequest) -> ClientMetricsResponse:
    """The values of each client's last push whose names begin with `name_prefix`; clients without such values are left
    out.
    """
    clients = [
        _instance(values, request.name_prefix) for values in context.services.telemetry.values.values()
    ]
    return ClientMetricsResponse(clients=[client for client in clients if client.metrics])


def _instance(values: Values, prefix: str) -> ClientInstance:
    client = values.client
    return ClientInstance(
        instance_id=client.instance_id,
        client_id=client.client_id,
        software_name=client.software_name,
        software_version=client.software_version,
        address=f"{client.address}:{client.port}",
        received_ms=values.received_ms,
        pushes=values.pushes,
        metrics=[
            ClientMetric(name=name, labels=[Label(key=key, value=text) for key, text in labels], value=value)
            for (name, labels), value in sorted(values.series.items())
            if name.startswith(prefix)
        ],
    )
