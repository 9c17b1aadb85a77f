"""kafka-log-dirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from barnabas.admin import LogDir
from barnabas.kafka_tools.shared.common import (
    ToolError,
    checked,
    connect,
    java_text,
    live_brokers,
    parse,
    partition_ranges,
)
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_OK

TOOL: Final = Tool(
    "This tool helps to query log directory usage on the specified brokers.",
    (
        *(option for option in COMMON if option.name != "broker-list"),
        Opt("describe", "Describe the specified log directories on the specified brokers."),
        Opt("broker-list", "Brokers to ask, by id: 0,1,2; all when left out.", "String: Broker list"),
        Opt("topic-list", "Topics to show; all when left out.", "String: topics"),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Print one line of JSON; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "describe"), parsed)
    wanted_ids = parsed.values.pop("broker-list", [""])[-1]
    admin = connect(parsed)
    live = live_brokers(admin)
    wanted = list(partition_ranges(wanted_ids)) if wanted_ids else live
    missing = [broker for broker in wanted if broker not in live]
    if missing:
        raise ToolError(
            "ERROR: The given brokers do not exist from --broker-list: "
            f"{','.join(map(str, missing))}. Current existent brokers: {','.join(map(str, live))}"
        )
    topics = {item.strip() for item in parsed.text("topic-list").split(",") if item.strip()}
    print("Querying brokers for log directories information")
    by_broker = admin.log_dirs.describe(wanted).require()
    brokers = [broker_row(broker, dirs, topics) for broker, dirs in by_broker.items()]
    print(f"Received log directory information from brokers {','.join(map(str, wanted))}")
    print(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))
    return EXIT_OK


def broker_row(broker: int, dirs: Sequence[LogDir], topics: set[str]) -> dict[str, Any]:
    """One broker's log dirs, for the topics (all when empty)."""
    return {
        "broker": broker,
        "logDirs": [
            {
                "partitions": [
                    {
                        "partition": str(replica.partition),
                        "size": replica.size_bytes,
                        "offsetLag": replica.lag,
                        "isFuture": replica.is_future,
                    }
                    for replica in log_dir.replicas
                    if not topics or replica.partition.topic in topics
                ],
                "error": java_text(log_dir.error) if log_dir.error else None,
                "logDir": log_dir.path,
            }
            for log_dir in dirs
        ],
    }
