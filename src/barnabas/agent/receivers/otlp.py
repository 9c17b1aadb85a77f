"""Logs by OpenTelemetry's protocol: over HTTP (`POST /v1/logs`, as protobuf or JSON, perhaps gzipped), and over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from barnabas.agent.receivers.receiver import Receiver, Tls
from barnabas.http.listening import ServiceError
from barnabas.terminal.errors import CliError


@dataclass(slots=True, eq=False)
class Otlp(Receiver):
    """Listens at HOST:PORT. listen: for HTTP; grpc: for gRPC; one of them may be empty. tls: of both."""

    listen: str = ""
    grpc: str = ""
    tls: Tls | None = None

    async def receive(self) -> None:
        """See Receiver."""
        if self.tls is not None:
            self.tls.context()  # says what is wrong with the files; gRPC only logs it
        async with contextlib.AsyncExitStack() as stack:
            if self.listen:
                from barnabas.agent.receivers import otlp_service

                http = otlp_service.make_server(self.keep, self.listen, self.tls)
                try:
                    await http.start()
                except ServiceError as error:
                    raise CliError(str(error)) from None
                stack.push_async_callback(http.stop)
            if self.grpc:
                from barnabas.agent.receivers import otlp_grpc

                rpc = otlp_grpc.make_server(self.keep, self.grpc, self.tls)
                stack.callback(rpc.stop, 0)
                rpc.start()
            await asyncio.Event().wait()
