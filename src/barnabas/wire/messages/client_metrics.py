"""ClientMetrics (key 30001, our own): the newest metrics that clients have pushed to a broker.

Not one of Kafka's: ApiVersions announces it to Barnabas' own client only.
"""

from __future__ import annotations

from uuid import UUID

from barnabas.wire.schema import Request, Response, Struct, array, float64, int16, int32, int64, string, uuid


class ClientMetricsRequest(Request, key=30001, versions=(0, 0), flexible=0):
    name_prefix: str = string()


class Label(Struct):
    key: str = string()
    value: str = string()


class ClientMetric(Struct):
    name: str = string()
    labels: list[Label] = array(Label)
    value: float = float64()


class ClientInstance(Struct):
    instance_id: UUID = uuid()
    client_id: str = string()
    software_name: str = string()
    software_version: str = string()
    address: str = string()
    received_ms: int = int64()
    pushes: int = int64()
    metrics: list[ClientMetric] = array(ClientMetric)


class ClientMetricsResponse(Response, key=30001, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    clients: list[ClientInstance] = array(ClientInstance)
