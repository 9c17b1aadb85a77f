"""`barnabas topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from barnabas.admin import (
    Admin,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    NewTopic,
    Topic,
    back_to_default,
    set_to,
)
from barnabas.admin.families.topics import DEFAULT
from barnabas.cli.admin import bounds_of, report
from barnabas.client.errors import ClientError
from barnabas.terminal.administering import administer, saying
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, note, print_json, print_table, show_details
from barnabas.terminal.properties import parse_pairs
from barnabas.terminal.runner import example, new_app, say_missing
from barnabas.terminal.units import topic_settings
from barnabas.wire.errors import ErrorCode

app = new_app("Create, list, describe, alter, delete and trim topics.")

PARTITIONS_MAX: Final = 100_000
REPLICAS_MAX: Final = 10_000
"""A mistyped number is refused before the broker sees it."""

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False)]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "-c",
        "--config",
        metavar="NAME=VALUE",
        help="A topic option, e.g. -c retention.ms=60000; may be repeated.",
        show_default=False,
    ),
]


@app.command(
    epilog=example("barnabas topic create orders --partitions 6 -c cleanup.policy=compact"),
)
def create(
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            "-p",
            "--partitions",
            metavar="N",
            min=1,
            max=PARTITIONS_MAX,
            help="How many partitions. Default: the broker's num.partitions.",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "-r",
            "--replication-factor",
            metavar="N",
            min=1,
            max=REPLICAS_MAX,
            help="How many replicas. Default: the broker's default.replication.factor.",
        ),
    ] = None,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do not fail if the topic exists already.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Let the broker check the request, and create nothing.")
    ] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Create topics."""
    settings = topic_settings(dict(parse_pairs(config or (), "-c")))
    wanted = [
        NewTopic(name, partitions or DEFAULT, replication_factor or DEFAULT, settings)
        for name in dict.fromkeys(names)
    ]
    with administer(bootstrap, properties, verbose) as admin:
        results = admin.topics.create(wanted, validate_only=dry_run)
    accept = {ErrorCode.TOPIC_ALREADY_EXISTS: "exists"} if if_not_exists else {}
    return report(results, "would create" if dry_run else "created", accept, "topic create", json)


@app.command("list", epilog=example("barnabas topic list --json"))
def list_topics(
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="[REGEX]",
            help="Only topics whose name matches this regular expression.",
            show_default=False,
        ),
    ] = None,
    internal: Annotated[bool, typer.Option("-i", "--internal", help="Show internal topics too.")] = False,
    names: Annotated[bool, typer.Option("-n", "--names", help="Only the names, one per line.")] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """List the topics with their partitions and replicas."""
    try:
        wanted = re.compile(pattern or "")
    except re.error as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from None
    with administer(bootstrap, properties, verbose) as admin:
        topics = admin.topics.list()
    rows = [
        {"topic": topic.name, "partitions": len(topic.partitions), "replicas": topic.replication}
        for topic in topics.values()
        if wanted.search(topic.name) and (internal or not is_internal(topic.name))
    ]
    if json:
        print_json(rows)
    elif names:
        sys.stdout.write("".join(f"{row['topic']}\n" for row in rows))
    else:
        print_table(("TOPIC", "PARTITIONS", "REPLICAS"), [list(row.values()) for row in rows])
    return EXIT_OK


def is_internal(name: str) -> bool:
    """Whether a topic is an internal topic of the broker (such as `__consumer_offsets`)."""
    return name.startswith("__")


@app.command(epilog=example("barnabas topic describe orders"))
def describe(
    names: Names,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show partitions, offsets and options of topics."""
    with administer(bootstrap, properties, verbose) as admin:
        there = admin.topics.list()
        topics = [there[name] for name in dict.fromkeys(names) if name in there]
        show_details(describe_topics(admin, topics), json, print_topic)
    return say_missing("barnabas topic describe", "topic", (name for name in names if name not in there))


def describe_topics(admin: Admin, topics: Sequence[Topic]) -> list[dict[str, Any]]:
    """Everything `describe` shows of existing topics. Raises CliError."""
    if not topics:
        return []
    keys = [(topic.name, part.number) for topic in topics for part in topic.partitions]
    bounds = bounds_of(admin, keys, {})
    described = admin.configs.describe([ConfigResource(ConfigKind.TOPIC, topic.name) for topic in topics])
    settings = {}
    for resource in described:
        with saying(f"options of {resource.name}"):
            options = described[resource].values()
        changed = ConfigSource.DYNAMIC_TOPIC_CONFIG
        settings[resource.name] = {
            option.name: option.value for option in options if option.source is changed
        }
    return [
        {
            "topic": topic.name,
            "config": settings[topic.name],
            "partitions": [
                {
                    "partition": part.number,
                    "leader": part.leader,
                    "replicas": list(part.replicas),
                    "isr": list(part.in_sync),
                    "start": bounds[topic.name, part.number].start,
                    "end": bounds[topic.name, part.number].end,
                }
                for part in topic.partitions
            ],
        }
        for topic in topics
    ]


def print_topic(detail: dict[str, Any]) -> None:
    """One topic as text: a line with its options and a table of its partitions."""
    parts = detail["partitions"]
    records = sum(part["end"] - part["start"] for part in parts)
    options = " ".join(f"{name}={value}" for name, value in sorted(detail["config"].items())) or "none set"
    print(
        f"{detail['topic']}: {count_of(len(parts), 'partition')}, {count_of(records, 'offset')}; "
        f"options: {options}"
    )
    heads = ("PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END")
    print_table(heads, [list(part.values()) for part in parts])


@app.command(
    epilog=example("barnabas topic alter orders --partitions 12 -c retention.ms=86400000 --unset segment.ms")
)
def alter(
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partitions: Annotated[
        int | None,
        typer.Option(
            "-p",
            "--partitions",
            metavar="N",
            min=1,
            max=PARTITIONS_MAX,
            help="The new number of partitions; it can only grow.",
        ),
    ] = None,
    config: Configs = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Put an option back to its default; may be repeated.", show_default=False
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Add partitions to a topic, or change its options."""
    if partitions is None and not config and not unset:
        raise UsageError("nothing to change; give --partitions, -c NAME=VALUE or --unset NAME")
    settings = topic_settings(dict(parse_pairs(config or (), "-c")))
    with administer(bootstrap, properties, verbose) as admin:
        if name not in admin.topics.list():
            raise CliError(f"{name}: no such topic; `barnabas topic list` shows what is there")
        # Options first: they are checked as a whole, and added partitions cannot be removed.
        if settings or unset:
            resource = ConfigResource(ConfigKind.TOPIC, name)
            changes = [*set_to(settings), *back_to_default(unset or [])]
            with saying(f"{name}: cannot set its options"):
                admin.configs.alter({resource: changes}).require()
        if partitions is not None:
            with saying(f"{name}: cannot set {count_of(partitions, 'partition')}"):
                admin.topics.add_partitions({name: partitions}).require()
    if json:
        print_json({"topic": name, "result": "altered"})
    else:
        print(f"altered {name}")
    return EXIT_OK


@app.command(epilog=example("barnabas topic delete orders orders-retry"))
def delete(
    names: Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do not fail if the topic does not exist.")
    ] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Delete topics with all their records. Undone by `topic restore` if the brokers have a bin, otherwise never."""
    with administer(bootstrap, properties, verbose) as admin:
        results = admin.topics.delete(dict.fromkeys(names))
        for name in _resting(admin, [name for name in names if name in results.done]):
            note(f"{name} rests in the bin; `barnabas topic restore {name}` brings it back")
    accept = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "absent"} if if_exists else {}
    return report(results, "deleted", accept, "topic delete", json)


def _resting(admin: Admin, names: Sequence[str]) -> list[str]:
    """Those of the deleted topics that can be restored."""
    try:
        binned = {topic.name for topic in admin.topic_bin.list()} if names else set()
    except ClientError:
        return []  # Apache Kafka, or a broker that has gone meanwhile
    return [name for name in names if name in binned]
