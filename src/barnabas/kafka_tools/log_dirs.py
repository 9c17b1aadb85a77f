"""kafka-log-dirs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from barnabas.kafka_tools.common import Admin, ToolError, checked, java_error, parse, partition_ranges
from barnabas.kafka_tools.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_OK
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

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
    admin = Admin.connect(parsed)
    live = admin.nodes()
    wanted = list(partition_ranges(wanted_ids)) if wanted_ids else sorted(live)
    missing = [broker for broker in wanted if broker not in live]
    if missing:
        raise ToolError(
            "ERROR: The given brokers do not exist from --broker-list: "
            f"{','.join(map(str, missing))}. Current existent brokers: {','.join(map(str, sorted(live)))}"
        )
    topics = {item.strip() for item in parsed.text("topic-list").split(",") if item.strip()}
    print("Querying brokers for log directories information")
    brokers = [broker_row(admin, broker, topics) for broker in wanted]
    print(f"Received log directory information from brokers {','.join(map(str, wanted))}")
    print(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))
    return EXIT_OK


def broker_row(admin: Admin, broker: int, topics: set[str]) -> dict[str, Any]:
    """One broker's log dirs, for the topics (all when empty)."""
    answer = admin.node(broker, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    return {
        "broker": broker,
        "logDirs": [
            {
                "partitions": [
                    {
                        "partition": f"{topic.name}-{part.partition_index}",
                        "size": part.partition_size,
                        "offsetLag": part.offset_lag,
                        "isFuture": part.is_future_key,
                    }
                    for topic in result.topics
                    if not topics or topic.name in topics
                    for part in topic.partitions
                ],
                "error": java_error(result.error_code) if result.error_code else None,
                "logDir": result.log_dir,
            }
            for result in answer.results
        ],
    }
