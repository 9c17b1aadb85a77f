"""Starts a pipeline server and keeps it until a signal: Spark, the manager, the HTTP API."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import uvicorn

from barnabas.observe.logs import set_up
from barnabas.pipelines.class_archive import find_archive
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.run import stop_signals
from barnabas.pipelines.server.api import make_app
from barnabas.pipelines.server.manager import Manager
from barnabas.pipelines.session import start_session

DEFAULT_LISTEN: Final = "127.0.0.1:8084"
SETTINGS: Final = {"spark.scheduler.mode": "FAIR", "spark.sql.streaming.numRecentProgressUpdates": "100"}


def serve(
    folder: Path,
    *,
    listen: str = DEFAULT_LISTEN,
    bootstrap: str | None = None,
    master: str | None = None,
    files: Sequence[Path] = (),
    checkpoints: str | None = None,
    conf: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> int:
    """Runs until Ctrl-C or SIGTERM; prints one line beginning with `ready` on stdout. Raises PipelineError."""
    set_up()
    for noisy in ("py4j", "py4j.clientserver"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    listener = _listen(listen)
    with listener, stop_signals() as stopped:
        folder = folder.absolute()
        archive = find_archive()
        say("starting Spark")
        spark = start_session(
            "barnabas pipelines",
            master=master,
            log_file=folder / "spark.log",
            conf={**SETTINGS, **(conf or {})},
            archive=archive,
        )
        manager = Manager(spark, folder, bootstrap, checkpoints)
        try:
            for file in files:
                manager.put(file.read_text())
            manager.open()
            _serve_until(stopped, manager, listener)
        finally:
            say("stopping")
            if manager.opened:
                manager.close()
            spark.stop()
    return 0


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        return socket.create_server((host or "127.0.0.1", int(port)))
    except (OSError, ValueError, OverflowError) as error:
        raise PipelineError(f"cannot listen on {address}: {error}; choose another with --listen") from error


def _serve_until(stopped: threading.Event, manager: Manager, listener: socket.socket) -> None:
    server = uvicorn.Server(uvicorn.Config(make_app(manager), log_level="warning", lifespan="off"))
    # uvicorn would take the signals for itself on the main thread.
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http")
    thread.start()
    host, port = listener.getsockname()[:2]
    print(
        f"ready on http://{host}:{port} ({len(manager.names())} pipelines, folder {manager.folder})",
        flush=True,
    )
    stopped.wait()
    server.should_exit = True
    thread.join()
