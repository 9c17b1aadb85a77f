"""`barnabas mirror status` and `verify`: how far copies are, and whether they hold what the source holds."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from barnabas.admin import Admin, Link, TopicPartition
from barnabas.admin.families.links import lag_ms_of, lag_of
from barnabas.cli.mirroring.maker import show_lags
from barnabas.cli.mirroring.mirror import app, link_of, read_config, state_of, with_links
from barnabas.cli.mirroring.reading import records_of
from barnabas.client.cluster import Cluster
from barnabas.client.comparing import Pieces, batches_of, compare
from barnabas.terminal.administering import administering, explained, options_of
from barnabas.terminal.connection import ClusterAddress, connect
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, note, print_json, print_table, summarize
from barnabas.terminal.runner import example

FETCH: Final = 1
"""The number of the API."""
BATCHES_VERSION: Final = 4
"""The first version of Fetch that answers with batches."""


@app.command(
    epilog=example(
        "barnabas mirror status -b localhost:9192", "barnabas mirror status --maker mm2.properties"
    )
)
def status(
    name: Annotated[
        str | None, typer.Argument(metavar="LINK", help="Default: all links.", show_default=False)
    ] = None,
    maker: Annotated[
        Path | None,
        typer.Option(
            "--maker",
            metavar="FILE",
            help="The flows of a file of MirrorMaker 2 instead of links; -b is not needed.",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show how far the copies of each topic are behind, in records and in seconds."""
    if maker is not None:
        return show_lags(maker, json)
    with with_links(bootstrap, properties, verbose) as admin:
        links = admin.links.describe() if name is None else [link_of(admin, name)]
    rows = [row for link in links for row in by_topic(link)]
    if json:
        print_json(rows)
    elif rows:
        print_table(
            ("LINK", "TOPIC", "STATE", "PARTITIONS", "LAG", "LAG S", "MISSED", "DROPPED"),
            [
                (
                    row["link"], row["topic"], row["state"], row["partitions"], row["lag"],
                    None if row["lag_ms"] is None else round(row["lag_ms"] / 1000, 1), row["missed"], row["dropped"],
                )
                for row in rows
            ],
        )  # fmt: skip
    else:
        summarize("nothing is copied")
    for link in links:
        if link.unreachable:
            note(f"{link.name}: the source cannot be reached: {link.unreachable}")
    return EXIT_OK


def by_topic(link: Link) -> Iterator[dict[str, Any]]:
    """A row for each topic of a link."""
    for topic in link.topics:
        parts = [row for row in link.partitions if row.topic == topic]
        states = sorted({row.state for row in parts}) or [state_of(link)]
        yield {
            "link": link.name,
            "topic": topic,
            "state": ", ".join(states),
            "partitions": len(parts),
            "lag": lag_of(parts),
            "lag_ms": lag_ms_of(parts),
            "missed": sum(row.missed for row in parts),
            "dropped": sum(row.dropped for row in parts),
        }


@app.command(epilog=example("barnabas mirror verify east -b localhost:9192"))
def verify(
    name: Annotated[str, typer.Argument(metavar="LINK", show_default=False)],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "-t", "--topic", metavar="TOPIC", help="Only this topic; may be repeated.", show_default=False
        ),
    ] = None,
    step: Annotated[
        int, typer.Option("--range", metavar="N", min=1, help="How many offsets are compared at a time.")
    ] = 100_000,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="How this command reaches the source: client properties, as security.protocol and sasl.*.",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Compare copies with their source by counts and checksums. Exit code 1: they differ.

    What both sides hold is compared: from the later start to the earlier end.
    """
    rows: list[dict[str, Any]] = []
    here = connect(bootstrap, properties, verbose)
    with with_links(bootstrap, properties, verbose) as admin:
        link = link_of(admin, name)
        there = connect(link.source, [f"{key}={text}" for key, text in read_config(config).items()], verbose)
        with administering(there) as source, explained(), both_sides(here, there) as read:
            for key, first, end in _common(admin, source, link, topic):
                place = key.topic, key.partition, first, end
                for part in compare(read.theirs(*place), read.ours(*place), first, end, step):
                    rows.append({"topic": key.topic, "partition": key.partition, **part.as_json()})
                    if json:
                        print(json_module.dumps(rows[-1]), flush=True)
    return _print_comparison(rows, json)


class Sides(NamedTuple):
    """What reads a partition (topic, partition, first, end) of the target and of the source."""

    ours: Callable[[str, int, int, int], Pieces]
    theirs: Callable[[str, int, int, int], Pieces]


@contextmanager
def both_sides(here: ClusterAddress, there: ClusterAddress) -> Iterator[Sides]:
    """Batches of both, or records if the source has no batches yet. Raises ClientError."""
    ours, theirs = Cluster(options_of(here)), Cluster(options_of(there))
    try:
        if theirs.any().versions[FETCH][1] < BATCHES_VERSION:
            yield Sides(partial(records_of, here), partial(records_of, there))
        else:
            yield Sides(partial(batches_of, ours), partial(batches_of, theirs))
    finally:
        ours.close()
        theirs.close()


def _common(
    admin: Admin, source: Admin, link: Link, topics: list[str] | None
) -> Iterator[tuple[TopicPartition, int, int]]:
    """(partition, first, end) of what both sides hold."""
    wanted: Sequence[str] = link.topics if topics is None else topics
    views = admin.topics.describe(wanted).require()
    keys = [TopicPartition(name, part.number) for name, view in views.items() for part in view.partitions]
    ours, theirs = admin.records.bounds(keys).require(), source.records.bounds(keys).require()
    for key in keys:
        first, end = max(ours[key].start, theirs[key].start), min(ours[key].end, theirs[key].end)
        if first < end:
            yield key, first, end


def _print_comparison(rows: list[dict[str, Any]], json: bool) -> int:
    different = [row for row in rows if row["differs_from"] is not None]
    if rows and not json:
        print_table(
            ("TOPIC", "PARTITION", "OFFSETS", "SOURCE", "COPY", "SOURCE SUM", "COPY SUM"),
            [
                (
                    row["topic"], row["partition"], f"{row['first']} to {row['last']}", row["source_records"],
                    row["copied_records"], row["source_checksum"], row["copied_checksum"],
                )
                for row in rows
            ],
        )  # fmt: skip
    for row in different:
        note(f"{row['topic']}-{row['partition']} differs from offset {row['differs_from']} on")
    if not different:
        records = sum(row["copied_records"] for row in rows)
        summarize(f"{count_of(records, 'record')} in {count_of(len(rows), 'range')}: both sides are the same")
    return EXIT_FAILED if different else EXIT_OK
