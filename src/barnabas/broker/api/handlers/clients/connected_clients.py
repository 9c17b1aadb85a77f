"""ConnectedClients (key 30000, our own), versions 0 and 1: what `barnabas clients` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api.context import Context
from barnabas.wire.messages.connected_clients import (
    ConnectedClient,
    ConnectedClientsRequest,
    ConnectedClientsResponse,
    ConvertedRecords,
    UsedApi,
)

if TYPE_CHECKING:
    from barnabas.broker.net.connection import Connection


def handle(context: Context, request: ConnectedClientsRequest) -> ConnectedClientsResponse:
    """All open connections with their age and idle time in ms and, since version 1, the bytes that the kernel has counted
    (-1: it does not), and how many records were converted for old clients."""
    now_s = context.services.loop.time()
    return ConnectedClientsResponse(
        clients=[
            _client(connection, now_s, counts_bytes=context.version >= 1)
            for connection in context.services.listeners.connections
        ],
        conversions=[
            ConvertedRecords(
                client_id=who.client_id,
                software=who.software,
                direction=who.direction,
                requests=count.requests,
                records=count.records,
                size_bytes=count.bytes,
            )
            for who, count in context.services.conversions.counts.items()
        ],
    )


def _client(connection: Connection, now_s: float, *, counts_bytes: bool) -> ConnectedClient:
    name, version = connection.client_software
    received_bytes, sent_bytes = connection.traffic() if counts_bytes else (-1, -1)
    return ConnectedClient(
        client_id=connection.client_id,
        software_name=name,
        software_version=version,
        address=connection.peer,
        listener=connection.listener,
        principal=connection.principal,
        connected_ms=int((now_s - connection.connected_s) * 1000),
        idle_ms=int((now_s - connection.last_active_s) * 1000),
        apis=[
            UsedApi(api_key=key, api_version=used) for key, used in sorted(connection.api_versions.items())
        ],
        received_bytes=received_bytes,
        sent_bytes=sent_bytes,
    )
