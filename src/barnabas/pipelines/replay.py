"""Dead letters put through again: those that the pipeline can handle now go back to the topic they came from.

Each dead letter of the pipeline that no earlier replay has looked at is tried against the pipeline's steps as
they are now, after an optional repair of its value. What passes is written to its source topic, where the running
pipeline takes it like any new record, so that aggregates count it too. What does not pass goes to the end of the
dead-letter topic, with its newest reason and one more in `barnabas.attempts`. The consumer group
`<pipeline>.dead-letters` remembers how far replays came. A replay that is killed between writing and committing
repeats what it wrote.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient
from barnabas.client.errors import ClientError, UnknownTopic
from barnabas.pipelines.chain import HEADER_PREFIX, dead_headers, opened, run_steps
from barnabas.pipelines.columns import DDL_TYPES
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.model import PipelineSpec, Step
from barnabas.pipelines.options import client_options
from barnabas.pipelines.queries import connection_options
from barnabas.pipelines.records import as_rows, read_ranges
from barnabas.pipelines.steps.base import Frame, expression, kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS: Final = HEADER_PREFIX + "attempts"
REPLAYED: Final = HEADER_PREFIX + "replayed"


@dataclass(slots=True)
class ReplayReport:
    """found: dead letters looked at. replayed: written to their topics. still_bad: by reason. left: not asked
    for, and moved to the end with the others."""

    found: int = 0
    replayed: int = 0
    left: int = 0
    still_bad: dict[str, int] = field(default_factory=dict)


def group_of(spec: PipelineSpec) -> str:
    return f"{spec.name}.dead-letters"


def replay(
    spark: SparkSession,
    spec: PipelineSpec,
    bootstrap: str,
    *,
    where: str | None = None,
    repair: str | None = None,
    dry_run: bool = False,
    from_beginning: bool = False,
) -> ReplayReport:
    """Replays the dead letters of a pipeline.

    where: Spark SQL over value, reason, step, topic, partition, offset, attempts, timestamp: which ones. repair:
    Spark SQL that gives the new value, as text, out of the same names. dry_run: only tell. Raises PipelineError.
    """
    settings = connection_options(spec, bootstrap)
    try:
        with BlockingClient(client_options(settings)) as client:
            ranges = _ranges(client, spec, from_beginning)
            rows = as_rows(spark, read_ranges(client, ranges))
            report = _replay_rows(spec, settings, rows, where, repair, dry_run)
            if not dry_run:
                client.commit(group_of(spec), {pair: end for pair, (_, end) in ranges.items()})
            return report
    except UnknownTopic as error:
        raise PipelineError(f"{error}: the pipeline has not run yet") from error
    except ClientError as error:
        raise PipelineError(str(error)) from error


def _ranges(
    client: BlockingClient, spec: PipelineSpec, from_beginning: bool
) -> dict[tuple[str, int], tuple[int, int]]:
    topic = spec.dead_letters
    pairs = [(topic, partition) for partition in client.partitions(topic)]
    starts = client.list_offsets(dict.fromkeys(pairs, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(pairs, LATEST))
    done = {} if from_beginning else client.committed(group_of(spec), {topic: [p for _, p in pairs]})
    return {p: (max(starts[p].offset, done.get(p, 0)), ends[p].offset) for p in pairs}


def _header(name: str) -> Column:
    """The last header of this name as text."""
    same = F.filter("headers", lambda header: header["key"] == HEADER_PREFIX + name)
    return F.try_element_at(same, F.lit(-1))["value"].cast("string")


def restored(rows: DataFrame, pipeline: str) -> DataFrame:
    """Dead letters as the records they were, with reason, step and attempts beside; other pipelines' are left."""
    own = F.filter("headers", lambda header: ~header["key"].startswith(HEADER_PREFIX))
    return rows.where(_header("pipeline") == pipeline).select(
        "key",
        "value",
        _header("topic").alias("topic"),
        _header("partition").cast("int").alias("partition"),
        _header("offset").cast("bigint").alias("offset"),
        "timestamp",
        F.when(F.size(own) > 0, own).alias("headers"),
        _header("reason").alias("reason"),
        _header("step").alias("step"),
        F.coalesce(_header("attempts").cast("int"), F.lit(0)).alias("attempts"),
        F.monotonically_increasing_id().alias("number"),
    )


def _replay_rows(
    spec: PipelineSpec,
    settings: dict[str, str],
    rows: DataFrame,
    where: str | None,
    repair: str | None,
    dry: bool,
) -> ReplayReport:
    dead = restored(rows, spec.name).localCheckpoint()
    texts = dead.withColumn("value", F.col("value").cast("string"))
    frame = Frame(texts)
    place = Step("replay", "replay-dead-letters", {}, spec.name)
    _, wanted = expression(frame, where or "true", place)
    chosen = texts.where(wanted).select("number")
    repaired = dead.join(chosen, "number", "left_semi")
    if repair is not None:
        _, value = expression(frame, repair, place)
        fixed = texts.select("number", value.cast("string").cast("binary").alias("value"))
        repaired = repaired.drop("value").join(fixed, "number")
    bad = _failures(spec, repaired).localCheckpoint()
    good = repaired.join(bad, "number", "left_anti").localCheckpoint()
    report = ReplayReport(found=dead.count(), replayed=good.count())
    report.left = report.found - report.replayed - bad.count()
    for row in bad.groupBy("reason").count().collect():
        report.still_bad[row["reason"]] = row["count"]
    if not dry:
        _write(spec, settings, dead, good, bad)
    return report


def _failures(spec: PipelineSpec, records: DataFrame) -> DataFrame:
    """number, reason and step of the records that some output of the pipeline cannot handle."""
    numbered = F.concat(
        F.coalesce(F.col("headers"), F.array().cast(DDL_TYPES["headers"])),
        F.array(
            F.struct(
                F.lit("number").alias("key"), F.col("number").cast("string").cast("binary").alias("value")
            )
        ),
    )
    common = run_steps(opened(records.withColumn("headers", numbered)), spec.steps)
    number = F.element_at("_headers", -1)["value"].cast("string").cast("bigint").alias("number")
    failures = None
    for output in spec.outputs:
        done = kept(run_steps(common, output.steps).data, F.col("_error").isNotNull())
        found = done.select(
            number, F.col("_error")["reason"].alias("new_reason"), F.col("_error")["step"].alias("new_step")
        )
        failures = found if failures is None else failures.unionByName(found)
    assert failures is not None
    return failures.groupBy("number").agg(
        F.min("new_reason").alias("reason"), F.min_by("new_step", "new_reason").alias("step")
    )


def _write(
    spec: PipelineSpec, settings: dict[str, str], dead: DataFrame, good: DataFrame, bad: DataFrame
) -> None:
    kind = DDL_TYPES["headers"]
    own = F.coalesce(F.col("headers"), F.array().cast(kind))

    def told(name: str, value: Column) -> Column:
        entry = F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
        return F.array(entry).cast(kind)

    replayed = F.concat(own, told(REPLAYED, F.col("attempts") + 1)).alias("headers")
    back = good.select("topic", "partition", "key", "value", replayed, "timestamp")
    fresh = bad.select("number", F.col("reason").alias("new_reason"), F.col("step").alias("new_step"))
    left = dead.join(good, "number", "left_anti").join(fresh, "number", "left")
    record = {f"_{name}": F.col(name) for name in ("topic", "partition", "offset", "headers")}
    tried = F.col("new_reason").isNotNull()
    again = left.withColumns(
        {
            **record,
            "_error": F.struct(
                F.coalesce("new_step", "step").alias("step"),
                F.coalesce("new_reason", "reason").alias("reason"),
            ),
            "_tries": F.col("attempts") + tried.cast("int"),
        }
    ).select(
        F.lit(spec.dead_letters).alias("topic"),
        "key",
        "value",
        F.concat(dead_headers(spec.name), told(ATTEMPTS, F.col("_tries"))).alias("headers"),
        "timestamp",
    )
    for rows in (back, again):
        rows.write.format("barnabas").options(**settings).mode("append").save()
