"""kafka-broker-api-versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.cli.errors import EXIT_OK
from barnabas.cli.kafka.common import Admin, parse
from barnabas.cli.kafka.parser import COMMON, Tool
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse

TOOL: Final = Tool("This tool helps to retrieve broker version information.", COMMON)


def main(arguments: Sequence[str]) -> int:
    """Print the APIs of each broker; the exit code."""
    from barnabas import __version__
    from barnabas.wire.apis import BY_KEY

    parsed = parse(TOOL, arguments)
    admin = Admin.connect(parsed)
    brokers = admin.any(MetadataRequest(topics=[]), MetadataResponse).brokers
    admin.nodes()
    for broker in sorted(brokers, key=lambda broker: int(broker.node_id)):
        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        served = admin.node(broker.node_id, request, ApiVersionsResponse).api_keys
        lines = []
        for row in sorted(served, key=lambda row: int(row.api_key)):
            api = BY_KEY.get(row.api_key)
            name = api.name if api else "UNKNOWN"
            versions = api.request.VERSIONS if api else range(0)
            usable = min(row.max_version, max(versions, default=-1))
            shown = str(row.min_version) if row.min_version == row.max_version else (
                f"{row.min_version} to {row.max_version}"
            )  # fmt: skip
            known = f"[usable: {usable}]" if usable >= row.min_version else "[unusable: node too new]"
            lines.append(f"\t{name}({row.api_key}): {shown} {known}")
        print(
            f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {broker.rack or 'null'} isFenced: false) -> ("
        )
        print(",\n".join(lines))
        print(")")
    return EXIT_OK
