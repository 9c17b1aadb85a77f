"""`barnabas import`: a new data directory from those of Apache Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.terminal.errors import EXIT_OK, CliError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import note, print_json
from barnabas.terminal.runner import example, new_app

if TYPE_CHECKING:
    from barnabas.broker.importing.importer import Imported

app = new_app("Make a data directory of those of Apache Kafka.")


@app.command(
    name="import",
    epilog=example(
        "barnabas import --from /var/lib/kafka/data --data /var/lib/barnabas",
        "barnabas import --from /disk1/kafka --from /disk2/kafka --zookeeper localhost:2181",
    ),
)
def import_(
    sources: Annotated[
        list[Path],
        typer.Option(
            "--from",
            metavar="DIR",
            help="A log dir of Kafka, as log.dirs names it; may be repeated, also for the dirs of other brokers.",
            show_default=False,
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="The new data directory. Default: that of barnabas start.",
            show_default=False,
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT[/CHROOT]",
            help="The ZooKeeper of a cluster in ZooKeeper mode; without it, options of topics, users and rules are lost.",
            show_default=False,
        ),
    ] = None,
    node_id: Annotated[
        int, typer.Option("--node-id", metavar="ID", help="The id of the new broker.", min=0)
    ] = 1,
    json: AsJson = False,
) -> int:
    """Copy the topics, groups and metadata of a stopped Kafka into a new data directory. Kafka's own stays as it is."""
    from barnabas.broker.importing.importer import CannotImport, TreeError, import_from
    from barnabas.local.start import default_data_dir

    for path in sources:
        if not path.is_dir():
            raise CliError(f"{path} is not a folder; name the log dirs of Kafka (log.dirs)")
    target = data or default_data_dir()
    try:
        done = import_from(sources, target, node_id, zookeeper)
    except (CannotImport, TreeError, OSError) as error:
        raise CliError(str(error)) from error
    _show(done, node_id, json)
    return EXIT_OK


def _show(done: Imported, node_id: int, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "data": str(done.target),
                "cluster_id": done.cluster_id,
                "metadata": done.source or None,
                "topics": done.topics,
                "partitions": done.partitions,
                "bytes": done.size_bytes,
                "configs": done.configs,
                "tokens": done.tokens,
                "rules": done.rules,
                "missing": [str(name) for name in done.missing],
                "clean": done.clean,
            }
        )
        return
    print(
        f"{done.target}: cluster {done.cluster_id}, {done.topics} topics, {done.partitions} partitions, "
        f"{done.size_bytes:,} bytes"
    )
    if done.source:
        print(f"metadata of {done.source}: options of {done.configs} entities, {done.rules} access rules")
        if done.tokens:
            note(
                f"{done.tokens} delegation tokens are valid with the delegation.token.secret.key that Kafka had"
            )
    else:
        note(
            "no metadata: options of topics, users, quotas and access rules are lost; --zookeeper reads them"
        )
    for name in done.missing:
        note(
            f"{name} was in no folder, and is empty now; name the log dirs of the broker that has it as well"
        )
    if not done.clean:
        note("Kafka was not stopped in order: the first start checks the logs")
    numbered = "" if node_id == 1 else f" -o node.id={node_id}"
    print(f"start it with: barnabas start --data {done.target}{numbered}")
