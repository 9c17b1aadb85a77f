"""kafka-mirror-maker (the first one): copies topics from one cluster to another by consuming and producing.

Each record keeps its key, value, headers and time; the target's partitioner places it, as Kafka's did. What was read is
committed only after the target has acknowledged it, so a crash repeats records and loses none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.kafka_tools.shared.common import ToolError, checked, parse, read_properties
from barnabas.kafka_tools.shared.librdkafka import connection, consumer_defaults
from barnabas.kafka_tools.shared.matching import Matching
from barnabas.kafka_tools.shared.parser import Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError

BATCH_RECORDS: Final = 5000
POLL_SECONDS: Final = 0.2
COMMIT_MS: Final = 60_000
TOOL: Final = Tool(
    "This tool helps to continuously copy data between two Kafka clusters.",
    (
        Opt("consumer.config", "Consumer properties: of the cluster to read from.", "String: config file"),
        Opt("producer.config", "Producer properties: of the cluster to write to.", "String: config file"),
        Opt("include", "Topics by regular expression.", "String: Java regex", aliases=("whitelist",)),
        Opt("exclude", "Topics to leave out.", "String: Java regex", aliases=("blacklist",)),
        Opt(
            "num.streams", "How many consumers; here one does the work of all.", "Integer: number of threads"
        ),
        Opt("offset.commit.interval.ms", "How often offsets are committed.", "Integer: interval in ms"),
        Opt(
            "abort.on.send.failure", "End at a record that cannot be written (default true).", "String: true"
        ),
        Opt("new.consumer", "Of old tools.", old=True),
        Opt("message.handler", "Of Java.", "String: class", old=True),
        Opt("message.handler.args", "Of Java.", "String: args", old=True),
        Opt("consumer.rebalance.listener", "Of Java.", "String: class", old=True),
        Opt("rebalance.listener.args", "Of Java.", "String: args", old=True),
        Opt("help", "Print usage information."),
        Opt("version", "Display the version."),
    ),
)

Key = tuple[str, int]


def main(arguments: Sequence[str]) -> int:
    """Copy until Ctrl-C or SIGTERM; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, check, parsed)
    source = read_properties(parsed.text("consumer.config"))
    target = read_properties(parsed.text("producer.config"))
    reads = {
        **consumer_defaults(source.pop("group.id", "mirror-maker")),
        "enable.auto.commit": False,
        "auto.offset.reset": source.pop("auto.offset.reset", "latest"),
    }
    try:
        consumer = connection(bootstrap(source), source, producing=False).consumer(reads)
        producer = connection(bootstrap(target), target, producing=True).producer(
            {"acks": "all", "enable.idempotence": True, "linger.ms": 5}
        )
    except CliError as error:
        raise ToolError(str(error)) from None
    mirror = Mirror(
        consumer,
        producer,
        parsed.number("offset.commit.interval.ms", COMMIT_MS) / 1000,
        parsed.text("abort.on.send.failure", "true").lower() == "true",
    )
    # The next owner of a partition must begin after the records that this process has copied.
    matching = Matching.of(
        consumer,
        source,
        parsed.text("include", ".*"),
        parsed.text("exclude", ""),
        on_revoke=lambda *_: mirror.commit(),
    )
    return mirror.run(matching)


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    TOOL.need(parsed, "consumer.config", "producer.config")
    if "include" not in parsed and "exclude" not in parsed:
        raise Refused("include must be specified")


def bootstrap(properties: dict[str, str]) -> str:
    """Where a property file leads. Raises ToolError."""
    address = properties.pop("bootstrap.servers", "") or properties.pop("metadata.broker.list", "")
    if not address:
        raise ToolError("bootstrap.servers is missing in a property file")
    return address


@dataclass(slots=True)
class Mirror:
    """A copy in progress. next_offsets: of records that were passed to the producer and are not committed."""

    consumer: Any
    producer: Any
    commit_seconds: float
    aborts: bool
    failure: str = ""
    next_offsets: dict[Key, int] = field(default_factory=dict)
    committed_at: float = field(default_factory=time.monotonic)

    def run(self, matching: Matching) -> int:
        """Copy; the exit code."""
        import signal

        def stop(_number: int, _frame: Any) -> None:
            raise KeyboardInterrupt

        signal.signal(signal.SIGTERM, stop)
        try:
            while not (self.failure and self.aborts):
                matching.look()
                self.copy(self.consumer.consume(BATCH_RECORDS, 0) or self.consumer.consume(1, POLL_SECONDS))
                if time.monotonic() - self.committed_at >= self.commit_seconds:
                    self.commit()
        except KeyboardInterrupt:
            pass
        self.commit()
        self.consumer.close()
        if self.failure:
            print(f"Error when sending message: {self.failure}", file=sys.stderr)
        return EXIT_FAILED if self.failure and self.aborts else EXIT_OK

    def copy(self, messages: Sequence[Any]) -> None:
        """Hand records to the producer."""
        for message in messages:
            if message.error() is not None:
                continue
            kind, stamp = message.timestamp()
            while True:
                try:
                    self.producer.produce(
                        message.topic(), message.value(), message.key(), headers=message.headers() or [],
                        timestamp=stamp if kind else 0, on_delivery=self.delivered,
                    )  # fmt: skip
                except BufferError:
                    self.producer.poll(0.1)
                else:
                    break
            self.next_offsets[message.topic(), message.partition()] = message.offset() + 1
        self.producer.poll(0)

    def delivered(self, error: Any, message: Any) -> None:
        """One record arrived or did not."""
        if error is not None:
            self.failure = self.failure or f"{message.topic()}: {error.str()}"

    def commit(self) -> None:
        """Wait for every acknowledgement, then commit; not when a record did not arrive."""
        from confluent_kafka import KafkaException, TopicPartition

        self.producer.flush()
        self.committed_at = time.monotonic()
        if not self.next_offsets or (self.failure and self.aborts):
            return
        offsets = [TopicPartition(*key, offset) for key, offset in self.next_offsets.items()]
        try:
            self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            print(f"Offsets were not committed: {error.args[0].str()}", file=sys.stderr)
            return
        self.next_offsets.clear()
