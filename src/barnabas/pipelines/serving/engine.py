"""What the supervisor asks of Spark and of brokers, one method for each question; tests answer them without either."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Final

from barnabas.client.blocking import BlockingClient
from barnabas.client.options import ClientOptions
from barnabas.pipelines.compiler.queries import (
    QueryReport,
    planned_queries,
    start_query,
    take_progress,
    way_of,
)
from barnabas.pipelines.plan.errors import PipelineError, SparkAway
from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
from barnabas.pipelines.serving.managed import Managed
from barnabas.pipelines.serving.preparing import prepare
from barnabas.pipelines.spark.feeds.lending import lent_client
from barnabas.pipelines.spark.feeds.pulse import Pulse, pulses_of
from barnabas.pipelines.spark.private import forget_java, java_process

if TYPE_CHECKING:
    from subprocess import Popen

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

PIPELINE_MARK: Final = "mdc.pipeline"
QUERY_MARK: Final = "mdc.query"
"""Properties that Spark hands from the thread that starts a query to its tasks, and to their entries in its log."""
DEATH_SECONDS: Final = 1.0
"""Connections to a process that is killed break a moment before it has ended."""
_restarting = threading.Lock()


class Engine:
    """Spark, once `open` has given its session, and the brokers.

    generation: how many sessions there have been; queries of an earlier one have ended with its Java process.
    """

    def __init__(self, start_session: Callable[[], SparkSession] | None = None) -> None:
        """start_session: starts Spark again if its Java process has ended; None: it is not started again."""
        self.generation = 0
        self._start_session = start_session
        self._java: Popen[bytes] | None = None
        self._spark: SparkSession | None = None
        self._pulses_of: Callable[[], dict[str, Pulse]] | None = None

    def open(self, spark: SparkSession) -> None:
        """The session that all queries run in."""
        self._spark, self._java, self._pulses_of = spark, java_process(), None
        self.generation += 1

    def close(self) -> None:
        """Stops the session."""
        if self._spark is None:
            return
        with self.outlived():
            if self.death() is None:
                self._spark.stop()
        if self._java is not None and self.death() is not None:
            forget_java(self._java)

    @property
    def can_restart(self) -> bool:
        """Whether Java is started again if it ends."""
        return self._start_session is not None

    def death(self, patience_s: float = 0.0) -> str | None:
        """How the session's Java process has ended; None if it runs, or somebody else started it. patience_s: waits that
        long for its end, of which broken connections come first."""
        if self._java is None:
            return None
        if patience_s:
            with suppress(TimeoutExpired):
                self._java.wait(patience_s)
        code = self._java.poll()
        if code is None:
            return None
        how = f"was killed by signal {-code}" if code < 0 else f"has ended with exit code {code}"
        return f"Spark's Java process {how}"

    @contextmanager
    def outlived(self) -> Iterator[None]:
        """What ends queries goes in here: they have ended, too, if it fails because Java has ended."""
        try:
            yield
        except Exception:
            if self.death(DEATH_SECONDS) is None:
                raise

    def restart(self) -> None:
        """Starts another Java process with a new session, in place of the one that has ended. Raises PipelineError."""
        assert self._start_session is not None
        assert self._java is not None
        # Several servers in a process share Java: the first one starts it, the others take its session.
        with _restarting:
            forget_java(self._java)
            self.open(self._start_session())

    def give_up(self) -> None:
        """Nothing of the session runs any more, and there is no other one."""
        if self._spark is not None:
            self._spark = None
            self.generation += 1

    @property
    def spark(self) -> SparkSession:
        """Raises PipelineError before `open`, and SparkAway if its Java process has ended."""
        death = self.death()
        if death is not None:
            raise SparkAway(f"{death}; try again soon" if self.can_restart else death)
        if self._spark is None:
            raise PipelineError("Spark has not been started yet")
        return self._spark

    def prepare(self, spec: PipelineSpec, bootstrap: str) -> None:
        """See preparing.py."""
        prepare(spec, bootstrap)

    def plan(self, spec: PipelineSpec, checkpoints: str) -> tuple[Query, ...]:
        """See `planned_queries`."""
        return planned_queries(self.spark, spec, checkpoints)

    def way_of(self, spec: PipelineSpec, query: Query) -> str:
        """See queries.py."""
        return way_of(self.spark, spec, query)

    def start(self, managed: Managed, query: Query, bootstrap: str) -> StreamingQuery:
        """Starts a query of a pipeline. Raises PipelineError, and what Spark raises."""
        context = self.spark.sparkContext
        # Each pipeline has its own scheduler pool, so that a busy one leaves task slots to the others.
        context.setLocalProperty("spark.scheduler.pool", managed.spec.name)
        context.setLocalProperty(PIPELINE_MARK, managed.spec.name)
        context.setLocalProperty(QUERY_MARK, query.name)
        return start_query(
            self.spark,
            managed.spec,
            query,
            bootstrap,
            managed.checkpoints,
            brake=managed.brake,
            once=managed.once,
            starting=managed.starting,
            beginning=managed.beginning,
        )

    def take_progress(self, stream: StreamingQuery, report: QueryReport) -> bool:
        """See queries.py."""
        return take_progress(stream, report)

    def pulses(self) -> dict[str, Pulse]:
        """What all queries do now, by the ids of their runs."""
        if self._pulses_of is None:
            self._pulses_of = pulses_of(self.spark)
        return self._pulses_of()

    def client(self, options: ClientOptions) -> AbstractContextManager[BlockingClient]:
        """A client of a cluster, which nobody else uses meanwhile."""
        return lent_client(options)
