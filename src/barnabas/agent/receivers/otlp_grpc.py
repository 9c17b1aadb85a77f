"""The gRPC service that takes OpenTelemetry's logs: `LogsService/Export`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from barnabas.agent.receivers.otlp_events import BODY_BYTES_MAX, events_of
from barnabas.agent.receivers.receiver import CONNECTIONS_MAX, Event, Tls
from barnabas.terminal.errors import CliError

SERVICE: Final = "opentelemetry.proto.collector.logs.v1.LogsService"
THREADS: Final = 4


def make_server(keep: Callable[[list[Event]], Awaitable[None]], listen: str, tls: Tls | None = None) -> Any:
    """A grpc.Server that listens already and is not started yet; called in the loop that `keep` belongs to.

    keep: called with events; they are safe when it returns. Raises CliError where nothing can listen, OSError for files.
    """
    try:
        import grpc
        from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as service
    except ImportError:
        raise CliError("OTLP over gRPC needs: pip install 'barnabas[telemetry]'") from None
    loop = asyncio.get_running_loop()

    async def kept(events: list[Event]) -> None:
        await keep(events)

    def export(request: Any, context: Any) -> Any:
        try:
            asyncio.run_coroutine_threadsafe(kept(events_of(request)), loop).result()
        except (CancelledError, RuntimeError):  # the loop ends or has ended
            context.abort(grpc.StatusCode.UNAVAILABLE, "the agent stops; send it again")
        return service.ExportLogsServiceResponse()

    handler = grpc.unary_unary_rpc_method_handler(
        export,
        request_deserializer=service.ExportLogsServiceRequest.FromString,
        response_serializer=service.ExportLogsServiceResponse.SerializeToString,
    )
    server = grpc.server(
        ThreadPoolExecutor(THREADS, thread_name_prefix="otlp"),
        handlers=[grpc.method_handlers_generic_handler(SERVICE, {"Export": handler})],
        maximum_concurrent_rpcs=CONNECTIONS_MAX,
        options=[("grpc.max_receive_message_length", BODY_BYTES_MAX), ("grpc.so_reuseport", 0)],
    )
    where = listen if listen.rpartition(":")[0] else f"0.0.0.0{listen}"
    try:
        if tls is None:
            server.add_insecure_port(where)
        else:
            server.add_secure_port(where, _credentials(grpc, tls))
    except RuntimeError as error:
        raise CliError(f"cannot listen at {listen}: {error}") from None
    return server


def _credentials(grpc: Any, tls: Tls) -> Any:
    """Raises OSError."""
    pair = (Path(tls.key).read_bytes(), Path(tls.certificate).read_bytes())
    authority = Path(tls.authority).read_bytes() if tls.authority else None
    return grpc.ssl_server_credentials([pair], authority, authority is not None)
