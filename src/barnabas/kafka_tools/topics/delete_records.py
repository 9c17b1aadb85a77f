"""kafka-delete-records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.admin import TopicPartition
from barnabas.kafka_tools.shared.common import ToolError, checked, connect, java_text, parse
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_OK

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


def main(arguments: Sequence[str]) -> int:
    """Delete and print the low watermarks; the exit code."""
    parsed = parse(TOOL, arguments)
    checked(TOOL, lambda parsed: TOOL.need(parsed, "offset-json-file"), parsed)
    wanted = read_offsets(Path(parsed.text("offset-json-file")))
    admin = connect(parsed)
    print("Executing records delete operation")
    results = admin.records.delete(wanted)
    print("Records delete operation completed:")
    for key in wanted:
        error = results.failed.get(key)
        if error:
            print(f"partition: {key}\terror: {java_text(error)}")
        else:
            print(f"partition: {key}\tlow_watermark: {results[key]}")
    return EXIT_OK


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """The offsets of the JSON file, -1 for all records. Raises ToolError."""
    try:
        rows = json.loads(path.read_text("utf-8"))["partitions"]
        offsets = {
            TopicPartition(str(row["topic"]), int(row["partition"])): int(row["offset"]) for row in rows
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"Offset json file doesn't have the expected form: {path}: {error}") from None
    if len(offsets) != len(rows):
        raise ToolError("Offset json file contains duplicate topic partitions")
    return offsets
