"""`barnabas mirror link`: links that copy topics of another cluster with their offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.admin import Admin, Link, LinkTail
from barnabas.admin.families.links import lag_of
from barnabas.client.errors import UnsupportedByBroker
from barnabas.config.option import ConfigError
from barnabas.config.properties import parse_properties
from barnabas.cores.links import LinkSpec
from barnabas.terminal.administering import administer
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.offsets import Anchor, Clock, parse_place
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, note, print_json, print_table, summarize
from barnabas.terminal.runner import example, new_app
from barnabas.wire.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

app = new_app(
    "Copy topics of another cluster: links that keep offsets, how far they are, whether both sides agree."
)
link_app = new_app(
    "Create, list, promote and delete links that copy topics of another cluster with their offsets."
)
app.add_typer(link_app, name="link")

NO_LINKS = "the brokers have no links: these copy into brokers of Barnabas, from any Kafka"
Name = Annotated[str, typer.Argument(metavar="NAME", help="The link.", show_default=False)]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "-t",
        "--topic",
        metavar="TOPIC",
        help="Only this topic; may be repeated. Default: all that the link copies.",
        show_default=False,
    ),
]
Source = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="HOST:PORT,...",
        help="The cluster to copy from, any Kafka since 0.10. The brokers of the target must reach it.",
        show_default=False,
    ),
]
TopicsPattern = Annotated[
    str,
    typer.Option(
        "--topics",
        metavar="PATTERN",
        help="The topics: regular expressions of whole names, separated by commas.",
        show_default=False,
    ),
]
GroupsPattern = Annotated[
    str,
    typer.Option(
        "--groups",
        metavar="PATTERN",
        help="The consumer groups whose offsets are copied. Default: none.",
        show_default=False,
    ),
]
NotTopics = Annotated[
    str,
    typer.Option("--exclude-topics", metavar="PATTERN", help="Topics to leave out.", show_default=False),
]
NotGroups = Annotated[
    str,
    typer.Option("--exclude-groups", metavar="PATTERN", help="Groups to leave out.", show_default=False),
]
SourceConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="How the source is reached: client properties, as security.protocol and sasl.*.",
        show_default=False,
    ),
]
Start = Annotated[
    str | None,
    typer.Option(
        "--start",
        metavar="@TIME",
        help="Leave out records before this time, as in `consume -o`. Default: copy everything.",
        show_default=False,
    ),
]
Replication = Annotated[
    int,
    typer.Option(
        "-r",
        "--replication-factor",
        "--replication",
        metavar="N",
        help="Replicas of topics that are created. Default: the target's option.",
        show_default=False,
    ),
]
Acls = Annotated[
    bool, typer.Option("--acls", help="Copy the access rules of the topics, except those to write.")
]
TakesOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Make copies of topics that exist here: what they have beyond the source is removed.",
    ),
]
IntervalMs = Annotated[
    int,
    typer.Option("--interval-ms", metavar="MS", help="How often topics, options and groups are looked at."),
]
Preview = Annotated[
    bool, typer.Option("--preview", "--dry-run", help="Show what would happen, and change nothing.")
]


@contextmanager
def with_links(bootstrap: str | None, properties: list[str] | None, verbose: bool) -> Iterator[Admin]:
    """An admin of a cluster that has links. Raises CliError."""
    with administer(bootstrap, properties, verbose) as admin:
        try:
            yield admin
        except UnsupportedByBroker:
            raise CliError(NO_LINKS) from None


def link_of(admin: Admin, name: str) -> Link:
    """A link of the cluster. Raises CliError."""
    links = admin.links.describe()
    for link in links:
        if link.name == name:
            return link
    there = f"there are {', '.join(link.name for link in links)}" if links else "there are none"
    raise CliError(f"no link is called {name}; {there}")


@link_app.command(
    epilog=example(
        "barnabas mirror link create east --from east.example.com:9092 -b localhost:9092 --topics '.*' --groups '.*'",
        "barnabas mirror link create east --from east:9093 --config east.properties --topics 'orders|payments'",
    )
)
def create(
    name: Name,
    source: Source,
    topics: TopicsPattern,
    groups: GroupsPattern = "",
    not_topics: NotTopics = "",
    not_groups: NotGroups = "",
    config: SourceConfig = None,
    start: Start = None,
    replication: Replication = -1,
    acls: Acls = False,
    takes_over: TakesOver = False,
    interval_ms: IntervalMs = 5000,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    preview: Preview = False,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Copy topics of another cluster into this one, with the same offsets, and go on with it."""
    texts = {**read_config(config), "bootstrap.servers": source}
    spec = LinkSpec(
        name,
        texts,
        topics,
        not_topics,
        groups,
        not_groups,
        _start_ms(start),
        interval_ms,
        replication,
        acls,
        takes_over,
    )
    try:
        spec.check()
    except ApiError as error:
        raise UsageError(error.message) from None
    previewed = _previewed(spec)
    if preview:
        _show_preview(previewed, json)
        return EXIT_OK
    with with_links(bootstrap, properties, verbose) as admin:
        admin.links.create(name, spec.texts())
    if json:
        print_json({"link": name, "result": "created", "topics": sorted(previewed)})
    else:
        print(f"created link {name}: copies {count_of(len(previewed), 'topic')} of {source}")
    return EXIT_OK


def _previewed(spec: LinkSpec) -> dict[str, int]:
    """The topics of the source that a link takes, with their numbers of partitions. Raises CliError."""
    pairs = [f"{name}={text}" for name, text in spec.source.items() if name != "bootstrap.servers"]
    with administer(spec.source["bootstrap.servers"], pairs) as admin:
        topics = admin.topics.list(internal=False)
    return {name: len(topic.partitions) for name, topic in sorted(topics.items()) if spec.takes_topic(name)}


def _show_preview(partitions_by_topic: Mapping[str, int], json: bool) -> None:
    if json:
        print_json([{"topic": name, "partitions": count} for name, count in partitions_by_topic.items()])
    elif partitions_by_topic:
        print_table(("TOPIC", "PARTITIONS"), list(partitions_by_topic.items()))
    else:
        summarize("the source has no such topics yet; new ones will be copied")


def read_config(path: Path | None) -> dict[str, str]:
    """The client properties of a file. Raises CliError."""
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        return {entry.name: entry.value.strip() for entry in parse_properties(text)}
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise CliError(f"--config {path}: {getattr(error, 'strerror', None) or error}") from None


def _start_ms(text: str | None) -> int:
    """Milliseconds; -1 for everything. Raises UsageError."""
    if text is None:
        return -1
    place = parse_place(text, Clock(time.time_ns() // 1_000_000))
    if place is None or place.anchor is not Anchor.TIME:
        raise UsageError(f"--start {text!r} is not a time; use @2024-01-01, @2024-01-01T10:00 or @-1d")
    return place.number


@link_app.command("list", epilog=example("barnabas mirror link list -b localhost:9092"))
def show_all(
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """List the links into a cluster."""
    with with_links(bootstrap, properties, verbose) as admin:
        links = admin.links.describe()
    if json:
        print_json([summary_of(link) for link in links])
    elif links:
        print_table(
            ("LINK", "STATE", "FROM", "TOPICS", "PARTITIONS", "LAG", "GROUPS"),
            [
                (
                    link.name,
                    state_of(link),
                    link.source,
                    len(link.topics),
                    len(link.partitions),
                    lag_of(link.partitions),
                    link.groups,
                )
                for link in links
            ],
        )
    else:
        summarize("no links; `barnabas mirror link create` makes one")
    return EXIT_OK


def state_of(link: Link) -> str:
    """The state of a link in one word or two."""
    if link.state != "mirroring":
        return link.state
    return "unreachable" if link.unreachable else link.state


def summary_of(link: Link) -> dict[str, Any]:
    """A link as JSON."""
    return {
        "link": link.name,
        "state": link.state,
        "source": link.source,
        "unreachable": link.unreachable or None,
        "options": dict(link.options),
        "topics": list(link.topics),
        "groups": link.groups,
        "lag": lag_of(link.partitions),
        "problems": dict(link.problems),
    }


@link_app.command(epilog=example("barnabas mirror link status east -b localhost:9092"))
def status(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The link. Default: all.", show_default=False)
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show where each copied partition stands, what was lost and why, and what cannot be copied."""
    with with_links(bootstrap, properties, verbose) as admin:
        links = admin.links.describe() if name is None else [link_of(admin, name)]
    if json:
        print_json(
            [
                {**summary_of(link), "partitions": [_partition(row) for row in link.partitions]}
                for link in links
            ]
        )
        return EXIT_OK
    for link in links:
        print(f"{link.name}: {state_of(link)}, from {link.source}, {count_of(len(link.topics), 'topic')}")
        if link.partitions:
            print_table(
                (
                    "TOPIC",
                    "PARTITION",
                    "STATE",
                    "START",
                    "END",
                    "SOURCE END",
                    "LAG",
                    "LAG S",
                    "MISSED",
                    "DROPPED",
                ),
                [_cells(row) for row in link.partitions],
            )
        for row in link.partitions:
            if row.reason:
                note(f"{row.topic}-{row.partition} is {row.state}: {row.reason}")
        for what, why in sorted(link.problems.items()):
            note(f"{what}: {why}")
        if link.unreachable:
            note(f"{link.name}: the source cannot be reached: {link.unreachable}")
    return EXIT_OK


def _cells(row: Any) -> Sequence[Any]:
    return (
        row.topic, row.partition, row.state, row.log_start, row.log_end, _known(row.source_end), _known(row.lag),
        None if row.lag_ms < 0 else round(row.lag_ms / 1000, 1), row.missed, row.dropped,
    )  # fmt: skip


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _partition(row: Any) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "state": row.state,
        "reason": row.reason or None,
        "start": row.log_start,
        "end": row.log_end,
        "source_start": _known(row.source_start),
        "source_end": _known(row.source_end),
        "lag": _known(row.lag),
        "lag_ms": _known(row.lag_ms),
        "missed": row.missed,
        "dropped": row.dropped,
        "leader_epoch": row.leader_epoch,
        "source_epoch": _known(row.source_epoch),
        "open_transactions": row.open_transactions,
    }


@link_app.command(
    epilog=example(
        "barnabas mirror link promote east --preview -b localhost:9092",
        "barnabas mirror link promote east -b localhost:9092",
    )
)
def promote(
    name: Name,
    topic: Topics = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    preview: Preview = False,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Make the copies writable, once everything has been copied: stop the source's producers first."""
    with with_links(bootstrap, properties, verbose) as admin:
        tails = admin.links.promote(name, topic, validate_only=preview)
    _show_tails(tails, json, "would be promoted" if preview else "promoted")
    return EXIT_OK


@link_app.command(
    epilog=example(
        "barnabas mirror link failover east --preview -b localhost:9092",
        "barnabas mirror link failover east -b localhost:9092",
    )
)
def failover(
    name: Name,
    topic: Topics = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    preview: Preview = False,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Make the copies writable although the source is gone; name what was not copied, as far as that is known."""
    with with_links(bootstrap, properties, verbose) as admin:
        tails = admin.links.promote(name, topic, without_source=True, validate_only=preview)
    _show_tails(tails, json, "would be promoted" if preview else "promoted")
    return EXIT_OK


def _show_tails(tails: Sequence[LinkTail], json: bool, done: str) -> None:
    if json:
        print_json(
            [
                {
                    "topic": tail.topic,
                    "partition": tail.partition,
                    "end": tail.mirrored_end,
                    "source_end": _known(tail.source_end),
                    "not_copied": tail.unmirrored,
                    "open_transactions": tail.open_transactions,
                }
                for tail in tails
            ]
        )
        return
    if tails:
        print_table(
            ("TOPIC", "PARTITION", "END", "NOT COPIED", "OPEN TRANSACTIONS"),
            [
                (tail.topic, tail.partition, tail.mirrored_end, _tail_text(tail), tail.open_transactions)
                for tail in tails
            ],
        )
    topics = {tail.topic for tail in tails}
    lost = sum(tail.unmirrored for tail in tails)
    summarize(f"{count_of(len(topics), 'topic')} {done}; {count_of(lost, 'offset')} of the source not copied")


def _print_outcome(name: str, done: str, json: bool) -> int:
    """Print what was done with a link; the exit code."""
    if json:
        print_json({"link": name, "done": done})
    else:
        print(f"{done} link {name}")
    return EXIT_OK


def _tail_text(tail: LinkTail) -> str:
    if tail.source_end < 0:
        return "unknown"
    return f"{tail.mirrored_end} to {tail.source_end - 1}" if tail.unmirrored else "-"


@link_app.command(epilog=example("barnabas mirror link pause east -b localhost:9092"))
def pause(
    name: Name,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Copy nothing until `resume`; the copies stay read-only."""
    with with_links(bootstrap, properties, verbose) as admin:
        admin.links.pause(name)
    return _print_outcome(name, "paused", json)


@link_app.command(epilog=example("barnabas mirror link resume east -b localhost:9092"))
def resume(
    name: Name,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Continue a link that was paused."""
    with with_links(bootstrap, properties, verbose) as admin:
        admin.links.resume(name)
    return _print_outcome(name, "resumed", json)


@link_app.command(epilog=example("barnabas mirror link delete east -b localhost:9092"))
def delete(
    name: Name,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Remove a link that copies nothing any more: promote its topics first."""
    with with_links(bootstrap, properties, verbose) as admin:
        admin.links.delete(name)
    return _print_outcome(name, "deleted", json)
