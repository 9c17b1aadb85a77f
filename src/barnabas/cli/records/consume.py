"""`barnabas consume`: records of topics go to standard output, as fast as a pipe takes them.

Two ways to read: partitions assigned by us, from the offsets that -o names (the default), or as a
member of a consumer group (-g). Each loop takes a list of records from librdkafka, renders it with
one call, writes it with one call, and only then commits, so that a record is never lost to a
reader that went away.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from barnabas.cli.records import formatting
from barnabas.cli.records.absence import STATISTICS, Absence
from barnabas.cli.records.choosing import FilterText, Sieve, sieve_of
from barnabas.cli.records.codecs import DEFAULT_URL, ReadAs, Undecodable, Url, codecs_of
from barnabas.cli.records.merging import TimeMerge
from barnabas.cores.cluster_image import INTERNAL_TOPICS
from barnabas.terminal.connection import ClusterAddress, connect, explain
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError, why_of_stream
from barnabas.terminal.offsets import (
    BEGINNING,
    END,
    STORED,
    Anchor,
    Bounds,
    Clock,
    Place,
    Range,
    parse_offsets,
    resolve,
)
from barnabas.terminal.options import Bootstrap, Properties, Quiet, Verbose
from barnabas.terminal.output import MANNER, count_of, note, size_text, summarize
from barnabas.terminal.progress import Progress
from barnabas.terminal.runner import example, new_app
from barnabas.terminal.signals import ending

app = new_app("Write records of topics to standard output.")

BATCH_RECORDS: Final = 10_000
POLL_SECONDS: Final = 0.2
COMMIT_SECONDS: Final = 5.0
UNASSIGNED_SECONDS: Final = 10.0
TIMEOUT_SECONDS: Final = 30.0

# fetch.queue.backoff.ms: librdkafka stops fetching when its queue is full and looks again only
# after this time; its default of one second makes a fast reader stutter.
CONSUMER: Final = {
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 500_000,
    "queued.max.messages.kbytes": 128 * 1024,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
BOUNDED_WAIT_MS: Final = 50
"""How long a broker may hold a fetch at the end of a partition when we only want to reach that end."""

Key = tuple[str, int]


@dataclass(slots=True)
class Reader:
    """One run of `consume`: what is left to read, and what was written."""

    consumer: Any
    write: formatting.Writer
    descriptor: int
    stops: dict[Key, int] = field(default_factory=dict)
    """First offset not wanted, for partitions that have an end."""
    open: set[Key] = field(default_factory=set)
    """Assigned partitions that have not reached their end."""
    stop_at_end: bool = False
    count_left: int | None = None
    subscribed: bool = False
    """The group's coordinator assigns the partitions, not this command."""
    was_assigned: bool = False
    commits: bool = False
    records: int = 0
    bytes: int = 0
    stopped: bool = False
    pending: dict[Key, int] = field(default_factory=dict)
    """Written but not committed: the next offset of each partition."""
    began: float = field(default_factory=time.monotonic)
    committed_at: float = field(default_factory=time.monotonic)
    expected: int | None = None
    """How many records there are to read, where every partition has an end."""
    merge: TimeMerge | None = None
    """Puts records of all partitions in the order of their times."""
    paused: set[Key] = field(default_factory=set)
    sieve: Sieve | None = None
    """Which of the records the writer lets through, if not all of them."""

    def run(self, progress: Progress) -> None:
        """Read until the end, the count, a signal or the reader's end of the pipe."""
        while not self.is_done():
            progress.update(self.records, size_bytes=self.bytes)
            wanted = self.room()
            # consume() waits until it has all it was asked for, which would hold back a slow topic's
            # records: so take what is there, and wait for one only when there is nothing.
            messages = self.consumer.consume(wanted, 0) or self.consumer.consume(1, POLL_SECONDS)
            if messages or (self.merge is not None and not self.merge.is_empty):
                self.take(messages)
            if self.commits and self.pending and time.monotonic() - self.committed_at > COMMIT_SECONDS:
                self.commit()

    def room(self) -> int:
        """How many records to take at once."""
        return (
            BATCH_RECORDS
            if self.count_left is None or self.sieve is not None
            else min(BATCH_RECORDS, self.count_left)
        )

    def stop(self) -> None:
        """End after the batch at hand."""
        self.stopped = True

    def is_done(self) -> bool:
        """Whether there is nothing left to wait for."""
        if self.stopped or self.count_left == 0:
            return True
        if not self.subscribed:
            return not self.open and (self.merge is None or self.merge.is_empty)
        # A member may be given no partition at all; then -e ends after a while.
        waited = time.monotonic() - self.began > UNASSIGNED_SECONDS
        return self.stop_at_end and not self.open and (self.was_assigned or waited)

    def take(self, messages: list[Any]) -> None:
        """Write the records among `messages` and note the ends that were reached."""
        good = [message for message in messages if message.error() is None]
        if len(good) != len(messages):
            for message in messages:
                if message.error() is not None:
                    self.on_error(message)
        if self.stops:
            good = self.before_stops(good)
        if self.merge is not None:
            good = self.merged(self.merge, good)
        if not good:
            return
        try:
            data = self.write(good)
        except Undecodable as error:
            write_all(self.descriptor, error.before)
            raise
        write_all(self.descriptor, data)
        count = len(good)
        if self.sieve is not None:
            good, count = good[: self.sieve.passed], self.sieve.fitting
        self.records += count
        self.bytes += len(data)
        if self.count_left is not None:
            self.count_left -= count
        if self.commits:
            # Later records of a partition overwrite earlier ones: what stays is the last of each.
            self.pending.update(((m.topic(), m.partition()), m.offset() + 1) for m in good)

    def merged(self, merge: TimeMerge, messages: list[Any]) -> list[Any]:
        """What may be written now, in the order of times; a partition that is far ahead of others is read no further."""
        merge.add(messages)
        ready = merge.ready(self.open, self.room())
        if full := merge.full() - self.paused:
            self.consumer.pause([TopicPartition(*key) for key in full & self.open])
            self.paused |= full
        if few := merge.few(self.paused):
            self.consumer.resume([TopicPartition(*key) for key in few & self.open])
            self.paused -= few
        return ready

    def before_stops(self, messages: list[Any]) -> list[Any]:
        """Those records that lie before their partition's stop; a partition that reached it is closed."""
        kept = []
        for message in messages:
            key = (message.topic(), message.partition())
            stop = self.stops.get(key)
            if stop is None:
                kept.append(message)
                continue
            offset = message.offset()
            if offset < stop:
                kept.append(message)
            if offset + 1 >= stop:
                self.close(key)
        return kept

    def close(self, key: Key) -> None:
        """All wanted records of a partition were read: stop fetching it."""
        if key in self.open and not self.subscribed:
            self.consumer.incremental_unassign([TopicPartition(*key)])
        self.open.discard(key)

    def on_error(self, message: Any) -> None:
        """An event that librdkafka delivers between records. Raises CliError for a real error."""
        error = message.error()
        key = (message.topic(), message.partition())
        if error.code() == KafkaError._PARTITION_EOF:
            if self.merge is not None:
                self.merge.note_end(key)
            stop = self.stops.get(key)
            # The log may end in records that are never shown (transaction markers), so its end counts as well.
            if self.stop_at_end or (stop is not None and message.offset() >= stop):
                self.close(key)
            return
        if error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
            raise CliError(f"{message.topic()}: {explain(error)}")
        if not error.retriable():
            raise CliError(f"{message.topic()} [{message.partition()}]: {explain(error)}")

    def commit(self) -> None:
        """Commit what was written."""
        offsets = [
            TopicPartition(topic, partition, offset) for (topic, partition), offset in self.pending.items()
        ]
        self.pending.clear()
        self.committed_at = time.monotonic()
        if offsets:
            try:
                self.consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:
                raise CliError(f"cannot commit the group's offsets: {explain(error.args[0])}") from None


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte. Raises BrokenPipeError when the reader is gone, CliError for what is wrong with a file."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CliError(f"cannot write to standard output: {why_of_stream(error)}") from None


def names_internal(pattern: str) -> bool:
    """Whether a pattern is meant to match Kafka's internal topics, which others leave out."""
    return pattern.startswith("^__")


def expand(consumer: Any, topics: Sequence[str]) -> list[str]:
    """Topic names, with each ^REGEX replaced by the topics that match it. Raises CliError when none does."""
    names: dict[str, None] = {}
    for topic in topics:
        if not topic.startswith("^"):
            names[topic] = None
            continue
        try:
            matches = [
                name
                for name in consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
                if re.match(topic, name) and (name not in INTERNAL_TOPICS or names_internal(topic))
            ]
        except re.error as error:
            raise UsageError(f"{topic!r} is not a regular expression: {error}") from None
        if not matches:
            raise CliError(f"no topic matches {topic}")
        names |= dict.fromkeys(sorted(matches))
    return list(names)


def partitions_of(consumer: Any, topics: Sequence[str], wanted: Sequence[int]) -> list[Key]:
    """The partitions to read. Raises CliError for a topic or partition that is not there."""
    keys = []
    for topic in expand(consumer, topics):
        try:
            metadata = consumer.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic]
        except KafkaException as error:
            raise CliError(f"cannot read the metadata of {topic}: {explain(error.args[0])}") from None
        if metadata.error is not None:
            raise CliError(f"{topic}: {explain(metadata.error)}")
        missing = sorted(set(wanted) - set(metadata.partitions))
        if missing:
            there = count_of(len(metadata.partitions), "partition")
            raise CliError(f"{topic}: no partition {missing[0]}; it has {there}")
        keys += [(topic, partition) for partition in sorted(wanted or metadata.partitions)]
    return keys


@dataclass(frozen=True, slots=True)
class Offsets:
    """Looks up the offsets that positions stand for."""

    consumer: Any

    def bounds(self, key: Key, with_stored: bool) -> Bounds:
        """First and next offset of one partition, and the group's offset if that is wanted."""
        part = TopicPartition(*key)
        try:
            start, end = self.consumer.get_watermark_offsets(part, timeout=TIMEOUT_SECONDS)
            if not with_stored:
                return Bounds(start, end)
            stored = self.consumer.committed([part], timeout=TIMEOUT_SECONDS)[0].offset
        except KafkaException as error:
            raise CliError(
                f"{key[0]} [{key[1]}]: cannot read its offsets: {explain(error.args[0])}"
            ) from None
        return Bounds(start, end, stored if stored >= 0 else None)

    def at_time(self, key: Key, time_ms: int) -> int:
        """First offset at or after a time; -1 when there is none."""
        try:
            offset_row = self.consumer.offsets_for_times(
                [TopicPartition(*key, time_ms)], timeout=TIMEOUT_SECONDS
            )[0]
        except KafkaException as error:
            raise CliError(f"{key[0]} [{key[1]}]: cannot look up a time: {explain(error.args[0])}") from None
        return int(offset_row.offset)


def assign(reader: Reader, keys: Sequence[Key], wanted: Range, stop_at_end: bool) -> None:
    """Assign the partitions at the offsets that `wanted` names; empty ranges are left out."""
    offsets = Offsets(reader.consumer)
    stop = wanted.stop if wanted.stop is not None else END if stop_at_end else None
    starts = []
    for key in keys:
        if stop is None and wanted.start in (BEGINNING, END) and not stop_at_end:
            # Nothing to look up: librdkafka resolves both ends itself.
            logical = -2 if wanted.start is BEGINNING else -1
            starts.append(TopicPartition(*key, logical))
            reader.open.add(key)
            continue
        bounds = offsets.bounds(key, wanted.start.anchor is Anchor.STORED)

        def at_time(time_ms: int, key: Key = key) -> int:
            return offsets.at_time(key, time_ms)

        start = resolve(wanted.start, bounds, at_time)
        if wanted.start.anchor is Anchor.OFFSET and wanted.start.number > bounds.end:
            note(
                f"{key[0]} [{key[1]}]: offset {wanted.start.number:,} is past the end, which is {bounds.end:,}"
            )
        if stop is not None:
            reader.stops[key] = resolve(stop, bounds, at_time) if is_in_log(stop, bounds) else stop.number
            if start >= reader.stops[key]:
                continue
            reader.expected = (reader.expected or 0) + reader.stops[key] - max(start, bounds.start)
        starts.append(TopicPartition(*key, start))
        reader.open.add(key)
    reader.consumer.assign(starts)


def is_in_log(stop: Place, bounds: Bounds) -> bool:
    """Whether a stop is limited to the present end of the log; for an offset beyond it, the command waits."""
    return stop.anchor is not Anchor.OFFSET or stop.number <= bounds.end


def subscribe(reader: Reader, topics: Sequence[str]) -> None:
    """Read as a member of a group; partitions come and go."""

    def assigned(_consumer: Any, parts: list[Any]) -> None:
        reader.open.update((part.topic, part.partition) for part in parts)
        reader.was_assigned = reader.was_assigned or bool(parts)

    def revoked(_consumer: Any, parts: list[Any]) -> None:
        # Committed before the partitions move, so that their next owner repeats nothing.
        with contextlib.suppress(CliError):
            reader.commit()
        reader.open.difference_update((part.topic, part.partition) for part in parts)

    reader.consumer.subscribe(list(topics), on_assign=assigned, on_revoke=revoked)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for. `wanted` None: no -o was given. merges: records in the order of their times."""

    topics: Sequence[str]
    partitions: Sequence[int]
    wanted: Range | None
    group: str | None
    count: int | None
    stop_at_end: bool
    merges: bool = False

    def joins(self) -> bool:
        """Whether to become a member of the group. Raises UsageError for an -o that a member cannot have."""
        if self.group == "":
            raise UsageError("-g is '', but must name a group")
        if self.merges and self.group is not None:
            raise UsageError(
                "TOPIC,TOPIC reads in the order of times, which members of a group cannot: leave out -g"
            )
        if self.group is None:
            if self.wanted is not None and self.wanted.start is STORED:
                raise UsageError("-o stored needs the group whose offsets to use: -g GROUP")
            return False
        if self.partitions:
            return False
        if self.wanted not in (None, Range(STORED), Range(BEGINNING), Range(END)):
            raise UsageError(
                "with -g, -o only says where a group without offsets begins (beginning or end); "
                "leave out -g, or name partitions with -p"
            )
        return True


def open_reader(
    connection: ClusterAddress, plan: Plan, writer: formatting.Writer, sieve: Sieve | None = None
) -> Reader:
    """A reader that is ready to run. Raises CliError."""
    joins = plan.joins()
    settings: dict[str, Any] = {
        **CONSUMER,
        "group.id": plan.group or "barnabas-consume",
        "auto.offset.reset": "latest" if plan.wanted == Range(END) else "earliest",
    }
    if plan.stop_at_end or (plan.wanted is not None and plan.wanted.stop is not None):
        settings["fetch.wait.max.ms"] = BOUNDED_WAIT_MS
    elif not MANNER.quiet:
        settings |= {**STATISTICS, "stats_cb": Absence().on_statistics}
    if joins and not any(map(names_internal, plan.topics)):
        settings["topic.blacklist"] = ",".join(
            f"^{name}$" for name in INTERNAL_TOPICS if name not in plan.topics
        )
    reader = Reader(
        connection.consumer(settings),
        writer,
        sys.stdout.fileno(),
        stop_at_end=plan.stop_at_end,
        count_left=plan.count,
        subscribed=joins,
        commits=plan.group is not None,
        merge=TimeMerge() if plan.merges else None,
        sieve=sieve,
    )
    if joins:
        subscribe(reader, plan.topics)
    else:
        keys = partitions_of(reader.consumer, plan.topics, plan.partitions)
        wanted = plan.wanted or Range(STORED if plan.group else BEGINNING)
        assign(reader, keys, wanted, plan.stop_at_end)
    return reader


def choose_writer(
    as_envelope: bool, template: str | None, key_separator: str | None, delimiter: str, null: str
) -> formatting.Writer:
    """The writer that -J, -f, -k, -D and -Z ask for. Raises UsageError."""
    if as_envelope and template is not None:
        raise UsageError("-J and -f exclude each other")
    if as_envelope:
        return formatting.json_writer()
    null_bytes = null.encode()
    if template is not None:
        return formatting.format_writer(template, null_bytes)
    separator = None if key_separator is None else formatting.unescape(key_separator, "-k")
    return formatting.value_writer(formatting.unescape(delimiter, "-D"), separator, null_bytes)


Where = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--offset",
        metavar="WHERE",
        help="beginning, end, stored, N, -N (before the end), @TIME (ms, ISO date, -90m), "
        "or a range A:B, e.g. 10:20, -10:, @2024-01-01:@2024-01-02; may be repeated.",
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--format",
        metavar="TEXT",
        help="%t topic, %p partition, %o offset, %k key, %s value, %T time, %h headers, %K %S lengths.",
    ),
]

Topics = Annotated[
    list[str],
    typer.Argument(
        metavar="TOPIC",
        help="Topics; ^REGEX for all that match; A,B in the order of their times.",
        show_default=False,
    ),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option(
        "-p",
        "--partition",
        min=0,
        metavar="N",
        help="Only this partition; may be repeated. Default: all of them.",
    ),
]
Count = Annotated[
    int | None, typer.Option("-c", "-n", "--count", min=1, metavar="N", help="Stop after N records.")
]
AtEnd = Annotated[bool, typer.Option("-e", "--exit", help="Stop at the end of the topic.")]
Group = Annotated[
    str | None, typer.Option("-g", "-G", "--group", metavar="GROUP", help="Read as a member of this group.")
]
AsEnvelope = Annotated[bool, typer.Option("-J", "--json", help="One JSON object per record.")]
KeySeparator = Annotated[
    str | None, typer.Option("-k", "-K", "--key-separator", metavar="TEXT", help="Write key, TEXT, value.")
]
Delimiter = Annotated[
    str, typer.Option("-D", "--delimiter", metavar="TEXT", help="Written after each record.")
]
ForNull = Annotated[
    str, typer.Option("-Z", "--null", metavar="TEXT", help="Write this for a null key or value.")
]


@app.command(
    epilog=example(
        "barnabas consume orders -e",
        "barnabas consume orders -o @2024-01-01:@2024-01-02 -f '%T %p:%o %k=%s\\n'",
        "barnabas consume orders -o -10 -J | jq .payload",
        "barnabas consume orders -g billing -c 100",
        "barnabas consume orders -e --filter \"country = 'DE' AND amount > 100\"",
        "barnabas consume orders -s value=avro -r http://localhost:8081 -e",
    )
)
def consume(
    topics: Topics,
    partition: Partitions = None,
    offset: Where = None,
    count: Count = None,
    end: AtEnd = False,
    group: Group = None,
    template: Template = None,
    as_envelope: AsEnvelope = False,
    key_separator: KeySeparator = None,
    delimiter: Delimiter = "\\n",
    null: ForNull = "",
    expression: FilterText = None,
    schema: ReadAs = None,
    registry: Url = DEFAULT_URL,
    quiet: Quiet = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
) -> int:
    """Write records to standard output: by default all of a topic, then new ones as they come.

    Times without a zone are local time; the end of a range is not part of it.
    """
    wanted = parse_offsets(offset or [], Clock(time.time_ns() // 1_000_000))
    writer = choose_writer(as_envelope, template, key_separator, delimiter, null)
    sieve = sieve_of(expression, count)
    if sieve is not None:
        writer = sieve.writer(writer)
    codecs = codecs_of(schema or [], registry)
    if codecs is not None:
        writer = codecs.writer(writer)
    merges = any("," in topic and not topic.startswith("^") for topic in topics)
    if merges:
        topics = [part for topic in topics for part in topic.split(",") if part]
    plan = Plan(topics, partition or [], wanted, group, count, end, merges)
    began = time.monotonic()
    reader = open_reader(connect(bootstrap, properties, verbose), plan, writer, sieve)
    total = count if reader.expected is None else min(count or reader.expected, reader.expected)
    with (
        Progress(", ".join(topics), "record", total, shown=not sys.stdout.isatty()) as progress,
        ending(reader.stop),
    ):
        read_all(reader, progress)
    if not quiet:
        seconds = time.monotonic() - began
        summarize(f"{count_of(reader.records, 'record')} ({size_text(reader.bytes)}) in {seconds:.2f} s")
    return EXIT_OK


def read_all(reader: Reader, progress: Progress) -> None:
    """Run the reader to its end. Whatever ends it: what was written is committed, and the group is left."""
    try:
        reader.run(progress)
    except BrokenPipeError:
        # The program behind the pipe has what it wanted (`| head`); records that it did not read are not committed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), reader.descriptor)
    finally:
        try:
            if reader.commits:
                reader.commit()
        finally:
            reader.consumer.close()
