"""ConnectedClients (key 30000, our own): who is connected to a broker, and whose records it converts.

Not one of Kafka's: ApiVersions announces it to Barnabas' own client only.
"""

from __future__ import annotations

from barnabas.wire.schema import Request, Response, Struct, array, int16, int32, int64, string


class ConnectedClientsRequest(Request, key=30000, versions=(0, 1), flexible=0):
    pass


class UsedApi(Struct):
    api_key: int = int16()
    api_version: int = int16()


class ConnectedClient(Struct):
    client_id: str | None = string(null="0+", default=None)
    software_name: str = string()
    software_version: str = string()
    address: str = string()
    listener: str = string()
    principal: str = string()
    connected_ms: int = int64()
    idle_ms: int = int64()
    apis: list[UsedApi] = array(UsedApi)
    received_bytes: int = int64("1+", default=-1)
    sent_bytes: int = int64("1+", default=-1)


class ConvertedRecords(Struct):
    client_id: str = string()
    software: str = string()
    direction: str = string()
    requests: int = int64()
    records: int = int64()
    size_bytes: int = int64()


class ConnectedClientsResponse(Response, key=30000, versions=(0, 1), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    clients: list[ConnectedClient] = array(ConnectedClient)
    conversions: list[ConvertedRecords] = array(ConvertedRecords)
