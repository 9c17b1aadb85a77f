"""Runs a pipeline file: `barnabas pipeline run FILE.yaml [--once]`.

run_file(path, once=..., bootstrap=...) checks everything, runs, prints progress and a summary, and gives the
exit code. run_pipeline(spec, ...) is the same without printing, for programs. Both raise PipelineError, one
line that says what to do.

Each output is one streaming query with a checkpoint of its own below `checkpoint_dir/<pipeline>/`. A first run
makes the topics that are not there. Once started, a query goes on where its checkpoint stands, so a second run
finds only what is new.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from barnabas.client.blocking import BlockingClient, NewTopic
from barnabas.client.errors import BrokerUnavailable, ClientError
from barnabas.client.options import ClientOptions
from barnabas.pipelines.delivery import TARGETS
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.folders import join, local_path
from barnabas.pipelines.options import OptionError, client_options, source_options
from barnabas.pipelines.queries import (
    POLL_SECONDS,
    QueryReport,
    address_of,
    connection_options,
    failure_reason,
    source_settings,
    start_query,
    stop_file,
    take_progress,
    wait_until_idle,
)
from barnabas.pipelines.spec import PipelineSpec, load_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

DEFAULT_CHECKPOINTS: Final = "data/checkpoints"
CONTACT_SECONDS: Final = 3.0
WORKER_LATE: Final = "Python worker failed to connect back"
STARTS_AGAIN_MAX: Final = 5


@dataclass(slots=True)
class RunReport:
    """What a run did. seconds: from the start of the first query to the end of the last one. interrupted: a
    signal ended it before its time."""

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
        return max((q.rows for q in self.queries), default=0)

    @property
    def failed(self) -> int:
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
    """Runs the pipeline of a file and tells about it; the exit code. Raises PipelineError."""
    spec = load_spec(path)

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    def progress(report: QueryReport) -> None:
        failed = f", {report.failed:,} to {spec.dead_letters}" if report.failed else ""
        say(f"  {report.name}: {report.rows:,} records{failed}")

    report = run_pipeline(
        spec,
        once=once,
        bootstrap=bootstrap,
        checkpoint_dir=checkpoint_dir,
        master=master,
        conf=conf,
        progress=progress,
        say=say,
    )
    if as_json:
        print(json.dumps({**asdict(report), "rows": report.rows, "failed": report.failed}))
    else:
        print(summary(report))
    return 130 if report.interrupted and once else 0


def summary(report: RunReport) -> str:
    """A short table of what a run did."""
    lines = [f"{'query':<24} {'records':>10} {'failed':>8} {'records/s':>10}  to"]
    for query in report.queries:
        rate = query.rows / query.busy_seconds if query.busy_seconds else 0.0
        shown = f"{rate:,.0f}" if query.rows else "-"
        lines.append(f"{query.name:<24} {query.rows:>10,} {query.failed:>8,} {shown:>10}  {query.topic}")
    if report.failed:
        lines.append(f"{report.failed:,} records could not be handled: see topic {report.dead_letters}")
    if report.interrupted:
        lines.append("stopped; the next run goes on from here")
    elif not report.rows:
        lines.append("nothing new: every record there was processed before")
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
    say: Callable[[str], None] = lambda _: None,
) -> RunReport:
    """Runs until everything there is processed (`once`), or until Ctrl-C or SIGTERM: then it stops cleanly.

    bootstrap: wins over the file's. checkpoint_dir: a folder, or a URL that Spark reaches. progress: called after
    each micro-batch that read something. conf: settings of Spark that win over the file's.
    """
    from pyspark.sql import SparkSession

    from barnabas.pipelines.session import build_archive, start_session

    address = address_of(spec, bootstrap)
    checkpoint = join(checkpoint_dir or DEFAULT_CHECKPOINTS, spec.name)
    log_file = (local_path(checkpoint) or Path(DEFAULT_CHECKPOINTS) / spec.name) / "spark.log"
    prepare(spec, address, once=once)
    report = RunReport(spec.name, spec.dead_letters, checkpoint, str(log_file))
    begun = time.monotonic()
    archive = build_archive(say)
    running = SparkSession.getActiveSession() is not None
    say("starting Spark")
    with stop_signals() as stopped:
        spark = start_session(
            f"barnabas {spec.name}",
            master=master,
            quick=once,
            log_file=log_file,
            conf={**spec.spark, **(conf or {})},
            archive=archive,
        )
        report.start_seconds = time.monotonic() - begun
        try:
            _run(spark, spec, address, checkpoint, once, report, progress, stopped)
        finally:
            report.interrupted = stopped.is_set()
            if not running:
                spark.stop()
    return report


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that nothing is broken off in the middle; a second one ends
    the process at once. Outside of the main thread signals stay as they are."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            os._exit(128 + number)
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def prepare(spec: PipelineSpec, bootstrap: str, *, once: bool) -> None:
    """Everything that can be found out before Spark starts: the broker, the topics read, the topics written.

    Topics that are written and not there are made. Raises PipelineError.
    """
    try:
        base = client_options(connection_options(spec, bootstrap))
        for query in spec.queries():
            source_options(source_settings(spec, query, bootstrap))
    except OptionError as error:
        raise PipelineError(f"{spec.where}: {error}") from error
    for output in spec.outputs:
        if output.target is not None:
            TARGETS[output.target.kind].reach(output.target.options)
    options = ClientOptions(
        base.bootstrap, base.client_id, base.tls, base.sasl, contact_timeout_s=CONTACT_SECONDS
    )
    try:
        with BlockingClient(options) as client:
            known = client.describe(spec.source.topics)
            for topic in spec.source.topics:
                if topic not in known:
                    raise PipelineError(
                        f"topic {topic} does not exist: create it with `barnabas topic create {topic}`"
                    )
            client.create_topics(_new_topics(spec), exist_ok=True)
    except BrokerUnavailable as error:
        raise PipelineError(
            f"{error}: start a broker with `barnabas start`, or name another with -b"
        ) from error
    except ClientError as error:
        raise PipelineError(str(error)) from error


def _new_topics(spec: PipelineSpec) -> list[NewTopic]:
    wanted = {spec.dead_letters: NewTopic(spec.dead_letters, 1)}
    for output in spec.outputs:
        for topic in output.topics():
            wanted[topic] = NewTopic(topic, output.partitions, configs=output.config)
    return list(wanted.values())


def _run(
    spark: SparkSession,
    spec: PipelineSpec,
    bootstrap: str,
    checkpoint: str,
    once: bool,
    report: RunReport,
    progress: Progress,
    stopped: threading.Event,
) -> None:
    begun = time.monotonic()
    running: list[tuple[StreamingQuery, QueryReport]] = []
    queries = spec.queries()

    def start(place: int) -> StreamingQuery:
        return start_query(spark, spec, queries[place], bootstrap, checkpoint, brake=brake, once=once)

    folder = tempfile.TemporaryDirectory(prefix="barnabas-")
    brake = stop_file(Path(folder.name))
    try:
        for place, query in enumerate(queries):
            if stopped.is_set():
                break
            line = QueryReport(query.name, query.output.destination)
            report.queries.append(line)
            running.append((start(place), line))
        _watch(running, progress, stopped, start)
        if stopped.is_set():
            brake.touch()
            wait_until_idle([stream for stream, _ in running])
    finally:
        for stream, line in running:
            stream.stop()
            take_progress(stream, line)
        folder.cleanup()
        report.seconds = time.monotonic() - begun


def _watch(
    running: list[tuple[StreamingQuery, QueryReport]],
    progress: Progress,
    stopped: threading.Event,
    start: Callable[[int], StreamingQuery],
) -> None:
    """Waits until all queries have ended; the first that fails ends the run. Raises PipelineError.

    A query whose Python Spark did not see come up in time (ten seconds, on a machine with too much to do) is started
    again: it goes on from its checkpoint.
    """
    again = STARTS_AGAIN_MAX
    while not stopped.is_set():
        for place, (stream, line) in enumerate(running):
            if take_progress(stream, line):
                progress(line)
            error = stream.exception()
            if error is not None and WORKER_LATE in str(error) and again > 0:
                again -= 1
                running[place] = (start(place), line)
            elif error is not None:
                raise PipelineError(f"query {line.name} failed: {failure_reason(str(error))}")
        if not any(stream.isActive for stream, _ in running):
            return
        stopped.wait(POLL_SECONDS)
