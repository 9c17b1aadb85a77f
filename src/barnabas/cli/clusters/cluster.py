"""`barnabas cluster`: what a cluster looks like from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.admin import ClusterView, Topic
from barnabas.terminal.administering import administer
from barnabas.terminal.errors import EXIT_OK
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, print_json, print_table
from barnabas.terminal.runner import example, new_app

app = new_app("Show a cluster; start and stop one on this machine.")


@app.callback()
def cluster() -> None:
    """Show a cluster; start and stop one on this machine, ZooKeeper included."""


@app.command(epilog=example("barnabas cluster info", "barnabas cluster info --json | jq .brokers"))
def info(
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show the brokers, the controller, and partitions that need care."""
    with administer(bootstrap, properties, verbose) as admin:
        shown = summary(admin.cluster.describe(), list(admin.topics.list().values()))
    if json:
        print_json(shown)
        return EXIT_OK
    print(
        f"cluster {shown['cluster_id'] or '(no id)'}: {count_of(len(shown['brokers']), 'broker')}, "
        f"{count_of(shown['topics'], 'topic')}, {count_of(shown['partitions'], 'partition')}"
    )
    print_table(
        ("BROKER", "ADDRESS", "CONTROLLER", "LEADS"),
        [
            (broker["id"], broker["address"], broker["controller"], broker["leads"])
            for broker in shown["brokers"]
        ],
    )
    for name, parts in (
        ("under-replicated", shown["under_replicated"]),
        ("without leader", shown["leaderless"]),
    ):
        if parts:
            print(f"{name}: {', '.join(parts)}")
    return EXIT_OK


def summary(cluster: ClusterView, topics: Sequence[Topic]) -> dict[str, Any]:
    """What `info` shows."""
    partitions = [(topic.name, part) for topic in topics for part in topic.partitions]
    return {
        "cluster_id": cluster.id,
        "controller": cluster.controller,
        "brokers": [
            {
                "id": broker.id,
                "address": f"{broker.host}:{broker.port}",
                "controller": broker.id == cluster.controller,
                "leads": sum(part.leader == broker.id for _, part in partitions),
            }
            for broker in cluster.brokers
        ],
        "topics": len(topics),
        "partitions": len(partitions),
        "under_replicated": [
            f"{name}-{part.number}" for name, part in partitions if part.is_under_replicated
        ],
        "leaderless": [f"{name}-{part.number}" for name, part in partitions if part.leader < 0],
    }
