"""kafka-leader-election: elects the preferred leader, or any replica if no in-sync replica is left."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.admin import Election, ResourceError, TopicPartition
from barnabas.kafka_tools.shared.common import ToolError, connect, java_text, parse, say
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.errors import ErrorCode

TOOL: Final = Tool(
    "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are "
    "preferred replicas and unclean replicas.",
    (
        *COMMON,
        Opt("admin.config", "A property file for the client.", "String: config file"),
        Opt("election-type", "preferred, or unclean when no replica in sync is left.", "PREFERRED,UNCLEAN"),
        Opt("all-topic-partitions", "All partitions for which it makes sense."),
        Opt("path-to-json-file", '{"partitions": [{"topic": "foo", "partition": 1}]}', "String: path"),
        Opt("topic", "The topic; with --partition.", "String: topic name"),
        Opt("partition", "The partition; with --topic.", "Integer: partition id"),
    ),
)
SCOPES: Final = ("topic", "all-topic-partitions", "path-to-json-file")


def main(arguments: Sequence[str]) -> int:
    """Elect leaders and print the result for each partition; the exit code."""
    parsed = parse(TOOL, arguments)
    kind = check(parsed)
    if "admin.config" in parsed:
        parsed.values.setdefault("command-config", parsed.all("admin.config"))
    keys = keys_of(parsed)
    admin = connect(parsed)
    try:
        results = admin.replicas.elect(keys, election=Election[kind], timeout_s=30)
    except ResourceError as error:
        raise ToolError(f"Error completing leader election ({kind}): {java_text(error)}") from None
    done = [str(key) for key in results.done]
    failures = results.except_for(ErrorCode.ELECTION_NOT_NEEDED).failed
    needless = [str(key) for key in results.failed if key not in failures]
    failed = {str(key): java_text(error) for key, error in failures.items()}
    if done:
        print(f"Successfully completed leader election ({kind}) for partitions {', '.join(done)}")
    if needless and keys is not None:
        print(f"Valid replica already elected for partitions {', '.join(needless)}")
    for name, text in failed.items():
        say(f"Error completing leader election ({kind}) for partition: {name}: {text}")
    if failed:
        print(f"{len(failed)} replica(s) could not be elected", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def check(parsed: Parsed) -> str:
    """The type of election. Raises Refused."""
    missing = [name for name in ("election-type",) if name not in parsed]
    if "topic" in parsed and "partition" not in parsed:
        missing.append("partition")
    if missing:
        raise Refused(f"Missing required option(s): {', '.join(missing)}", False)
    if sum(name in parsed for name in SCOPES) != 1:
        raise Refused(f"One and only one of the following options is required: {', '.join(SCOPES)}", False)
    if "partition" in parsed and "topic" not in parsed:
        raise Refused("Option partition is only allowed if topic is used", False)
    kind = parsed.text("election-type").upper()
    if kind not in Election.__members__:
        raise Refused(
            f"Cannot parse argument '{parsed.text('election-type')}' of option election-type; it is preferred or "
            "unclean", False,
        )  # fmt: skip
    return kind


def keys_of(parsed: Parsed) -> list[TopicPartition] | None:
    """The partitions; None for all. Raises Refused, ToolError, OSError."""
    if "all-topic-partitions" in parsed:
        return None
    if "topic" in parsed:
        return [TopicPartition(parsed.text("topic"), parsed.number("partition", 0))]
    path = Path(parsed.text("path-to-json-file"))
    try:
        rows = json.loads(path.read_text("utf-8"))["partitions"]
        keys = [TopicPartition(str(row["topic"]), int(row["partition"])) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(
            f'{path} is not {{"partitions": [{{"topic": "foo", "partition": 1}}]}}: {error}'
        ) from None
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        names = ", ".join(map(str, sorted(twice)))
        raise ToolError(f"Replica election data contains duplicate partitions: {names}")
    return keys
