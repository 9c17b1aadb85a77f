"""Runs a pipeline file: `barnabas pipeline run FILE.yaml [--once]`.

run_file(path, once=..., bootstrap=...) checks the file, runs the pipeline, prints progress and a summary, and returns
the exit code. run_pipeline(spec, ...) does the same without printing, for programs. Both raise PipelineError, whose
message is one line that says what to do.

Each streaming query has its own checkpoint below `checkpoint_dir/<pipeline>/`. The first run creates missing topics. A
query continues from its checkpoint, so a second run processes only new records.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.compiler.queries import POLL_SECONDS, STOP_SECONDS, QueryReport, address_of, stop_file
from barnabas.pipelines.fronts.yaml.spec import load_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.pipeline import PipelineSpec
from barnabas.pipelines.serving.engine import Engine
from barnabas.pipelines.serving.managed import Managed
from barnabas.pipelines.serving.preparing import prepare
from barnabas.pipelines.serving.rates import progress_line
from barnabas.pipelines.serving.supervisor import Shown, Supervisor
from barnabas.pipelines.spark.folders import join, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_CHECKPOINTS: Final = "data/checkpoints"
SHOWN_SECONDS: Final = 10.0
"""How often progress is printed if standard error is not a terminal."""

END_SECONDS: Final = STOP_SECONDS + 10.0
"""How long after a signal a process may take to end: micro-batches are waited for that long, then Spark stops."""


@dataclass(slots=True)
class RunReport:
    """What a run did. seconds: from the start of the first query to the end of the last one. start_seconds: until Spark
    had started. interrupted: a signal ended it."""

    pipeline: str
    dead_letters: str
    checkpoint: str
    log: str
    seconds: float = 0.0
    start_seconds: float = 0.0
    interrupted: bool = False
    queries: list[QueryReport] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Records that the query with the most records has read and not filtered out."""
        return max((q.rows for q in self.queries), default=0)

    @property
    def failed(self) -> int:
        """Records sent to the dead letters by all queries."""
        return sum(q.failed for q in self.queries)


Progress = Callable[[QueryReport], None]


def run_file(
    path: Path | str,
    *,
    once: bool = False,
    bootstrap: str | None = None,
    checkpoint_dir: Path | str | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    as_json: bool = False,
    quiet: bool = False,
) -> int:
    """Runs the pipeline of a file, prints progress and a summary, and returns the exit code. Raises PipelineError."""
    return run_shown(
        load_spec(path),
        once=once,
        bootstrap=bootstrap,
        checkpoint_dir=checkpoint_dir,
        master=master,
        conf=conf,
        as_json=as_json,
        quiet=quiet,
    )


def run_shown(
    spec: PipelineSpec, *, once: bool = False, as_json: bool = False, quiet: bool = False, **settings: Any
) -> int:
    """Runs a pipeline, prints progress and a summary, and returns the exit code. settings: see `run_pipeline`. Raises
    PipelineError."""

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    teller = Teller(spec.dead_letters)
    report = run_pipeline(
        spec,
        once=once,
        progress=teller.note,
        shown=None if quiet else teller.show,
        say=say,
        **settings,
    )
    teller.end()
    if as_json:
        print(json.dumps({**asdict(report), "rows": report.rows, "failed": report.failed}))
    else:
        print(summary(report))
    return 130 if report.interrupted and once else 0


class Teller:
    """Prints progress to standard error: on a terminal in one line, otherwise a line every ten seconds."""

    def __init__(self, dead_letters: str) -> None:
        self._dead_letters = dead_letters
        self._reports: dict[str, QueryReport] = {}
        self._progress_line = ""
        self._progress_at = 0.0
        self._terminal = sys.stderr.isatty()

    def note(self, report: QueryReport) -> None:
        """Stores a query's newest numbers."""
        self._reports[report.name] = report

    def show(self, status: dict[str, Any]) -> None:
        """Prints the progress line, if it has changed and it is time to."""
        if not self._reports and not status["waiting"] and not status["last_error"]:
            return
        line = progress_line(status, self._reports.values(), self._dead_letters)
        now = time.monotonic()
        if self._terminal:
            width = max(shutil.get_terminal_size().columns - 1, 20)
            if line != self._progress_line:
                print(f"\r\x1b[K{line[:width]}", end="", file=sys.stderr, flush=True)
        elif line == self._progress_line or (
            now - self._progress_at < SHOWN_SECONDS and not status["waiting"]
        ):
            return
        else:
            print(f"  {line}", file=sys.stderr, flush=True)
        self._progress_line, self._progress_at = line, now

    def end(self) -> None:
        """Ends the line on a terminal."""
        if self._terminal and self._progress_line:
            print(file=sys.stderr, flush=True)


def summary(report: RunReport) -> str:
    """A short table of what a run did."""
    lines = [f"{'query':<24} {'records':>10} {'failed':>8} {'records/s':>10}  to"]
    for query in report.queries:
        rate = query.rows / query.busy_seconds if query.busy_seconds else 0.0
        shown = f"{rate:,.0f}" if query.rows else "-"
        lines.append(f"{query.name:<24} {query.rows:>10,} {query.failed:>8,} {shown:>10}  {query.topic}")
    if report.failed:
        lines.append(f"{report.failed:,} records could not be handled: see topic {report.dead_letters}")
    if late := sum(query.late for query in report.queries):
        lines.append(f"{late:,} rows came too late for their windows or joins, and were dropped")
    if report.interrupted:
        lines.append("stopped; the next run continues from here")
    elif not report.rows:
        lines.append("nothing new: all records were processed before")
    return "\n".join(lines)


def run_pipeline(
    spec: PipelineSpec,
    *,
    once: bool = False,
    bootstrap: str | None = None,
    checkpoint_dir: Path | str | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Progress = lambda _: None,
    shown: Shown | None = None,
    say: Callable[[str], None] = lambda _: None,
    listen: str | None = None,
) -> RunReport:
    """Runs until all present records are processed (`once`), or until Ctrl-C or SIGTERM, on which it stops cleanly.

    bootstrap: takes precedence over the file's. checkpoint_dir: a folder, or a URL that Spark supports. progress:
    called after each micro-batch that read records. shown: called several times a second with the pipeline's status
    (state, rates, lag). say: called with messages for the user. conf: settings of Spark, which take precedence over the
    file's. listen: HOST:PORT on which its status and its views can be asked for over HTTP meanwhile (serving/api.py).

    Without `once`, a pipeline that fails is started again, after growing pauses. Raises PipelineError if it fails
    before it ever ran, and with `once` for any failure.
    """
    from pyspark.sql import SparkSession

    from barnabas.pipelines.spark.session.class_archive import find_archive
    from barnabas.pipelines.spark.session.start import start_session

    address = address_of(spec, bootstrap)
    checkpoint = join(checkpoint_dir or DEFAULT_CHECKPOINTS, spec.name)
    log_file = (local_path(checkpoint) or Path(DEFAULT_CHECKPOINTS) / spec.name) / "spark.log"
    prepare(spec, address)
    report = RunReport(spec.name, spec.dead_letters, checkpoint, str(log_file))
    begun = time.monotonic()
    archive = find_archive()
    running = SparkSession.getActiveSession() is not None
    say("starting Spark")
    with stop_signals() as stopped:

        def start() -> SparkSession:
            return start_session(
                f"barnabas {spec.name}",
                master=master,
                quick=once,
                log_file=log_file,
                conf={**spec.spark, **(conf or {})},
                archive=archive,
            )

        spark = start()
        supervisor = Supervisor(address, log_file, engine=Engine(None if once or running else start))
        report.start_seconds = time.monotonic() - begun
        try:
            with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
                managed = Managed(spec, checkpoint, stop_file(Path(folder)), once=once, reports={})
                _run(spark, supervisor, managed, report, progress, shown, stopped, looking(listen, say))
        finally:
            report.interrupted = stopped.is_set()
            if not running:
                supervisor.engine.close()
    return report


@contextmanager
def stop_signals(end_s: float = END_SECONDS) -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that micro-batches can be finished; a second signal ends the process at
    once. Outside of the main thread, signals are handled as before.

    end_s: so many seconds after the signal, Java is killed and the process ends, whatever Spark does.
    """
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    timers: list[threading.Timer] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            _end_now(128 + number)
        stopped.set()
        timer = threading.Timer(end_s, _end_late, (end_s, 128 + number))
        timer.daemon = True
        timers.append(timer)
        timer.start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for timer in timers:
            timer.cancel()


def _end_late(end_s: float, code: int) -> None:
    text = f"Spark has not stopped within {end_s:g} s and is killed; the next run repeats what was cut off"
    print(text, file=sys.stderr, flush=True)
    _end_now(code)


def _end_now(code: int) -> None:
    """Ends this process and its Java process, without waiting for anything."""
    from barnabas.pipelines.spark.private import kill_java

    kill_java()
    os._exit(code)


def _run(
    spark: SparkSession,
    supervisor: Supervisor,
    managed: Managed,
    report: RunReport,
    progress: Progress,
    shown: Shown | None,
    stopped: threading.Event,
    looking: Callable[[Supervisor], AbstractContextManager[None]],
) -> None:
    begun = time.monotonic()
    supervisor.watch(managed)
    supervisor.open(spark)
    try:
        with looking(supervisor):
            _watch(supervisor, managed, progress, shown, stopped)
    finally:
        supervisor.close()
        report.queries = list((managed.reports or {}).values())
        report.seconds = time.monotonic() - begun


def looking(
    listen: str | None, say: Callable[[str], None]
) -> Callable[[Supervisor], AbstractContextManager[None]]:
    """What serves the status and the views of running pipelines over HTTP, in a thread. Raises PipelineError in its block if
    the address cannot be used."""

    @contextmanager
    def serving(supervisor: Supervisor) -> Iterator[None]:
        if listen is None:
            yield
            return
        from barnabas.http.listening import ServiceError
        from barnabas.http.server import HttpOptions, HttpServer, ServerThread
        from barnabas.pipelines.serving.api import make_lookups

        server = HttpServer(lambda: make_lookups(supervisor), HttpOptions(listen))
        thread = ServerThread([server])
        try:
            thread.start()
        except ServiceError as error:
            raise PipelineError(str(error)) from error
        say(f"answering lookups at {server.url}")
        try:
            yield
        finally:
            thread.stop()

    return serving


def _watch(
    supervisor: Supervisor,
    managed: Managed,
    progress: Progress,
    shown: Shown | None,
    stopped: threading.Event,
) -> None:
    """Reports progress until the pipeline has ended or is to stop. Raises PipelineError if it fails before it ever ran,
    and for any failure of a run that ends by itself; after other failures the supervisor starts it again."""
    seen: dict[str, int] = {}
    ran = False

    def tell() -> None:
        for line in list((managed.reports or {}).values()):
            if line.batches and seen.get(line.name) != line.batches:
                seen[line.name] = line.batches
                progress(line)
        if shown is not None:
            shown(supervisor.status_of(managed))

    while not stopped.is_set() and not managed.ended:
        tell()
        ran = ran or managed.started_at > 0
        if managed.last_error is not None and not ran and managed.waiting_since is None:
            break
        stopped.wait(POLL_SECONDS)
    tell()
    if managed.last_error is not None and (managed.ended or not ran):
        raise PipelineError(managed.last_error)
