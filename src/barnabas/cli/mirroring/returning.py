"""`barnabas mirror link reverse` and `failback`: the former source becomes a copy of the target, and the primary again."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.admin import LATEST, Admin, Link, TopicPartition
from barnabas.cli.mirroring.mirror import Name, Preview, link_app, link_of, read_config, with_links
from barnabas.cores.links import LinkSpec
from barnabas.terminal.administering import administer
from barnabas.terminal.connection import target as target_of
from barnabas.terminal.errors import EXIT_OK, CliError
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, note, print_json, print_table, summarize
from barnabas.terminal.runner import example

POLL_S: Final = 0.2
SourceConfig = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="How this command reaches the source: client properties, as security.protocol and sasl.*.",
        show_default=False,
    ),
]
BackFrom = Annotated[
    str | None,
    typer.Option(
        "--back-from",
        metavar="HOST:PORT,...",
        help="Where the source's brokers reach the target. Default: the address of -b.",
        show_default=False,
    ),
]
BackConfig = Annotated[
    Path | None,
    typer.Option(
        "--back-config",
        metavar="FILE",
        help="How the source's brokers reach the target: client properties.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long the source may take to catch up.")
]


@dataclass(frozen=True, slots=True)
class Parting:
    """Where the logs of a partition part. removed: how many offsets the source has from `parts_at` on, which the target has
    not; to_copy: how many the target has from there on."""

    key: TopicPartition
    parts_at: int
    removed: int
    to_copy: int


def partings(source: Admin, target: Admin, topics: Sequence[str]) -> list[Parting]:
    """Where the logs of the source's partitions part from the target's, by their leader epochs. Raises ClientError."""
    views = target.topics.describe(topics).require()
    keys = [TopicPartition(name, part.number) for name, topic in views.items() for part in topic.partitions]
    theirs = source.records.offsets(dict.fromkeys(keys, LATEST))
    ours = target.records.offsets(dict.fromkeys(theirs.done, LATEST)).require()
    epochs = {key: row.leader_epoch for key, row in theirs.done.items() if row.leader_epoch is not None}
    ends = target.records.epoch_ends(epochs).require()
    found = []
    for key, row in theirs.done.items():
        end, own_end = int(row.offset or 0), int(ours[key].offset or 0)
        parts_at = min(end, ends.get(key, own_end), own_end)
        found.append(Parting(key, parts_at, end - parts_at, own_end - parts_at))
    return found


@link_app.command(
    epilog=example(
        "barnabas mirror link reverse east --preview -b localhost:9192",
        "barnabas mirror link reverse east -b localhost:9192",
    )
)
def reverse(
    name: Name,
    config: SourceConfig = None,
    back_from: BackFrom = None,
    back_config: BackConfig = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    preview: Preview = False,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Make the former source a copy of this cluster, after a promotion; what it has beyond it is removed there."""
    with with_links(bootstrap, properties, verbose) as admin:
        link = link_of(admin, name)
        _require_promoted(link)
        with administer(link.source, _pairs(config)) as source:
            topics = _topics_of(link, source, admin)
            parted = partings(source, admin, topics)
            if not preview:
                _create_back(source, link, topics, back_from, back_config, bootstrap, properties)
                admin.links.delete(name)
    _show(parted, json)
    done = "would be copied" if preview else "are copied"
    summarize(
        f"{count_of(len(topics), 'topic')} {done} back to {link.source} by the link {name}, which is stored there"
    )
    return EXIT_OK


@link_app.command(
    epilog=example(
        "barnabas mirror link failback east --preview -b localhost:9192",
        "barnabas mirror link failback east -b localhost:9192",
    )
)
def failback(
    name: Name,
    config: SourceConfig = None,
    back_from: BackFrom = None,
    back_config: BackConfig = None,
    timeout: Timeout = 600.0,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    preview: Preview = False,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Make the source the primary again, after a promotion and once it is up to date, and this cluster its copy again.

    Stop the producers here first. What the source has and this cluster has not is removed there; nothing is removed here.
    """
    with with_links(bootstrap, properties, verbose) as admin:
        link = link_of(admin, name)
        with administer(link.source, _pairs(config)) as source:
            back = _back_of(link, source)
            topics = _topics_of(link, source, admin)
            parted = partings(source, admin, topics)
            if preview:
                _show(parted, json)
                return EXIT_OK
            if back is None or back.state != "promoted" or link.state == "promoted":
                if back is not None and back.state == "promoted":
                    source.links.delete(name)  # of an earlier failback: this cluster was promoted again since
                give_up = time.monotonic() + timeout
                _create_back(source, link, topics, back_from, back_config, bootstrap, properties)
                _await_copies(source, name, parted, give_up)
                admin.links.mirror_again(name)  # read-only from now on, and paused: nothing is fetched yet
                note(f"{name}: the topics are read-only here now")
                _await_ends(source, admin, topics, give_up)
            source.links.promote(name)
            # The link there is removed last: as long as it is there, it is known how far a failback came.
            if link_of(admin, name).state == "paused":
                admin.links.resume(name)
            source.links.delete(name)
    _show(parted, json)
    summarize(
        f"{count_of(len(topics), 'topic')} can be written at {link.source} again; the link {name} copies them here"
    )
    return EXIT_OK


def _back_of(link: Link, source: Admin) -> Link | None:
    """The link at the source that copies the topics back; None if there is none yet. Raises CliError if there is nothing to
    bring back."""
    back = next((known for known in source.links.describe() if known.name == link.name), None)
    if back is None or (link.state != "paused" and back.state != "promoted"):
        _require_promoted(link)
    return back


def _pairs(config: Path | None) -> list[str]:
    return [f"{name}={text}" for name, text in read_config(config).items()]


def _require_promoted(link: Link) -> None:
    """Raises CliError unless a link was promoted."""
    if link.state != "promoted":
        raise CliError(
            f"the link {link.name} is {link.state}; promote it first, or fail over: then there is something to bring back"
        )


def _topics_of(link: Link, source: Admin, target: Admin) -> list[str]:
    """The topics that the link copied and both sides have. Raises CliError if there are none."""
    spec = LinkSpec.of(link.name, link.options)
    both = source.topics.list(internal=False).keys() & target.topics.list(internal=False).keys()
    found = sorted(topic for topic in both if spec.takes_topic(topic))
    if not found:
        raise CliError(f"{link.source} has none of the topics of the link {link.name}")
    return found


def _create_back(
    source: Admin,
    link: Link,
    topics: Sequence[str],
    back_from: str | None,
    back_config: Path | None,
    bootstrap: str | None,
    properties: list[str] | None,
) -> None:
    where, own = target_of(bootstrap, properties)
    reach: Mapping[str, str] = own if back_config is None else read_config(back_config)
    spec = LinkSpec(
        link.name,
        {**reach, "bootstrap.servers": back_from or where},
        ",".join(map(re.escape, topics)),
        groups=link.options.get("groups", ""),
        groups_exclude=link.options.get("groups.exclude", ""),
        interval_ms=int(link.options.get("interval.ms", "5000")),
        takes_over=True,
    )
    if not any(known.name == link.name for known in source.links.describe()):
        source.links.create(link.name, spec.texts())


def _await_copies(source: Admin, name: str, parted: Sequence[Parting], give_up: float) -> None:
    """Wait until the source has nearly everything. Raises CliError."""
    wanted = {(row.key.topic, row.key.partition) for row in parted}
    while True:
        rows = {(row.topic, row.partition): row for row in link_of(source, name).partitions}
        if wanted <= rows.keys() and all(rows[key].state == "in sync" for key in wanted):
            return
        if time.monotonic() > give_up:
            late = next((rows[key] for key in wanted & rows.keys() if rows[key].state != "in sync"), None)
            why = (
                ""
                if late is None
                else f": {late.topic}-{late.partition} is {late.state} {late.reason}".rstrip()
            )
            raise CliError(
                f"the source has not caught up in time{why}; it goes on. "
                "Run failback again, or see barnabas mirror link status"
            )
        time.sleep(POLL_S)


def _await_ends(source: Admin, target: Admin, topics: Sequence[str], give_up: float) -> None:
    """Wait until the source has everything that the target has, which gets nothing more. Raises CliError."""
    views = target.topics.describe(topics).require()
    keys = [TopicPartition(name, part.number) for name, topic in views.items() for part in topic.partitions]
    while True:
        ours = target.records.offsets(dict.fromkeys(keys, LATEST)).require()
        theirs = source.records.offsets(dict.fromkeys(keys, LATEST)).require()
        if all(theirs[key].offset == ours[key].offset for key in keys):
            return
        if time.monotonic() > give_up:
            raise CliError(
                "the source lacks records of this cluster still; run failback again: the topics stay read-only here"
            )
        time.sleep(POLL_S)


def _show(parted: Sequence[Parting], json: bool) -> None:
    if json:
        print_json(
            [
                {
                    "topic": row.key.topic,
                    "partition": row.key.partition,
                    "parts_at": row.parts_at,
                    "removed": row.removed,
                    "to_copy": row.to_copy,
                }
                for row in parted
            ]
        )
        return
    print_table(
        ("TOPIC", "PARTITION", "SAME UP TO", "REMOVED AT SOURCE", "COPIED BACK"),
        [
            (row.key.topic, row.key.partition, row.parts_at, _span(row, row.removed), _span(row, row.to_copy))
            for row in parted
        ],
    )


def _span(row: Parting, count: int) -> str:
    return f"{row.parts_at} to {row.parts_at + count - 1}" if count else "-"
