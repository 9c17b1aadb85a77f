"""The source of a pipeline's streaming query: ranges of offsets, planned here, that tasks read in Python.

Spark would start a Python process for each query with a Python data source, only to ask it several times a second whether
there is something new. A feed is planned in the process that started the query: Java (Feed.java) calls it there. While
nothing arrives, the query sleeps in Java; one lookout with one connection or a few watches for all feeds.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from barnabas.pipelines.spark.feeds.lending import lent_client, lookout
from barnabas.pipelines.spark.feeds.reading import Reading
from barnabas.pipelines.spark.java_classes import JavaClasses
from barnabas.pipelines.spark.private import read_limit, streamed_by
from barnabas.pipelines.spark.topics.offsets import Planner, StreamOffset, parse_offset, planner_clients
from barnabas.pipelines.spark.topics.options import SourceOptions, source_options
from barnabas.pipelines.spark.topics.source import StreamReader, rows_ddl, tasks_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK_SECONDS: Final = 1.0
"""A feed for which nothing arrives looks again after this time, for new partitions and topics."""
LOOKS_PER_SECOND_MAX: Final = 10
"""Of all feeds together: with many of them, each looks less often."""

CLASSES: Final = JavaClasses("barnabas.feeds", Path(__file__).parent)
_open: set[Feed] = set()
_lock = threading.Lock()


class Feed:
    """The driver's side of one query's source. Its calls come from threads of Java, one at a time."""

    class Java:
        """For Py4J."""

        implements: Final = ["java.util.function.Function"]

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.ring: Callable[[], None] = lambda: None
        self._clients = planner_clients(options)
        self._reader = StreamReader(options, Planner(options, is_lent=True))
        self._lookout = lookout(options.client, read_committed=options.read_committed)

    def apply(self, call: str) -> str:
        """A call of Java: its name, then a line for each argument."""
        name, *arguments = call.split("\n")
        if name == "stop":
            self._stop()
            return ""
        first, second = self._clients
        with (
            lent_client(first) as client,
            lent_client(second) as commits,
            self._reader.planner.lent(client, commits),
        ):
            return _CALLS[name](self, *arguments)

    def rings(self, ring: Callable[[], None]) -> Callable[[], None]:
        """What wakes the query; a query that cannot be woken has ended with its Java process."""

        def ring_or_stop() -> None:
            try:
                ring()
            except (Py4JError, OSError):
                self._stop()

        return ring_or_stop

    def initial(self) -> str:
        """Where a query without a checkpoint begins."""
        return json.dumps(self._reader.initialOffset())

    def prepare(self) -> str:
        """The query is to end at the present ends."""
        self._reader.prepareForTriggerAvailableNow()
        return ""

    def latest(self, rows_max: str, start: str) -> str:
        """Where the next micro-batch ends, or how many milliseconds to sleep unless the feed rings before that."""
        begin: StreamOffset = json.loads(start)
        limit = ReadAllAvailable() if int(rows_max) < 0 else ReadMaxRows(int(rows_max))
        reached = self._reader.looked(begin, limit)
        if reached != begin:
            return json.dumps(reached)
        if not self._reader.is_patient():
            return "wait 0"
        with _lock:
            _open.add(self)
            seconds = max(LOOK_SECONDS, len(_open) / LOOKS_PER_SECOND_MAX)
        self._lookout.await_news(self, parse_offset(begin)[0], self.ring)
        return f"wait {seconds * 1000:.0f}"

    def newest(self) -> str:
        """The newest ends that are known, for Spark's progress report."""
        offset = self._reader.reportLatestOffset()
        return "" if offset is None else json.dumps(offset)

    def tasks(self, start: str, end: str) -> str:
        """The ranges of each task, a line for each task."""
        ranges = self._reader.planner.ranges(json.loads(start), json.loads(end))
        return "\n".join(
            json.dumps([[r.topic, r.partition, r.start, r.end] for r in task])
            for task in tasks_of(ranges, self.options)
        )

    def commit(self, end: str) -> str:
        """Spark has noted that everything before these offsets is done."""
        self._reader.commit(json.loads(end))
        return ""

    def _stop(self) -> None:
        self._lookout.forget(self)
        with _lock:
            _open.discard(self)


_CALLS: Final[Mapping[str, Callable[..., str]]] = {
    "initial": Feed.initial,
    "prepare": Feed.prepare,
    "latest": Feed.latest,
    "newest": Feed.newest,
    "tasks": Feed.tasks,
    "commit": Feed.commit,
}


def feed_rows(spark: SparkSession, settings: Mapping[str, str]) -> DataFrame:
    """The rows of a streaming query over topics, the same as of the format `barnabas`. settings: its options. Raises
    OptionError."""
    options = source_options(settings)
    feed = Feed(options)
    of_java = CLASSES.new(spark, "Feed", feed, read_limit(spark, options.rows_per_trigger_max))
    feed.ring = feed.rings(of_java.ring)
    ranges = streamed_by(spark, of_java)
    return ranges.mapInArrow(Reading(options), rows_ddl(options))


def ring_feeds(stop_file: Path) -> None:
    """Wakes the feeds of queries that are to stop, see `stop_file`."""
    with _lock:
        feeds = [feed for feed in _open if feed.options.stop_file == str(stop_file)]
    for feed in feeds:
        feed.ring()
