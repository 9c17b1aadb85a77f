"""What it costs to compute a query's state again from the earliest record on, before it is done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient
from barnabas.client.errors import ClientError
from barnabas.pipelines.compiler.queries import QueryReport, connection_options
from barnabas.pipelines.plan.pipeline import PipelineSpec
from barnabas.pipelines.serving.rates import duration_text
from barnabas.pipelines.spark.topics.options import client_options

PATIENCE_S = 10.0


def records_to_read(spec: PipelineSpec, bootstrap: str) -> int | None:
    """How many records the topics of a pipeline have; None if their brokers do not say."""
    options = replace(client_options(connection_options(spec, bootstrap)), deadline_s=PATIENCE_S)
    try:
        with BlockingClient(options) as client:
            names = {name for name in client.topics() if any(source.reads(name) for source in spec.sources)}
            pairs = [(name, partition) for name in names for partition in client.partitions(name)]
            first = client.list_offsets(dict.fromkeys(pairs, EARLIEST))
            last = client.list_offsets(dict.fromkeys(pairs, LATEST))
    except (ClientError, ValueError):
        return None
    return sum(last[pair].offset - first[pair].offset for pair in pairs)


def rebuild_cost(spec: PipelineSpec, bootstrap: str, query: str, reports: Iterable[QueryReport]) -> str:
    """The records that would be read again, and how long that takes if it goes as fast as the query went so far, as the end
    of a sentence; empty if the brokers do not say. reports: of the pipeline as it runs."""
    count = records_to_read(spec, bootstrap)
    if count is None:
        return ""
    text = f": {count:,} records"
    report = next((one for one in reports if one.name == query and one.rows and one.busy_seconds), None)
    if report is None:
        return text
    rate = report.rows / report.busy_seconds
    shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
    return f"{text}, about {duration_text(count / rate)} at the {shown} records/s of this query so far"
