"""`barnabas produce`: lines of standard input or of files become records.

The fast path: a chunk is read, cut at the delimiter, and passed to librdkafka as one batch. Only failed deliveries
call back; records that were passed on, did not fail and are no longer queued were acknowledged.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer
from confluent_kafka import KafkaError, KafkaException

from barnabas.cli.records.absence import STATISTICS, Absence, has_records
from barnabas.cli.records.codecs import DEFAULT_URL, Refused, Url, WriteAs, codecs_of
from barnabas.cli.records.formatting import unescape
from barnabas.cli.records.record_shape import LineFormat, Record, parse_headers
from barnabas.terminal.connection import BATCH_BYTES, ClusterAddress, connect, explain
from barnabas.terminal.errors import EXIT_NOT_DELIVERED, EXIT_OK, CliError, UsageError, why_input_fails
from barnabas.terminal.lines import chunks, split
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Quiet, Verbose
from barnabas.terminal.outbox import Outbox, Stage
from barnabas.terminal.output import count_of, note, print_json, size_text, summarize
from barnabas.terminal.progress import Progress
from barnabas.terminal.runner import example, new_app
from barnabas.terminal.signals import ending
from barnabas.terminal.topics import lacks_topic, read_only_copy, require_topic, too_few_replicas

app = new_app("Send lines of standard input or of files to a topic.")

BATCH_RECORDS: Final = 10_000
POLL_SECONDS: Final = 0.5
NUDGES: Final = 10
INTERRUPTED: Final = "interrupted"
NUDGE_SECONDS: Final = 0.02

# Measured against a local broker: large batches with a short linger reach the most records/s while
# a line typed by hand still leaves within 5 ms.
PRODUCER: Final = {
    "linger.ms": 5,
    "batch.size": BATCH_BYTES,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 * 1024,
    "delivery.report.only.error": True,
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 120_000,
    "partitioner": "murmur2_random",
}


@dataclass(slots=True)
class Sender:
    """Hands records to librdkafka, waits when its queue is full, and counts what failed."""

    connection: ClusterAddress
    topic: str
    settings: dict[str, Any]
    partition: int = -1
    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    first_error: str = ""
    has_timed_out: bool = False
    """Whether a record was not acknowledged in time; librdkafka does not tell why."""
    is_against_policy: bool = False
    """Whether the broker's policy forbids to write to the topic; librdkafka does not tell why."""
    dead_letters: int = 0
    first_dead_letter: str = ""
    stopped: bool = False
    has_said: bool = False
    """Whether the user knows what a stop waits for, and how to end the waiting."""
    outbox: Outbox = field(init=False)

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.connection, self.topic, self.settings, self.hand_over, self.fail)

    def fail(self, error: KafkaError, record: Record) -> None:
        """Count one record that did not arrive."""
        if record.topic is not None:
            self.first_dead_letter += f" (it did not arrive: {explain(error)})"
            return
        self.failed += 1
        self.has_timed_out = self.has_timed_out or error.code() == KafkaError._MSG_TIMED_OUT
        self.is_against_policy = self.is_against_policy or error.code() == KafkaError.POLICY_VIOLATION
        self.sent_bytes -= len(record.value or b"") + len(record.key or b"")
        self.first_error = self.first_error or explain(error)

    def send_batch(self, records: list[dict[str, Any]]) -> None:
        """Send dicts with value and key in order: the fast path, without headers. librdkafka refuses the tail of a
        batch when its queue is full, so sending the tail again keeps the order.
        """
        stage = self.outbox.stage
        self.sent += len(records)
        waiting = records
        try:
            while waiting:
                waiting = self._hand_over_batch(stage, waiting)
                self.outbox.poll(0.05 if waiting else 0)
                if waiting:
                    self.say_what_is_waited_for(len(waiting))
        except KeyboardInterrupt:
            self._note_interrupted(waiting)
            raise

    def _hand_over_batch(self, stage: Stage, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Give records to librdkafka; returns those that its queue has no room for."""

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                record = Record(message.value(), message.key(), partition=self.partition_of(message))
                self.outbox.failed(error, stage, record)

        stage.producer.produce_batch(self.topic, records, partition=self.partition, on_delivery=delivered)
        waiting = []
        for record in [record for record in records if "_error" in record]:
            error = record.pop("_error")
            if is_queue_full(error):
                waiting.append(record)
            else:
                partition = None if self.partition < 0 else self.partition
                self.outbox.failed(error, stage, Record(**record, partition=partition))
        return waiting

    def _note_interrupted(self, records: list[dict[str, Any]]) -> None:
        """Count records that librdkafka has not got, so that they do not count as delivered."""
        self.failed += len(records)
        self.sent_bytes -= sum(
            len(record["value"] or b"") + len(record.get("key") or b"") for record in records
        )
        self.first_error = self.first_error or INTERRUPTED

    def say_what_is_waited_for(self, more: int = 0) -> None:
        """After the first signal that asks to end, say once what the command still does, and how to stop it.

        more: records that were read, but not given to librdkafka yet.
        """
        if self.stopped and not self.has_said:
            self.has_said = True
            waiting = count_of(len(self.outbox) + more, "record")
            note(f"waiting for the acknowledgement of {waiting}; another Ctrl-C or SIGTERM gives up")

    def give_up(self) -> None:
        """Drop all records that are not acknowledged."""
        self.first_error = self.first_error or INTERRUPTED
        self.outbox.purge()

    def partition_of(self, message: Any) -> int | None:
        """The partition that a record which failed was meant for; None leaves it to the partitioner."""
        number = message.partition()
        return (
            number if number is not None and number >= 0 else None if self.partition < 0 else self.partition
        )

    def send(self, record: Record) -> None:
        """Send one record, with headers, partition and time if it has them."""
        self.sent += 1
        self.sent_bytes += len(record.value or b"") + len(record.key or b"")
        try:
            self.hand_over(self.outbox.stage, record)
        except KeyboardInterrupt:
            self._note_interrupted([{"value": record.value, "key": record.key}])
            raise

    def send_dead_letter(self, refused: Refused, where: str) -> None:
        """Send a record that a rule refuses, unchanged, to the topic that the rule names, and count it."""
        self.dead_letters += 1
        self.first_dead_letter = self.first_dead_letter or f"{where}: {refused}; sent to {refused.topic}"
        self.hand_over(
            self.outbox.stage, Record(refused.value, refused.key, refused.headers, topic=refused.topic)
        )

    def hand_over(self, stage: Stage, record: Record) -> None:
        """Give one record to librdkafka, waiting for room in its queue."""

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                self.outbox.failed(error, stage, record)

        arguments: dict[str, Any] = {"value": record.value, "key": record.key, "on_delivery": delivered}
        if record.headers:
            arguments["headers"] = record.headers
        if record.partition is not None:
            arguments["partition"] = record.partition
        if record.timestamp_ms is not None:
            arguments["timestamp"] = record.timestamp_ms
        while True:
            try:
                stage.producer.produce(record.topic or self.topic, **arguments)
            except BufferError:
                stage.producer.poll(0.05)
                self.say_what_is_waited_for(1)
            except KafkaException as error:
                self.outbox.failed(error.args[0], stage, record)
                return
            else:
                return

    def finish(self, watching: Callable[[], None]) -> None:
        """Wait until everything is acknowledged or has failed; a second Ctrl-C gives up. watching: called now and then."""
        try:
            began = time.monotonic()
            for _ in range(NUDGES):
                if not self.outbox.flush(NUDGE_SECONDS):
                    return
                if time.monotonic() - began > POLL_SECONDS:
                    self.say_what_is_waited_for()
                hasten_producer_id(self.outbox.producer, self.topic)
            while self.outbox.flush(POLL_SECONDS):
                self.say_what_is_waited_for()
                watching()
        except KafkaException as error:  # librdkafka gives up
            raise CliError(f"cannot produce to {self.topic}: {explain(error.args[0])}") from None
        except KeyboardInterrupt:
            self.give_up()


def hasten_producer_id(producer: Any, topic: str) -> None:
    """Let librdkafka ask for its producer id now.

    It asks when metadata arrives, else every 500 ms; its first metadata comes before it has the connection to ask on.
    So a short run asks for metadata once more.
    """
    with contextlib.suppress(KafkaException):
        producer.list_topics(topic, timeout=POLL_SECONDS)


def is_queue_full(error: Any) -> bool:
    """Whether a record of a batch was refused only because librdkafka's queue is full."""
    return isinstance(error, KafkaError) and error.code() == KafkaError._QUEUE_FULL


def ship(
    sources: list[BinaryIO],
    sender: Sender,
    shape: LineFormat,
    delimiter: bytes,
    count: int | None,
    watch: Watch,
) -> None:
    """Read every source to its end, or until `count` records were sent. Raises CliError for a bad line."""
    for source in sources:
        number = 0
        arriving = watch.counted(
            chunks(source.fileno(), lambda: sender.stopped, lambda: sender.outbox.poll(0)), sender
        )
        for lines in split(arriving, delimiter):
            for i in range(0, len(lines), BATCH_RECORDS):
                part = lines[i : i + BATCH_RECORDS]
                if count is not None:
                    part = part[: count - sender.sent]
                if shape.is_plain():
                    sender.sent_bytes += sum(map(len, part))
                    sender.send_batch(shape.batch(part))
                else:
                    for line in part:
                        number += 1
                        where = "" if source is sys.stdin.buffer else f"{source.name}, "
                        try:
                            record = shape.record(line)
                        except Refused as error:
                            sender.send_dead_letter(error, f"{where}line {number}")
                            continue
                        except CliError as error:
                            raise CliError(f"{where}line {number}: {error}") from None
                        sender.send(record)
                    sender.outbox.poll(0)
                if sender.sent == count:
                    return


@dataclass(slots=True)
class Watch:
    """Shows the progress of the sending on the terminal. total_bytes: of all sources, if all are files."""

    progress: Progress
    total_bytes: int | None
    read_bytes: int = 0

    def counted(self, parts: Iterator[bytes], sender: Sender) -> Iterator[bytes]:
        """The same parts; progress is shown before each."""
        for part in parts:
            self.show(sender)
            self.read_bytes += len(part)
            yield part

    def show(self, sender: Sender) -> None:
        """Show how much has arrived, and how much of the files was read."""
        waiting = len(sender.outbox)
        self.progress.update(
            sender.sent - sender.failed - waiting,
            size_bytes=sender.sent_bytes,
            fraction=self.read_bytes / self.total_bytes if self.total_bytes else None,
            more=f"{waiting:,} under way",
        )


def size_of(sources: list[BinaryIO]) -> int | None:
    """Bytes in all sources; None when one is a pipe or a terminal."""
    states = [os.fstat(source.fileno()) for source in sources]
    return sum(state.st_size for state in states) if all(stat.S_ISREG(s.st_mode) for s in states) else None


def open_files(names: list[str]) -> list[BinaryIO]:
    """The files to read, all opened before anything is sent. Raises CliError."""
    opened: list[BinaryIO] = []
    for name in names or ["-"]:
        why = why_input_fails() if name == "-" else None
        if why is not None:
            raise CliError(f"cannot read standard input: {why}; name a file, or write into a pipe")
        try:
            # Not closed before the process ends: each is read to its end.
            source = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115
            opened.append(source)
        except OSError as error:
            raise CliError(f"cannot read {name}: {error.strerror}") from None
    return opened


KeySeparator = Annotated[
    str | None,
    typer.Option(
        "-k", "-K", "--key-separator", metavar="TEXT", help="Cut each line into key and value here."
    ),
]
FixedKey = Annotated[str | None, typer.Option("--key", metavar="TEXT", help="The same key for every record.")]
Header = Annotated[
    list[str] | None,
    typer.Option("-H", "--header", metavar="NAME=VALUE", help="A header for every record; may be repeated."),
]
CodecName = Annotated[
    str | None, typer.Option("-z", "--compress", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
]
Partition = Annotated[
    int | None,
    typer.Option(
        "-p", "--partition", min=0, help="Send to this partition. Default: by key, or spread.", metavar="N"
    ),
]
Delimiter = Annotated[str, typer.Option("-D", "--delimiter", metavar="TEXT", help="What ends a record.")]
Count = Annotated[
    int | None, typer.Option("-c", "-n", "--count", min=1, metavar="N", help="Stop after N records.")
]
EmptyIsNull = Annotated[bool, typer.Option("-Z", "--null", help="Send an empty key or value as null.")]
AsEnvelope = Annotated[
    bool, typer.Option("-J", "--json-lines", help="Lines are JSON as `consume -J` writes them.")
]
Acks = Annotated[
    str | None,
    typer.Option("-a", "--acks", metavar="N", help="0, 1 or all; below all without idempotence."),
]


@app.command(
    epilog=example(
        "printf 'k1:one\\nk2:two\\n' | barnabas produce orders -k : -z zstd",
        "barnabas consume orders -J -e | barnabas produce copy -J",
        "barnabas produce orders -s value=avro@order.avsc -r http://localhost:8081 < orders.jsonl",
    )
)
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE", help="Files; - for standard input. Default: standard input.", show_default=False
        ),
    ] = None,
    key_separator: KeySeparator = None,
    key: FixedKey = None,
    header: Header = None,
    codec: CodecName = None,
    partition: Partition = None,
    delimiter: Delimiter = "\\n",
    count: Count = None,
    null: EmptyIsNull = False,
    as_envelope: AsEnvelope = False,
    acks: Acks = None,
    schema: WriteAs = None,
    registry: Url = DEFAULT_URL,
    quiet: Quiet = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Send records to a topic: each line of standard input, or of the files, is a record.

    Exit code 3: some records were not acknowledged.
    """
    shape = LineFormat(
        None if key_separator is None else unescape(key_separator, "-k"),
        None if key is None else key.encode("utf-8", "surrogateescape"),
        parse_headers(header or []),
        partition,
        null,
        as_envelope,
        codecs_of(schema or [], registry),
    )
    ending_bytes = unescape(delimiter, "-D")
    if not ending_bytes or shape.key_separator == b"":
        raise UsageError("-k and -D need at least one character")
    sources = open_files(files or [])
    if shape.codecs is not None:
        shape.codecs.prepare(topic)
    connection = connect(bootstrap, properties, verbose)
    require_or_make(connection, topic, quiet)  # until it exists, its limit cannot be looked up
    sender = Sender(
        connection, topic, settings_of(codec, acks, quiet), -1 if partition is None else partition
    )
    began = time.monotonic()
    refused = ""

    def stop() -> None:
        sender.stopped = True

    total_bytes = size_of(sources)
    typed = any(source.isatty() for source in sources)
    with Progress(topic, "record", shown=not typed) as progress, ending(stop):
        watch = Watch(progress, total_bytes)
        try:
            ship(sources, sender, shape, ending_bytes, count, watch)
        except KeyboardInterrupt:
            if sender.has_said:
                sender.give_up()
        except CliError as error:
            # Records that were read before are sent; the summary and the exit code report the rest.
            refused = str(error)
        sender.finish(lambda: watch.show(sender))
    return conclude(sender, time.monotonic() - began, refused, quiet, json)


def settings_of(codec: str | None, acks: str | None, quiet: bool) -> dict[str, Any]:
    """The producer's options; unless `quiet`, it also reports brokers that cannot be reached."""
    settings: dict[str, Any] = dict(PRODUCER)
    if codec is not None:
        settings["compression.type"] = codec
    if acks is not None:
        settings |= {"acks": acks, "enable.idempotence": acks in ("all", "-1")}
    if not quiet:
        settings |= {**STATISTICS, "stats_cb": Absence(is_waiting=has_records).on_statistics}
    return settings


def require_or_make(connection: ClusterAddress, topic: str, quiet: bool) -> None:
    """Look the topic up, which has the broker make it if it makes topics by itself. Raises CliError."""
    is_new = not quiet and lacks_topic(connection, topic)
    require_topic(connection.producer({}), topic)
    if is_new:
        summarize(f"the topic {topic} was not there; the broker has made it")


def conclude(sender: Sender, seconds: float, refused: str, quiet: bool, json: bool) -> int:
    """Print the summary; the exit code."""
    arrived = sender.sent - sender.failed
    if json:
        print_json(
            {
                "topic": sender.topic,
                "delivered": arrived,
                "failed": sender.failed,
                "seconds": round(seconds, 3),
            }
        )
    elif not quiet:
        rate = arrived / max(seconds, 1e-9)
        summarize(
            f"{count_of(arrived, 'record')} ({size_text(sender.sent_bytes)}) delivered to {sender.topic} "
            f"in {seconds:.2f} s, {rate:,.0f} records/s"
        )
    if sender.failed:
        why = too_few_replicas(sender.connection, sender.topic) if sender.has_timed_out else ""
        if sender.is_against_policy:
            why = read_only_copy(sender.connection, sender.topic)
        raise CliError(
            f"{count_of(sender.failed, 'record')} not delivered: {why or sender.first_error}",
            EXIT_NOT_DELIVERED,
        )
    if refused:
        raise CliError(refused)
    if sender.dead_letters:
        more = f", and {sender.dead_letters - 1} more" if sender.dead_letters > 1 else ""
        raise CliError(f"{sender.first_dead_letter}{more}")
    return EXIT_OK
