"""kafka-consumer-perf-test."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final

from barnabas.kafka_tools.measuring.perf import MEGABYTE, ConsumeRun
from barnabas.kafka_tools.shared.common import (
    ToolError,
    checked,
    client_properties,
    parse,
    say_ignored,
    servers,
)
from barnabas.kafka_tools.shared.librdkafka import connection, consumer_defaults
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_OK, CliError

HEADS: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
TOOL: Final = Tool(
    "This tool is used to verify the consumer performance.",
    (
        *COMMON,
        Opt("topic", "REQUIRED: The topic to consume from.", "String: topic"),
        Opt(
            "messages",
            "REQUIRED: The number of messages to consume.",
            "Long: count",
            aliases=("num-records",),
        ),
        Opt("group", "The group id to consume on.", "String: gid"),
        Opt("timeout", "How long to wait between messages, in ms.", "Long: milliseconds"),
        Opt("from-latest", "Start at the end when the group has no offset."),
        Opt("fetch-size", "Bytes of one fetch.", "Integer: size"),
        Opt("consumer.config", "A file of consumer properties.", "String: config file"),
        Opt("hide-header", "Leave out the heads."),
        Opt("show-detailed-stats", "Accepted; one line is printed all the same."),
        Opt("print-metrics", "Accepted; there are no metrics of Java to print."),
        Opt("reporting-interval", "Accepted, no effect.", "Integer: ms"),
        Opt("date-format", "Accepted, no effect.", "String: format"),
        Opt("num-fetch-threads", "Of old tools.", "Integer", old=True),
        Opt("threads", "Of old tools.", "Integer", old=True),
        Opt("socket-buffer-size", "Of old tools.", "Integer", old=True),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Consume and print one line; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "topic", "messages"), parsed)
    say_ignored(parsed, ["print-metrics", "show-detailed-stats"])
    properties = client_properties(parsed, ["consumer.config", "command-config"], ["command-property"])
    settings = consumer_defaults(parsed.get("group") or f"perf-consumer-{random.randrange(100_000)}")
    settings["auto.offset.reset"] = "latest" if "from-latest" in parsed else "earliest"
    if "fetch-size" in parsed:
        settings["fetch.message.max.bytes"] = parsed.number("fetch-size", 0)
    try:
        consumer = connection(servers(parsed, properties), properties, producing=False).consumer(settings)
    except CliError as error:
        raise ToolError(str(error)) from None
    run = ConsumeRun(
        consumer, parsed.text("topic"), parsed.number("messages", 0), parsed.number("timeout", 10_000) / 1000
    )
    if "hide-header" not in parsed:
        print(HEADS)
    began = time.time()
    joining, fetching = run.run()
    consumer.close()
    total = joining + fetching
    size = run.bytes / MEGABYTE
    print(
        f"{stamp(began)}, {stamp(began + total)}, {size:.4f}, {size / total:.4f}, {run.messages}, "
        f"{run.messages / total:.4f}, {joining * 1000:.0f}, {fetching * 1000:.0f}, {size / fetching:.4f}, "
        f"{run.messages / fetching:.4f}"
    )
    if run.messages < run.count:
        waited = parsed.number("timeout", 10_000)
        print(
            f"WARNING: Exiting before consuming the expected number of messages: timeout ({waited} ms) exceeded."
        )
    return EXIT_OK


def stamp(seconds: float) -> str:
    """A time as Kafka's tool prints it, local: 2026-11-21 07:20:27:547."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}:{int(seconds * 1000) % 1000:03d}"
