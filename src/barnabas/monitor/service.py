"""The monitor as a service: what `barnabas monitor` and `barnabas start --with monitor` run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.client.options import ClientOptions
from barnabas.http.errors import HttpError
from barnabas.http.listening import ServiceError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.monitor import api
from barnabas.monitor.alerts.rules import AlertFile
from barnabas.monitor.alerts.watch import Alerts
from barnabas.monitor.burrow import api as burrow
from barnabas.monitor.history.store import HistoryError
from barnabas.monitor.measuring import samples
from barnabas.monitor.recording import Recorder
from barnabas.monitor.snapshot import Snapshot
from barnabas.monitor.watching import ClusterWatch, wall_ms


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """clusters: how each is reached, by name. refresh_s: time between looks. data: the folder of the history, which is no
    larger than size_max_bytes; 0: no history is kept. rules: of alerts; None without.
    """

    clusters: Mapping[str, ClientOptions]
    refresh_s: float
    data: Path
    size_max_bytes: int
    rules: AlertFile | None = None


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """An error as Burrow writes it."""
    return json.dumps({"error": True, "message": error.message}).encode(), "application/json"


def make_server(options: MonitorOptions, http: HttpOptions) -> HttpServer:
    """A server that is not started yet."""

    def build() -> Service:
        recorder = Recorder(options.data, options.size_max_bytes) if options.size_max_bytes else None

        alerts = None if options.rules is None else Alerts(options.rules, options.clusters)

        def on_look(cluster: str, seen: Snapshot) -> None:
            if recorder is not None:
                recorder.note(cluster, seen)
            if alerts is not None:
                watch = watches[cluster]
                alerts.note(cluster, seen, watch.board, watch.trouble)

        watches = {
            name: ClusterWatch(name, client, options.refresh_s, on_look)
            for name, client in options.clusters.items()
        }

        async def start(url: str) -> None:
            if recorder is not None:
                try:
                    await recorder.start()
                except HistoryError as error:
                    raise ServiceError(str(error)) from None
            if alerts is not None:
                alerts.start()
            for watch in watches.values():
                watch.start()

        async def stop() -> None:
            for watch in watches.values():
                await watch.stop()
            if alerts is not None:
                await alerts.stop()
            if recorder is not None:
                await recorder.stop()

        def unready() -> str | None:
            """Clusters that come and go are the monitor's business: it is ready when each was looked at once."""
            waiting = [name for name, watch in watches.items() if watch.last is None]
            return f"not read yet: {', '.join(waiting)}" if waiting else None

        def health() -> Mapping[str, Any]:
            return {
                "status": "ok",
                "clusters": {name: watch.trouble or "ok" for name, watch in watches.items()},
                "history": "not kept" if recorder is None else recorder.trouble or "ok",
            }

        return Service(
            "monitor",
            [
                *burrow.routes(watches, wall_ms),
                *api.routes(recorder, lambda: wall_ms() // 1000),
                api.alerts_route(alerts),
            ],
            error_shape,
            start=start,
            stop=stop,
            health=health,
            unready=unready,
            raw_paths=True,
            samples=lambda: samples(
                [(name, watch.last, watch.trouble is None) for name, watch in watches.items()], wall_ms()
            ),
        )

    return HttpServer(build, http)
