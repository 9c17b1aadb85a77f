"""kafka-verifiable-consumer: reads as a member of a group, and prints a line of JSON for each event."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.kafka_tools.shared.common import ToolError, checked, client_properties, parse, servers
from barnabas.kafka_tools.shared.librdkafka import connection, consumer_defaults
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError

BATCH_RECORDS: Final = 500
POLL_SECONDS: Final = 0.2
TOOL: Final = Tool(
    "This tool consumes messages from a specific topic and emits consumer events (e.g. group rebalances, received "
    "messages, and offsets committed) as JSON objects to STDOUT.",
    (
        *COMMON,
        Opt("topic", "Consumes messages from this topic.", "TOPIC"),
        Opt("group-id", "The group.", "GROUP_ID"),
        Opt("group-protocol", "classic (default) or consumer.", "GROUP_PROTOCOL"),
        Opt("group-remote-assignor", "With --group-protocol consumer.", "ASSIGNOR"),
        Opt("group-instance-id", "Of a static member.", "GROUP_INSTANCE_ID"),
        Opt("max-messages", "Consume this many; -1 (default) without end.", "MAX-MESSAGES"),
        Opt("session-timeout", "In ms; with --group-protocol classic.", "TIMEOUT_MS"),
        Opt("verbose", "A line for each record as well."),
        Opt("enable-autocommit", "Let the client commit."),
        Opt("reset-policy", "earliest (default), latest or none.", "RESETPOLICY"),
        Opt("assignment-strategy", "A class, or range, roundrobin, cooperative-sticky.", "STRATEGY"),
        Opt("consumer.config", "A file of consumer properties.", "CONFIG_FILE"),
    ),
)
RESETS: Final = {"earliest": "earliest", "latest": "latest", "none": "error"}

Key = tuple[str, int]


def say(name: str, **fields: Any) -> None:
    """One line of JSON."""
    line = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
    print(json.dumps(line, separators=(",", ":")), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Consume and report; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "topic", "group-id"), parsed)
    properties = client_properties(parsed, ["consumer.config", "command-config"], ["command-property"])
    reset = parsed.text("reset-policy", "earliest")
    if reset not in RESETS:
        raise ToolError(f"--reset-policy {reset!r} must be one of {', '.join(RESETS)}")
    settings = consumer_defaults(parsed.text("group-id"))
    settings |= {"enable.auto.commit": "enable-autocommit" in parsed, "auto.offset.reset": RESETS[reset]}
    if parsed.text("group-protocol", "classic").lower() == "consumer":
        settings["group.protocol"] = "consumer"
        if "group-remote-assignor" in parsed:
            settings["group.remote.assignor"] = parsed.text("group-remote-assignor")
    else:
        strategy = parsed.text("assignment-strategy", "range")
        settings["partition.assignment.strategy"] = strategy
        if "session-timeout" in parsed:
            settings["session.timeout.ms"] = parsed.number("session-timeout", 45_000)
    if "group-instance-id" in parsed:
        settings["group.instance.id"] = parsed.text("group-instance-id")
    try:
        consumer = connection(servers(parsed, properties), properties, producing=False).consumer(settings)
    except CliError as error:
        raise ToolError(str(error)) from None
    run = Run(
        consumer,
        parsed.text("topic"),
        parsed.number("max-messages", -1),
        "verbose" in parsed,
        "enable-autocommit" not in parsed,
    )
    return EXIT_OK if run.run() else EXIT_FAILED


@dataclass(slots=True)
class Run:
    """A member of a group that reports what happens to it. left: how many records are still wanted; below zero: no
    limit.
    """

    consumer: Any
    topic: str
    left: int = -1
    verbose: bool = False
    commits: bool = True
    read: int = 0
    watching: Callable[[int], None] = lambda count: None
    """Called now and then with the number of records read."""

    def run(self) -> bool:
        """Read until the count or Ctrl-C; whether nothing failed."""
        say("startup_complete")
        self.consumer.subscribe([self.topic], on_assign=self.assigned, on_revoke=self.revoked)
        try:
            while self.left != 0:
                self.watching(self.read)
                messages = self.consumer.consume(BATCH_RECORDS, POLL_SECONDS)
                bad = next((m for m in messages if m.error() is not None and m.error().fatal()), None)
                if bad is not None:
                    say("consumer_error", message=bad.error().str())
                    return False
                good = [message for message in messages if message.error() is None]
                if good:
                    self.received(good if self.left < 0 else good[: self.left])
        except KeyboardInterrupt:
            pass
        finally:
            self.consumer.close()
            say("shutdown_complete")
        return True

    def assigned(self, _consumer: Any, parts: Sequence[Any]) -> None:
        """The group assigned partitions."""
        say("partitions_assigned", partitions=rows((part.topic, part.partition) for part in parts))

    def revoked(self, _consumer: Any, parts: Sequence[Any]) -> None:
        """The group revoked partitions."""
        say("partitions_revoked", partitions=rows((part.topic, part.partition) for part in parts))

    def received(self, messages: Sequence[Any]) -> None:
        """Report records, then commit them."""
        spans: dict[Key, list[int]] = {}
        for message in messages:
            spans.setdefault((message.topic(), message.partition()), []).append(message.offset())
            if self.verbose:
                say("record_data", key=text(message.key()), value=text(message.value()), topic=message.topic(),
                    partition=message.partition(), offset=message.offset())  # fmt: skip
        counts = [
            {
                "topic": topic,
                "partition": part,
                "count": len(offsets),
                "minOffset": offsets[0],
                "maxOffset": offsets[-1],
            }
            for (topic, part), offsets in spans.items()
        ]
        say("records_consumed", count=len(messages), partitions=counts)
        self.read += len(messages)
        self.left -= len(messages) if self.left > 0 else 0
        if self.commits:
            self.commit({key: offsets[-1] + 1 for key, offsets in spans.items()})

    def commit(self, offsets: dict[Key, int]) -> None:
        """Commit and report."""
        from confluent_kafka import KafkaException, TopicPartition

        shown = [
            {"topic": topic, "partition": part, "offset": offset} for (topic, part), offset in offsets.items()
        ]
        try:
            self.consumer.commit(
                offsets=[TopicPartition(*key, offset) for key, offset in offsets.items()], asynchronous=False
            )
        except KafkaException as error:
            say("offsets_committed", offsets=shown, success=False, error=error.args[0].str())
        else:
            say("offsets_committed", offsets=shown, success=True)


def rows(keys: Any) -> list[dict[str, Any]]:
    """Partitions as JSON."""
    return [{"topic": topic, "partition": partition} for topic, partition in keys]


def text(data: bytes | None) -> str | None:
    """A key or value as text."""
    return None if data is None else data.decode("utf-8", "replace")
