"""The streaming queries of a pipeline: their settings, start and progress."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import ClientError
from barnabas.pipelines.compiler.changes import Change, changes, check_changes
from barnabas.pipelines.compiler.senders import SOURCES_NOTE, note_senders, noted_senders
from barnabas.pipelines.direct.planning import direct_program, planned_program
from barnabas.pipelines.direct.program import Program
from barnabas.pipelines.direct.slots import NeedsSpark
from barnabas.pipelines.kinds.sources import SOURCES, Reading
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
from barnabas.pipelines.plan.processing import Process
from barnabas.pipelines.plan.relations import Relation
from barnabas.pipelines.plan.sources import Source
from barnabas.pipelines.spark.connect import is_remote
from barnabas.pipelines.spark.folders import Folder, join, local_path
from barnabas.pipelines.spark.private import progress_since
from barnabas.pipelines.spark.session.log import failure_reason
from barnabas.pipelines.spark.topics.offsets import parse_offset
from barnabas.pipelines.spark.topics.options import client_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from barnabas.pipelines.compiler.relations import Load

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_TRIGGER: Final = "100 milliseconds"
"""Without a pause, an idle query would ask the broker for new records a hundred times a second."""
CLOCK_TRIGGER: Final = "1 second"
"""The pause of queries with a step that goes by the clock: each is followed by a micro-batch, if only an empty one."""
POLL_SECONDS: Final = 0.2
STOP_SECONDS: Final = 30.0
CONFIG_SECONDS: Final = 2.0
ROWS_OPTION: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES_OPTION: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
STATE_OPTION: Final = "spark.sql.streaming.stateStore.providerClass"
EMPTY_OPTION: Final = "spark.sql.streaming.noDataMicroBatches.enabled"
ON_DISK: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""Where tables are kept: on disk, not in Java's memory."""
UNBOUNDED: Final = str((1 << 31) - 1)
"""With this value, Spark does not count bytes at all."""
BATCH_BYTES: Final = 512 << 20
RECORD_BYTES: Final = 1 << 20
ROWS_MIN, ROWS_MAX = 64, 4096
"""With records of at most 1 MB, Kafka's default, a batch has 512 rows: at most 512 MB, usually some 100 KB."""
PARCELS_MAX: Final = 128
"""The most rows in a batch of parcels: a parcel is a row of at most half a megabyte, usually a tenth of that."""
PLANNED_FOR: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
}
"""The settings with which Spark's expressions have the same results as direct/."""
NO_QUERY: Final = (
    "through Spark Connect foreachBatch does not know its query, so it cannot write exactly once: leave "
    "kafka.transactional.id out, or write in append mode with writeStream.format('barnabas')"
)
_starting = threading.Lock()
"""Held while a query starts, because the query takes its settings from the session at that moment."""


@dataclass(slots=True)
class QueryReport:
    """What one query has done. rows: read and not filtered out. failed: of these, sent to the dead letters. late: rows that
    Spark dropped because their windows, or the bound of their join, were over; of one group in a micro-batch it counts one.
    state_rows, state_bytes: what it keeps now. batches: the number of its next micro-batch. latest: when the last
    micro-batch seen here began (ISO 8601, UTC). rate: its records per second. way: see `way_of`. run: Spark's id of its
    present run. positions: the offsets that it has reached, empty before its first report. reached: see `reached_in`."""

    name: str
    topic: str
    rows: int = 0
    failed: int = 0
    late: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    batches: int = 0
    busy_seconds: float = 0.0
    latest: str = ""
    rate: float = 0.0
    way: str = ""
    run: str = ""
    positions: Mapping[tuple[str, int], int] = field(default_factory=dict)
    reached: str | None = None


COMMITTED: Final = {"kafka.isolation.level": "read_committed"}
"""What pipelines read unless their options say otherwise, as streams of Kafka Streams and ksqlDB do. The data source alone
has the default of Spark's Kafka source, read_uncommitted."""


def address_of(spec: PipelineSpec, bootstrap: str | None) -> str:
    """The brokers' address: the given one, else the pipeline's, else $BARNABAS_BOOTSTRAP, else localhost:9092."""
    return bootstrap or spec.bootstrap or os.environ.get("BARNABAS_BOOTSTRAP") or DEFAULT_BOOTSTRAP


def connection_options(spec: PipelineSpec, bootstrap: str) -> dict[str, str]:
    """The `kafka.*` options of a pipeline's source, with the brokers' address."""
    own = {name: value for name, value in spec.source.options.items() if name.startswith("kafka.")}
    return {**own, "kafka.bootstrap.servers": bootstrap}


def stop_file(folder: Path) -> Path:
    """The path of the stop file, on the driver's machine: while it exists, queries finish their present micro-batch and
    begin no other one."""
    return (folder / "stopping").absolute()


def own_settings(spec: PipelineSpec, query: Query, *, once: bool) -> dict[str, str]:
    """The settings of Spark that a query needs and others may not have.

    State is kept on disk if there are tables, which are too large for memory, or user code, whose state Spark keeps only
    there. With a step that goes by the clock, Spark makes one empty micro-batch after the other, because a timer might be
    due: a run that is to end must not have any.
    """
    steps = user_code(spec, query)
    aggregate = None if query.only_dead else query.output.aggregate
    in_python = bool(steps) or (aggregate is not None and aggregate.takes_back)
    on_disk = spec.plan_of(query).keeps_tables(query.relation) or in_python
    endless = once and any(step.time == "clock" for step in steps)
    return {**({STATE_OPTION: ON_DISK} if on_disk else {}), **({EMPTY_OPTION: "false"} if endless else {})}


def user_code(spec: PipelineSpec, query: Query) -> list[Process]:
    """The steps of user code that a query's rows pass."""
    operators = [
        operator for relation in spec.plan_of(query).needed(query.relation) for operator in relation.operators
    ]
    operators += [operator for output in query.outputs for operator in output.operators]
    return [operator for operator in operators if isinstance(operator, Process)]


def takes_replays(spec: PipelineSpec, query: Query) -> bool:
    """Whether letters are replayed into the running query, because it has an aggregate."""
    return query.output.aggregate is not None and not query.only_dead and spec.plan.single


def session_program(spark: SparkSession, spec: PipelineSpec, query: Query) -> Program | None:
    """The program that processes lines of this query without Spark's expressions, see direct/planning.py. None if Spark has
    to process them, which may also be due to the settings of its session: these come from the command line as well, and the
    session may belong to another program."""
    program = direct_program(spec, query)
    return program if program is not None and _other_setting(spark) is None else None


def way_of(spark: SparkSession, spec: PipelineSpec, query: Query) -> str:
    """How a query's records are processed, as one line of text; see `session_program`."""
    try:
        planned_program(spec, query)
        reason = _other_setting(spark)
    except NeedsSpark as refusal:
        reason = str(refusal)
    if reason is None:
        return "direct: plain records bypass Spark's expressions, only the others go through them"
    return f"Spark's expressions: {reason}"


def _other_setting(spark: SparkSession) -> str | None:
    """The first setting of the session because of which Spark has to process lines; None if there is none."""
    for name, value in PLANNED_FOR.items():
        setting = str(spark.conf.get(name))
        if setting.casefold() != value.casefold():
            return f"{name} is {setting}, not {value}"
    return None


def source_settings(
    spec: PipelineSpec,
    query: Query,
    bootstrap: str,
    brake: Path | None = None,
    source: Source | None = None,
    program: Program | None = None,
) -> dict[str, str]:
    """The options of a query's source. source: one of several; None for the only one. program: from `session_program`."""
    source = source or spec.source
    # Letters that a replay has copied for an aggregate are read by its running query.
    more = [spec.replays] if takes_replays(spec, query) else []
    chosen = (
        {"subscribe": ",".join([*source.topics, *more])}
        if source.pattern is None
        else {"subscribePattern": "|".join([f"(?:{source.pattern})", *map(re.escape, more)])}
    )
    return {
        "startingOffsets": source.start,
        "includeHeaders": "true",
        **COMMITTED,
        **source.options,
        **chosen,
        "kafka.bootstrap.servers": bootstrap,
        "commitGroup": spec.group(query),
        **({} if brake is None else {"stopFile": str(brake)}),
        **({} if program is None else {"direct": program.text()}),
    }


def begun_at(
    settings: Mapping[str, str], starting: Mapping[str, str] | None, source: Source, *, is_only: bool
) -> dict[str, str]:
    """The options of a source with another beginning: no option of its own that says where to begin is left.

    starting: of the whole pipeline; empty if it begins where its file says. is_only: whether the pipeline has no other
    source; if it has, offsets concern the source that reads their topic, and a source without such offsets begins as its
    own options say.
    """
    if not starting:
        return dict(settings)
    offsets = starting.get("startingOffsets", "")
    if offsets.startswith("{") and not is_only:
        mine = {topic: value for topic, value in json.loads(offsets).items() if source.reads(topic)}
        if not mine:
            return dict(settings)
        starting = {**starting, "startingOffsets": json.dumps(mine)}
    kept = {name: value for name, value in settings.items() if not name.lower().startswith("starting")}
    return {**kept, **starting}


def sink_settings(
    spec: PipelineSpec, query: Query, bootstrap: str, program: Program | None = None
) -> dict[str, str]:
    """The options of a query's sink for writing outside of micro-batches. program: the same as for the source."""
    chosen = {n: v for n, v in query.output.options.items() if n.lower() != "exactlyonce"}
    return {
        **connection_options(spec, bootstrap),
        **chosen,
        "deadLetters": spec.dead_letters,
        "pipeline": spec.name,
        "ownTopics": ",".join([*(t for output in query.outputs for t in output.topics()), spec.dead_letters]),
        **({} if program is None else {"parcels": "true"}),
    }


def changed_queries(spark: SparkSession, spec: PipelineSpec, checkpoint: str) -> list[Change]:
    """What a changed pipeline keeps of its checkpoints; nothing if it has none. Notes nothing."""
    place = local_path(checkpoint)
    if place is not None and not place.exists():
        return []
    folder = Folder(spark, checkpoint)
    if not folder.exists():
        return []
    return changes(folder, spec, spec.queries(_outputs_apart(folder, spec), noted_senders(folder)))


def planned_queries(spark: SparkSession, spec: PipelineSpec, checkpoint: str) -> tuple[Query, ...]:
    """The queries of a pipeline, divided as in its checkpoints.

    Who sends which dead letters is noted there (senders.py); in each query's checkpoint, with which plan it was made
    (changes.py), and which outputs share the query. An output added later has its own query, which begins where the
    pipeline says; so has an output that already has a checkpoint of its own. Raises PipelineError.
    """
    folder = Folder(spark, checkpoint)
    try:
        apart = _outputs_apart(folder, spec)
        before = noted_senders(folder)
        queries = spec.queries(apart, before)
        check_changes(folder, spec, queries)
        note_senders(folder, spec, queries, before)
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(
            f"the checkpoints {checkpoint} cannot be used: {failure_reason(str(error))}"
        ) from error
    return queries


def _outputs_apart(folder: Folder, spec: PipelineSpec) -> list[str]:
    """The outputs that could share a query with others, but have one of their own in the checkpoints."""
    if not spec.sharing():
        return []
    note = f"{spec.shared_name}/barnabas-outputs.json"
    if folder.exists(note):
        shared = set(folder.read_note(note))
        return [output.name for output in spec.outputs if output.name not in shared]
    apart = [output.name for output in spec.sharing() if folder.exists(f"{output.name}/offsets")]
    if spec.sharing(apart):
        folder.write_note(note, [output.name for output in spec.sharing(apart)])
    return apart


def rows_per_batch(spec: PipelineSpec, bootstrap: str) -> int:
    """How many rows may be in memory between Java and Python: fewer if the sources' topics allow large records."""
    options = client_options(connection_options(spec, bootstrap))
    largest = RECORD_BYTES
    with BlockingClient(replace(options, deadline_s=CONFIG_SECONDS)) as client:
        for topic in dict.fromkeys(topic for source in spec.sources for topic in source.topics):
            with suppress(ClientError, ValueError):
                largest = max(largest, int(client.topic_configs(topic)["max.message.bytes"] or 0))
    return min(max(BATCH_BYTES // largest, ROWS_MIN), ROWS_MAX)


def batch_rows(spark: SparkSession, spec: PipelineSpec, bootstrap: str, *, packed: bool) -> int | None:
    """How many rows a query may hold in memory between Java and Python; None leaves it to Spark. packed: rows are parcels.

    Spark's own bound by bytes (`maxBytesPerBatch`) looks at every column after every row, which takes longer than all
    the rest if there are headers. The pipeline's own settings are not changed.
    """
    if spark.conf.get(BYTES_OPTION, None) != UNBOUNDED or ROWS_OPTION in spec.spark:
        return None
    rows = rows_per_batch(spec, bootstrap)
    return min(rows, PARCELS_MAX) if packed else rows


def begun(
    spark: SparkSession,
    writer: DataStreamWriter,
    rows: int | None,
    *,
    local: bool | None = None,
    own: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a query with settings of its own: the session has one value for all queries, and a query keeps the one that is
    set when it starts. rows: see `batch_rows`. local: whether its checkpoint is on a local disk; None leaves that setting
    alone. own: see `own_settings`."""
    from barnabas.pipelines.spark.session.start import choose_file_manager

    with _starting:
        if local is not None:
            choose_file_manager(spark, local=local)
        if rows is not None:
            spark.conf.set(ROWS_OPTION, str(rows))
        before = {name: spark.conf.get(name) for name in own or {}}
        try:
            for name, value in (own or {}).items():
                spark.conf.set(name, value)
            return writer.start()
        finally:
            for name, old in before.items():
                spark.conf.set(name, str(old))


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
    beginning: str = "",
) -> StreamingQuery:
    """Starts a query. checkpoint: folder or URL of the pipeline's checkpoints. brake: see `stop_file`. once: process
    what is there, then end. starting: source options that say where a query without a checkpoint begins. beginning: names
    the request that said so. Raises PipelineError."""
    from barnabas.pipelines.compiler.changelogs import changelog_of
    from barnabas.pipelines.compiler.outputs import query_rows
    from barnabas.pipelines.spark.session.start import adopt_session, is_local

    adopt_session(spark)
    program = session_program(spark, spec, query)
    bound = batch_rows(spark, spec, bootstrap, packed=program is not None)
    place = join(checkpoint, query.name)
    own = own_settings(spec, query, once=once)
    begin = partial(begun, spark, rows=bound, local=is_local(spark, place), own=own)
    settings = sink_settings(spec, query, bootstrap, program)
    changelog = changelog_of(spark, spec, query, place, settings, beginning)
    before, reached = (None, None) if changelog is None else changelog.begin(anew=bool(starting))
    load = source_loader(
        spark, spec, query, bootstrap, place, brake=brake, starting=reached or starting, program=program
    )
    name = f"{spec.name}.{query.name}"
    if query.output.target is not None and not query.only_dead:
        rows, write = _for_target(spec, query, load, name, place, settings)
        return begin(_writer(spec, query, rows, name, place, once=once).foreachBatch(write))
    rows = query_rows(spec, query, load, changes=True, before=before)
    writer = _writer(spec, query, rows, name, place, once=once)
    if changelog is not None:
        settings |= {"exactlyOnce": "true", "kafka.transactional.id": changelog.transactional_id}
        return begin(writer.foreachBatch(changelog.writer(write_each_batch(settings))))
    settings |= exactly_once_settings(spark, query, name, place)
    return begin(_into_topic(spec, query, writer, place, settings))


def _writer(
    spec: PipelineSpec, query: Query, rows: DataFrame, name: str, place: str, *, once: bool
) -> DataStreamWriter:
    """The stream of a query's rows with its checkpoint and its trigger, but without a sink yet."""
    writer = (
        rows.writeStream.queryName(name)
        .option("checkpointLocation", place)
        .outputMode("append" if query.adds_only else "update")
    )
    if once:
        return writer.trigger(availableNow=True)
    pause = query.output.trigger or spec.trigger
    clocked = any(step.time == "clock" for step in user_code(spec, query))
    return writer.trigger(processingTime=pause or (CLOCK_TRIGGER if clocked else DEFAULT_TRIGGER))


def _for_target(
    spec: PipelineSpec, query: Query, load: Load, name: str, place: str, settings: Mapping[str, str]
) -> tuple[DataFrame, Callable[[DataFrame, int], None]]:
    """The rows for a target that is not a topic, and the function that delivers each micro-batch of them."""
    from barnabas.pipelines.compiler.outputs import query_deliverable
    from barnabas.pipelines.kinds.targets import TARGETS
    from barnabas.pipelines.kinds.targets.base import deliver_batch

    target = query.output.target
    assert target is not None
    kind = TARGETS[target.kind]
    if kind.open is not None:
        kind.open(spec, query.output, place)
    rows, fields, is_open = query_deliverable(spec, query, load)
    return rows, partial(
        deliver_batch,
        spec=spec,
        query=name,
        output=query.output.name,
        checkpoint=place,
        kind=kind,
        target=target,
        fields=fields,
        open=is_open,
        settings=settings,
    )


def _into_topic(
    spec: PipelineSpec, query: Query, writer: DataStreamWriter, place: str, settings: Mapping[str, str]
) -> DataStreamWriter:
    from barnabas.pipelines.compiler.keeping import Keeper

    if query.output.stores is not None and not query.only_dead:
        return writer.foreachBatch(Keeper(spec, query.output, place, write_each_batch(settings)))
    if query.adds_only:
        return writer.format("barnabas").options(**settings)
    return writer.foreachBatch(write_each_batch(settings))


def exactly_once_settings(spark: SparkSession, query: Query, name: str, place: str) -> dict[str, str]:
    """The options with which a query's sink writes each row exactly once, unless its output says otherwise. The prefix
    of its transactional ids is stored in its checkpoint: it moves with the checkpoint, and no other query has it."""
    chosen = {n.lower(): v for n, v in query.output.options.items()}
    wanted = chosen.get("exactlyonce", "true")
    if wanted.lower() != "true" or "kafka.transactional.id" in chosen:
        return {"exactlyOnce": wanted}
    folder = Folder(spark, place)
    note = "barnabas-sink.json"
    if not folder.exists(note):
        folder.write_note(note, {"transactional.id": f"barnabas-{name}-{uuid4().hex[:12]}"})
    return {"exactlyOnce": "true", "kafka.transactional.id": folder.read_note(note)["transactional.id"]}


def source_loader(
    spark: SparkSession,
    spec: PipelineSpec,
    query: Query,
    bootstrap: str,
    place: str,
    *,
    brake: Path | None = None,
    starting: Mapping[str, str] | None = None,
    program: Program | None = None,
) -> Callable[[Relation, bool], DataFrame]:
    """A function that loads the rows of each source of a query for the compiler. place: the query's checkpoint. Raises
    PipelineError when the checkpoint was begun with other sources."""
    from barnabas.pipelines.spark.topics.letters import with_replayed

    scans = spec.plan_of(query).read_by(query.relation)
    if len(scans) > 1:
        _keep_order(spark, place, list(scans))

    def load(relation: Relation, stream: bool) -> DataFrame:
        source = scans[relation.name]
        settings = source_settings(spec, query, bootstrap, brake, source, program)
        settings = begun_at(settings, starting, source, is_only=len(scans) == 1)
        reading = Reading(settings, place, list(scans).index(relation.name))
        rows = SOURCES[source.kind].rows(spark, source, reading)
        return with_replayed(rows, spec, query.output) if takes_replays(spec, query) else rows

    return load


def _keep_order(spark: SparkSession, place: str, names: list[str]) -> None:
    """Raises PipelineError if the sources or their order have changed: checkpoints identify them by number."""
    folder = Folder(spark, place)
    note = SOURCES_NOTE
    if not folder.exists(note):
        folder.write_note(note, names)
    elif (before := folder.read_note(note)) != names:
        raise PipelineError(
            f"the checkpoint {place} was begun with the sources {', '.join(before)}, but the pipeline now has "
            f"{', '.join(names)}: change them back, or start again with another output name or --checkpoints"
        )


def write_each_batch(settings: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` of queries in update mode, which Spark does not support in Python sinks. settings:
    options of the sink, with `kafka.transactional.id` to write each row exactly once."""
    lowered = {name.lower() for name in settings}

    def write(rows: DataFrame, batch_id: int) -> None:
        options = dict(settings)
        if "kafka.transactional.id" in lowered and settings.get("exactlyOnce") != "false":
            if is_remote(rows.sparkSession):
                raise PipelineError(NO_QUERY)
            query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            options |= {"batchId": str(batch_id), "queryId": query}
        rows.write.format("barnabas").options(**options).mode("append").save()

    return write


def wait_until_idle(streams: list[StreamingQuery]) -> None:
    """Waits until no query is inside a micro-batch, at most STOP_SECONDS: the next run repeats an interrupted
    micro-batch, which may write rows a second time."""
    give_up = time.monotonic() + STOP_SECONDS
    idle = 0
    while idle < 2 and time.monotonic() < give_up:
        busy = any(stream.isActive and stream.status["isTriggerActive"] for stream in streams)
        idle = 0 if busy else idle + 1
        time.sleep(POLL_SECONDS / 2)


def take_progress(stream: StreamingQuery, line: QueryReport) -> bool:
    """Adds the micro-batches that ended since the last call to the report; returns whether any of them read records."""
    from barnabas.pipelines.compiler.carrying import METRICS

    has_progressed = False
    for raw in progress_since(stream, line.latest):
        line.latest, line.rate = raw["timestamp"], records_per_second(raw)
        line.positions, line.reached = positions_in(raw), reached_in(raw)
        line.state_rows, line.state_bytes = state_of(raw)
        batch = int(raw["batchId"])
        counts = (raw.get("observedMetrics") or {}).get(METRICS)
        if batch < line.batches or not counts or not raw.get("numInputRows"):
            continue
        line.batches = batch + 1
        line.rows += int(counts.get("rows") or 0)
        line.failed += int(counts.get("failed") or 0)
        line.late += sum(int(kept["numRowsDroppedByWatermark"]) for kept in raw.get("stateOperators") or ())
        line.busy_seconds += raw["durationMs"].get("triggerExecution", 0) / 1000
        has_progressed = True
    return has_progressed


def state_of(raw: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and bytes of the state that a query keeps, from Spark's progress report: in memory, and in RocksDB's files."""
    rows = size = 0
    for operator in raw.get("stateOperators") or ():
        rows += int(operator.get("numRowsTotal") or 0)
        files = (operator.get("customMetrics") or {}).get("rocksdbSstFileSize") or 0
        size += int(operator.get("memoryUsedBytes") or 0) + int(files)
    return rows, size


def records_per_second(raw: Mapping[str, Any]) -> float:
    """The speed of a micro-batch, from Spark's progress report; Spark's own number counts a parcel as one row."""
    from barnabas.pipelines.compiler.carrying import METRICS

    counts = (raw.get("observedMetrics") or {}).get(METRICS) or {}
    rows, ms = int(counts.get("rows") or 0), raw.get("durationMs", {}).get("triggerExecution", 0)
    return round(1000 * rows / ms, 1) if ms else 0.0


def positions_in(raw: Mapping[str, Any]) -> Mapping[tuple[str, int], int]:
    """The offsets that a query has reached, from Spark's progress report."""
    positions: dict[tuple[str, int], int] = {}
    for source in raw.get("sources") or ():
        end = source.get("endOffset")
        end = json.loads(end) if isinstance(end, str) else end
        if end and "logOffset" not in end:  # that is the offset of Spark's file source
            positions.update(parse_offset(end)[0])
    return positions


def reached_in(raw: Mapping[str, Any]) -> str:
    """How far a query has come, from Spark's progress report, as text."""
    return json.dumps([raw.get("batchId"), [source.get("endOffset") for source in raw.get("sources") or ()]])
