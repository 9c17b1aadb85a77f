"""kafka-console-consumer."""

from __future__ import annotations

import contextlib
import random
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.kafka_tools.shared.common import ToolError, checked, client_properties, parse, servers
from barnabas.kafka_tools.shared.librdkafka import connection, consumer_defaults
from barnabas.kafka_tools.shared.matching import Matching
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.signals import ending

BATCH_RECORDS: Final = 5000
POLL_SECONDS: Final = 0.2
EARLIEST: Final = -2
LATEST: Final = -1

OLD_FLAGS: Final = ("delete-consumer-offsets", "new", "csv-reporter-enabled")
OLD_VALUES: Final = ("metrics-dir", "fetch-size", "socket-buffer-size", "autocommit.interval.ms",
                     "refresh-leader-backoff-ms", "consumer-timeout-ms")  # fmt: skip

TOOL: Final = Tool(
    "This tool helps to read data from Kafka topics and outputs it to standard output.",
    (
        *COMMON,
        Opt("topic", "The topic to consume on.", "String: topic"),
        Opt("include", "A regular expression of topics.", "String: Java regex", aliases=("whitelist",)),
        Opt("blacklist", "Of old tools: all topics but these.", "String: Java regex", old=True),
        Opt("partition", "The partition to consume from.", "Integer: partition"),
        Opt("offset", "A number, earliest or latest (default).", "String: consume offset"),
        Opt("from-beginning", "Start at the earliest message when the group has no offset yet."),
        Opt("max-messages", "Stop after this many.", "Integer: num_messages"),
        Opt("timeout-ms", "Stop when no message comes for this long.", "Integer: timeout_ms"),
        Opt("group", "The consumer group id.", "String: consumer group id"),
        Opt("isolation-level", "read_committed or read_uncommitted (default).", "String"),
        Opt("property", "print.key, print.timestamp, print.headers, key.separator ...", "String: prop"),
        Opt("formatter-property", "As --property.", "String: prop"),
        Opt("formatter-config", "A file of formatter properties.", "String: config file"),
        Opt("formatter", "The formatter's class; those of internal topics too.", "String: class"),
        Opt("key-deserializer", "String, Integer, Long, Short, Double, Float or ByteArray.", "String: class"),
        Opt("value-deserializer", "As --key-deserializer.", "String: class"),
        Opt("consumer-property", "A consumer property.", "String: consumer_prop"),
        Opt("consumer.config", "A file of consumer properties.", "String: config file"),
        Opt("skip-message-on-error", "Go on when a message cannot be shown."),
        Opt("enable-systest-events", "Of system tests."),
        Opt("reject-message-on-error", "Of share groups.", old=True),
        *(Opt(name, "Of old tools.", old=True) for name in OLD_FLAGS),
        *(Opt(name, "Of old tools.", "String", old=True) for name in OLD_VALUES),
    ),
)

NUMBERS: Final = {"Integer": ">i", "Long": ">q", "Short": ">h", "Double": ">d", "Float": ">f"}
Show = Callable[[bytes], bytes]


def deserializer(name: str | None) -> Show:
    """How a key or value is shown, by the class that Kafka would take. Raises Refused."""
    short = (name or "String").rpartition(".")[2].removesuffix("Deserializer")
    if short in NUMBERS:
        pattern = NUMBERS[short]

        def number(data: bytes) -> bytes:
            return str(struct.unpack(pattern, data)[0]).encode()

        return number
    if short in ("String", "ByteArray", "ByteBuffer", "Bytes"):
        return bytes
    raise Refused(
        f"{name} is not a deserializer that is known here: {', '.join(['String', 'ByteArray', *NUMBERS])}",
        False,
    )


@dataclass(slots=True)
class Formatter:
    """Kafka's DefaultMessageFormatter."""

    properties: dict[str, str]
    key: Show
    value: Show
    fields: list[Callable[[Any], bytes]] = field(default_factory=list)
    separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    null: bytes = b"null"

    def __post_init__(self) -> None:
        self.separator = self.text("key.separator", "\t")
        self.line_separator = self.text("line.separator", "\n")
        self.null = self.text("null.literal", "null")
        shown = {
            "print.timestamp": self.timestamp,
            "print.partition": lambda m: b"Partition:%d" % m.partition(),
            "print.offset": lambda m: b"Offset:%d" % m.offset(),
            "print.delivery": lambda m: b"Delivery:NOT_PRESENT",
            "print.epoch": self.epoch,
            "print.headers": self.headers,
            "print.key": lambda m: self.show(self.key, m.key()),
        }
        self.fields = [show for name, show in shown.items() if self.is_on(name)]
        if self.is_on("print.value", "true"):
            self.fields.append(lambda m: self.show(self.value, m.value()))

    def text(self, name: str, default: str) -> bytes:
        """A property as bytes, with its escapes."""
        return self.properties.get(name, default).replace("\\t", "\t").replace("\\n", "\n").encode()

    def is_on(self, name: str, default: str = "false") -> bool:
        """Whether a boolean property is true."""
        return self.properties.get(name, default).strip().lower() == "true"

    def show(self, deserialize: Show, data: bytes | None) -> bytes:
        """A key or value, or what stands for null."""
        return self.null if data is None else deserialize(data)

    def timestamp(self, message: Any) -> bytes:
        """The timestamp with its type."""
        kind, timestamp_ms = message.timestamp()
        return (
            b"NO_TIMESTAMP"
            if kind == 0
            else b"%s:%d" % ((b"CreateTime", b"LogAppendTime")[kind - 1], timestamp_ms)
        )

    def epoch(self, message: Any) -> bytes:
        """The leader epoch."""
        epoch = message.leader_epoch()
        return b"Epoch:NOT_PRESENT" if epoch is None or epoch < 0 else b"Epoch:%d" % epoch

    def headers(self, message: Any) -> bytes:
        """name:value,name:value."""
        headers = message.headers()
        if not headers:
            return b"NO_HEADERS"
        separator = self.text("headers.separator", ",")
        return separator.join(
            name.encode() + b":" + (self.null if value is None else value) for name, value in headers
        )

    def line(self, message: Any) -> bytes:
        """One message as it is printed."""
        return self.separator.join([show(message) for show in self.fields]) + self.line_separator


def main(arguments: Sequence[str]) -> int:
    """Print messages; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    files, pairs = ["consumer.config", "command-config"], ["consumer-property", "command-property"]
    properties = {"client.id": "console-consumer", **client_properties(parsed, files, pairs)}
    shown = client_properties(parsed, ["formatter-config"], ["property", "formatter-property"])
    line = formatter_line(parsed, shown)
    group = parsed.get("group") or properties.pop("group.id", None)
    settings = consumer_defaults(group or f"console-consumer-{random.randrange(100_000)}")
    settings["auto.offset.reset"] = "earliest" if "from-beginning" in parsed else "latest"
    settings["isolation.level"] = parsed.text("isolation-level", "read_uncommitted")
    settings["enable.auto.commit"] = group is not None
    settings["enable.auto.offset.store"] = False
    try:
        consumer = connection(servers(parsed, properties), properties, producing=False).consumer(settings)
    except CliError as error:
        raise ToolError(str(error)) from None
    matching = None
    if "topic" in parsed:
        begin(consumer, parsed, group)
    else:
        begin_at = EARLIEST if "from-beginning" in parsed else LATEST
        matching = Matching.of(
            consumer, properties, parsed.text("include", ".*"), parsed.text("blacklist"),
            begin_at=begin_at if group is None else None,
        )  # fmt: skip
    return Loop(consumer, line, parsed, matching).run()


def formatter_line(parsed: Parsed, shown: dict[str, str]) -> Callable[[Any], bytes]:
    """What is printed of each message, by --formatter and its properties. Raises Refused."""
    name = parsed.text("formatter", "DefaultMessageFormatter")
    if name.rpartition(".")[2] in ("DefaultMessageFormatter", "LoggingMessageFormatter"):
        return Formatter(
            shown,
            deserializer(parsed.get("key-deserializer") or shown.get("key.deserializer")),
            deserializer(parsed.get("value-deserializer") or shown.get("value.deserializer")),
        ).line
    from barnabas.kafka_tools.records.formatters import BY_CLASS, formatter_for

    formatter = formatter_for(name)
    if formatter is None:
        known = ", ".join(["DefaultMessageFormatter", "LoggingMessageFormatter", *BY_CLASS])
        raise Refused(f"--formatter {name} is not known here; there are {known}", False)
    return formatter


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    if sum(name in parsed for name in ("topic", "include", "blacklist")) != 1:
        raise Refused("Exactly one of --include/--topic is required. ")
    if "partition" in parsed and "topic" not in parsed:
        raise Refused("The topic is required when partition is specified.")
    if "offset" in parsed and "partition" not in parsed:
        raise Refused("The partition is required when offset is specified.")
    if "offset" in parsed and "from-beginning" in parsed:
        raise Refused("Options from-beginning and offset cannot be specified together.")
    if (
        "offset" in parsed
        and parsed.text("offset") not in ("earliest", "latest")
        and not parsed.text("offset").isdigit()
    ):
        raise Refused(
            f"The provided offset value '{parsed.text('offset')}' is incorrect. Valid values are 'earliest', 'latest', "
            "or a non-negative long."
        )


def begin(consumer: Any, parsed: Parsed, group: str | None) -> None:
    """Assign what --partition names, or all partitions, or subscribe as the group that was named."""
    from confluent_kafka import TopicPartition

    topic = parsed.text("topic")
    if "partition" in parsed:
        words = {"earliest": EARLIEST, "latest": LATEST}
        text = parsed.text("offset", "earliest" if "from-beginning" in parsed else "latest")
        consumer.assign([TopicPartition(topic, parsed.number("partition", 0), words.get(text) or int(text))])
    elif group is None:
        # The group has no other members, so the partitions can be assigned without waiting for a rebalance.
        partitions = wait_for_topic(consumer, topic)
        start = EARLIEST if "from-beginning" in parsed else LATEST
        consumer.assign([TopicPartition(topic, partition, start) for partition in partitions])
    else:
        consumer.subscribe([topic])


def wait_for_topic(consumer: Any, topic: str) -> list[int]:
    """The topic's partitions; like Kafka's tool, this waits for a topic that does not exist."""
    warned = False
    while True:
        metadata = consumer.list_topics(topic, timeout=30).topics[topic]
        if metadata.error is None and metadata.partitions:
            return sorted(metadata.partitions)
        if not warned:
            print(f"WARN the topic {topic} is not there; waiting for it", file=sys.stderr)
            warned = True
        if consumer.poll(1.0) is None:
            continue


@dataclass(slots=True)
class Loop:
    """Reads until the count, the time-out or a signal."""

    consumer: Any
    line: Callable[[Any], bytes]
    parsed: Parsed
    matching: Matching | None = None
    shown: int = 0
    stopped: bool = False
    has_warned: bool = False

    def stop(self) -> None:
        """End after the messages at hand."""
        self.stopped = True

    def run(self) -> int:
        """Print; the exit code."""
        try:
            with ending(self.stop):
                code = self.read()
        except KeyboardInterrupt:
            code = EXIT_OK
        finally:
            # If a group was named, commits what was printed and leaves the group.
            self.consumer.close()
            print(f"Processed a total of {self.shown} messages", file=sys.stderr)
        return code

    def read(self) -> int:
        """The loop itself; the exit code."""
        left = self.parsed.number("max-messages", -1)
        timeout_ms = self.parsed.number("timeout-ms", -1)
        heard_at = time.monotonic()
        while left != 0 and not self.stopped:
            if self.matching is not None:
                self.matching.look()
            wanted = BATCH_RECORDS if left < 0 else min(left, BATCH_RECORDS)
            messages = self.consumer.consume(wanted, 0) or self.consumer.consume(1, POLL_SECONDS)
            good = [message for message in messages if message.error() is None]
            for message in messages:
                if message.error() is not None and self.is_fatal(message.error()):
                    print(
                        f"Error processing message, terminating consumer process: {message.error()}",
                        file=sys.stderr,
                    )
                    return EXIT_FAILED
            if good:
                heard_at = time.monotonic()
                self.print(good)
                self.note_printed(good)
                left = left - len(good) if left > 0 else left
            elif timeout_ms >= 0 and (time.monotonic() - heard_at) * 1000 > timeout_ms:
                return EXIT_OK
        return EXIT_OK

    def is_fatal(self, error: Any) -> bool:
        """Whether reading ends. Like Java's consumer, this waits for topics that do not exist yet."""
        from confluent_kafka import KafkaError

        if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            return not error.retriable()
        if not self.has_warned:
            print(f"WARN {error.str()}; waiting for it", file=sys.stderr)
            self.has_warned = True
        return False

    def note_printed(self, messages: Sequence[Any]) -> None:
        """What may be committed: only what was written."""
        from confluent_kafka import KafkaException, TopicPartition

        ends = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
        # Fails for a partition that another member has by now, which prints these messages again.
        with contextlib.suppress(KafkaException):
            self.consumer.store_offsets(offsets=[TopicPartition(*key, end) for key, end in ends.items()])

    def print(self, messages: Sequence[Any]) -> None:
        """Write messages with one call. Raises ToolError for a message that cannot be shown."""
        lines = []
        for message in messages:
            try:
                lines.append(self.line(message))
            except struct.error as error:
                if "skip-message-on-error" not in self.parsed:
                    raise ToolError(
                        f"Error processing message, terminating consumer process: {error}"
                    ) from None
        self.shown += len(messages)
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()
