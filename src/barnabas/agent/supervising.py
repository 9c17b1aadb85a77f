"""Runs the inputs of a configuration, each in a thread of its own, and follows changes of the configuration.

An input that fails (its topic is missing, its login is refused) is tried again, and the others go on.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.agent.config import AgentConfig, Input
from barnabas.agent.job import Job, finish
from barnabas.agent.receivers.receiver import Receiver
from barnabas.agent.running import Run, Stop
from barnabas.agent.shipper import FILE_KEY
from barnabas.observe.metric import Metric, Sample
from barnabas.terminal.connection import ClusterAddress
from barnabas.terminal.errors import EXIT_OK, CliError
from barnabas.terminal.output import note

AGAIN_SECONDS: Final = 5.0
AGAIN_SECONDS_MAX: Final = 60.0
LABELS: Final = ("input", "topic")


def _metric(name: str, unit: str, help: str) -> Metric:
    return Metric("", "", f"barnabas_agent_{name}", unit, help, LABELS)


LINES_READ: Final = _metric("lines_read_total", "lines", "Lines that were read.")
RECORDS_SENT: Final = _metric("records_sent_total", "records", "Records that all in-sync replicas have.")
BYTES_SENT: Final = _metric("bytes_sent_total", "bytes", "Bytes of records that were handed to the client.")
REFUSED: Final = _metric(
    "records_refused_total", "records", "Lines that were left out or became dead letters."
)
WAITING: Final = _metric("records_waiting", "records", "Records that are not acknowledged yet.")
BEHIND: Final = _metric("behind_bytes", "bytes", "Bytes of the followed files that are not acknowledged yet.")
FILES: Final = _metric("files", "files", "Files that are followed.")
FAILURES: Final = _metric("failures_total", "failures", "How often the input failed and was started again.")
RECEIVED: Final = _metric(
    "events_received_total", "events", "Events that were received and kept on the disk."
)
DROPPED: Final = _metric(
    "events_dropped_total", "events", "Datagrams that were lost because there was no room."
)
UP: Final = _metric("up", "", "1 while the input is connected to the cluster, else 0.")


@dataclass(slots=True, eq=False)
class Worker:
    """One input in its thread. past: counts of runs that have ended, by metric."""

    input: Input
    job: Job
    stop: Stop = field(default_factory=Stop)
    thread: threading.Thread | None = None
    trouble: str = ""
    failures: int = 0
    past: dict[Metric, float] = field(default_factory=dict)
    receiver: Receiver | None = None

    def start(self) -> None:
        """Begin to receive, if the input receives, and to ship. Raises CliError."""
        if self.receiver is not None:
            self.receiver.start()
        self.thread = threading.Thread(target=self._work, name=f"input {self.input.name}", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        pause = AGAIN_SECONDS
        while not self.stop.asked:
            began = time.monotonic()
            try:
                self.job.keep_shipping(self.stop, self._follow)
            except CliError as error:
                self._failed(str(error))
            except Exception as error:
                self._failed(f"{type(error).__name__}: {error}")
            if self.job.run is not None:
                self._count(self.job.run)
                self.job.run.abandon()
                self.job.run = None
            pause = AGAIN_SECONDS if time.monotonic() - began > AGAIN_SECONDS_MAX else pause
            self.stop.wait(pause)
            pause = min(pause * 2, AGAIN_SECONDS_MAX)

    def _follow(self, run: Run) -> int:
        self.trouble = ""
        outcome = finish(run, once=False)
        self._count(run)
        self.job.run = None
        if outcome.unwritten:
            note(f"{self.job.who}: cannot write {run.shipper.state.path}: {outcome.unwritten}")
        return EXIT_OK

    def _failed(self, reason: str) -> None:
        self.failures += 1
        if reason != self.trouble and not self.stop.asked:
            note(f"{self.job.who}: {reason}; trying again")
        self.trouble = reason

    def _count(self, run: Run) -> None:
        """Keep the counts of a run that has ended."""
        for metric, value in _counts(run).items():
            self.past[metric] = self.past.get(metric, 0) + value

    def samples(self) -> list[Sample]:
        """Its metrics now."""
        run, labels = self.job.run, (self.input.name, self.input.topic)
        totals = {LINES_READ: 0.0, RECORDS_SENT: 0.0, BYTES_SENT: 0.0, REFUSED: 0.0} | self.past
        if run is not None:
            for metric, value in _counts(run).items():
                totals[metric] += value
        if self.receiver is not None:
            totals[RECEIVED] = self.receiver.spool.events_total
            totals[DROPPED] = self.receiver.spool.dropped_total
        gauges = {
            WAITING: 0 if run is None else sum(sent.left for sent in [*run.shipper.on_way]),
            BEHIND: 0 if run is None else run.behind_bytes(),
            FILES: 0 if run is None else len(run.watcher.open_files),
            FAILURES: self.failures,
            UP: int(run is not None and not self.present_trouble),
        }
        return [Sample(metric, float(value), labels) for metric, value in {**totals, **gauges}.items()]

    @property
    def present_trouble(self) -> str:
        """Why it does not work at the moment; empty if it does."""
        return self.trouble or ("" if self.receiver is None else self.receiver.trouble)

    def has_ended(self) -> bool:
        """Whether nothing more will come, and everything that came has arrived."""
        run = self.job.run
        if self.receiver is None or not self.receiver.ended or run is None:
            return False
        positions = {entry.path: entry.position for entry in [*run.shipper.state.entries]}
        segments = self.receiver.spool.segments()
        return all(path.stat().st_size == positions.get(str(path), 0) for path in segments)

    def status(self) -> dict[str, Any]:
        """Its state, for people and programs."""
        trouble = self.present_trouble
        return {
            "input": self.input.name,
            "topic": self.input.topic,
            "state": "failing" if trouble else "starting" if self.job.run is None else "running",
            "trouble": trouble,
            **{
                sample.metric.name.removeprefix("barnabas_agent_").removesuffix("_total"): int(sample.value)
                for sample in self.samples()
                if sample.metric is not UP
            },
        }


def _counts(run: Run) -> dict[Metric, float]:
    shipper = run.shipper
    return {
        LINES_READ: run.lines_read,
        RECORDS_SENT: shipper.lines_arrived,
        BYTES_SENT: shipper.bytes_sent,
        REFUSED: shipper.lines_refused,
    }


@dataclass(slots=True, eq=False)
class Supervisor:
    """All inputs of a configuration."""

    config: AgentConfig
    connection: ClusterAddress
    workers: dict[str, Worker] = field(default_factory=dict)

    def start(self) -> None:
        """Begin with every input."""
        for input in self.config.inputs:
            self._add(input)

    def _add(self, input: Input) -> None:
        worker = Worker(input, job_of(input, self.config, self.connection))
        if input.source is not None:
            spool = input.source.spool(self.config.state, input.name)
            worker.receiver = input.source.receiver(spool, worker.job.who)
            worker.job.patterns = [spool.pattern]
            worker.job.after_save = spool.remove_shipped
        self.workers[input.name] = worker
        worker.start()

    def reload(self, config: AgentConfig, connection: ClusterAddress) -> str:
        """Go over to another configuration: inputs that it does not change go on; a sentence about what was done."""
        is_elsewhere = (connection.bootstrap, connection.properties, config.state) != (
            self.connection.bootstrap,
            self.connection.properties,
            self.config.state,
        )
        wanted = {input.name: input for input in config.inputs}
        ending = [
            name for name, worker in self.workers.items() if is_elsewhere or wanted.get(name) != worker.input
        ]
        fresh = [name for name in wanted if name in ending or name not in self.workers]
        removed = [name for name in ending if name not in wanted]
        self._end(ending)
        self.config, self.connection = config, connection
        for name in fresh:
            self._add(wanted[name])
        changed = len(ending) - len(removed)
        return f"{len(fresh) - changed} added, {changed} changed, {len(removed)} removed"

    def _end(self, names: list[str]) -> None:
        """Stop inputs, all at the same time."""
        for name in names:
            receiver = self.workers[name].receiver
            if receiver is not None:
                receiver.stop()
        for name in names:
            self.workers[name].stop.ask()
        for name in names:
            worker = self.workers.pop(name)
            if worker.thread is not None:
                worker.thread.join()

    def stop(self) -> None:
        """Stop every input; what is not acknowledged is sent by the next run."""
        self._end([*self.workers])

    def has_ended(self) -> bool:
        """Whether all inputs have come to an end, as standard input does."""
        return all(worker.has_ended() for worker in self.workers.values())

    def samples(self) -> list[Sample]:
        """The metrics of all inputs."""
        return [sample for worker in [*self.workers.values()] for sample in worker.samples()]

    def status(self) -> list[dict[str, Any]]:
        """The state of all inputs."""
        return [worker.status() for worker in [*self.workers.values()]]


def job_of(input: Input, config: AgentConfig, connection: ClusterAddress) -> Job:
    """What an input asks for."""
    key = None if input.key in ("none", "") else FILE_KEY if input.key == "file" else input.key.encode()
    if input.key == "host":
        key = input.recipe.shape.host.encode()
    own = ClusterAddress(connection.bootstrap, dict(connection.properties), connection.verbose)
    return Job(
        own, input.topic, [*input.files], config.state, input.settings(), key, input.with_headers,
        once=False, quiet=True, reset=False, who=f"barnabas agent: {input.name}", name=input.name,
        recipe=input.recipe, looks=input.looks, pace=input.new_pace(), more_headers=[*input.headers],
        dead_letters=input.dead_letters,
    )  # fmt: skip
