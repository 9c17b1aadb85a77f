"""`barnabas status`: which brokers run here, and whether the cluster answers."""

from __future__ import annotations

from typing import Any

from barnabas.admin import Admin
from barnabas.client.errors import ClientError
from barnabas.local.brokers import brokers_here
from barnabas.terminal.administering import administering
from barnabas.terminal.connection import connect
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, print_json
from barnabas.terminal.runner import example, new_app

app = new_app("Show which brokers run here, and whether the cluster answers.")


@app.command(epilog=example("barnabas status", "barnabas status -b kafka1:9092 --json"))
def status(
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show your brokers on this machine and the cluster that -b names. Exit code 1: the cluster does not answer."""
    connection = connect(bootstrap, properties, verbose)
    local = [broker._asdict() for broker in brokers_here()]
    cluster: dict[str, Any] = {"bootstrap": connection.bootstrap, "answers": True}
    try:
        with administering(connection) as admin:
            brokers, topics = admin.cluster.describe().brokers, admin.topics.list()
            damaged = _damaged(admin)
        cluster |= {"brokers": [broker.id for broker in brokers], "topics": len(topics), "damaged": damaged}
    except CliError as error:
        cluster |= {"answers": False, "error": str(error)}
    if json:
        print_json({"local": local, "cluster": cluster})
    else:
        for broker in local:
            print(f"broker {broker['node_id']} runs here as process {broker['pid']}: {broker['command']}")
        if cluster["answers"]:
            print(
                f"{cluster['bootstrap']} answers: {count_of(len(cluster['brokers']), 'broker')}, "
                f"{count_of(cluster['topics'], 'topic')}"
            )
            for partition, records in cluster["damaged"].items():
                print(
                    f"{partition} is damaged: {count_of(records, 'record')} cannot be read; "
                    f"`barnabas verify log {partition.rpartition('-')[0]}` says which"
                )
        else:
            print(cluster["error"])
    return EXIT_OK if cluster["answers"] else EXIT_FAILED


def _damaged(admin: Admin) -> dict[str, int]:
    """How many records of which partitions cannot be read, as far as the brokers know; nothing for brokers other than
    Barnabas.
    """
    from barnabas.verify.log import known

    records_by_topic: dict[str, int] = {}
    try:
        rows = known(admin)
    except ClientError:
        return {}
    for row in rows:
        name = f"{row['topic']}-{row['partition']}"
        records_by_topic[name] = records_by_topic.get(name, 0) + row["records"]
    return records_by_topic
