"""kafka-delete-records."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.kafka_tools.common import Admin, ToolError, checked, java_error, parse
from barnabas.kafka_tools.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_OK
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

TIMEOUT_MS: Final = 30_000
TOOL: Final = Tool(
    "This tool helps to delete records of the given partitions down to the specified offset.",
    (
        *COMMON,
        Opt(
            "offset-json-file",
            'What to delete: {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}',
            "String: Offset json file path",
        ),
    ),
)

Wanted = dict[tuple[str, int], int]


def main(arguments: Sequence[str]) -> int:
    """Delete and print the low watermarks; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "offset-json-file"), parsed)
    wanted = read_offsets(Path(parsed.text("offset-json-file")))
    admin = Admin.connect(parsed)
    print("Executing records delete operation")
    results = delete(admin, wanted)
    print("Records delete operation completed:")
    for (topic, partition), (mark, code) in results.items():
        if code:
            print(f"partition: {topic}-{partition}\terror: {java_error(code)}")
        else:
            print(f"partition: {topic}-{partition}\tlow_watermark: {mark}")
    return EXIT_OK


def read_offsets(path: Path) -> Wanted:
    """The offsets of the JSON file. Raises ToolError."""
    try:
        rows = json.loads(path.read_text("utf-8"))["partitions"]
        found = {(str(row["topic"]), int(row["partition"])): int(row["offset"]) for row in rows}
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"Offset json file doesn't have the expected form: {path}: {error}") from None
    if len(found) != len(rows):
        raise ToolError("Offset json file contains duplicate topic partitions")
    return found


def delete(admin: Admin, wanted: Wanted) -> dict[tuple[str, int], tuple[int, int]]:
    """Delete records before offsets (-1: all) at each partition's leader; low watermark and error code of each."""
    admin.client.topics()
    by_leader: dict[int, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for (topic, partition), offset in wanted.items():
        by_leader[admin.client.cluster.leader(topic, partition)][topic][partition] = offset
    results = {}
    for leader, topics in by_leader.items():
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(partition_index=p, offset=o) for p, o in parts.items()
                    ],
                )
                for name, parts in topics.items()
            ],
            timeout_ms=TIMEOUT_MS,
        )
        for topic_result in admin.node(leader, request, DeleteRecordsResponse).topics:
            for part in topic_result.partitions:
                results[topic_result.name, part.partition_index] = (part.low_watermark, part.error_code)
    return results
