"""Runs a pipeline server (Spark, the manager, the HTTP API) until a signal stops it."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from barnabas.http.connection import LimitedConnection
from barnabas.http.listening import ServiceError, TlsFiles, load
from barnabas.http.listening import listen as listen_on
from barnabas.http.server import BoundedServer, HttpOptions, make_app
from barnabas.observe.logs import set_up
from barnabas.open_files import allow_all_files
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.api import LIMITS, make_service
from barnabas.pipelines.serving.manager import SPARK_LOG, Manager
from barnabas.pipelines.serving.run import stop_signals
from barnabas.pipelines.spark.session.class_archive import find_archive
from barnabas.pipelines.spark.session.start import start_session

DEFAULT_HTTP: Final = HttpOptions("127.0.0.1:8084")
SETTINGS: Final = {"spark.scheduler.mode": "FAIR", "spark.sql.streaming.numRecentProgressUpdates": "100"}


def serve(
    folder: Path,
    *,
    http: HttpOptions = DEFAULT_HTTP,
    bootstrap: str | None = None,
    master: str | None = None,
    files: Sequence[Path] = (),
    checkpoints: str | None = None,
    conf: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> int:
    """Runs until Ctrl-C or SIGTERM; prints one line beginning with `ready` on stdout. http: its limits are the API's own.

    Raises PipelineError.
    """
    set_up()
    allow_all_files()
    for noisy in ("py4j", "py4j.clientserver"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    listener = _listen(http.listen)
    with listener, stop_signals(whole_process=True) as stopped:
        folder = folder.absolute()
        archive = find_archive()
        say("starting Spark")
        spark = start_session(
            "barnabas pipelines",
            master=master,
            log_file=folder / SPARK_LOG,
            conf={**SETTINGS, **(conf or {})},
            archive=archive,
        )
        manager = Manager(spark, folder, bootstrap, checkpoints)
        try:
            for file in files:
                manager.put(file.read_text())
            manager.open()
            _serve_until(stopped, manager, listener, http)
        finally:
            say("stopping")
            if manager.opened:
                manager.close()
            spark.stop()
    return 0


def _listen(address: str) -> socket.socket:
    try:
        return listen_on(address)
    except ServiceError as error:
        raise PipelineError(str(error)) from error


def _settings(app: ASGIApp, tls: TlsFiles | None) -> uvicorn.Config:
    """Raises PipelineError for certificates that cannot be loaded."""
    config = uvicorn.Config(
        app,
        http=LimitedConnection,
        ws="none",
        log_level="warning",
        lifespan="off",
        server_header=False,
        **({} if tls is None else tls.for_uvicorn()),
    )
    try:
        load(config, tls)
    except ServiceError as error:
        raise PipelineError(str(error)) from error
    return config


def _serve_until(
    stopped: threading.Event,
    manager: Manager,
    listener: socket.socket,
    http: HttpOptions,
) -> None:
    app = make_app(make_service(manager), replace(http, limits=LIMITS))
    server = BoundedServer(_settings(app, http.tls), http.connections)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http")
    thread.start()
    host, port = listener.getsockname()[:2]
    scheme = "http" if http.tls is None else "https"
    print(
        f"ready on {scheme}://{host}:{port} ({len(manager.names())} pipelines, folder {manager.folder})",
        flush=True,
    )
    stopped.wait()
    server.should_exit = True
    thread.join()
