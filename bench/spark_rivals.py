"""What Spark reads and writes topics with, beside our format: its own JVM connector, and confluent-kafka by rows.

The JVM connector comes from Maven Central once, into the bench's cache. `confluent` is the data source that a user
writes with PySpark's row interface and confluent-kafka's objects, consumers and producers kept from task to task.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka as ck  # type: ignore[import-untyped]
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bench.brokers import CACHE, Unavailable

CONNECTOR = "spark-sql-kafka-0-10_2.13"
TOKENS = "spark-token-provider-kafka-0-10_2.13"
FETCH_SECONDS_MAX = 240
TIMEOUT_S = 30
READ_AT_ONCE = 5_000


@dataclass(frozen=True)
class Artifact:
    group: str
    name: str
    version: str

    def xml(self) -> str:
        """A dependency without its own dependencies: Spark brings the rest."""
        nothing = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version><exclusions>{nothing}</exclusions></dependency>"
        )


def connector(version: str, tokens: str) -> tuple[Artifact, ...]:
    """What Spark's connector needs and Spark does not bring."""
    return (
        Artifact("org.apache.spark", CONNECTOR, version),
        Artifact("org.apache.spark", TOKENS, tokens),
        Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
        Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
        Artifact("org.scala-lang.modules", "scala-parallel-collections_2.13", "1.2.0"),
    )


CHOICES = ((pyspark.__version__, pyspark.__version__), ("4.2.0", "4.2.0"), ("4.2.0", "4.0.0"))
"""Versions of the connector and of its helper for tokens. Where the installed Spark's own are not to be had, the
newest that are: they use the same interfaces of Spark."""


def connector_jars() -> tuple[str, list[Path]]:
    """(version, jars) of Spark's JVM connector, fetched by Maven when they are not in the cache. Raises Unavailable."""
    choices = [(v, connector(v, t), CACHE / f"spark-kafka-{v}-{t}") for v, t in dict.fromkeys(CHOICES)]
    kept = [choice for choice in choices if (choice[2] / ".complete").exists()]
    reason = "no `mvn` on the PATH to fetch Spark's Kafka connector with"
    for version, artifacts, folder in kept or choices:
        if not kept:
            if shutil.which("mvn") is None:
                break
            reason = _fetch(artifacts, folder)
            if reason:
                continue
        return version, sorted((folder / "jars").glob("*.jar"))
    raise Unavailable(reason)


def _fetch(artifacts: Sequence[Artifact], folder: Path) -> str:
    """Why they cannot be had; empty when they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = "".join(artifact.xml() for artifact in artifacts)
    (folder / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>connector</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>\n"
    )
    print(f"fetching {artifacts[0].name} {artifacts[0].version} (once) ...", flush=True)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=FETCH_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return f"Maven took over {FETCH_SECONDS_MAX} s to fetch {CONNECTOR}"
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        return f"Maven could not fetch {CONNECTOR} {artifacts[0].version}: {lines[0][:200]}"
    (folder / ".complete").touch()
    return ""


# --- confluent-kafka by rows ------------------------------------------------------------------------


@functools.cache
def _consumer(bootstrap: str) -> Any:
    """One per worker process. Without the short back-off librdkafka sleeps a second on a fast broker."""
    return ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 100,
        }
    )


@functools.cache
def _producer(bootstrap: str) -> Any:
    return ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "queue.buffering.max.messages": 1_000_000,
        }
    )


def _bounds(bootstrap: str, topic: str) -> dict[str, tuple[int, int]]:
    """Log start and end of each partition."""
    consumer = _consumer(bootstrap)
    parts = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    return {
        str(p): consumer.get_watermark_offsets(ck.TopicPartition(topic, p), timeout=TIMEOUT_S) for p in parts
    }


class Part(InputPartition):
    """Offsets start..end-1 of one partition."""

    def __init__(self, partition: int, start: int, end: int) -> None:
        super().__init__((partition, start, end))


def _parts(start: Mapping[str, int], end: Mapping[str, int]) -> list[InputPartition]:
    return [Part(int(p), start.get(p, 0), end[p]) for p in end if end[p] > start.get(p, 0)]


def _rows(options: Mapping[str, str], partition: InputPartition) -> Iterator[tuple[Any, ...]]:
    """A tuple for each record, in the order of Spark's Kafka columns."""
    number, at, end = partition.value
    topic = options["subscribe"]
    consumer = _consumer(options["kafka.bootstrap.servers"])
    consumer.assign([ck.TopicPartition(topic, number, at)])
    while at < end:
        for message in consumer.consume(min(READ_AT_ONCE, end - at), timeout=1):
            if message.error():
                raise RuntimeError(str(message.error()))
            kind, stamp = message.timestamp()
            at = message.offset() + 1
            time = datetime.fromtimestamp(stamp / 1000, UTC)
            yield message.key(), message.value(), topic, number, at - 1, time, kind - 1
    consumer.unassign()


class Reader(DataSourceReader):
    """Everything that is there."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def partitions(self) -> Sequence[InputPartition]:
        bounds = _bounds(self.options["kafka.bootstrap.servers"], self.options["subscribe"])
        return _parts({p: b[0] for p, b in bounds.items()}, {p: b[1] for p, b in bounds.items()})

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return _rows(self.options, partition)


class StreamReader(DataSourceStreamReader):
    """From the beginning, then what is new."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def initialOffset(self) -> dict[str, int]:
        bounds = _bounds(self.options["kafka.bootstrap.servers"], self.options["subscribe"])
        return {p: b[0] for p, b in bounds.items()}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        bounds = _bounds(self.options["kafka.bootstrap.servers"], self.options["subscribe"])
        return {p: b[1] for p, b in bounds.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _parts(start, end)

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return _rows(self.options, partition)


@dataclass
class Done(WriterCommitMessage):
    records: int


def _write(options: Mapping[str, str], rows: Iterator[Any]) -> Done:
    producer = _producer(options["kafka.bootstrap.servers"])
    failed: list[str] = []
    topic = options["topic"]
    keyed = None
    records = 0

    def note_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    for row in rows:
        if keyed is None:
            keyed = "key" in row
        while True:
            try:
                producer.produce(
                    topic, row["value"], row["key"] if keyed else None, on_delivery=note_delivery
                )
                break
            except BufferError:
                producer.poll(0.1)
        records += 1
        if records % 1000 == 0:
            producer.poll(0)
    producer.flush()
    if failed:
        raise RuntimeError(failed[0])
    return Done(records)


class Writer(DataSourceWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self.options, iterator)


class StreamWriter(DataSourceStreamWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(self.options, iterator)


class Confluent(DataSource):
    """The format `confluent`."""

    @classmethod
    def name(cls) -> str:
        return "confluent"

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset bigint, "
            "timestamp timestamp, timestampType int"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Writer(self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(self.options)
