"""The server of pipelines as a service: Spark, the manager, the HTTP API."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.http.listening import ServiceError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.api import make_service
from barnabas.pipelines.serving.engine import Engine
from barnabas.pipelines.serving.manager import SPARK_LOG, Manager
from barnabas.pipelines.serving.run import END_SECONDS
from barnabas.pipelines.spark.private import kill_java
from barnabas.pipelines.spark.session.class_archive import find_archive
from barnabas.pipelines.spark.session.start import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SETTINGS: Final = {"spark.scheduler.mode": "FAIR", "spark.sql.streaming.numRecentProgressUpdates": "100"}
SLOTS: Final = 2 * max(os.cpu_count() or 1, 2)
"""How many tasks run at the same time: more than cores, because a task keeps its slot until it ends. With one slot for each
core, two tasks of a query with a backlog would make all others wait for seconds."""
MASTER: Final = f"local[{SLOTS},4]"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """folder: of the pipelines' files and states. client: librdkafka's properties, with bootstrap.servers: the cluster of
    pipelines that name none. checkpoints: a folder or URL for those of all pipelines. conf: settings of Spark. texts:
    pipeline files to add. code: see Manager. opened: called when all pipelines have begun to run; it raises PipelineError.
    with_session: called before they do, also if Spark is started again.
    """

    folder: Path
    client: Mapping[str, str]
    checkpoints: str | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    texts: Sequence[str] = ()
    code: Path | None = None
    opened: Callable[[], None] = lambda: None
    with_session: Callable[[SparkSession], None] = lambda spark: None


def make_server(
    options: ServerOptions, http: HttpOptions, make: Callable[[Manager], Service] = make_service
) -> HttpServer:
    """A server that is not started yet. make: its API; others than that of pipelines are built on it."""

    def build() -> Service:
        folder = options.folder.absolute()
        code = None if options.code is None else options.code.absolute()
        engine = Engine(lambda: _session(folder, options))
        manager = Manager(folder, options.client, options.checkpoints, code, engine=engine)

        async def start(url: str) -> None:
            try:
                await asyncio.to_thread(_open, manager, options)
            except PipelineError as error:
                raise ServiceError(str(error)) from error

        async def stop() -> None:
            await asyncio.to_thread(_close, manager)

        return replace(make(manager), start=start, stop=stop, stop_s=END_SECONDS, kill=kill_java)

    return HttpServer(build, http)


def _session(folder: Path, options: ServerOptions) -> SparkSession:
    """Start Spark. Raises PipelineError."""
    spark = start_session(
        "barnabas pipelines",
        master=options.master or options.conf.get("spark.master") or MASTER,
        log_file=folder / SPARK_LOG,
        conf={**SETTINGS, **options.conf},
        archive=find_archive(),
    )
    try:
        options.with_session(spark)
    except BaseException:
        spark.stop()
        raise
    return spark


def _open(manager: Manager, options: ServerOptions) -> None:
    """Start Spark, add the pipelines of the command line, and begin to run all. Raises PipelineError."""
    log.info("Spark is starting")
    spark = _session(manager.folder, options)
    try:
        for text in options.texts:
            manager.put(text)
        manager.open(spark)
        options.opened()
    except BaseException:
        spark.stop()
        raise


def _close(manager: Manager) -> None:
    """Let micro-batches end, and stop Spark."""
    try:
        manager.close()
    finally:
        manager.engine.close()
