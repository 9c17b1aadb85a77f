"""kafka-leader-election: elects the preferred leader, or any replica if no in-sync replica is left."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from barnabas.kafka_tools.common import Admin, ToolError, java_error, parse, say
from barnabas.kafka_tools.parser import COMMON, Opt, Parsed, Refused, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

TYPES: Final = {"PREFERRED": 0, "UNCLEAN": 1}
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

Key = tuple[str, int]


def main(arguments: Sequence[str]) -> int:
    """Elect leaders and print the result for each partition; the exit code."""
    parsed = parse(TOOL, arguments)
    kind = check(parsed)
    if "admin.config" in parsed:
        parsed.values.setdefault("command-config", parsed.all("admin.config"))
    keys = keys_of(parsed)
    admin = Admin.connect(parsed)
    request = ElectLeadersRequest(
        election_type=TYPES[kind],
        topic_partitions=None if keys is None else by_topic(keys),
        timeout_ms=30_000,
    )
    answer = admin.controller(request, ElectLeadersResponse)
    if answer.error_code:
        raise ToolError(f"Error completing leader election ({kind}): {java_error(answer.error_code)}")
    done, needless, failed = [], [], {}
    for topic in answer.replica_election_results:
        for part in topic.partition_result:
            name = f"{topic.topic}-{part.partition_id}"
            if part.error_code == 0:
                done.append(name)
            elif part.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                needless.append(name)
            else:
                failed[name] = java_error(part.error_code, part.error_message)
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
    if kind not in TYPES:
        raise Refused(
            f"Cannot parse argument '{parsed.text('election-type')}' of option election-type; it is preferred or "
            "unclean", False,
        )  # fmt: skip
    return kind


def keys_of(parsed: Parsed) -> list[Key] | None:
    """The partitions; None for all. Raises Refused, ToolError, OSError."""
    if "all-topic-partitions" in parsed:
        return None
    if "topic" in parsed:
        return [(parsed.text("topic"), parsed.number("partition", 0))]
    path = Path(parsed.text("path-to-json-file"))
    try:
        rows = json.loads(path.read_text("utf-8"))["partitions"]
        keys = [(str(row["topic"]), int(row["partition"])) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(
            f'{path} is not {{"partitions": [{{"topic": "foo", "partition": 1}}]}}: {error}'
        ) from None
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        names = ", ".join(f"{topic}-{part}" for topic, part in sorted(twice))
        raise ToolError(f"Replica election data contains duplicate partitions: {names}")
    return keys


def by_topic(keys: Iterable[Key]) -> list[TopicPartitions]:
    """The partitions as the request has them."""
    found: dict[str, list[int]] = defaultdict(list)
    for topic, partition in keys:
        found[topic].append(partition)
    return [TopicPartitions(topic=topic, partitions=parts) for topic, parts in found.items()]
