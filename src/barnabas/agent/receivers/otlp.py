"""Logs by OpenTelemetry's protocol over HTTP: `POST /v1/logs`, as protobuf or JSON, perhaps gzipped."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from barnabas.agent.receivers.receiver import Receiver


@dataclass(slots=True, eq=False)
class Otlp(Receiver):
    """Listens at HOST:PORT."""

    listen: str = ""

    async def receive(self) -> None:
        """See Receiver."""
        from barnabas.agent.receivers.otlp_service import make_server

        server = make_server(self.keep, self.listen)
        await server.start()
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop()
