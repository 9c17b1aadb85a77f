"""kafka-preferred-replica-election, which Kafka 2.4 replaced: every partition goes back to its first replica."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.kafka_tools.cluster import leader_election
from barnabas.kafka_tools.shared.common import parse
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool

TOOL: Final = Tool(
    "This tool helps to restore the leadership balance. Use kafka-leader-election --election-type preferred.",
    (
        *COMMON,
        Opt("path-to-json-file", "Only these partitions.", "String: path"),
        Opt("admin.config", "", "file"),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """As kafka-leader-election; the exit code."""
    parsed = parse(TOOL, arguments)
    scope = [] if "path-to-json-file" in parsed else ["--all-topic-partitions"]
    return leader_election.main([*arguments, "--election-type", "preferred", *scope])
