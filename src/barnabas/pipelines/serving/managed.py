"""A pipeline that a supervisor runs: what is wanted, what it does, and what is known about it."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.compiler.queries import QueryReport
from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
from barnabas.pipelines.serving.feeds import Feeds
from barnabas.pipelines.serving.rates import Gauge
from barnabas.pipelines.serving.standstill import Standstill

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

FAILURES_MAX: Final = 20
"""How many failures of a pipeline are kept."""


class Wanted(StrEnum):
    """The requested state of a pipeline. Paused and stopped differ only for users: both keep its offsets."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


Running = tuple["StreamingQuery", QueryReport]
"""A running query."""


@dataclass(slots=True)
class Managed:
    """One pipeline.

    brake: see `stop_file`. restarts: since it last ran well. retry_at: when to start again, in monotonic seconds.
    lags, gauges: the newest ones, by query. ends: the ends of the sources' partitions when the lag was asked for, by
    query. waiting_since, target_since: when (seconds since 1970) the broker, or a target, stopped answering. lock:
    held while the pipeline starts and stops. once: it ends when all present records are processed, or at its first
    failure; `ended` is set then. reports: numbers by query, which are kept when it restarts; None: each start counts
    from zero. failures: the last ones, each with its time and reason, oldest first. stands, stuck: by query, whether
    it moves, and a line about each that does not. query_ids: Spark's ids of its queries. begun_at: when the start in
    progress began, in monotonic seconds. starting: source options that say where queries without a checkpoint begin, if it
    is not where the file says. beginning: names the request that said so. feeds: the connectors that fill topics of its
    sources, while they run. generation: of the session in which its queries run, see Engine.
    """

    spec: PipelineSpec
    checkpoints: str
    brake: Path
    wanted: Wanted = Wanted.RUNNING
    text: str = ""
    once: bool = False
    ended: bool = False
    generation: int = 0
    running: list[Running] = field(default_factory=list)
    queries: tuple[Query, ...] = ()
    reports: dict[str, QueryReport] | None = None
    started_at: float = 0.0
    last_error: str | None = None
    error_at: float = 0.0
    failures: deque[dict[str, str]] = field(default_factory=lambda: deque(maxlen=FAILURES_MAX))
    restarts: int = 0
    late_workers: int = 0
    retry_at: float = 0.0
    starting: dict[str, str] = field(default_factory=dict)
    beginning: str = ""
    lags: dict[str, int] = field(default_factory=dict)
    ends: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    gauges: dict[str, Gauge] = field(default_factory=dict)
    stands: dict[str, Standstill] = field(default_factory=dict)
    stuck: dict[str, str] = field(default_factory=dict)
    looked_at: float = 0.0
    query_ids: set[str] = field(default_factory=set)
    begun_at: float | None = None
    feeds: Feeds | None = None
    waiting_since: float | None = None
    target_since: float | None = None
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    work: Future[None] | None = None
    asking: Future[None] | None = None
    asked_at: float = 0.0

    def begin_at(self, starting: Mapping[str, str]) -> None:
        """Queries without a checkpoint begin there from now on."""
        self.starting, self.beginning = dict(starting), uuid.uuid4().hex

    @property
    def state(self) -> str:
        """For display: starting, running, stopping, paused, stopped, failed or ended."""
        if self.running:
            return "running" if self.wanted is Wanted.RUNNING else "stopping"
        if self.wanted is Wanted.RUNNING:
            return "ended" if self.ended else "failed" if self.last_error else "starting"
        return self.wanted.value
