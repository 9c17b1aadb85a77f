"""kafka-metadata-quorum: the KRaft quorum of a cluster that has one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from barnabas.admin import Quorum
from barnabas.admin.families.cluster import QuorumReplica
from barnabas.kafka_tools.shared.common import ToolError, connect, parse
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Refused, Tool
from barnabas.kafka_tools.shared.subcommands import print_columns, subcommand
from barnabas.terminal.errors import EXIT_OK

PROGRAM: Final = "kafka-metadata-quorum"
CHOICES: Final = {
    "describe": "(--status | --replication [--human-readable])",
    "add-controller": "[--dry-run]",
    "remove-controller": "--controller-id ID --controller-directory-id ID [--dry-run]",
}
TOOL: Final = Tool(
    f"This tool describes kraft metadata quorum status.\nCommands: {', '.join(CHOICES)}",
    (
        *COMMON,
        Opt("bootstrap-controller", "Controllers instead of brokers.", "String: controller"),
        Opt("status", "A short summary of the quorum."),
        Opt("replication", "How far each replica of the metadata is."),
        Opt("human-readable", "Times as an age."),
        Opt("controller-id", "The controller to remove.", "ID", aliases=("i",)),
        Opt("controller-directory-id", "The directory of the controller to remove.", "ID", aliases=("d",)),
        Opt("dry-run", "Change nothing."),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Describe the quorum; the exit code. A cluster without one answers that it does not support the request."""
    parsed = parse(TOOL, arguments)
    command = subcommand(PROGRAM, CHOICES, parsed)
    if command != "describe":
        raise ToolError(f"{command} is for the KRaft controllers of Apache Kafka; use its own {PROGRAM}")
    if ("status" in parsed) == ("replication" in parsed):
        raise Refused("One of --status or --replication must be specified with describe sub-command", False)
    if "bootstrap-controller" in parsed:
        parsed.values.setdefault("bootstrap-server", parsed.all("bootstrap-controller"))
    admin = connect(parsed)
    quorum = admin.cluster.quorum()
    if "status" in parsed:
        print_status(str(admin.cluster.describe().id), quorum)
    else:
        print_replication(quorum, "human-readable" in parsed)
    return EXIT_OK


def print_status(cluster_id: str, quorum: Quorum) -> None:
    """Leader, epoch, the followers' lag, the voters."""
    leader = next(replica for replica in quorum.voters if replica.id == quorum.leader)
    others = [replica for replica in quorum.voters if replica.id != quorum.leader]
    slowest = min(others, key=lambda replica: replica.log_end_offset, default=None)
    lag, lag_ms = 0, 0
    if slowest is not None:
        lag = leader.log_end_offset - slowest.log_end_offset
        caught_up_ms = slowest.last_caught_up_ms
        lag_ms = -1 if caught_up_ms is None else (leader.last_caught_up_ms or 0) - caught_up_ms
    rows = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": replicas_text(quorum, quorum.voters),
        "CurrentObservers": replicas_text(quorum, quorum.observers),
    }
    for name, value in rows.items():
        print(f"{name + ':':<24}{value}")


def replicas_text(quorum: Quorum, replicas: Sequence[QuorumReplica]) -> str:
    """Replicas as Kafka writes them: like JSON, with a space after each comma."""
    texts = []
    for replica in replicas:
        fields = [f'"id": {replica.id}']
        if replica.directory_id:
            fields.append(f'"directoryId": "{directory_text(replica)}"')
        if quorum.endpoints.get(replica.id):
            quoted = ", ".join(f'"{endpoint}"' for endpoint in quorum.endpoints[replica.id])
            fields.append(f'"endpoints": [{quoted}]')
        texts.append("{" + ", ".join(fields) + "}")
    return f"[{', '.join(texts)}]"


def directory_text(replica: QuorumReplica) -> str:
    """A directory id as Kafka writes ids."""
    from barnabas.wire.uuids import uuid_text

    return uuid_text(replica.directory_id or UUID(int=0))


def print_replication(quorum: Quorum, human: bool) -> None:
    """A line for each replica: the leader, the other voters, the observers."""
    voters = sorted(quorum.voters, key=lambda replica: replica.id != quorum.leader)
    end = voters[0].log_end_offset
    rows = []
    for replica, status in [
        *((voter, "Leader" if i == 0 else "Follower") for i, voter in enumerate(voters)),
        *((observer, "Observer") for observer in quorum.observers),
    ]:
        stamps = [stamp_text(stamp, human) for stamp in (replica.last_fetch_ms, replica.last_caught_up_ms)]
        lag = end - replica.log_end_offset
        rows.append([replica.id, directory_text(replica), replica.log_end_offset, lag, *stamps, status])
    heads = (
        "NodeId",
        "DirectoryId",
        "LogEndOffset",
        "Lag",
        "LastFetchTimestamp",
        "LastCaughtUpTimestamp",
        "Status",
    )
    print_columns(heads, rows)


def stamp_text(stamp_ms: int | None, human: bool) -> str:
    """A time in ms, or its age; -1 if it is not known."""
    if not human or stamp_ms is None:
        return str(-1 if stamp_ms is None else stamp_ms)
    return f"{time.time_ns() // 1_000_000 - stamp_ms} ms ago"
