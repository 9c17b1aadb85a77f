"""kafka.tools.ExportZkOffsets and ImportZkOffsets: committed offsets in the text format of the ZooKeeper era.

    /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET

Kafka removed both when offsets moved out of ZooKeeper; here they read and write the offsets that groups commit to
brokers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.admin import Admin, TopicPartition
from barnabas.kafka_tools.groups.group_offsets import Plan, commit
from barnabas.kafka_tools.groups.group_views import committed_offsets
from barnabas.kafka_tools.groups.groups import all_groups
from barnabas.kafka_tools.shared.common import ToolError, connect, parse
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Tool
from barnabas.terminal.errors import EXIT_OK

LINE: Final = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/(\d+):(-?\d+)")
TOOL: Final = Tool(
    "Export or import the committed offsets of groups.",
    (
        *COMMON,
        Opt("zkconnect", "Of old tools: the broker is looked for beside it.", "String: hosts", old=True),
        Opt("group", "Only this group.", "String: group"),
        Opt("output-file", "Export to this file.", "String: file"),
        Opt("input-file", "Import from this file.", "String: file"),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """arguments[0] is the class's short name; the exit code."""
    parsed = parse(TOOL, arguments[1:])
    if "zkconnect" in parsed:
        parsed.values.setdefault("zookeeper", parsed.all("zkconnect"))
    if arguments[0] == "ExportZkOffsets":
        TOOL.need(parsed, "output-file")
        export(connect(parsed), parsed)
    else:
        TOOL.need(parsed, "input-file")
        import_offsets(connect(parsed), Path(parsed.text("input-file")))
    return EXIT_OK


def export(admin: Admin, parsed: Parsed) -> None:
    """Write the offsets of one group or of all. Raises ToolError, OSError."""
    groups = (
        [parsed.text("group")] if "group" in parsed else sorted(group.name for group in all_groups(admin))
    )
    lines = [
        f"/consumers/{group}/offsets/{topic}/{partition}:{committed.offset}\n"
        for group in groups
        for (topic, partition), committed in sorted(committed_offsets(admin, group).items())
    ]
    Path(parsed.text("output-file")).write_text("".join(lines), "utf-8")
    print(f"{len(lines)} offsets of {len(groups)} groups", file=sys.stderr)


def import_offsets(admin: Admin, path: Path) -> None:
    """Commit what a file says, for groups without members. Raises ToolError, OSError."""
    plans: dict[str, Plan] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        match = LINE.fullmatch(line.strip())
        if match is None:
            raise ToolError(
                f"{path}, line {number}: {line!r} is not /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"
            )
        plans.setdefault(match[1], {})[TopicPartition(match[2], int(match[3]))] = int(match[4])
    for group, plan in plans.items():
        commit(admin, group, plan)
    print(f"{sum(map(len, plans.values()))} offsets of {len(plans)} groups", file=sys.stderr)
