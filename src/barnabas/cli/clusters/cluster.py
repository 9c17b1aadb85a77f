"""`barnabas cluster`: what a cluster looks like from outside."""

from __future__ import annotations

from typing import Any

from barnabas.cli.admin import all_topics
from barnabas.terminal.connection import connect
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
    metadata = all_topics(connect(bootstrap, properties, verbose).admin())
    shown = summary(metadata)
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


def summary(metadata: Any) -> dict[str, Any]:
    """What `info` shows, from librdkafka's metadata."""
    partitions = [
        (topic.topic, part) for topic in metadata.topics.values() for part in topic.partitions.values()
    ]
    return {
        "cluster_id": metadata.cluster_id,
        "controller": metadata.controller_id,
        "brokers": [
            {
                "id": broker.id,
                "address": f"{broker.host}:{broker.port}",
                "controller": broker.id == metadata.controller_id,
                "leads": sum(part.leader == broker.id for _, part in partitions),
            }
            for broker in sorted(metadata.brokers.values(), key=lambda broker: int(broker.id))
        ],
        "topics": len(metadata.topics),
        "partitions": len(partitions),
        "under_replicated": [
            f"{name}-{part.id}" for name, part in partitions if len(part.isrs) < len(part.replicas)
        ],
        "leaderless": [f"{name}-{part.id}" for name, part in partitions if part.leader < 0],
    }
