"""kafka-get-offsets."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.admin import TopicPartition
from barnabas.kafka_tools.shared.common import ToolError, connect, java_text, parse, partition_ranges
from barnabas.kafka_tools.shared.matching import topic_pattern
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK

TIMES: Final = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
}
PATTERN: Final = re.compile(r"([^:,]*)(?::(?:(\d*)|(?:(\d*)-(\d*))))?")

TOOL: Final = Tool(
    "An interactive shell for getting topic-partition offsets.",
    (
        *COMMON,
        Opt("topic", "Topics by regular expression; all when left out.", "String: topic"),
        Opt("topic-partitions", "topic1:1,topic2:0-3,topic3,topic4:5-,:-3", "String: patterns"),
        Opt("partitions", "Only these partitions.", "String: partition ids"),
        Opt("time", "A time in ms, or latest, earliest, max-timestamp (or -1, -2, -3 ...).", "String: time"),
        Opt("exclude-internal-topics", "Leave out internal topics."),
        Opt("offsets", "Of old tools.", "Integer: count", old=True),
        Opt("max-wait-ms", "Of old tools.", "Integer: ms", old=True),
    ),
)

Filter = Callable[[str, int], bool]


def main(arguments: Sequence[str]) -> int:
    """Print topic:partition:offset lines; the exit code."""
    parsed = parse(TOOL, arguments)
    try:
        wanted = partition_filter(parsed)
        at = parse_time(parsed.text("time", "latest"))
        admin = connect(parsed)
        topics = admin.topics.list(internal="exclude-internal-topics" not in parsed)
        keys = [
            TopicPartition(name, part.number)
            for name, topic in topics.items()
            for part in topic.partitions
            if wanted(name, part.number)
        ]
        if not keys:
            raise ToolError("Could not match any topic-partitions with the specified filters")
    except ToolError as error:
        print(f"Error occurred: {error}", file=sys.stderr)
        return EXIT_FAILED
    results = admin.records.offsets(dict.fromkeys(keys, at))
    for key, failure in results.failed.items():
        reason = java_text(failure)
        print(f"Skip getting offsets for topic-partition {key} due to error: {reason}", file=sys.stderr)
    for key, end in results.done.items():
        if end.offset is not None:
            print(f"{key.topic}:{key.partition}:{end.offset}")
    return EXIT_OK


def parse_time(text: str) -> int:
    """--time as ms or one of Kafka's negative numbers. Raises ToolError."""
    if text in TIMES:
        return TIMES[text]
    try:
        return int(text)
    except ValueError:
        raise ToolError(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / "
            "-4 or earliest-local / -5 or latest-tiered, or a specified long format timestamp"
        ) from None


def partition_filter(parsed: Parsed) -> Filter:
    """What --topic, --partitions and --topic-partitions select. Raises ToolError."""
    patterns = parsed.get("topic-partitions")
    if patterns is not None:
        if "topic" in parsed or "partitions" in parsed:
            raise ToolError("--topic-partitions cannot be used with --topic or --partitions")
        rules = [parse_rule(text) for text in patterns.split(",")]
        return lambda name, number: any(rule(name, number) for rule in rules)
    expression = topic_pattern(parsed.text("topic", ".*"))
    numbers = set(partition_ranges(parsed.text("partitions"))) if "partitions" in parsed else None
    return lambda name, number: bool(expression.fullmatch(name)) and (numbers is None or number in numbers)


def parse_rule(text: str) -> Filter:
    """One of `topic`, `topic:1`, `topic:1-3` (upper end not included), `topic:1-`, `:-3`. Raises ToolError."""
    match = PATTERN.fullmatch(text)
    if match is None:
        raise ToolError(f"Invalid rule specification: {text}")
    expression = topic_pattern(match[1] or ".*")
    if match[2]:
        low, high = int(match[2]), int(match[2]) + 1
    else:
        low, high = int(match[3] or 0), int(match[4] or sys.maxsize)
    return lambda name, number: bool(expression.fullmatch(name)) and low <= number < high
