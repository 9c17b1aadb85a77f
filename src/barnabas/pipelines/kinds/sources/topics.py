"""Topics as sources: a row for every record, or, as a table, for the newest record of each key.

    {topic: orders, start: latest}      {topics: [a, b]}      {pattern: "logs-.*"}
    {table: customers}                  a compacted topic
    {topic: orders, connector: {connector.class: JdbcSourceConnector, ...}}     a connector fills it

A table is read as a stream of changes, and kept in the state of each query that needs it.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from barnabas.client.patterns import PatternError, java_pattern
from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Choice, Either, Group, Named, Several, Text
from barnabas.pipelines.formats.columns import BASE_COLUMNS, ddl_schema
from barnabas.pipelines.kinds.connectors import checked_connector, connector_shape
from barnabas.pipelines.kinds.sources.base import Reading, SourceKind
from barnabas.pipelines.plan.errors import suggestion
from barnabas.pipelines.plan.sources import Source
from barnabas.pipelines.spark.topics.options import SOURCE_NAMES, shown_names
from barnabas.pipelines.spark.topics.options import Named as Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORDS: Final = ("earliest", "latest")
TOMBSTONES: Final = ("records", "deletes")
START: Final = Group(
    {
        "at": Text("a time like 2026-01-31T12:00:00Z, or milliseconds since 1970"),
        "group": Text("a consumer group: begin at its committed offsets"),
        "otherwise": Choice(WORDS, "where to begin if the group has no offset; default earliest"),
    },
    one_of=("at", "group"),
    needs={"otherwise": "group"},
)


def option_names(known: Mapping[str, Option]) -> Named:
    """The shape of options of the data source; editors suggest the `known` ones that pipeline files may have."""
    names = {
        option.name: option.doc
        for option in known.values()
        if option.name in shown_names(known, in_files=True)
    }
    return Named(
        Text(), "options of the data source, and kafka.* for the client", suggested=names, guarded=True
    )


CONNECTOR: Final = connector_shape("source")
ENCODING: Final = Text("encoding of the values, if a step reads them as text; default UTF-8")
SHAPE: Final = Group(
    {
        "topic": Several(Text("a topic")),
        "topics": Several(Text("a topic"), least=1),
        "pattern": Text(
            "a regular expression of topic names, in Java's syntax; topics that are created later are found, too"
        ),
        "start": Either((Choice(WORDS), START), "where a new pipeline begins; default earliest"),
        "encoding": ENCODING,
        "tombstones": Choice(
            TOMBSTONES,
            "what records without a value are: records (default), or deletes of what has their key in the targets",
        ),
        "options": option_names(SOURCE_NAMES),
        "connector": CONNECTOR,
    },
    "what is read",
    one_of=("topic", "topics", "pattern"),
)
TABLE_SHAPE: Final = Group(
    {
        "table": Text("a compacted topic"),
        "encoding": ENCODING,
        "options": SHAPE.entries["options"],
        "connector": CONNECTOR,
    },
    "the newest record of each key",
    required=("table",),
)


def topic_name(item: Item) -> str:
    """The legal topic name in an entry. Raises PipelineError."""
    name = item.text()
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
        item.fail(f"{item.what} is {name!r}, which is not a legal topic name")
    return name


def _check(item: Item, entries: Mapping[str, Item]) -> Source:
    topics = tuple(
        topic_name(t) for name in ("topic", "topics") if name in entries for t in entries[name].items()
    )
    pattern = entries["pattern"].text() if "pattern" in entries else None
    try:
        java_pattern(pattern or "")
    except PatternError as error:
        entries["pattern"].fail(f"{entries['pattern'].what}: {error}")
    start, starting = _start(entries["start"]) if "start" in entries else ("earliest", {})
    options = checked_options(entries["options"], SOURCE_NAMES) if "options" in entries else {}
    return Source(
        topics=topics,
        pattern=pattern,
        start=start,
        encoding=encoding_name(entries["encoding"]) if "encoding" in entries else None,
        options={**starting, **options},
        where=entries.get("options", item).where,
        deletes="tombstones" in entries and entries["tombstones"].text() == "deletes",
        connector=checked_connector(entries["connector"], lambda known: known.check_source)
        if "connector" in entries
        else {},
    )


def _start(item: Item) -> tuple[str, dict[str, str]]:
    """Where a new pipeline begins: earliest or latest, and the source options for `{at: time}` or `{group: name}`."""
    if not isinstance(item.value, dict):
        return item.choice(("earliest", "latest")), {}
    entries = START.open(item)
    if "group" in entries:
        word = entries["otherwise"].text() if "otherwise" in entries else "earliest"
        return word, {"startingGroup": entries["group"].text()}
    return "latest", {
        "startingTimestamp": str(_time_ms(entries["at"])),
        "startingOffsetsByTimestampStrategy": "latest",
    }


def _time_ms(item: Item) -> int:
    """Milliseconds since 1970 for a time that is given as such or in ISO 8601 (UTC if it has no zone)."""
    text = item.text()
    if text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        item.fail(
            f"{item.what} is {text!r}, not a time like 2026-01-31T12:00:00Z, nor milliseconds since 1970"
        )
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def encoding_name(item: Item) -> str:
    """The name of an encoding that Python has. Whether Java has it is found out when the query is planned.

    Raises PipelineError.
    """
    name = item.text()
    try:
        codecs.lookup(name)
    except LookupError:
        item.fail(
            f"{item.what} is {name!r}, which is not a known encoding; use one like latin1 or windows-1252"
        )
    return name


def checked_options(item: Item, known: Mapping[str, Option]) -> dict[str, str]:
    """Options of the data source: `kafka.*`, and `known` ones in any case. Raises PipelineError for others."""
    shown = {name.lower(): name for name in shown_names(known, in_files=True)}
    for name, entry in item.mapping().items():
        if not name.lower().startswith("kafka.") and name.lower() not in shown:
            near = suggestion(name, shown.values()) + ", " if shown else "allowed: "
            entry.fail(f"{item.what} has no entry {name!r}; {near}kafka.*")
    return item.text_map()


def _check_table(item: Item, entries: Mapping[str, Item]) -> Source:
    return replace(
        _check(item, {name: entry for name, entry in entries.items() if name != "table"}),
        topics=(topic_name(entries["table"]),),
        kind="table",
    )


def _rows(spark: SparkSession, source: Source, reading: Reading) -> DataFrame:
    """A stream that begins at the first offsets in its checkpoint, or all records that exist now."""
    from barnabas.pipelines.spark.feeds.feed import feed_rows
    from barnabas.pipelines.spark.topics.first import first_offsets

    settings = dict(reading.settings)
    if not reading.stream:
        unwanted = ("starting", "commitgroup", "stopfile")
        settings = {name: value for name, value in settings.items() if not name.lower().startswith(unwanted)}
        settings["startingOffsets"] = "earliest"
        return spark.read.format("barnabas").options(**settings).load()
    first = first_offsets(spark, reading.checkpoint, settings, reading.number)
    if first is not None:
        settings["firstOffsets"] = json.dumps(first)
    return feed_rows(spark, settings)


def _empty(spark: SparkSession, source: Source) -> DataFrame:
    return spark.createDataFrame([], ddl_schema((*BASE_COLUMNS, "headers")))


TOPIC: Final = SourceKind(
    "topic", "records of topics", SHAPE, ("topic", "topics", "pattern"), _check, _rows, _empty, topics=True
)
TABLE: Final = SourceKind(
    "table",
    "a compacted topic: the newest record of each key",
    TABLE_SHAPE,
    ("table",),
    _check_table,
    _rows,
    _empty,
    topics=True,
    table=True,
)
