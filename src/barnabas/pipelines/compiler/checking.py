"""Checks a pipeline without a broker: its options are read, and Spark plans every query.

Unknown fields and functions, wrong types and broken SQL are found by planning, so nothing has to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.compiler.outputs import query_deliverable, query_rows
from barnabas.pipelines.compiler.queries import sink_settings, source_settings, way_of
from barnabas.pipelines.kinds.schemas import nothing_registered
from barnabas.pipelines.kinds.sources import SOURCES
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.relations import Relation, Scan
from barnabas.pipelines.spark.frame import spark_reason
from barnabas.pipelines.spark.session.start import adopt_session
from barnabas.pipelines.spark.topics.options import OptionError, sink_options, source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.pipelines.compiler.relations import Load
    from barnabas.pipelines.plan.pipeline import PipelineSpec, Query

ANYWHERE = "localhost:9092"


def check_options(spec: PipelineSpec) -> None:
    """Checks the options of sources and sinks. Raises PipelineError."""
    for query in spec.queries():
        for source in spec.topics_read:
            try:
                source_options(source_settings(spec, query, spec.bootstrap or ANYWHERE, source=source))
            except OptionError as error:
                raise PipelineError(f"{source.where or spec.where}: {error}") from error
        try:
            settings = sink_settings(spec, query, spec.bootstrap or ANYWHERE)
            sink_options({**settings, **query.output.options})
        except (OptionError, ValueError) as error:
            where = query.output.where.get("options") or spec.where
            raise PipelineError(f"{where}: {error}") from error


def ways(spark: SparkSession, spec: PipelineSpec) -> dict[str, str]:
    """How the records of each query are processed, see `way_of`."""
    return {query.name: way_of(spark, spec, query) for query in spec.queries()}


def check_plan(spark: SparkSession, spec: PipelineSpec) -> None:
    """Lets Spark plan every query over no records. Raises PipelineError with the line of the mistake."""
    adopt_session(spark)

    def nothing(relation: Relation, stream: bool) -> DataFrame:
        assert isinstance(relation.origin, Scan)
        source = relation.origin.source
        return SOURCES[source.kind].empty(spark, source)

    for query in spec.queries():
        try:
            with nothing_registered():
                _plan(spec, query, nothing)
        except PipelineError:
            raise
        except Exception as error:
            output = query.output
            where = output.where.get("aggregate") or output.where.get("") or spec.where
            raise PipelineError(f"{where}: output {output.name}: {spark_reason(error)}") from error


def _plan(spec: PipelineSpec, query: Query, load: Load) -> None:
    if query.output.target is not None and not query.only_dead:
        query_deliverable(spec, query, load)
    else:
        query_rows(spec, query, load)
