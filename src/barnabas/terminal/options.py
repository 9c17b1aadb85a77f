"""Options that many commands share, declared once."""

from __future__ import annotations

from typing import Annotated

import typer

OLD_NAMES = frozenset(
    {
        "--apply",
        "--broker",
        "--consumers-max",
        "--dir",
        "--longer-than",
        "--replication",
        "--schema-registry",
        "--server",
    }
)
"""Names of options in earlier releases: they are understood, and help does not show them."""

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        envvar="BARNABAS_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="The cluster to talk to. Default: localhost:9092, or the profile's.",
        show_default=False,
    ),
]


def check_properties(pairs: list[str] | None) -> list[str] | None:
    """Raises UsageError for what is not NAME=VALUE, and for a name that no client has an option of."""
    if pairs:
        from barnabas.terminal.properties import parse_pairs, require_known

        require_known(dict(parse_pairs(pairs, "-X")), "-X")
    return pairs


Properties = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        callback=check_properties,
        metavar="NAME=VALUE",
        help="Any librdkafka property, e.g. -X security.protocol=SSL; may be repeated.",
        show_default=False,
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "-v",
        "--verbose",
        help="The client library's own log on standard error, and where an error comes from.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
AsJsonAlready = Annotated[
    bool, typer.Option("--json", help="Changes nothing: each line is JSON in any case.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No summary and no progress on standard error.")]
