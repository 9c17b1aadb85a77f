"""`barnabas topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any, Final

import typer
from confluent_kafka import KafkaError

from barnabas.cli.admin import all_topics, report
from barnabas.terminal.connection import REQUEST_TIMEOUT_SECONDS, await_result, connect, parse_pairs
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, print_json, print_table, show_details
from barnabas.terminal.runner import example, new_app, say_missing
from barnabas.terminal.units import topic_settings

app = new_app("Create, list, describe, alter, delete and trim topics.")

PARTITIONS_MAX: Final = 100_000
REPLICAS_MAX: Final = 10_000
"""librdkafka refuses more."""

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
    from confluent_kafka.admin import NewTopic

    settings = topic_settings(dict(parse_pairs(config or (), "-c")))
    admin = connect(bootstrap, properties, verbose).admin()
    wanted = [
        NewTopic(name, partitions or -1, replication_factor=replication_factor or -1, config=settings)
        for name in dict.fromkeys(names)
    ]
    futures = admin.create_topics(wanted, validate_only=dry_run, request_timeout=REQUEST_TIMEOUT_SECONDS)
    accept = {KafkaError.TOPIC_ALREADY_EXISTS: "exists"} if if_not_exists else {}
    return report(futures, "would create" if dry_run else "created", accept, "topic create", json)


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
    metadata = all_topics(connect(bootstrap, properties, verbose).admin())
    rows = []
    for topic in sorted(metadata.topics.values(), key=lambda topic: str(topic.topic)):
        if wanted.search(topic.topic) and (internal or not is_internal(topic.topic)):
            replicas = max((len(part.replicas) for part in topic.partitions.values()), default=0)
            rows.append({"topic": topic.topic, "partitions": len(topic.partitions), "replicas": replicas})
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
    admin = connect(bootstrap, properties, verbose).admin()
    metadata = all_topics(admin).topics
    found = [name for name in dict.fromkeys(names) if name in metadata]
    show_details(describe_topics(admin, [metadata[name] for name in found]), json, print_topic)
    return say_missing("barnabas topic describe", "topic", (name for name in names if name not in metadata))


def describe_topics(admin: Any, topics: list[Any]) -> list[dict[str, Any]]:
    """Everything `describe` shows, from the metadata of existing topics."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import ConfigResource, ConfigSource, OffsetSpec

    if not topics:
        return []
    keys = [TopicPartition(topic.topic, part) for topic in topics for part in topic.partitions]
    first = admin.list_offsets(
        dict.fromkeys(keys, OffsetSpec.earliest()), request_timeout=REQUEST_TIMEOUT_SECONDS
    )
    last = admin.list_offsets(
        dict.fromkeys(keys, OffsetSpec.latest()), request_timeout=REQUEST_TIMEOUT_SECONDS
    )
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic.topic) for topic in topics]
    configs = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_SECONDS)
    starts, ends, settings = {}, {}, {}
    for key, future in first.items():
        starts[key.topic, key.partition] = await_result(future, f"offsets of {key.topic}").offset
    for key, future in last.items():
        ends[key.topic, key.partition] = await_result(future, f"offsets of {key.topic}").offset
    for resource, future in configs.items():
        entries = await_result(future, f"options of {resource.name}").values()
        changed = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        settings[resource.name] = {e.name: e.value for e in entries if source_number(e.source) == changed}
    return [
        {
            "topic": topic.topic,
            "config": settings[topic.topic],
            "partitions": [
                {
                    "partition": part.id,
                    "leader": part.leader,
                    "replicas": list(part.replicas),
                    "isr": list(part.isrs),
                    "start": starts[topic.topic, part.id],
                    "end": ends[topic.topic, part.id],
                }
                for part in sorted(topic.partitions.values(), key=lambda part: int(part.id))
            ],
        }
        for topic in topics
    ]


def source_number(source: Any) -> int:
    """A config source as a number: older confluent-kafka gives numbers, newer an enum."""
    return int(getattr(source, "value", source))


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
    admin = connect(bootstrap, properties, verbose).admin()
    if name not in all_topics(admin).topics:
        raise CliError(f"{name}: no such topic; `barnabas topic list` shows what is there")
    # Options first: they are checked as a whole, and added partitions cannot be removed.
    if settings or unset:
        alter_configs(admin, name, settings, unset or [])
    if partitions is not None:
        from confluent_kafka.admin import NewPartitions

        futures = admin.create_partitions(
            [NewPartitions(name, partitions)], request_timeout=REQUEST_TIMEOUT_SECONDS
        )
        await_result(futures[name], f"{name}: cannot set {count_of(partitions, 'partition')}")
    if json:
        print_json({"topic": name, "result": "altered"})
    else:
        print(f"altered {name}")
    return EXIT_OK


def alter_configs(admin: Any, name: str, settings: dict[str, str], unset: list[str]) -> None:
    """Set and unset options of one topic in one request. Raises CliError."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entries = [
        ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
        for option, value in settings.items()
    ]
    entries += [ConfigEntry(option, None, incremental_operation=AlterConfigOpType.DELETE) for option in unset]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    futures = admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_SECONDS)
    for future in futures.values():
        await_result(future, f"{name}: cannot set its options")


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
    """Delete topics with all their records. This cannot be undone."""
    admin = connect(bootstrap, properties, verbose).admin()
    futures = admin.delete_topics(list(dict.fromkeys(names)), request_timeout=REQUEST_TIMEOUT_SECONDS)
    accept = {KafkaError.UNKNOWN_TOPIC_OR_PART: "absent"} if if_exists else {}
    return report(futures, "deleted", accept, "topic delete", json)
