"""kafka-broker-api-versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.kafka_tools.shared.common import connect, parse
from barnabas.kafka_tools.shared.parser import COMMON, Tool
from barnabas.terminal.errors import EXIT_OK

TOOL: Final = Tool("This tool helps to retrieve broker version information.", COMMON)


NOT_READ: Final = {
    80: "AddRaftVoter", 81: "RemoveRaftVoter", 88: "StreamsGroupHeartbeat", 89: "StreamsGroupDescribe",
}  # fmt: skip
"""Kafka's requests that are known here by name only."""


def main(arguments: Sequence[str]) -> int:
    """Print the APIs of each broker; the exit code."""
    from barnabas.wire.messages import CATALOGUE, OWN, request_class

    names = {key: name for key, (name, _, _) in CATALOGUE.items()} | NOT_READ
    parsed = parse(TOOL, arguments)
    admin = connect(parsed)
    brokers = {broker.id: broker for broker in admin.cluster.describe().brokers}
    for node, ranges in admin.cluster.api_versions().require().items():
        broker, lines = brokers[node], []
        served = [row for row in ranges if row.key not in OWN]
        for row in served:
            name = names.get(row.key, "UNKNOWN")
            versions = request_class(row.key).VERSIONS if row.key in CATALOGUE else range(0)
            usable = min(row.version_max, max(versions, default=-1))
            shown = str(row.version_min) if row.version_min == row.version_max else (
                f"{row.version_min} to {row.version_max}"
            )  # fmt: skip
            known = f"[usable: {usable}]" if usable >= row.version_min else "[unusable: node too new]"
            lines.append(f"\t{name}({row.key}): {shown} {known}")
        missing = names.keys() - {row.key for row in served}
        lines += [f"\t{names[key]}({key}): UNSUPPORTED" for key in missing]
        lines.sort(key=lambda line: int(line.partition("(")[2].partition(")")[0]))
        print(
            f"{broker.host}:{broker.port} (id: {broker.id} rack: {broker.rack or 'null'} isFenced: false) -> ("
        )
        print(",\n".join(lines))
        print(")")
    return EXIT_OK
