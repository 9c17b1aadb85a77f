"""The changelog of a table: a compacted topic with its rows, from which a lost checkpoint is rebuilt.

A record's key is the JSON object of the groups, its value that of all fields; a group that is gone is a tombstone. The
header `barnabas.table` names pipeline and relation, and `barnabas.state` has what the aggregate keeps for the group. Each
micro-batch also writes a record that has, in its header `barnabas.places`, where the next one begins in each partition. All
records of a micro-batch are in the topic or none, whichever process is killed: they are in transactions whose ids are made
of the topic's name, so that a query with a new checkpoint ends what an earlier one has left.

A query without a checkpoint begins with the state in the topic, and reads on from the places there. How much of the topic it
has used is noted in the new checkpoint: if it ends before its first micro-batch is committed, the next begins with the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient
from barnabas.client.errors import ClientError
from barnabas.pipelines.formats.columns import DDL_TYPES
from barnabas.pipelines.kinds.steps import STEPS
from barnabas.pipelines.kinds.targets.view import source_offsets
from barnabas.pipelines.plan.changelogs import is_restored
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.fingerprint import fingerprint
from barnabas.pipelines.plan.operators import ParseJson
from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
from barnabas.pipelines.plan.places import Place
from barnabas.pipelines.plan.relations import Scan
from barnabas.pipelines.plan.sources import Source
from barnabas.pipelines.spark.folders import Folder
from barnabas.pipelines.spark.frame import SENT, Frame
from barnabas.pipelines.spark.private import each
from barnabas.pipelines.spark.tables.operators import STATE, Before
from barnabas.pipelines.spark.topics.exactly_once import open_batch
from barnabas.pipelines.spark.topics.options import client_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATE_HEADER: Final = "barnabas.state"
PLACES_HEADER: Final = "barnabas.places"
TABLE_HEADER: Final = "barnabas.table"
NOTE: Final = "barnabas-changelog.json"
"""In a query's checkpoint: up to which offsets of the changelog its state is from there."""


# --- columns ------------------------------------------------------------------------------------------


def with_state_told(frame: Frame) -> Frame:
    """The table with the state of its groups in the headers of its records."""
    headers_told = _headers({STATE_HEADER: F.col(STATE)})
    data = frame.data.withColumn(SENT, F.when(F.col(STATE).isNotNull(), headers_told)).drop(STATE)
    return replace(frame, data=data)


def without_places(rows: DataFrame) -> DataFrame:
    """The records of a changelog that are rows of its table."""
    return rows.where(_header(PLACES_HEADER).isNull())


def from_changelog(frame: Frame, fields: Mapping[str, str], place: Place) -> Frame:
    """The rows of a table from the records of its changelog. fields: with their types."""
    step = ParseJson(source=None, fields=fields, label=place.label, where=place.where)
    return STEPS[step.kind].apply(frame, step)


def _headers(values: Mapping[str, Column]) -> Column:
    pairs = [
        F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
        for name, value in values.items()
    ]
    return F.array(*pairs).cast(DDL_TYPES["headers"])


def _header(name: str) -> Column:
    """A header's value as text; null without it."""
    headers = each("filter", "headers", lambda header: header["key"] == name)
    return F.try_element_at(headers, F.lit(1))["value"].cast("string")


# --- a query that writes one ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changelog:
    """The changelog that a query writes. place: the query's checkpoint. settings: of its sink, with the brokers' address.
    beginning: names the last request to begin elsewhere; it is in the topic with each micro-batch after it."""

    spark: SparkSession
    spec: PipelineSpec
    query: Query
    place: str
    settings: Mapping[str, str]
    beginning: str = ""

    @property
    def topic(self) -> str:
        """The compacted topic."""
        return self.query.output.topic

    @property
    def transactional_id(self) -> str:
        """What the query's transactional ids begin with."""
        # It ends so that it is no id of a task of another changelog, whose name begins with this one's.
        return f"barnabas-{self.topic}.changelog"

    @property
    def _label(self) -> str:
        return f"{self.spec.name}/{self.query.relation}"

    @property
    def _where(self) -> str:
        return self.query.output.at()

    def begin(self, *, anew: bool) -> tuple[Before | None, dict[str, str] | None]:
        """What a query without a checkpoint begins with: a function that loads its state, and source options that say where
        it reads on; None and None if it has a checkpoint, or the changelog is empty. anew: whether the table is to be
        computed again although it has a changelog, unless that is of the same beginning. Raises PipelineError if the topic
        belongs to something else."""
        folder = Folder(self.spark, self.place)
        if folder.names("commits"):
            return None, None
        if folder.exists(NOTE):
            used = folder.read_note(NOTE)
        else:
            ends = self._ends()
            used = {"ends": ends, "anew": not self._is_restored or (anew and not self._has_begun(ends))}
        if not any(used["ends"].values()):
            folder.write_note(NOTE, used)
            return None, None
        rows = self._records(used["ends"]).persist()
        try:
            self._require_own(rows)
            if used["anew"]:
                if not folder.exists(NOTE):
                    self._forget(rows)
                folder.write_note(NOTE, used)
                return None, None
            places = self._places(rows)
        finally:
            rows.unpersist()
        folder.write_note(NOTE, used)
        return self._loader(used["ends"]), places

    @property
    def _is_restored(self) -> bool:
        plan = self.spec.plan
        return is_restored(plan, plan[self.query.relation])

    def _ends(self) -> dict[str, int]:
        """The ends of the topic's partitions, once all micro-batches that were begun are there as a whole or not at all."""
        connection = client_options(self._connection)
        try:
            with BlockingClient(connection) as client:
                open_batch(client, self.transactional_id, None)
                pairs = [(self.topic, partition) for partition in client.partitions(self.topic)]
                starts = client.list_offsets(dict.fromkeys(pairs, EARLIEST))
                ends = client.list_offsets(dict.fromkeys(pairs, LATEST))
        except ClientError as error:
            raise PipelineError(f"{self._where}: changelog {self.topic}: {error}") from error
        empty = all(starts[pair].offset == ends[pair].offset for pair in pairs)
        return {str(pair[1]): 0 if empty else ends[pair].offset for pair in pairs}

    @property
    def _connection(self) -> dict[str, str]:
        return {n: v for n, v in self.settings.items() if n.startswith("kafka.") and "transactional" not in n}

    def _records(self, ends: Mapping[str, int]) -> DataFrame:
        options = {
            **self._connection,
            "kafka.isolation.level": "read_committed",
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "endingOffsets": json.dumps({self.topic: ends}),
            "includeHeaders": "true",
        }
        read = self.spark.read.format("barnabas").options(**options).load()
        names = {"state": STATE_HEADER, "places": PLACES_HEADER, "owner": TABLE_HEADER}
        headers = [_header(header).alias(name) for name, header in names.items()]
        return read.select("key", F.col("value").isNull().alias("gone"), "partition", "offset", *headers)

    def _require_own(self, rows: DataFrame) -> None:
        other = rows.where(~F.col("owner").eqNullSafe(self._label)).limit(1).collect()
        if not other:
            return
        owner = other[0]["owner"]
        what = "records that are no rows of a table" if owner is None else f"the rows of table {owner}"
        raise PipelineError(
            f"{self._where}: {self.query.relation}: the changelog topic {self.topic} has {what}: name another "
            "topic as changelog"
        )

    def _meaning(self) -> str:
        kept = fingerprint(self.spec.plan_of(self.query), self.query).state
        return kept[f"{self.query.relation}/aggregate"]

    def _has_begun(self, ends: Mapping[str, int]) -> bool:
        """Whether a micro-batch after the present beginning is in the topic."""
        newest = _newest(self._records(ends)) if any(ends.values()) else None
        return newest is not None and newest.get("beginning", "") == self.beginning

    def _places(self, rows: DataFrame) -> dict[str, str]:
        """Where to read on, from the newest micro-batch. Raises PipelineError if its state is that of another aggregate."""
        newest = _newest(rows)
        if newest is None:
            raise PipelineError(
                f"{self._where}: {self.query.relation}: the changelog topic {self.topic} has lost the record with the "
                "places of its newest micro-batch: name another topic as changelog to compute the table again"
            )
        if newest["state"] != self._meaning():
            raise PipelineError(
                f"{self._where}: {self.query.relation}: the changelog topic {self.topic} has the state of another "
                "aggregate (other groups, windows or results): change it back, or name another topic as changelog to "
                "compute the table again (in a server: add --rebuild)"
            )
        return {"startingOffsets": json.dumps(newest["places"])}

    def _loader(self, ends: Mapping[str, int]) -> Before:
        def before(group: StructType) -> DataFrame:
            rows = self._records(ends).where("places IS NULL")
            newest = rows.groupBy("key").agg(F.max_by("state", "offset").alias("state"))
            parsed = F.from_json("state", group, {"mode": "FAILFAST"})
            return newest.where("state IS NOT NULL").select(parsed.alias("group")).select("group.*")

        return before

    def _forget(self, rows: DataFrame) -> None:
        """Deletes all rows, because the table is computed again, and some may not come again."""
        left = rows.groupBy("key").agg(F.max_by("gone", "offset").alias("gone")).where("NOT gone")
        gone = left.select(
            "key",
            F.lit(None).cast("binary").alias("value"),
            _headers({TABLE_HEADER: F.lit(self._label)}).alias("headers"),
        )
        options = {**self._connection, "topic": self.topic}
        gone.write.format("barnabas").options(**options).mode("append").save()

    def writer(self, write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        """Writes a micro-batch, for `foreachBatch`. write: writes records exactly once."""
        label, topic, meaning, beginning = self._label, self.topic, self._meaning(), self.beginning
        streams = self._streams()

        def write_batch(rows: DataFrame, batch_id: int) -> None:
            offsets = source_offsets(Folder(self.spark, self.place), batch_id)
            places = {
                name: ends for name, ends in offsets.items() if any(source.reads(name) for source in streams)
            }
            note = json.dumps({"places": places, "state": meaning, "beginning": beginning}, sort_keys=True)
            owner = _headers({TABLE_HEADER: F.lit(label)})
            sent = F.concat(F.coalesce(F.col("headers"), F.array().cast(DDL_TYPES["headers"])), owner)
            marked = rows.withColumn(
                "headers", F.when(F.col("topic") == topic, sent).otherwise(F.col("headers"))
            )
            write(marked.unionByName(_place_row(rows, topic, label, note)), batch_id)

        return write_batch

    def _streams(self) -> list[Source]:
        """What is read as streams. Tables are read from their beginning again."""
        plan = self.spec.plan_of(self.query)
        scans = [relation.origin for relation in plan.needed(self.query.relation)]
        return [scan.source for scan in scans if isinstance(scan, Scan) and not scan.table]


def changelog_of(
    spark: SparkSession,
    spec: PipelineSpec,
    query: Query,
    place: str,
    settings: Mapping[str, str],
    beginning: str = "",
) -> Changelog | None:
    """The changelog that a query writes, if it writes one."""
    return Changelog(spark, spec, query, place, settings, beginning) if query.keeps else None


def _newest(rows: DataFrame) -> dict[str, Any] | None:
    """What is told of the newest micro-batch."""
    rows_found = rows.where("places IS NOT NULL").orderBy(F.desc("offset")).limit(1).collect()
    note: dict[str, Any] | None = json.loads(rows_found[0]["places"]) if rows_found else None
    return note


def _place_row(rows: DataFrame, topic: str, label: str, note: str) -> DataFrame:
    """A record with the places of a micro-batch, with the columns of the others."""
    headers = _headers({TABLE_HEADER: F.lit(label), PLACES_HEADER: F.lit(note)})
    own = {
        "topic": F.lit(topic),
        "key": F.lit(json.dumps({PLACES_HEADER: label})).cast("binary"),
        "value": F.lit("{}").cast("binary"),
        "headers": headers,
    }
    columns = [
        own.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
        for field in rows.schema.fields
    ]
    return rows.sparkSession.range(0, 1, 1, 1).select(*columns)
