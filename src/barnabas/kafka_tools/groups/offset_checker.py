"""kafka.tools.ConsumerOffsetChecker, which kafka-consumer-groups replaced: what a group has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.kafka_tools.groups.group_views import committed_offsets, end_offsets
from barnabas.kafka_tools.shared.common import connect, parse
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_OK

ROW: Final = "{:<15} {:<30} {:<3} {:<15} {:<15} {:<15} {}"
TOOL: Final = Tool(
    "Check the offset of your consumers. Use kafka-consumer-groups --describe.",
    (
        *COMMON,
        Opt("group", "Consumer group.", "String: group"),
        Opt("topic", "Topics, with commas; all when left out.", "String: topics"),
        Opt("broker-info", "Of old tools.", old=True),
        Opt("zkconnect", "Of old tools.", "String: hosts", old=True),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Print a line for each partition; the exit code."""
    parsed = parse(TOOL, arguments)
    if "zkconnect" in parsed:
        parsed.values.setdefault("zookeeper", parsed.all("zkconnect"))
    TOOL.need(parsed, "group")
    admin, group = connect(parsed), parsed.text("group")
    topics = {name.strip() for name in parsed.text("topic").split(",") if name.strip()}
    committed = {
        key: commit.offset
        for key, commit in committed_offsets(admin, group).items()
        if not topics or key[0] in topics
    }
    ends = end_offsets(admin, committed)
    print(ROW.format("Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner"))
    for key, offset in sorted(committed.items()):
        end = ends.get(key)
        lag = "unknown" if end is None else max(end - offset, 0)
        print(ROW.format(group, *key, offset, "unknown" if end is None else end, lag, "none"))
    return EXIT_OK
