"""kafka-broker-api-versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.kafka_tools.common import Admin, parse
from barnabas.kafka_tools.parser import COMMON, Tool
from barnabas.terminal.errors import EXIT_OK
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse

TOOL: Final = Tool("This tool helps to retrieve broker version information.", COMMON)


NOT_READ: Final = {
    80: "AddRaftVoter", 81: "RemoveRaftVoter", 88: "StreamsGroupHeartbeat", 89: "StreamsGroupDescribe",
}  # fmt: skip
"""Kafka's requests that are known here by name only."""


def main(arguments: Sequence[str]) -> int:
    """Print the APIs of each broker; the exit code."""
    from barnabas import __version__
    from barnabas.wire.messages import CATALOGUE, OWN, request_class

    names = {key: name for key, (name, _, _) in CATALOGUE.items()} | NOT_READ
    parsed = parse(TOOL, arguments)
    admin = Admin.connect(parsed)
    brokers = admin.any(MetadataRequest(topics=[]), MetadataResponse).brokers
    admin.nodes()
    for broker in sorted(brokers, key=lambda broker: int(broker.node_id)):
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        served = admin.node(broker.node_id, request, ApiVersionsResponse).api_keys
        served = [row for row in served if row.api_key not in OWN]
        lines = []
        for row in sorted(served, key=lambda row: int(row.api_key)):
            name = names.get(row.api_key, "UNKNOWN")
            versions = request_class(row.api_key).VERSIONS if row.api_key in CATALOGUE else range(0)
            usable = min(row.max_version, max(versions, default=-1))
            shown = str(row.min_version) if row.min_version == row.max_version else (
                f"{row.min_version} to {row.max_version}"
            )  # fmt: skip
            known = f"[usable: {usable}]" if usable >= row.min_version else "[unusable: node too new]"
            lines.append(f"\t{name}({row.api_key}): {shown} {known}")
        missing = names.keys() - {int(row.api_key) for row in served}
        lines += [f"\t{names[key]}({key}): UNSUPPORTED" for key in missing]
        lines.sort(key=lambda line: int(line.partition("(")[2].partition(")")[0]))
        print(
            f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'} isFenced: false) -> ("
        )
        print(",\n".join(lines))
        print(")")
    return EXIT_OK
