"""Starts, stops and restarts pipelines as requested: one for `pipeline run`, many for `pipelines serve`.

All work that talks to a broker or a target, or waits for a micro-batch, runs in worker threads and locks only its own
pipeline, so a pipeline that hangs does not block others. The supervisor's thread only reads numbers.

A pipeline that fails, in its preparation or in a query, is started again after a pause, which doubles up to five
minutes. Its last error is shown until it has run well for a while. While its broker or a target does not answer, that is
tried every few seconds instead, and the pipeline starts as soon as it answers.

If Spark's Java process ends, it is started again (see reviving.py).

A query that does not move although records wait for it is named in the pipeline's status, with what Spark does and logged
(see standstill.py). It is not restarted: it may be a large micro-batch.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.compiler.queries import (
    POLL_SECONDS,
    QueryReport,
    address_of,
    wait_until_idle,
)
from barnabas.pipelines.entries.document import duration_seconds
from barnabas.pipelines.entries.hiding import hide
from barnabas.pipelines.plan.errors import BrokerAway, PipelineError, TargetAway, suggestion
from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
from barnabas.pipelines.serving.engine import DEATH_SECONDS, Engine
from barnabas.pipelines.serving.feeds import Feeds, has_feeds
from barnabas.pipelines.serving.lags import Lags
from barnabas.pipelines.serving.logs import Line, last_trouble
from barnabas.pipelines.serving.managed import Managed, Running, Wanted
from barnabas.pipelines.serving.pauses import WELL_SECONDS, Pace, pause_seconds
from barnabas.pipelines.serving.rates import duration_text
from barnabas.pipelines.serving.reviving import Revival
from barnabas.pipelines.serving.standstill import Seen, Standstill
from barnabas.pipelines.spark.feeds.feed import ring_feeds
from barnabas.pipelines.spark.feeds.pulse import Pulse, asked_pulse
from barnabas.pipelines.spark.frame import spark_reason
from barnabas.pipelines.spark.session.log import failure_reason
from barnabas.pipelines.spark.topics.options import delay_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger(__name__)

THREADS_MAX: Final = 512
"""Enough for 256 pipelines that hang, each with two threads. Threads are started when they are needed."""
WORKER_LATE: Final = "Python worker failed to connect back"
"""The error when Python has not started after ten seconds, which may be too short on an overloaded machine."""
WORKER_LATE_MAX: Final = 20
STARTS_AT_ONCE: Final = max(os.cpu_count() or 1, 2)
"""Planning a query takes a core for a moment."""
SILENT_SECONDS: Final = 60.0
"""If the supervisor has waited this long for an answer from Java, that is shown in place of a standstill."""


class Supervisor:
    """Runs pipelines, with a thread that watches them and worker threads. Methods may be called by any thread."""

    def __init__(
        self,
        bootstrap: str | None,
        spark_log: Path | None = None,
        *,
        engine: Engine | None = None,
        pace: Pace | None = None,
    ) -> None:
        """bootstrap: the brokers of all pipelines; None: those that each names. spark_log: the file that Spark logs to."""
        self.bootstrap = bootstrap
        self.engine = engine or Engine()
        self.pace = pace or Pace()
        self.spark_log = spark_log
        self._pipelines: dict[str, Managed] = {}
        # Held while the dictionary is read or changed, never while waiting for something.
        self._lock = threading.RLock()
        self._workers = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="pipeline")
        self._starts = threading.Semaphore(STARTS_AT_ONCE)
        self._closing = threading.Event()
        self._woken = threading.Event()
        self._turned_at = math.inf
        self._lags = Lags(
            self.address, self._workers.submit, self._note_standstill, self.engine.client, self.pace.lag_s
        )
        self._pulses: dict[str, Pulse] = {}
        self._revival = Revival(self.engine, self.pace.first_pause_s)
        self._thread = threading.Thread(target=self._supervise, name="pipelines")

    def watch(self, managed: Managed) -> None:
        """Adds a pipeline, or replaces the one of the same name."""
        with self._lock:
            self._pipelines[managed.spec.name] = managed

    def wake(self) -> None:
        """Looks at all pipelines now: one of them is to start."""
        self._woken.set()

    def get(self, name: str) -> Managed:
        """The pipeline of this name. Raises KeyError with a message for users."""
        managed = self._pipelines.get(name)
        if managed is None:
            near = suggestion(name, self._pipelines) if self._pipelines else "there are none yet"
            raise KeyError(f"there is no pipeline {name!r}; {near}")
        return managed

    def open(self, spark: SparkSession) -> None:
        """Starts the thread, which starts the pipelines in this session."""
        self.engine.open(spark)
        self._thread.start()

    @property
    def spark(self) -> SparkSession:
        """The session of all pipelines, once `open` was called. Raises PipelineError before."""
        return self.engine.spark

    @property
    def trouble(self) -> str | None:
        """Why no pipeline can run, if Spark's Java process has ended: it is started again; asks nobody."""
        return None if self._closing.is_set() else self._revival.trouble()

    def address(self, spec: PipelineSpec) -> str:
        """The brokers of a pipeline."""
        return address_of(spec, self.bootstrap)

    def close(self) -> None:
        """Stops every query after its micro-batch, and the threads. The requested states are not changed."""
        self._closing.set()
        self._woken.set()
        self._thread.join()
        self.halt([m for m in self._pipelines.values() if m.running or m.feeds or m.work is not None])
        self._workers.shutdown(wait=False, cancel_futures=True)

    def halt(self, pipelines: list[Managed]) -> None:
        """Stops these pipelines; waits for their present micro-batches to end, at most STOP_SECONDS."""
        for managed in pipelines:
            managed.lock.acquire()
        try:
            self._halt_held(pipelines)
        finally:
            for managed in pipelines:
                managed.lock.release()

    def _halt_held(self, pipelines: list[Managed]) -> None:
        for managed in pipelines:
            self._close_feeds(managed)
            if managed.running:
                managed.brake.touch()
        with self.engine.outlived():
            self._end_queries([managed for managed in pipelines if self._is_alive(managed)])
        for managed in pipelines:
            if managed.running:
                self._tell(managed, "stopped")
            managed.running = []
            managed.stuck.clear()

    def _end_queries(self, pipelines: list[Managed]) -> None:
        for managed in pipelines:
            ring_feeds(managed.brake)
        wait_until_idle([stream for managed in pipelines for stream, _ in managed.running])
        for managed in pipelines:
            for stream, report in managed.running:
                stream.stop()
                self.engine.take_progress(stream, report)

    def _is_alive(self, managed: Managed) -> bool:
        """Whether a pipeline has queries that have not ended with their Java process."""
        return (
            bool(managed.running)
            and managed.generation == self.engine.generation
            and self.engine.death() is None
        )

    # --- the thread -----------------------------------------------------------------------------------

    def _supervise(self) -> None:
        while not self._closing.is_set():
            self._woken.wait(self.pace.tick_s)
            self._woken.clear()
            if self._closing.is_set():
                return
            self._turned_at = time.monotonic()
            with self._lock:
                pipelines = list(self._pipelines.values())
            if not self._revival.turn():
                continue
            self._take_pulses()
            self._lags.keep(pipelines)
            for managed in pipelines:
                if not managed.lock.acquire(blocking=False):
                    continue  # it is starting or stopping
                try:
                    self._tick(managed)
                except Exception as error:
                    if self.engine.death(DEATH_SECONDS) is None:
                        self._give_up_later(managed, spark_reason(error))
                finally:
                    managed.lock.release()

    def _take_pulses(self) -> None:
        try:
            self._pulses = self.engine.pulses()
        except Exception as error:  # each query is asked by itself then
            self._pulses = {}
            log.debug("no pulses: %s", error)

    def _tick(self, managed: Managed) -> None:
        if managed.work is not None:
            return
        if managed.running and managed.generation != self.engine.generation:
            self._lose(managed)
        for place, (stream, report) in enumerate(managed.running):
            pulse = self._pulses.get(report.run)
            if pulse is not None and pulse.latest in ("", report.latest):
                continue
            self.engine.take_progress(stream, report)
            if pulse is not None:
                continue
            error = stream.exception()
            if error is not None and WORKER_LATE in str(error) and managed.late_workers < WORKER_LATE_MAX:
                self._start_again_later(managed, place)
                return
            if error is not None:
                self._give_up_later(managed, f"query {report.name} failed: {failure_reason(str(error))}")
                return
            if not stream.isActive and not managed.once:
                self._give_up_later(managed, f"query {report.name} ended by itself")
                return
        now = time.monotonic()
        if managed.running:
            if managed.once and not any(r.run in self._pulses or s.isActive for s, r in managed.running):
                for stream, report in managed.running:
                    self.engine.take_progress(stream, report)  # micro-batches that ended since the last call
                managed.running, managed.ended = [], True
            elif (managed.last_error or managed.late_workers) and now - managed.started_at > WELL_SECONDS:
                managed.last_error, managed.restarts, managed.late_workers = None, 0, 0
        elif managed.wanted is Wanted.RUNNING and not managed.ended and now >= managed.retry_at:
            managed.work = self._workers.submit(self._start_held, managed)

    def _lose(self, managed: Managed) -> None:
        """Notes that the queries of a pipeline have ended with their Java process."""
        managed.running, managed.started_at = [], 0.0
        managed.stuck.clear()
        reason = "Spark's Java process had ended"
        if managed.once or not self.engine.can_restart:
            self._give_up(managed, reason)
        else:
            managed.retry_at = 0.0
            self._tell(managed, "starts again", "", logging.WARNING, reason=reason)

    def _start_held(self, managed: Managed) -> None:
        """Prepares and starts a pipeline, in a worker thread, unless it was paused, stopped or replaced meanwhile."""
        reason, is_away = None, False
        managed.begun_at = time.monotonic()
        try:
            # This may take long, so it does not hold the lock: the pipeline can be paused meanwhile.
            self._open_feeds(managed)
            self.engine.prepare(managed.spec, self.address(managed.spec))
            with self._starts, managed.lock:
                there = self._pipelines.get(managed.spec.name) is managed
                wanted = managed.wanted is Wanted.RUNNING and not self._closing.is_set()
                if there and wanted and not managed.running:
                    self._start(managed)
        except BrokerAway as error:
            managed.waiting_since = managed.waiting_since or time.time()
            reason = str(error)
        except TargetAway as error:
            reason, is_away = str(error), True
        except PipelineError as error:
            reason = str(error)
        except Exception as error:
            reason = spark_reason(error)
        with managed.lock:
            if reason is not None:
                managed.target_since = (managed.target_since or time.time()) if is_away else None
            if reason is not None and managed.wanted is Wanted.RUNNING:
                self._give_up(managed, reason)
            if not managed.running and (managed.once or managed.wanted is not Wanted.RUNNING):
                self._close_feeds(managed)
            managed.work, managed.begun_at = None, None

    def _open_feeds(self, managed: Managed) -> None:
        """Starts the connectors that fill the topics of a pipeline, if it has any; they outlive failures of its queries.
        Raises PipelineError."""
        if managed.feeds is not None or not has_feeds(managed.spec):
            return

        def tell(level: str, text: str) -> None:
            self._tell(managed, "connector", "", logging.getLevelNamesMapping()[level], reason=text)

        managed.feeds = Feeds(managed.spec, self.address(managed.spec), tell)
        try:
            managed.feeds.open(once=managed.once)
        except PipelineError:
            self._close_feeds(managed)
            raise

    @staticmethod
    def _close_feeds(managed: Managed) -> None:
        feeds, managed.feeds = managed.feeds, None
        if feeds is not None:
            feeds.close()

    def _start(self, managed: Managed) -> None:
        spec, managed.generation = managed.spec, self.engine.generation
        managed.brake.unlink(missing_ok=True)
        managed.queries = self.engine.plan(spec, managed.checkpoints)
        for query in sorted(managed.queries, key=lambda query: not query.keeps):
            report = QueryReport(query.name, query.destination)
            if managed.reports is not None:
                report = managed.reports.setdefault(query.name, report)
            report.way = self.engine.way_of(spec, query)
            report.positions, report.reached = {}, None
            stream = self._start_query(managed, query, report)
            managed.running.append((stream, report))
            # What the queries that read a changelog process in a run that ends, its own query has to write first.
            while managed.once and query.keeps and stream.isActive and managed.wanted is Wanted.RUNNING:
                time.sleep(POLL_SECONDS)
            if managed.wanted is not Wanted.RUNNING:
                break  # another thread waits for the lock to stop it
        managed.waiting_since, managed.target_since, managed.asked_at = None, None, 0.0
        for numbers in (managed.lags, managed.ends, managed.gauges, managed.stands, managed.stuck):
            numbers.clear()
        managed.started_at = time.monotonic()
        self._tell(managed, "started", restarts=managed.restarts)

    def _start_query(self, managed: Managed, query: Query, report: QueryReport) -> StreamingQuery:
        stream = self.engine.start(managed, query, self.address(managed.spec))
        managed.query_ids.add(str(stream.id))
        report.run = str(stream.runId)
        return stream

    def _start_again_later(self, managed: Managed, place: int) -> None:
        """Restarts one query whose Python worker started too late, in a worker thread; the others keep running."""

        def work() -> None:
            reason = None
            with self._starts, managed.lock:
                try:
                    wanted = managed.wanted is Wanted.RUNNING and not self._closing.is_set()
                    if wanted and self._is_alive(managed):
                        _, report = managed.running[place]
                        query = next(query for query in managed.queries if query.name == report.name)
                        managed.running[place] = (self._start_query(managed, query, report), report)
                except PipelineError as error:
                    reason = str(error)
                except Exception as error:
                    reason = spark_reason(error)
                if reason is not None:
                    self._give_up(managed, reason)
                managed.work = None

        managed.late_workers += 1
        name = managed.running[place][1].name
        reason = "a Python process was too late, or cannot connect to Java"
        count = f"{managed.late_workers} of {WORKER_LATE_MAX}"
        self._tell(managed, "starts again", name, logging.WARNING, reason=reason, attempt=count)
        managed.work = self._workers.submit(work)

    def _give_up_later(self, managed: Managed, reason: str) -> None:
        """`_give_up` in a worker thread, because stopping the other queries may take long if their targets hang."""

        def work() -> None:
            with managed.lock:
                try:
                    self._give_up(managed, reason)
                finally:
                    managed.work = None

        managed.work = self._workers.submit(work)

    def _give_up(self, managed: Managed, reason: str) -> None:
        reason = hide(reason, managed.spec.secrets)
        for stream, _ in managed.running if managed.generation == self.engine.generation else ():
            with self.engine.outlived():
                stream.stop()
        if managed.started_at and time.monotonic() - managed.started_at > WELL_SECONDS:
            managed.restarts = 0
        pause_s = pause_seconds(managed.restarts, self.pace.first_pause_s)
        managed.running, managed.started_at = [], 0.0
        managed.stuck.clear()
        is_known = managed.target_since is not None and reason == managed.last_error
        managed.last_error, managed.error_at = reason, time.time()
        managed.restarts += 1
        if managed.target_since is not None:
            pause_s = self.pace.target_s
        managed.retry_at = time.monotonic() + pause_s
        managed.ended = managed.once
        if is_known:
            return  # the target has been tried again, and still does not answer
        at = datetime.fromtimestamp(managed.error_at, UTC).isoformat(timespec="seconds")
        managed.failures.append({"at": at, "reason": reason})
        self.keep_failures(managed)
        self._tell(managed, "failed", "", logging.ERROR, reason=reason, retry_s=pause_s)

    def _tell(
        self, managed: Managed, event: str, query: str = "", level: int = logging.INFO, **fields: Any
    ) -> None:
        """Logs what happened to a pipeline or one of its queries, in the process's log and in the pipeline's own."""
        about = {"pipeline": managed.spec.name, **({"query": query} if query else {})}
        log.log(level, f"{'query' if query else 'pipeline'} {event}", extra=about | fields)
        reason = f": {fields.pop('reason')}" if "reason" in fields else ""
        text = ", ".join([event + reason, *(f"{name}={value}" for name, value in fields.items())])
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.keep_line(managed, Line(at, logging.getLevelName(level), query, text))

    def keep_failures(self, managed: Managed) -> None:
        """Called when a pipeline has failed; a server stores its last failures then."""

    def keep_line(self, managed: Managed, line: Line) -> None:
        """Called for each line of a pipeline's log; a server stores them."""

    # --- numbers --------------------------------------------------------------------------------------

    def _note_standstill(self, managed: Managed, running: Running, lag: int | None) -> None:
        """Notes whether a query has moved. Logs when it begins to stand still for too long, and when it goes on."""
        stream, report = running
        now, name = time.monotonic(), report.name
        stand = managed.stands.get(name)
        if stand is None:
            stand = managed.stands[name] = Standstill(now, self._patience(managed, name))
        pulse = self._pulses.get(report.run) or asked_pulse(stream)
        stand.note(Seen(now, report.reached, lag, pulse.is_triggered and pulse.has_data))
        seconds = stand.seconds(now)
        if seconds is None:
            if managed.stuck.pop(name, None) is not None:
                self._tell(managed, "goes on", name)
            stand.is_told = False
            return
        if name in managed.stuck and now - managed.looked_at < self.pace.look_s:
            return
        managed.looked_at = now
        managed.stuck[name] = hide(self._standing(managed, pulse.message, seconds, lag), managed.spec.secrets)
        if not stand.is_told:
            self._tell(managed, "stands still", name, logging.WARNING, reason=managed.stuck[name])
            stand.is_told = True

    def _patience(self, managed: Managed, name: str) -> float:
        """How long a query may stand still before that is said: longer if it is to wait between its micro-batches."""
        query = next((query for query in managed.queries if query.name == name), None)
        trigger = None if query is None else query.output.trigger or managed.spec.trigger
        source_options = {n.lower(): v for source in managed.spec.sources for n, v in source.options.items()}
        held_back = delay_seconds(source_options) if "minoffsetspertrigger" in source_options else 0.0
        return self.pace.patience_s + held_back + (duration_seconds(trigger) if trigger else 0.0)

    def _standing(self, managed: Managed, doing: str, seconds: float, lag: int | None) -> str:
        """A line about a query that stands still: since when, what waits, what Spark does and what it logged."""
        since = time.time() - seconds
        waits = "" if lag is None else f", and {lag:,} {'record waits' if lag == 1 else 'records wait'}"
        line = f"no micro-batch has ended since {_clock(since)}{waits}; Spark: {doing}"
        begin = datetime.fromtimestamp(since, UTC).isoformat()
        trouble = last_trouble(self.spark_log, managed.spec.name, managed.query_ids, begin)
        return line if trouble is None else f"{line}; the last in its log: {trouble}"

    @staticmethod
    def _waiting(managed: Managed) -> str | None:
        """What a pipeline waits for, if its broker or a target does not answer."""
        if managed.waiting_since is not None:
            return f"waiting for the broker since {_clock(managed.waiting_since)}"
        if managed.target_since is not None:
            return f"waiting for a target since {_clock(managed.target_since)}: {managed.last_error}"
        return None

    def _stuck(self, managed: Managed) -> str | None:
        """What keeps a pipeline from making progress, if its queries or its start stand still."""
        if (trouble := self.trouble) is not None:
            return trouble
        silent = time.monotonic() - self._turned_at
        if silent > SILENT_SECONDS and not self._closing.is_set():
            return f"Spark's Java process has not answered for {duration_text(silent)}"
        begun = managed.begun_at
        if (
            begun is not None
            and managed.state == "starting"
            and time.monotonic() - begun > self.pace.patience_s
        ):
            return f"has been starting for {duration_text(time.monotonic() - begun)}"
        feeds = managed.feeds
        if feeds is not None and (fault := feeds.trouble()) is not None:
            return hide(f"a connector does not run: {fault}", managed.spec.secrets)
        return "; ".join(f"{name}: {line}" for name, line in sorted(managed.stuck.copy().items())) or None

    def status(self, name: str) -> dict[str, Any]:
        """State, rates, lag and last error of a pipeline, as plain data; asks no broker. Raises KeyError."""
        return self.status_of(self.get(name))

    def statuses(self) -> list[dict[str, Any]]:
        """The status of every pipeline, by name."""
        return [self.status_of(managed) for _, managed in sorted(self._pipelines.copy().items())]

    def states(self) -> list[str]:
        """The state of every pipeline."""
        return [managed.state for managed in self._pipelines.copy().values()]

    def status_of(self, managed: Managed) -> dict[str, Any]:
        """State, rates, lag and the last error of a pipeline, as plain data, without any request to a broker or to
        Java. lag: records, some seconds old; None if unknown."""
        now = time.monotonic()
        waiting = self._waiting(managed) if managed.wanted is Wanted.RUNNING else None
        return {
            "name": managed.spec.name,
            "state": managed.state,
            "wanted": managed.wanted.value,
            "running_seconds": round(now - managed.started_at, 1) if managed.running else 0.0,
            "last_error": managed.last_error,
            "failures": list(managed.failures.copy()),
            "waiting": waiting,
            "stuck": self._stuck(managed),
            "restarts": managed.restarts,
            "retry_in_seconds": round(max(managed.retry_at - now, 0), 1)
            if managed.state == "failed" and waiting is None
            else 0.0,
            "dead_letters": managed.spec.dead_letters,
            "queries": [self._query_status(managed, report) for _, report in list(managed.running)],
        }

    def _query_status(self, managed: Managed, report: QueryReport) -> dict[str, Any]:
        gauge = managed.gauges.get(report.name)
        return {
            "name": report.name,
            "to": report.topic,
            "way": report.way,
            "records": report.rows,
            "failed": report.failed,
            "late": report.late,
            "state_rows": report.state_rows,
            "state_bytes": report.state_bytes,
            "records_per_second": report.rate,
            "lag": managed.lags.get(report.name),
            "seconds_left": None if gauge is None else gauge.seconds_left(),
            "stuck": managed.stuck.get(report.name),
        }


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%SZ")


Shown = Callable[[dict[str, Any]], None]
"""A function that receives the status of a pipeline from time to time, see `Supervisor.status_of`."""
