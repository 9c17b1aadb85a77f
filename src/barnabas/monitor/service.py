"""The monitor as a service: what `barnabas monitor` and `barnabas start --with monitor` run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.client.options import ClientOptions
from barnabas.http.errors import HttpError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.monitor.burrow.api import routes
from barnabas.monitor.watching import ClusterWatch, wall_ms


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """clusters: how each is reached, by name. refresh_s: time between looks."""

    clusters: Mapping[str, ClientOptions]
    refresh_s: float


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """An error as Burrow writes it."""
    return json.dumps({"error": True, "message": error.message}).encode(), "application/json"


def make_server(options: MonitorOptions, http: HttpOptions) -> HttpServer:
    """A server that is not started yet."""

    def build() -> Service:
        watches = {
            name: ClusterWatch(name, client, options.refresh_s) for name, client in options.clusters.items()
        }

        async def start(url: str) -> None:
            for watch in watches.values():
                watch.start()

        async def stop() -> None:
            for watch in watches.values():
                await watch.stop()

        def unready() -> str | None:
            """Clusters that come and go are the monitor's business: it is ready when each was looked at once."""
            waiting = [name for name, watch in watches.items() if watch.last is None]
            return f"not read yet: {', '.join(waiting)}" if waiting else None

        def health() -> Mapping[str, Any]:
            return {
                "status": "ok",
                "clusters": {name: watch.trouble or "ok" for name, watch in watches.items()},
            }

        return Service(
            "monitor",
            [*routes(watches, wall_ms)],
            error_shape,
            start=start,
            stop=stop,
            health=health,
            unready=unready,
            raw_paths=True,
        )

    return HttpServer(build, http)
