"""Many pipelines in one driver: each wanted running, paused or stopped, and brought there by one thread.

The folder of a server holds, per pipeline, `<name>/pipeline.yaml` (what it does), `<name>/state.json` (what is wanted
of it) and `<name>/checkpoints/`. So a server that starts again goes on with everything it ran. A pipeline that fails
is started again after a pause that doubles up to five minutes; its last error is told until it has been well for
a while.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.blocking import LATEST, BlockingClient
from barnabas.client.errors import ClientError
from barnabas.pipelines.document import suggestion
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.folders import Folder, join
from barnabas.pipelines.model import PipelineSpec
from barnabas.pipelines.offsets import parse_offset
from barnabas.pipelines.options import client_options
from barnabas.pipelines.queries import (
    QueryReport,
    address_of,
    connection_options,
    failure_reason,
    start_query,
    stop_file,
    take_progress,
    wait_until_idle,
)
from barnabas.pipelines.run import prepare
from barnabas.pipelines.spec import parse_spec
from barnabas.pipelines.steps.base import spark_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.25
BACKOFF_SECONDS: Final = 1.0
BACKOFF_SECONDS_MAX: Final = 300.0
WELL_SECONDS: Final = 60.0
"""After so long without a failure the back-off begins anew and the last error is history."""


class Wanted(StrEnum):
    """What is asked of a pipeline. Paused and stopped differ in what people mean: both keep its place."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(slots=True)
class Managed:
    """One pipeline. restarts: since it was last well. retry_at: monotonic seconds, while it waits."""

    spec: PipelineSpec
    text: str
    wanted: Wanted = Wanted.RUNNING
    running: list[tuple[StreamingQuery, QueryReport]] = field(default_factory=list)
    started_at: float = 0.0
    last_error: str | None = None
    error_at: float = 0.0
    restarts: int = 0
    retry_at: float = 0.0
    starting: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        if self.running:
            return "running" if self.wanted is Wanted.RUNNING else "stopping"
        if self.wanted is Wanted.RUNNING:
            return "failed" if self.last_error else "starting"
        return self.wanted.value


class Manager:
    """All pipelines of a server. Every method may be called from any thread."""

    def __init__(
        self, spark: SparkSession, folder: Path, bootstrap: str | None, checkpoints: str | None = None
    ) -> None:
        """checkpoints: a folder or URL for the checkpoints of all pipelines; default their own folders."""
        self.spark = spark
        self.folder = folder
        self.bootstrap = bootstrap
        self.checkpoints = checkpoints
        self._pipelines: dict[str, Managed] = {}
        # Held while pipelines start and stop, which takes seconds; readers of numbers do not need it.
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="pipelines")

    def open(self) -> None:
        """Takes up what the folder holds, and begins to run it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.folder.glob("*/pipeline.yaml")):
            try:
                text = path.read_text()
                managed = Managed(parse_spec(text, str(path)), text)
                state = json.loads(path.with_name("state.json").read_text())
                managed.wanted, managed.starting = Wanted(state["wanted"]), state.get("starting", {})
            except (PipelineError, OSError, ValueError, KeyError) as error:
                log.error("pipeline cannot be taken up", extra={"path": str(path), "reason": str(error)})
                continue
            self._pipelines[managed.spec.name] = managed
        self._thread.start()

    @property
    def opened(self) -> bool:
        return self._thread.ident is not None

    def close(self) -> None:
        """Stops every query after its micro-batch. What is wanted stays as it is."""
        self._closing.set()
        self._thread.join()
        with self._lock:
            self._halt([m for m in self._pipelines.values() if m.running])

    # --- what people ask for ------------------------------------------------------------------------

    def put(self, text: str, *, start: bool = True) -> Managed:
        """Adds a pipeline, or replaces the one of the same name, which then goes on from its place.

        Raises PipelineError, before anything is changed, when it cannot run as it is.
        """
        spec = parse_spec(text)
        prepare(spec, address_of(spec, self.bootstrap), once=False)
        with self._lock:
            old = self._pipelines.get(spec.name)
            if old is not None:
                self._halt([old])
            managed = Managed(spec, text, Wanted.RUNNING if start else Wanted.STOPPED)
            self._pipelines[spec.name] = managed
            place = self.folder / spec.name
            place.mkdir(parents=True, exist_ok=True)
            _replace(place / "pipeline.yaml", text)
            self._save(managed)
            return managed

    def get(self, name: str) -> Managed:
        """Raises KeyError with a message for people."""
        managed = self._pipelines.get(name)
        if managed is None:
            near = suggestion(name, self._pipelines) if self._pipelines else "there are none yet"
            raise KeyError(f"there is no pipeline {name!r}; {near}")
        return managed

    def names(self) -> list[str]:
        return sorted(self._pipelines)

    def want(self, name: str, wanted: Wanted) -> Managed:
        """Starts, pauses or stops; returns once a pipeline that is to stop has stopped."""
        with self._lock:
            managed = self.get(name)
            managed.wanted = wanted
            managed.retry_at, managed.restarts = 0.0, 0
            if wanted is Wanted.RUNNING:
                managed.last_error = None
            self._save(managed)
            if wanted is not Wanted.RUNNING:
                self._halt([managed])
            return managed

    def restart(self, name: str, starting: Mapping[str, str] | None = None) -> Managed:
        """Stops and starts again; `starting` (source options) begins elsewhere: old checkpoints are put aside,
        and with them what aggregates had counted."""
        with self._lock:
            managed = self.get(name)
            self._halt([managed])
            if starting is not None:
                self._put_aside(managed)
                managed.starting = dict(starting)
            return self.want(name, Wanted.RUNNING)

    def remove(self, name: str) -> None:
        """Stops it and forgets what it does; its checkpoints stay in the folder, out of the way."""
        with self._lock:
            managed = self.get(name)
            self._halt([managed])
            if self.checkpoints is not None:
                self._put_aside(managed)
            del self._pipelines[name]
            place = self.folder / name
            place.rename(place.with_name(f"{name}.removed.{time.time_ns() // 1_000_000}"))

    # --- the thread -----------------------------------------------------------------------------------

    def _supervise(self) -> None:
        while not self._closing.wait(TICK_SECONDS):
            for managed in list(self._pipelines.values()):
                with self._lock:
                    try:
                        self._tick(managed)
                    except Exception as error:
                        self._failed(managed, spark_reason(error))

    def _tick(self, managed: Managed) -> None:
        now = time.monotonic()
        for stream, report in managed.running:
            take_progress(stream, report)
            error = stream.exception()
            if error is not None or not stream.isActive:
                reason = failure_reason(str(error)) if error is not None else "it ended by itself"
                self._failed(managed, f"query {report.name}: {reason}")
                return
        if managed.running:
            if managed.last_error and now - managed.started_at > WELL_SECONDS:
                managed.last_error, managed.restarts = None, 0
        elif managed.wanted is Wanted.RUNNING and now >= managed.retry_at and not self._closing.is_set():
            self._start(managed)

    def _start(self, managed: Managed) -> None:
        spec = managed.spec
        bootstrap = address_of(spec, self.bootstrap)
        try:
            prepare(spec, bootstrap, once=False)
            brake = self._brake(managed)
            brake.unlink(missing_ok=True)
            # A pool of its own: a pipeline with much to do leaves tasks to the others.
            self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", spec.name)
            for query in spec.queries():
                report = QueryReport(query.name, query.output.destination)
                stream = start_query(
                    self.spark,
                    spec,
                    query,
                    bootstrap,
                    self._checkpoints(managed),
                    brake=brake,
                    starting=managed.starting,
                )
                managed.running.append((stream, report))
        except PipelineError as error:
            self._failed(managed, str(error))
            return
        managed.started_at = time.monotonic()
        log.info("pipeline started", extra={"pipeline": spec.name, "restarts": managed.restarts})

    def _failed(self, managed: Managed, reason: str) -> None:
        for stream, _ in managed.running:
            stream.stop()
        if managed.started_at and time.monotonic() - managed.started_at > WELL_SECONDS:
            managed.restarts = 0
        pause_s = min(BACKOFF_SECONDS * 2**managed.restarts, BACKOFF_SECONDS_MAX)
        managed.running = []
        managed.last_error, managed.error_at = reason, time.time()
        managed.restarts += 1
        managed.retry_at = time.monotonic() + pause_s
        log.error(
            "pipeline failed", extra={"pipeline": managed.spec.name, "reason": reason, "retry_s": pause_s}
        )

    def _halt(self, pipelines: list[Managed]) -> None:
        """Stops these between micro-batches."""
        for managed in pipelines:
            if managed.running:
                self._brake(managed).touch()
        wait_until_idle([stream for managed in pipelines for stream, _ in managed.running])
        for managed in pipelines:
            for stream, report in managed.running:
                stream.stop()
                take_progress(stream, report)
            managed.running = []

    def _checkpoints(self, managed: Managed) -> str:
        name = managed.spec.name
        own = join(self.folder, name, "checkpoints")
        return own if self.checkpoints is None else join(self.checkpoints, name)

    def _put_aside(self, managed: Managed) -> None:
        parent, _, name = self._checkpoints(managed).rpartition("/")
        folder = Folder(self.spark, parent)
        if folder.exists(name):
            folder.move(name, f"{name}.{time.time_ns() // 1_000_000}")

    def _brake(self, managed: Managed) -> Path:
        return stop_file(self.folder / managed.spec.name)

    def _save(self, managed: Managed) -> None:
        state = {"wanted": managed.wanted.value, "starting": managed.starting}
        _replace(self.folder / managed.spec.name / "state.json", json.dumps(state))

    # --- what it tells --------------------------------------------------------------------------------

    def status(self, name: str, *, lag: bool = True) -> dict[str, Any]:
        """State, rates, lag and the last error of a pipeline, as plain data. lag in records; None when the
        broker does not answer."""
        managed = self.get(name)
        now = time.monotonic()
        return {
            "name": name,
            "state": managed.state,
            "wanted": managed.wanted.value,
            "running_seconds": round(now - managed.started_at, 1) if managed.running else 0.0,
            "last_error": managed.last_error,
            "restarts": managed.restarts,
            "retry_in_seconds": round(max(managed.retry_at - now, 0), 1)
            if managed.state == "failed"
            else 0.0,
            "dead_letters": managed.spec.dead_letters,
            "queries": [self._query_status(managed, s, r, lag) for s, r in list(managed.running)],
        }

    def _query_status(
        self, managed: Managed, stream: StreamingQuery, report: QueryReport, lag: bool
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": report.name,
            "to": report.topic,
            "records": report.rows,
            "failed": report.failed,
            "records_per_second": 0.0,
            "lag": None,
        }
        last = stream.lastProgress
        if last is None:
            return found
        raw = json.loads(last.json) if hasattr(last, "json") else last
        found["records_per_second"] = round(float(raw.get("processedRowsPerSecond") or 0.0), 1)
        end = raw["sources"][0].get("endOffset") if raw.get("sources") else None
        if lag and end:
            found["lag"] = self._lag(managed.spec, json.loads(end) if isinstance(end, str) else end)
        return found

    def _lag(self, spec: PipelineSpec, end: Mapping[str, Mapping[str, Any]]) -> int | None:
        positions, _ = parse_offset(end)
        settings = connection_options(spec, address_of(spec, self.bootstrap))
        try:
            with BlockingClient(client_options(settings)) as client:
                ends = client.list_offsets(dict.fromkeys(positions, LATEST))
        except ClientError:
            return None
        return sum(max(ends[pair].offset - at, 0) for pair, at in positions.items() if pair in ends)


def _replace(path: Path, text: str) -> None:
    """Writes a small file so that a crash leaves the old or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)
