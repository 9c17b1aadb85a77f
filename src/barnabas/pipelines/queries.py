"""One streaming query of a pipeline: its settings, its start, its numbers, and why it failed."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.folders import join
from barnabas.pipelines.model import PipelineSpec, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_TRIGGER: Final = "100 milliseconds"
"""Without any pause an idle query would ask the broker for news a hundred times a second."""
POLL_SECONDS: Final = 0.2
STOP_SECONDS: Final = 30.0


@dataclass(slots=True)
class QueryReport:
    """What one query did. rows: read and not filtered out; failed: of these, sent to the dead letters.
    latest: when it last looked for records (ISO 8601, UTC)."""

    name: str
    topic: str
    rows: int = 0
    failed: int = 0
    batches: int = 0
    busy_seconds: float = 0.0
    latest: str = ""


def address_of(spec: PipelineSpec, bootstrap: str | None) -> str:
    """The brokers to talk to: as given, else the file's, else the environment's, else the local one."""
    return bootstrap or spec.bootstrap or os.environ.get("BARNABAS_BOOTSTRAP") or DEFAULT_BOOTSTRAP


def connection_options(spec: PipelineSpec, bootstrap: str) -> dict[str, str]:
    """The `kafka.*` options of a pipeline's source, with the address."""
    own = {name: value for name, value in spec.source.options.items() if name.startswith("kafka.")}
    return {**own, "kafka.bootstrap.servers": bootstrap}


def stop_file(folder: Path) -> Path:
    """While this file of the driver's machine exists the queries finish the micro-batch they are in and begin no
    other."""
    return (folder / "stopping").absolute()


def source_settings(
    spec: PipelineSpec, query: Query, bootstrap: str, brake: Path | None = None
) -> dict[str, str]:
    """The options of a query's source."""
    source = spec.source
    chosen = (
        {"subscribe": ",".join(source.topics)}
        if source.pattern is None
        else {"subscribePattern": source.pattern}
    )
    return {
        "startingOffsets": source.start,
        "includeHeaders": "true",
        **source.options,
        **chosen,
        "kafka.bootstrap.servers": bootstrap,
        "commitGroup": spec.group(query),
        **({} if brake is None else {"stopFile": str(brake)}),
    }


def start_query(
    spark: SparkSession,
    spec: PipelineSpec,
    query: Query,
    bootstrap: str,
    checkpoint: str,
    *,
    brake: Path | None = None,
    once: bool = False,
    starting: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Starts it. checkpoint: folder or URL of the pipeline's checkpoints. brake: see `stop_file`. starting: source
    options that say where a query without a checkpoint begins. Raises PipelineError."""
    from barnabas.pipelines.chain import query_deliverable, query_rows
    from barnabas.pipelines.delivery.base import deliver_batch
    from barnabas.pipelines.first import first_offsets
    from barnabas.pipelines.session import adopt_session, quick_checkpoints

    adopt_session(spark)
    place = join(checkpoint, query.name)
    quick_checkpoints(spark, place)
    source = {**source_settings(spec, query, bootstrap, brake), **(starting or {})}
    first = first_offsets(spark, place, source)
    if first is not None:
        source["firstOffsets"] = json.dumps(first)
    reader = spark.readStream.format("barnabas").options(**source)
    settings = {**connection_options(spec, bootstrap), **query.output.options}
    name = f"{spec.name}.{query.name}"
    append = query.output.aggregate is None or query.only_dead
    target = None if query.only_dead else query.output.target
    fields: tuple[str, ...] = ()
    if target is None:
        rows = query_rows(spec, query, reader.load())
    else:
        rows, fields = query_deliverable(spec, query, reader.load())
    writer = (
        rows.writeStream.queryName(name)
        .option("checkpointLocation", place)
        .outputMode("append" if append else "update")
    )
    pause = query.output.trigger or spec.trigger
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=pause or DEFAULT_TRIGGER)
    if target is not None:
        deliver = partial(
            deliver_batch, spec=spec, query=name, target=target, fields=fields, settings=settings
        )
        return writer.foreachBatch(deliver).start()
    if append:
        return writer.format("barnabas").options(**settings).start()
    return writer.foreachBatch(write_each_batch(settings)).start()


def write_each_batch(settings: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch` of queries in update mode, which a Python sink cannot take directly."""

    def write(rows: DataFrame, _: int) -> None:
        rows.write.format("barnabas").options(**settings).mode("append").save()

    return write


def wait_until_idle(streams: list[StreamingQuery]) -> None:
    """Waits until no query is inside a micro-batch: one that is broken off is done again by the next run, and
    what it had written by then would stand there twice."""
    give_up = time.monotonic() + STOP_SECONDS
    idle = 0
    while idle < 2 and time.monotonic() < give_up:
        busy = any(stream.isActive and stream.status["isTriggerActive"] for stream in streams)
        idle = 0 if busy else idle + 1
        time.sleep(POLL_SECONDS / 2)


def _updates_since(stream: StreamingQuery, latest: str) -> Iterator[Mapping[str, Any]]:
    """What Spark told of the query's micro-batches that began after `latest`, oldest first.

    `stream.recentProgress` would turn all that Spark keeps into JSON and objects at every look: after some minutes
    more work than the pipeline's own.
    """
    kept = stream._jsq.recentProgress()
    first = len(kept)
    while first and str(kept[first - 1].timestamp()) > latest:
        first -= 1
    for index in range(first, len(kept)):
        yield json.loads(kept[index].json())


def take_progress(stream: StreamingQuery, line: QueryReport) -> bool:
    """Adds the micro-batches that ended since the last look; whether one of them read something."""
    from barnabas.pipelines.chain import METRICS

    found = False
    for raw in _updates_since(stream, line.latest):
        line.latest = raw["timestamp"]
        batch = int(raw["batchId"])
        counts = (raw.get("observedMetrics") or {}).get(METRICS)
        if batch < line.batches or not counts or not raw.get("numInputRows"):
            continue
        line.batches = batch + 1
        line.rows += int(counts.get("rows") or 0)
        line.failed += int(counts.get("failed") or 0)
        line.busy_seconds += raw["durationMs"].get("triggerExecution", 0) / 1000
        found = True
    return found


_NAMED: Final = re.compile(
    r"^(?:Caused by: |: )?([A-Za-z_][\w.$]*(?:Error|Exception|Lost|Topic|OutOfRange|Unavailable|Failed)): (.+)$"
)
_OURS: Final = (
    "DataLost",
    "OptionError",
    "UnknownTopic",
    "OffsetOutOfRange",
    "DeliveryError",
    "AuthenticationFailed",
)
_WRAPPERS: Final = (
    "StreamingQueryException",
    "Py4JException",
    "SparkException",
    "Py4JJavaError",
    "AnalysisException",
)


def failure_reason(text: str) -> str:
    """The error at the bottom of a Spark failure, in one line: ours when there is one, else the most precise."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        match = _NAMED.match(line.strip())
        if match:
            found.append((match[1].rpartition(".")[2], match[2]))
    for name, reason in found:
        if name in _OURS or name.startswith("Broker"):
            return reason
    precise = [f"{name}: {reason}" for name, reason in found if name not in _WRAPPERS]
    if precise:
        return precise[-1]
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
    return first.partition("terminated with exception: ")[2] or first
