"""kafka-producer-perf-test."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.kafka_tools.measuring.perf import MEGABYTE, Latencies, ProduceRun
from barnabas.kafka_tools.shared.common import ToolError, checked, client_properties, parse, say_ignored
from barnabas.kafka_tools.shared.librdkafka import connection
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError

TOOL: Final = Tool(
    "This tool is used to verify the producer performance.",
    (
        *COMMON,
        Opt("topic", "Produce messages to this topic.", "TOPIC"),
        Opt("num-records", "Number of messages to produce.", "NUM-RECORDS"),
        Opt("record-size", "Message size in bytes.", "RECORD-SIZE"),
        Opt("payload-file", "A file whose lines are the messages.", "PAYLOAD-FILE"),
        Opt("payload-delimiter", "What separates messages in the file.", "DELIMITER"),
        Opt("payload-monotonic", "Payloads are growing numbers."),
        Opt("throughput", "Messages a second; -1 for as many as possible.", "THROUGHPUT"),
        Opt("producer-props", "Producer properties, name=value.", "PROP-NAME=PROP-VALUE"),
        Opt("producer.config", "A file of producer properties.", "CONFIG-FILE"),
        Opt("print-metrics", "Accepted; there are no metrics of Java to print."),
        Opt("warmup-records", "Messages before the measured ones.", "COUNT"),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Produce and print the rate and latencies; the exit code."""
    parsed = parse(TOOL, arguments)
    say_ignored(parsed, ["print-metrics"])
    checked(TOOL, check, parsed)
    properties = client_properties(
        parsed, ["producer.config", "command-config"], ["producer-props", "command-property"]
    )
    # --producer-props takes several words; the parser leaves all but the first to the tool.
    properties |= dict(word.split("=", 1) for word in parsed.words if "=" in word)
    servers = parsed.get("bootstrap-server") or properties.pop("bootstrap.servers", None)
    if servers is None:
        raise Refused("--bootstrap-server or bootstrap.servers must be specified", False)
    properties.pop("bootstrap.servers", None)
    defaults = {"linger.ms": 5, "queue.buffering.max.messages": 500_000, "batch.size": 262_144}
    try:
        producer = connection(servers, properties, producing=True).producer(defaults)
    except CliError as error:
        raise ToolError(str(error)) from None
    rate = float(parsed.text("throughput", "-1"))
    data = payloads(parsed)
    warm_up = parsed.number("warmup-records", 0)
    if warm_up:
        ProduceRun(producer, parsed.text("topic"), data, warm_up, rate).run()
    run = ProduceRun(producer, parsed.text("topic"), data, parsed.number("num-records", 0), rate)
    size = sum(map(len, data)) / len(data)

    def report(window: Latencies, seconds: float) -> None:
        print(
            f"{window.count} records sent, {window.count / seconds:.1f} records/sec "
            f"({window.count * size / seconds / MEGABYTE:.2f} MB/sec), {window.average_ms:.1f} ms avg latency, "
            f"{window.max_ms:.1f} ms max latency."
        )

    seconds = run.run(report)
    latencies = run.latencies
    p50, p95, p99, p999 = latencies.percentiles((0.5, 0.95, 0.99, 0.999))
    print(
        f"{latencies.count} records sent, {latencies.count / seconds:.1f} records/sec "
        f"({latencies.count * size / seconds / MEGABYTE:.2f} MB/sec), {latencies.average_ms:.2f} ms avg latency, "
        f"{latencies.max_ms:.2f} ms max latency, {p50:.0f} ms 50th, {p95:.0f} ms 95th, {p99:.0f} ms 99th, "
        f"{p999:.0f} ms 99.9th."
    )
    return EXIT_FAILED if run.failed else EXIT_OK


def check(parsed: Parsed) -> None:
    """Raises Refused."""
    TOOL.need(parsed, "topic", "num-records")
    if sum(name in parsed for name in ("record-size", "payload-file", "payload-monotonic")) != 1:
        raise Refused(
            "one of the arguments --record-size --payload-file --payload-monotonic is required", False
        )


def payloads(parsed: Parsed) -> list[bytes]:
    """The messages to send over and over. Raises ToolError."""
    if "payload-file" in parsed:
        path = Path(parsed.text("payload-file"))
        delimiter = parsed.text("payload-delimiter", "\\n").replace("\\n", "\n").encode()
        lines = [line for line in path.read_bytes().split(delimiter) if line]
        if not lines:
            raise ToolError(f"File does not exist or empty file provided: {path}")
        return lines
    if "payload-monotonic" in parsed:
        return [b"%d" % i for i in range(parsed.number("num-records", 1))]
    letters = random.Random(0)
    size = parsed.number("record-size", 100)
    return ["".join(letters.choices(string.ascii_uppercase, k=size)).encode() for _ in range(16)]
