"""kafka-cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from barnabas.cli.errors import EXIT_FAILED, EXIT_OK
from barnabas.cli.kafka.common import Admin, parse
from barnabas.cli.kafka.parser import COMMON, Opt, Tool
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse

TOOL: Final = Tool(
    "The Kafka cluster tool: cluster-id, list-endpoints.",
    (*COMMON, Opt("config", "The old name of --command-config.", "String: config file", old=True)),
)
ROW: Final = "{:<10} {:<9} {:<10} {:<10} {:<10} {:<15}"


def main(arguments: Sequence[str]) -> int:
    """Print the cluster's id or its brokers; the exit code."""
    parsed = parse(TOOL, arguments)
    if parsed.words not in (["cluster-id"], ["list-endpoints"]):
        print(
            "usage: kafka-cluster [-h] {cluster-id,list-endpoints} --bootstrap-server HOST:PORT",
            file=sys.stderr,
        )
        return EXIT_FAILED
    answer = Admin.connect(parsed).any(MetadataRequest(topics=[]), MetadataResponse)
    if parsed.words == ["cluster-id"]:
        if answer.cluster_id:
            print(f"Cluster ID: {answer.cluster_id}")
        else:
            print("No cluster ID found. The Kafka version is probably too old.")
        return EXIT_OK
    width = max([9, *(len(broker.host) for broker in answer.brokers)])
    row = ROW.replace("{:<9}", f"{{:<{width}}}")
    print(row.format("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"))
    for broker in sorted(answer.brokers, key=lambda broker: int(broker.node_id)):
        print(
            row.format(broker.node_id, broker.host, broker.port, broker.rack or "null", "unfenced", "broker")
        )
    return EXIT_OK
