"""`barnabas topic bin`, `topic restore` and `topic purge`: deleted topics that have not gone for good."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from barnabas.admin import Admin, DeletedTopic
from barnabas.cli.topics.topic import app
from barnabas.client.errors import UnsupportedByBroker
from barnabas.terminal.administering import administer
from barnabas.terminal.errors import EXIT_OK, CliError
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import print_json, print_table, size_text, summarize
from barnabas.terminal.runner import example
from barnabas.wire.uuids import parse_uuid_text, uuid_text

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_BIN = (
    "the brokers have no bin: Apache Kafka removes deleted topics at once, and this cannot be undone; "
    "brokers of Barnabas keep them for as long as the option barnabas.topic.bin.ms says"
)
Which = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The name that it had, or its id.", show_default=False)
]


@contextmanager
def with_bin(bootstrap: str | None, properties: list[str] | None, verbose: bool) -> Iterator[Admin]:
    """An admin of a cluster that has a bin. Raises CliError."""
    with administer(bootstrap, properties, verbose) as admin:
        try:
            yield admin
        except UnsupportedByBroker:
            raise CliError(NO_BIN) from None


@app.command("bin", epilog=example("barnabas topic bin"))
def show(
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """List the deleted topics that can be restored, and until when."""
    with with_bin(bootstrap, properties, verbose) as admin:
        topics = admin.topic_bin.list()
    if json:
        print_json([_row(topic) for topic in topics])
    elif topics:
        print_table(
            ("TOPIC", "ID", "DELETED", "KEPT UNTIL", "PARTITIONS", "SIZE"),
            [
                (
                    topic.name, uuid_text(topic.id), _time(topic.deleted_ms), _time(topic.until_ms), topic.partitions,
                    size_text(topic.size_bytes),
                )
                for topic in topics
            ],
        )  # fmt: skip
    else:
        summarize("the bin is empty")
    return EXIT_OK


@app.command(
    epilog=example("barnabas topic restore orders", "barnabas topic restore orders --as orders-before")
)
def restore(
    which: Which,
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="TOPIC",
            help="Under another name, if a new topic has taken the old one. Default: the name that it had.",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Restore a deleted topic with its records, options and the groups' offsets."""
    with with_bin(bootstrap, properties, verbose) as admin:
        topic = chosen(which, admin.topic_bin.list())
        admin.topic_bin.restore(topic.id, name or topic.name)
    if json:
        print_json({"topic": name or topic.name, "result": "restored"})
    else:
        print(f"restored {name or topic.name}")
    return EXIT_OK


@app.command(epilog=example("barnabas topic purge orders"))
def purge(
    which: Which,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Remove a deleted topic for good before its time, and free its disk space within seconds."""
    with with_bin(bootstrap, properties, verbose) as admin:
        topic = chosen(which, admin.topic_bin.list())
        admin.topic_bin.purge([topic.id])
    if json:
        print_json({"topic": topic.name, "result": "purged"})
    else:
        print(f"purged {topic.name}")
    return EXIT_OK


def chosen(which: str, topics: Sequence[DeletedTopic]) -> DeletedTopic:
    """The topic of this name or id. Raises CliError if there is none, or if several had the name."""
    topic_id = id_of(which)
    fits = [topic for topic in topics if topic.name == which or topic.id == topic_id]
    if not fits:
        raise CliError(f"{which}: not in the bin; `barnabas topic bin` shows what is there")
    if len(fits) > 1:
        ids = ", ".join(uuid_text(topic.id) for topic in fits)
        raise CliError(f"{which}: {len(fits)} deleted topics had this name; name one by its id: {ids}")
    return fits[0]


def id_of(text: str) -> UUID | None:
    """The id that a text is; None if it is none."""
    try:
        return parse_uuid_text(text) if len(text) == 22 else UUID(text)
    except ValueError:
        return None


def _row(topic: DeletedTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": uuid_text(topic.id),
        "deleted_ms": topic.deleted_ms,
        "until_ms": topic.until_ms,
        "partitions": topic.partitions,
        "size_bytes": topic.size_bytes,
    }


def _time(when_ms: int) -> str:
    return f"{datetime.fromtimestamp(when_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
