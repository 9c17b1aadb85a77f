"""What the supervisor asks of Spark and of brokers, one method for each question; tests answer them without either."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
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
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
from barnabas.pipelines.serving.managed import Managed
from barnabas.pipelines.serving.preparing import prepare
from barnabas.pipelines.spark.feeds.lending import lent_client
from barnabas.pipelines.spark.feeds.pulse import Pulse, pulses_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

PIPELINE_MARK: Final = "mdc.pipeline"
QUERY_MARK: Final = "mdc.query"
"""Properties that Spark hands from the thread that starts a query to its tasks, and to their entries in its log."""


class Engine:
    """Spark, once `open` has given its session, and the brokers."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._pulses_of: Callable[[], dict[str, Pulse]] | None = None

    def open(self, spark: SparkSession) -> None:
        """The session that all queries run in."""
        self._spark = spark

    @property
    def spark(self) -> SparkSession:
        """Raises PipelineError before `open`."""
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
