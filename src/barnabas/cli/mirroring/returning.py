"""`barnabas mirror link reverse` and `failback`: the former source becomes a copy of the target, and the primary again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from barnabas.admin.returning import Parting, way_back
from barnabas.cli.mirroring.mirror import Name, Preview, link_app, link_of, read_config, with_links
from barnabas.terminal.administering import administer
from barnabas.terminal.connection import target as target_of
from barnabas.terminal.errors import EXIT_OK
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, note, print_json, print_table, summarize
from barnabas.terminal.runner import example

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
        with administer(link.source, _pairs(config)) as source:
            way = way_back(link, source, admin, may_go_on=False)
            parted = way.partings()
            if not preview:
                way.reverse(_reach(back_from, back_config, bootstrap, properties))
    _show(parted, json)
    done = "would be copied" if preview else "are copied"
    summarize(
        f"{count_of(len(way.topics), 'topic')} {done} back to {link.source} by the link {name}, which is stored there"
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
            way = way_back(link, source, admin, may_go_on=True)
            parted = way.partings()
            if preview:
                _show(parted, json)
                return EXIT_OK
            reach = _reach(back_from, back_config, bootstrap, properties)
            way.fail_back(reach, timeout, lambda: note(f"{name}: the topics are read-only here now"))
    _show(parted, json)
    summarize(
        f"{count_of(len(way.topics), 'topic')} can be written at {link.source} again; the link {name} copies them here"
    )
    return EXIT_OK


def _pairs(config: Path | None) -> list[str]:
    return [f"{name}={text}" for name, text in read_config(config).items()]


def _reach(
    back_from: str | None, back_config: Path | None, bootstrap: str | None, properties: list[str] | None
) -> Mapping[str, str]:
    """How the source's brokers reach the target: a client's properties."""
    where, own = target_of(bootstrap, properties)
    reach: Mapping[str, str] = own if back_config is None else read_config(back_config)
    return {**reach, "bootstrap.servers": back_from or where}


def _show(parted: Sequence[Parting], json: bool) -> None:
    if json:
        print_json([row.row() for row in parted])
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
