"""kafka-verifiable-producer: numbers as records, with a line of JSON for each acknowledgement."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.kafka_tools.shared.common import ToolError, checked, client_properties, parse, servers
from barnabas.kafka_tools.shared.librdkafka import connection
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError

TOOL: Final = Tool(
    "This tool produces increasing integers to the specified topic and prints JSON metadata to stdout on each "
    '"send" request, making externally visible which messages have been acked and which have not.',
    (
        *COMMON,
        Opt("topic", "Produce messages to this topic.", "TOPIC"),
        Opt("max-messages", "Produce this many messages; -1 without end.", "MAX-MESSAGES"),
        Opt("throughput", "Messages a second; -1 for as many as possible.", "THROUGHPUT"),
        Opt("acks", "0, 1 or -1.", "ACKS"),
        Opt("producer.config", "A file of producer properties.", "CONFIG_FILE"),
        Opt("message-create-time", "Timestamps begin here, in ms.", "CREATETIME"),
        Opt("value-prefix", "A number put before each value.", "VALUE-PREFIX"),
        Opt("repeating-keys", "Keys 0 to N-1, over and over.", "REPEATING-KEYS"),
    ),
)


@dataclass(slots=True)
class Report:
    """Counts, and prints what happens."""

    sent: int = 0
    acked: int = 0
    began: float = field(default_factory=time.monotonic)

    def say(self, name: str, **fields: Any) -> None:
        """One line of JSON."""
        line = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
        print(json.dumps(line, separators=(",", ":")), flush=True)


def main(arguments: Sequence[str]) -> int:
    """Produce and report; the exit code says whether all was acknowledged."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "topic"), parsed)
    properties = client_properties(parsed, ["producer.config", "command-config"], ["command-property"])
    try:
        producer = connection(servers(parsed, properties), properties, producing=True).producer(
            {"acks": parsed.text("acks", "-1"), "linger.ms": 0}
        )
    except CliError as error:
        raise ToolError(str(error)) from None
    report = Report()
    shape = RecordTemplate(
        parsed.get("value-prefix"),
        parsed.number("repeating-keys", 0),
        parsed.number("message-create-time", -1),
    )
    rate = float(parsed.text("throughput", "-1"))
    run_producer(producer, parsed.text("topic"), parsed.number("max-messages", -1), rate, shape, report)
    return EXIT_OK if report.acked == report.sent else EXIT_FAILED


def run_producer(
    producer: Any,
    topic: str,
    count: int,
    rate: float,
    shape: RecordTemplate,
    report: Report,
    watching: Callable[[], None] = lambda: None,
) -> None:
    """`produce` from start-up to summary, until the count or Ctrl-C."""
    report.say("startup_complete")
    with contextlib.suppress(KeyboardInterrupt):
        produce(producer, topic, count, rate, shape, report, watching)
    producer.flush()
    report.say("shutdown_complete")
    seconds = max(time.monotonic() - report.began, 1e-9)
    report.say(
        "tool_data",
        sent=report.sent,
        acked=report.acked,
        target_throughput=int(rate),
        avg_throughput=report.acked / seconds,
    )


@dataclass(frozen=True, slots=True)
class RecordTemplate:
    """What the records look like."""

    prefix: str | None
    repeating_keys: int
    create_time_ms: int


def produce(
    producer: Any,
    topic: str,
    count: int,
    rate: float,
    shape: RecordTemplate,
    report: Report,
    watching: Callable[[], None],
) -> None:
    """Send 0, 1, 2 ...; `count` of them (-1: without end), `rate` a second (-1: as many as possible).

    watching: called before each record.
    """
    number = 0
    while count < 0 or number < count:
        watching()
        if rate > 0 and (wait := report.began + number / rate - time.monotonic()) > 0:
            producer.poll(wait)
            continue
        value = str(number) if shape.prefix is None else f"{shape.prefix}.{number}"
        key = str(number % shape.repeating_keys) if shape.repeating_keys else None
        stamped = {"timestamp": shape.create_time_ms + number} if shape.create_time_ms >= 0 else {}

        def delivered(error: Any, message: Any, key: str | None = key, value: str = value) -> None:
            if error is not None:
                report.say(
                    "producer_send_error",
                    exception=error.name(),
                    message=error.str(),
                    topic=topic,
                    key=key,
                    value=value,
                )
                return
            report.acked += 1
            report.say(
                "producer_send_success",
                key=key,
                value=value,
                offset=message.offset(),
                topic=message.topic(),
                partition=message.partition(),
            )

        try:
            producer.produce(topic, value.encode(), key, on_delivery=delivered, **stamped)
        except BufferError:
            producer.poll(0.1)
            continue
        report.sent += 1
        number += 1
        producer.poll(0)
