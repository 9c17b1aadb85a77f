"""Replays dead letters: records that the pipeline can process now are written to those outputs that lack them.

A replay reads the letters that no earlier replay has processed, selects some by `where`, changes their values by
`repair`, and runs the pipeline's present steps over them. The results are written to the output that failed (to all
outputs if a common step failed), by the same code and with the same identities as in the running pipeline. Letters for
an aggregate are copied to the topic `<dead letters>-replays`, which the aggregate's running query reads.

In a pipeline with several sources, a letter is processed as a record of its source, with tables as they are now.
Records cannot be added later to a join of streams or to an aggregate: such letters are not replayed, which is reported.

Letters that are not selected remain unprocessed. A letter that fails again is written to the end of the dead-letter
topic with its new reason and the header `barnabas.replayed`, and the old one is marked as processed. A replay that is
killed before it has written its marks delivers the same records again when it is repeated.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient, NewTopic
from barnabas.client.errors import ClientError, UnknownTopic
from barnabas.pipelines.compiler.outputs import query_deliverable, query_rows
from barnabas.pipelines.compiler.queries import connection_options, sink_settings
from barnabas.pipelines.compiler.relations import Load
from barnabas.pipelines.kinds.sources import SOURCES, Reading
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.kinds.targets.base import Delivery, deliver_rows, placed
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.outputs import Output
from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
from barnabas.pipelines.plan.places import Place
from barnabas.pipelines.plan.relations import SOURCE, Relation, Scan
from barnabas.pipelines.plan.sources import Source
from barnabas.pipelines.spark.frame import ERROR_TYPE, Frame, computed, expression, spark_reason
from barnabas.pipelines.spark.outgoing import HEADER_PREFIX, HEADERS_TYPE
from barnabas.pipelines.spark.session.log import failure_reason
from barnabas.pipelines.spark.session.start import adopt_session
from barnabas.pipelines.spark.topics.letters import (
    FORMAT,
    RECORD,
    REPLAYED,
    SCHEMA,
    Letters,
    LetterSource,
    header_text,
    letter_options,
    marks,
    read_letters,
    spans_of,
    write_marks,
)
from barnabas.pipelines.spark.topics.offsets import Range
from barnabas.pipelines.spark.topics.options import client_options
from barnabas.records.units import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS: Final = (
    "value", "key", "reason", "step", "output", "topic", "partition", "offset", "attempts", "timestamp"
)  # fmt: skip
"""The columns that `where` and `repair` may use."""


@dataclass(slots=True)
class ReplayReport:
    """Numbers of letters. found: not processed by an earlier replay. chosen: selected by `where`. replayed: of these,
    processed without an error. still_bad: failed again, by reason. left: not selected, or not of a single record; they
    remain. outputs: delivered, by output. waiting: copied for the running query of an aggregate, by output. kept:
    selected, but cannot be replayed, by reason; they remain, too."""

    found: int = 0
    chosen: int = 0
    replayed: int = 0
    left: int = 0
    still_bad: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Way:
    """Letters that are replayed in the same way. output: the one that failed; None if a common step failed. place: the
    relation that failed and the record's topic, in a pipeline with several sources. scan: the relation of their
    source."""

    output: str | None
    place: tuple[str, str] | None = None
    scan: str = SOURCE

    def rows(self, letters: DataFrame) -> DataFrame:
        """The letters that are replayed in this way."""
        wanted = F.col("output").eqNullSafe(F.lit(self.output))
        if self.place is not None:
            wanted = wanted & (failed_relation() == self.place[0]) & (F.col("topic") == self.place[1])
        return letters.where(wanted)


def failed_relation() -> Column:
    """The relation of a letter's step, in a pipeline with several sources: `orders` in `orders: 1 parse`."""
    return F.substring_index("step", ": ", 1)


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

    where: Spark SQL over FIELDS that selects letters; default all. repair: Spark SQL over FIELDS for the new value, as
    text. dry_run: write nothing, only report what the steps would do. from_beginning: also letters that were replayed
    before. Raises PipelineError.
    """
    adopt_session(spark)
    spark.dataSource.register(LetterSource)
    try:
        with BlockingClient(client_options(connection_options(spec, bootstrap))) as client, in_one_line():
            work = _Replay(spark, spec, bootstrap, client, where, repair)
            return work.run(dry_run, from_beginning)
    except UnknownTopic as error:
        raise PipelineError(f"{error}: the pipeline has not run yet") from error
    except ClientError as error:
        raise PipelineError(str(error)) from error


def _reads(source: Source, topic: str) -> bool:
    """Whether a source reads a topic."""
    return topic in source.topics or (
        source.pattern is not None and bool(re.fullmatch(source.pattern, topic))
    )


@contextmanager
def in_one_line() -> Iterator[None]:
    """Raises errors of Spark as PipelineError, whose message is one line."""
    try:
        yield
    except (PipelineError, ClientError):
        raise
    except PySparkException as error:
        raise PipelineError(spark_reason(error)) from error
    except Exception as error:
        raise PipelineError(failure_reason(str(error))) from error


@dataclass(frozen=True, slots=True)
class _Replay:
    """One run of `replay`."""

    spark: SparkSession
    spec: PipelineSpec
    bootstrap: str
    client: BlockingClient
    where: str | None
    repair: str | None

    @property
    def settings(self) -> dict[str, str]:
        """The `kafka.*` options for the brokers."""
        return connection_options(self.spec, self.bootstrap)

    def run(self, dry_run: bool, from_beginning: bool) -> ReplayReport:
        """See `replay`."""
        topic_id = str(self._view().topic_id)
        done = {} if from_beginning else marks(self.client, self.settings, self.spec, topic_id)
        letters = Letters(self.spec.dead_letters, self.spec.name, self._bounds(), done)
        seen = Observation()
        chosen = self._chosen(letters, seen).persist(StorageLevel.DISK_ONLY)
        try:
            several = [failed_relation().alias("failed"), "topic"] if not self.spec.plan.single else []
            table = chosen.select(
                "letter_partition",
                "letter_offset",
                "output",
                *several,
                F.col("_error")["reason"].alias("reason"),
            ).toArrow()
            report = ReplayReport(int(seen.get["found"]), table.num_rows)
            report.left = report.found - report.chosen
            unrepaired = Counter(table.column("reason").drop_null().to_pylist())
            good = chosen.where(F.col("_error").isNull())
            ways, ready = self._ways(table.filter(table.column("reason").is_null()), report)
            if dry_run:
                bad = self._tried(good, ways)
            else:
                bad = self._delivered(good, ways, ready, letters, report)
                self._note(ready, topic_id)
        finally:
            chosen.unpersist()
        report.still_bad = dict(unrepaired + Counter(reason for reason, _ in bad))
        failed = {place for _, place in bad}
        report.replayed = ready.num_rows - len(failed)
        return report

    # --- which letters ------------------------------------------------------------------------------

    def _view(self) -> Any:
        name = self.spec.dead_letters
        return self.client.cluster.retry(lambda: self.client.cluster.topic(name))

    def _bounds(self) -> dict[int, tuple[Offset, Offset]]:
        pairs = [(self.spec.dead_letters, p) for p in self.client.partitions(self.spec.dead_letters)]
        starts = self.client.list_offsets(dict.fromkeys(pairs, EARLIEST))
        ends = self.client.list_offsets(dict.fromkeys(pairs, LATEST))
        return {pair[1]: (starts[pair].offset, ends[pair].offset) for pair in pairs}

    def _chosen(self, letters: Letters, seen: Observation) -> DataFrame:
        """The selected letters with repaired values; `_error` is set if a repair failed."""
        reader = self.spark.read.format(FORMAT).options(**self.settings).options(**letters.options())
        data = reader.load().observe(seen, F.count(F.lit(1)).alias("found"))
        texts = data.withColumns(
            {
                "_bytes": F.col("value"),
                "value": F.col("value").cast("string"),
                "_offset": F.col("letter_offset"),
                "_error": F.lit(None).cast(ERROR_TYPE),
            }
        )
        place = Place(label="replay-dead-letters", where=self.spec.name)
        frame, wanted = expression(Frame(texts, FIELDS), Expression.of(self.where or "true"), place)
        if frame.kind(wanted) != "boolean":
            raise PipelineError(f"--where {self.where!r} is {frame.kind(wanted)}, not true or false")
        # A rejected result of an aggregate comes from no single record, so it cannot be replayed.
        rows = frame.data.where(wanted & F.col("offset").isNotNull())
        value = F.col("_bytes")
        if self.repair is not None:
            frame = computed(Frame(rows, FIELDS), "_repaired", Expression.of(self.repair), place, "string")
            rows, value = frame.data, F.col("_repaired").cast("binary")
        header = F.struct(
            F.lit(REPLAYED).alias("key"),
            (F.col("attempts") + 1).cast("string").cast("binary").alias("value"),
        )
        own = F.coalesce(F.col("headers"), F.array().cast(HEADERS_TYPE))
        rows = rows.withColumns(
            {"value": value, "headers": F.concat(own, F.array(header).cast(HEADERS_TYPE))}
        )
        return rows.select(*SCHEMA.names, "_error")

    # --- where they go ------------------------------------------------------------------------------

    def _ways(self, table: pa.Table, report: ReplayReport) -> tuple[dict[_Way, int], pa.Table]:
        """The number of letters by way, and the letters that can be replayed; counts the others in `report.kept`."""
        if self.spec.plan.single:
            counted = pc.value_counts(table.column("output")).to_pylist()
            return {_Way(row["values"]): row["counts"] for row in counted}, table
        ways: dict[_Way, int] = {}
        goes = []
        columns = [table.column(name).to_pylist() for name in ("output", "failed", "topic")]
        known = {key: self._way(*key) for key in set(zip(*columns, strict=True))}
        for key in zip(*columns, strict=True):
            way = known[key]
            goes.append(isinstance(way, _Way))
            if isinstance(way, _Way):
                ways[way] = ways.get(way, 0) + 1
            else:
                report.kept[way] = report.kept.get(way, 0) + 1
        return ways, table.filter(pa.array(goes, pa.bool_()))

    def _way(self, output: str | None, failed: str | None, topic: str | None) -> _Way | str:
        """How to replay a letter in a pipeline with several sources, or the reason why it cannot be replayed."""
        plan = self.spec.plan
        named = next((o for o in self.spec.outputs if o.name == output), None)
        relation = failed if named is None else named.relation
        if relation is None or topic is None or relation not in plan.relations or (output and named is None):
            return f"the pipeline has no {output or failed} any more"
        if plan.joins_streams(relation):
            return (
                f"{relation} follows a join of streams or an aggregate, where a record cannot be added later"
            )
        for below in [named] if named is not None else self._after(relation):
            if plan.joins_streams(below.relation) or below.aggregate is not None:
                return f"{relation} feeds {below.name}, which joins or counts: write the repaired record to {topic}"
        scans = [
            r.name
            for r in plan.needed(relation)
            if isinstance(r.origin, Scan) and not r.origin.table and _reads(r.origin.source, topic)
        ]
        if len(scans) != 1:
            return f"{len(scans)} sources of {relation} read {topic} as a stream, but it has to be one"
        return _Way(output, (failed or "", topic), scans[0])

    def _after(self, relation: str) -> list[Output]:
        """The outputs that are made from a relation."""
        plan = self.spec.plan
        return [o for o in self.spec.outputs if any(r.name == relation for r in plan.needed(o.relation))]

    def _queries(self, way: _Way) -> Iterator[Query]:
        """The queries to run over letters of one way; only one of them sends records that fail again in a relation."""
        if way.place is None:
            yield from self._queries_of_one_source(way.output)
            return
        covered: frozenset[str] = frozenset()
        named = [o for o in self.spec.outputs if o.name == way.output]
        for output in named or self._after(way.place[0]):
            sends = self._common(output) - covered
            covered |= sends
            yield Query(output.name, output, sends)

    def _queries_of_one_source(self, failed: str | None) -> Iterator[Query]:
        """The same for a pipeline with one source. failed: the output that failed; None if a common step failed."""
        has_common = False
        for output in self.spec.outputs:
            if failed not in (None, output.name):
                continue
            if output.aggregate is None:
                sends = self._common(output) if not has_common or failed is not None else frozenset()
                yield Query(output.name, output, sends)
                has_common = True
            elif output.operators:
                sends = self._common(output) if failed is not None else frozenset()
                yield Query(output.name, output, sends, only_dead=True)
                has_common = has_common or failed is not None
        if not has_common:
            nothing = Output("", self.spec.dead_letters)
            yield Query("dead-letters", nothing, self._common(nothing), only_dead=True)

    def _common(self, output: Output) -> frozenset[str]:
        """The relations whose failed records reach an output."""
        return self.spec.plan.carried(output.relation)

    def _delivered(
        self,
        good: DataFrame,
        ways: Mapping[_Way, int],
        table: pa.Table,
        letters: Letters,
        report: ReplayReport,
    ) -> list[tuple[str, Any]]:
        """Writes the letters to their outputs; returns reason and place of those that failed again."""
        if table.num_rows:
            topic = NewTopic(self.spec.replays, 1, configs={"retention.ms": "-1"})
            self.client.create_topics([topic], exist_ok=True)
        for way, count in ways.items():
            rows = way.rows(good)
            for output in self.spec.outputs if way.place is None else ():
                if output.aggregate is not None and way.output in (None, output.name):
                    self._put_aside(rows, output)
                    report.waiting[output.name] = report.waiting.get(output.name, 0) + count
            for query in self._queries(way):
                self._send(rows, query, table, way)
                if not query.only_dead:
                    report.outputs[query.name] = report.outputs.get(query.name, 0) + count
        return list(self._failed_again(letters))

    def _loaded(self, rows: DataFrame, way: _Way) -> Load:
        """Loads the letters as the rows of their source; other streams have no rows, and tables are as they are now."""
        letters = rows.select(*RECORD)

        def load(relation: Relation, stream: bool) -> DataFrame:
            origin = relation.origin
            assert isinstance(origin, Scan)
            if relation.name == way.scan:
                return letters
            kind = SOURCES[origin.source.kind]
            if stream:
                return kind.empty(self.spark, origin.source)
            settings = {**self.settings, **origin.source.options, "includeHeaders": "true"}
            settings["subscribe"] = ",".join(origin.source.topics)
            return kind.rows(self.spark, origin.source, Reading(settings, stream=False))

        return load

    def _send(self, rows: DataFrame, query: Query, table: pa.Table, way: _Way) -> None:
        settings = {**sink_settings(self.spec, query, self.bootstrap), "replay": "true"}
        target = None if query.only_dead else query.output.target
        if target is None:
            output_rows = query_rows(self.spec, query, self._loaded(rows, way))
            output_rows.write.format("barnabas").options(**settings).mode("append").save()
            return
        output_rows, fields, is_open = query_deliverable(self.spec, query, self._loaded(rows, way))
        kind = TARGETS[target.kind]
        if kind.by_place(target.options):
            topics = self.client.describe({name for name in table["topic"].to_pylist() if name})
            output_rows = placed(output_rows, {name: str(view.topic_id) for name, view in topics.items()})
        name = f"{self.spec.name}.{query.name}"
        delivery = Delivery(name, self._identity(query, table, way), 0)
        deliver_rows(
            output_rows, delivery, self.spec, query.output.name, kind, target, fields, is_open, settings
        )

    def _identity(self, query: Query, table: pa.Table, way: _Way) -> str:
        """Identifies a delivery by its letters and the replay's arguments, so a repeated replay has the same
        identity."""
        places = table.select(["letter_partition", "letter_offset"]).sort_by(
            [("letter_partition", "ascending"), ("letter_offset", "ascending")]
        )
        digest = hashlib.blake2b(digest_size=12)
        asked = (
            self.spec.name,
            query.name,
            self.spec.dead_letters,
            str(self._view().topic_id),
            self.repair,
            way.output,
            *((way.place, way.scan) if way.place is not None else ()),
        )
        digest.update(repr(asked).encode())
        for column in places.columns:
            digest.update(column.to_numpy().tobytes())
        return f"replay{digest.hexdigest()}"

    def _put_aside(self, rows: DataFrame, output: Output) -> None:
        """Copies letters to the replays topic, which the aggregate's running query reads."""

        def entry(name: str, value: Column) -> Column:
            return F.struct(
                F.lit(HEADER_PREFIX + name).alias("key"), value.cast("string").cast("binary").alias("value")
            )

        headers = F.array(
            entry("pipeline", F.lit(self.spec.name)),
            entry("output", F.lit(output.name)),
            *[entry(name, F.col(name)) for name in ("topic", "partition", "offset")],
            entry("timestamp", F.unix_micros("timestamp")),
        )
        letters = rows.select(
            "key", "value", F.concat("headers", headers.cast(HEADERS_TYPE)).alias("headers")
        )
        options = {**self.settings, "topic": self.spec.replays}
        letters.write.format("barnabas").options(**options).mode("append").save()

    # --- results ------------------------------------------------------------------------------------

    def _tried(self, good: DataFrame, ways: Collection[_Way]) -> list[tuple[str, Any]]:
        """Reasons and places of the letters that would fail again; writes nothing."""
        reasons = []
        place = F.struct(*[header_text(name) for name in ("topic", "partition", "offset")])
        for way in ways:
            for query in self._queries(way):
                if query.output.target is not None:
                    query = replace(query, only_dead=True)
                output_rows = query_rows(self.spec, query, self._loaded(way.rows(good), way))
                bad = output_rows.where(F.col("topic") == self.spec.dead_letters).select(
                    header_text("reason"), place
                )
                reasons += [(row[0], tuple(row[1])) for row in bad.collect()]
        return reasons

    def _failed_again(self, letters: Letters) -> Iterator[tuple[str, Any]]:
        """Reasons and places in letters of replayed records that were written since this replay began."""
        options = letter_options(self.settings, self.spec.dead_letters)
        for partition, (_, end) in self._bounds().items():
            start = letters.bounds.get(partition, (Offset(0), Offset(0)))[1]
            if end <= start:
                continue
            for batch in read_letters(options, Range(letters.topic, partition, start, end), self.spec.name):
                names = ["reason", "topic", "partition", "offset"]
                again = batch.filter(pc.greater(batch.column("attempts"), 0)).select(names)
                for row in again.to_pylist():
                    yield row["reason"], (row["topic"], row["partition"], row["offset"])

    def _note(self, table: pa.Table, topic_id: str) -> None:
        taken = spans_of(
            table.column("letter_partition").to_numpy(), table.column("letter_offset").to_numpy()
        )
        about: Mapping[str, Any] = {
            "letters": table.num_rows, "where": self.where, "repair": self.repair, "at_ms": int(time.time() * 1000)
        }  # fmt: skip
        write_marks(self.client, self.spec, topic_id, taken, about)
