"""The interface for connectors.

A connector is a class with options, found by its class name in Kafka's ecosystem, by its short name, or through an entry
point of the group `barnabas.connectors`. One object does the work of one task: it is made, gets its options with `start`,
and is only called by the task's thread until `stop`.

What the worker does, no connector has to: offsets are stored with the records in one transaction, records are transformed
and converted, calls that raise RetriableError are repeated, and a task that fails is started again after a growing pause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol

from barnabas.connect.options import Config, ConfigDef, ConnectorOption
from barnabas.connect.records import Json, SinkRecord, SourceRecord
from barnabas.observe.metric import Sample

RECORDS_MAX: Final = 2_000
"""About how many records a poll should return at most; they are in memory together, and share a transaction."""

LOOK_S: Final = 60.0
"""How often a source is asked whether it has other partitions, unless it says otherwise."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """What a poll returns if its offset does not follow from its records, or if it comes without records.

    offset: of the polled partition, where to go on after all of these records; None: that of the last record.
    """

    records: Sequence[SourceRecord] = ()
    offset: Json | None = None


def _nothing() -> None:
    return None


def _no_offsets(partitions: Sequence[Json]) -> list[Json | None]:
    return [None for _ in partitions]


@dataclass(slots=True)
class ConnectorContext:
    """What the worker tells a connector. stopping: set when the task is to end; wait on it instead of sleeping.

    reconfigure: call it when `partitions` would return others than before, and the tasks are divided again.
    folder: where this connector may keep files on this machine; None in a worker without a folder.
    """

    name: str = "connector"
    task: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    reconfigure: Callable[[], None] = _nothing
    folder: str | None = None


@dataclass(slots=True)
class SourceContext(ConnectorContext):
    """offsets: reads the stored offsets of partitions, those of other tasks as well; None where there is none. partitions:
    those that this task polls; none in the object that only divides the work."""

    offsets: Callable[[Sequence[Json]], list[Json | None]] = _no_offsets
    partitions: Sequence[Json] = ()


class Report(Protocol):
    """Gives a record back that the sink will never store, and why: errors.tolerance says what happens to it, which may
    be that this raises."""

    def __call__(self, record: SinkRecord, error: Exception) -> None: ...


def _raise(record: SinkRecord, error: Exception) -> None:
    raise error


@dataclass(slots=True)
class SinkContext(ConnectorContext):
    """report: see Report."""

    report: Report = _raise


class Connector:
    """What sources and sinks share.

    options: declared as data. aliases: class names in Kafka's ecosystem that mean this connector. version: shown.
    """

    options: ClassVar[tuple[ConnectorOption, ...]] = ()
    aliases: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[str] = "0.1.0"
    doc: ClassVar[str] = ""

    config: Config

    @classmethod
    def definition(cls) -> ConfigDef:
        """The options; override it if they depend on more than the class."""
        return ConfigDef(cls.options)

    @classmethod
    def check(cls, config: Config) -> Mapping[str, str | Sequence[str]]:
        """What is wrong with values that are right one by one: messages by option. It may ask the other side, and
        should return within seconds."""
        return {}


class SourceConnector(Connector):
    """Reads from somewhere, into topics."""

    poll_interval_ms: ClassVar[int] = 500
    """How long the worker waits after a poll of all partitions that returned nothing. An option `poll.interval.ms` of the
    connector has precedence."""
    leaves_no_trace: ClassVar[bool] = False
    """Whether records may be polled only to be looked at: nothing is taken from the other side or created there."""

    waits_for_commits: ClassVar[bool] = False
    """Whether a poll may do what must only happen once the records before `offset` are committed, like deleting a file: then
    transaction.boundary=interval is refused, with which several polls share a transaction."""

    polls_together: ClassVar[bool] = False
    """Whether one poll returns records of all partitions of the task: it is called with {} and None, each record names its
    `source_partition`, and `start` finds the offsets by the context."""

    @classmethod
    def look_interval_s(cls, config: Config) -> float:
        """How often the worker asks for `partitions`."""
        return LOOK_S

    def start(self, config: Config, context: SourceContext) -> None:
        """Called once, before the first poll. Raises ConnectError."""
        self.config, self.context = config, context

    def partitions(self) -> Sequence[Json]:
        """The parts that the source has, each with offsets of its own; they are divided among the tasks. Called after
        `start`, in an object that polls nothing, and again every `look_interval_s`."""
        return [{}]

    def poll(self, partition: Json, offset: Json | None) -> Iterable[SourceRecord] | Batch:
        """Some records after `offset`, which is None at the beginning; nothing if there are none now.

        Returns within about a second even if nothing comes. When it is called again, `offset` is that of the last record
        returned (or of the batch), which by then is committed with its records, unless transaction.boundary is `interval`.
        After a failure it is the last committed one, in another object. Raises RetriableError to be called again later with
        the same offset, ConnectError.
        """
        raise NotImplementedError

    def written(self, record: SourceRecord, topic: str, partition: int, offset: int) -> None:
        """Called, if a class overrides it, for each record that has its place in a topic, before it is committed. Records of
        one partition come in their order."""

    def committed(self, partition: Json, offset: Json) -> None:
        """Called after the records up to `offset` have been committed, for sources that acknowledge or delete."""

    def samples(self) -> Iterable[Sample]:
        """What a task measures of itself, for `GET /metrics`; called in any thread between `start` and `stop`."""
        return ()

    def stop(self) -> None:
        """Called once, also after a failure; closes what is open."""

    @classmethod
    def check_offsets(cls, config: Config, offsets: Sequence[tuple[Json, Json | None]]) -> None:
        """Checks offsets that a user sets (None: removes). Raises ConnectError for those that the source cannot have."""

    @classmethod
    def exactly_once(cls, config: Config) -> bool:
        """Whether each record is returned again after its offset was not committed, and never otherwise."""
        return True


class SinkConnector(Connector):
    """Writes from topics to somewhere."""

    not_in_pipelines: ClassVar[str] = ""
    """Why it cannot be the target of a pipeline, as the end of a sentence: it can if `flush` makes everything durable that
    was put, and `open` returns no offsets."""

    def start(self, config: Config, context: SinkContext) -> None:
        """Called once. Raises ConnectError."""
        self.config, self.context = config, context

    def open(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """These partitions are read from now on, and no others. A sink that stores offsets with its data returns where to
        go on; for the others it is where the group has committed."""
        return None

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Writes records, which come in the order of their partitions; also called without any, from time to time.

        Raises RetriableError to be called again later with the same records; ConnectError. Single records that will
        never be accepted are given to `context.report`.
        """
        raise NotImplementedError

    def flush(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int] | None:
        """Makes what was put durable, and returns the offsets up to which it is (None: all of `offsets`), which are then
        committed. Called every `offset.flush.interval.ms`, and before partitions are given up."""
        return None

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions are not read any more; what was not flushed comes again to whoever reads them next."""

    def stop(self) -> None:
        """Called once, also after a failure; closes what is open."""
