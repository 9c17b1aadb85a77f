"""Logs by OpenTelemetry's protocol: over HTTP (`POST /v1/logs`, as protobuf or JSON, perhaps gzipped), and over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from barnabas.agent.receivers.receiver import Receiver


@dataclass(slots=True, eq=False)
class Otlp(Receiver):
    """Listens at HOST:PORT. listen: for HTTP; grpc: for gRPC; one of them may be empty."""

    listen: str = ""
    grpc: str = ""

    async def receive(self) -> None:
        """See Receiver."""
        async with contextlib.AsyncExitStack() as stack:
            if self.listen:
                from barnabas.agent.receivers import otlp_service

                http = otlp_service.make_server(self.keep, self.listen)
                await http.start()
                stack.push_async_callback(http.stop)
            if self.grpc:
                from barnabas.agent.receivers import otlp_grpc

                rpc = otlp_grpc.make_server(self.keep, self.grpc)
                stack.callback(rpc.stop, 0)
                rpc.start()
            await asyncio.Event().wait()
