"""kafka-metadata-quorum: the KRaft quorum of a cluster that has one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from barnabas.kafka_tools.common import Admin, ToolError, check_code, parse
from barnabas.kafka_tools.operations.shared import print_columns, subcommand
from barnabas.kafka_tools.parser import COMMON, Opt, Refused, Tool
from barnabas.terminal.errors import EXIT_OK
from barnabas.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)

PROGRAM: Final = "kafka-metadata-quorum"
TOPIC: Final = "__cluster_metadata"
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
    admin = Admin.connect(parsed)
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name=TOPIC, partitions=[PartitionData(partition_index=0)])]
    )
    answer = admin.any(request, DescribeQuorumResponse)
    check_code(answer.error_code, answer.error_message, "cannot describe the quorum")
    quorum = answer.topics[0].partitions[0]
    check_code(quorum.error_code, quorum.error_message, "cannot describe the quorum")
    if "status" in parsed:
        admin.nodes()
        print_status(str(admin.client.cluster.cluster_id), answer, quorum)
    else:
        print_replication(quorum, "human-readable" in parsed)
    return EXIT_OK


def print_status(cluster_id: str, answer: Any, quorum: Any) -> None:
    """Leader, epoch, the followers' lag, the voters."""
    leader = next(replica for replica in quorum.current_voters if replica.replica_id == quorum.leader_id)
    others = [replica for replica in quorum.current_voters if replica.replica_id != quorum.leader_id]
    slowest = min(others, key=lambda replica: int(replica.log_end_offset), default=None)
    lag, lag_ms = 0, 0
    if slowest is not None:
        lag = leader.log_end_offset - slowest.log_end_offset
        known = slowest.last_caught_up_timestamp >= 0
        lag_ms = leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp if known else -1
    endpoints = {
        node.node_id: [f"{listener.name}://{listener.host}:{listener.port}" for listener in node.listeners]
        for node in answer.nodes
    }
    rows = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": replicas_text(quorum.current_voters, endpoints),
        "CurrentObservers": replicas_text(quorum.observers, endpoints),
    }
    for name, value in rows.items():
        print(f"{name + ':':<24}{value}")


def replicas_text(replicas: Sequence[Any], endpoints: dict[int, list[str]]) -> str:
    """Replicas as Kafka writes them: like JSON, with a space after each comma."""
    texts = []
    for replica in replicas:
        fields = [f'"id": {replica.replica_id}']
        if replica.replica_directory_id.int:
            fields.append(f'"directoryId": "{directory_text(replica)}"')
        if endpoints.get(replica.replica_id):
            quoted = ", ".join(f'"{endpoint}"' for endpoint in endpoints[replica.replica_id])
            fields.append(f'"endpoints": [{quoted}]')
        texts.append("{" + ", ".join(fields) + "}")
    return f"[{', '.join(texts)}]"


def directory_text(replica: Any) -> str:
    """A directory id as Kafka writes ids."""
    from barnabas.storage.checkpoints import encode_uuid

    return encode_uuid(replica.replica_directory_id)


def print_replication(quorum: Any, human: bool) -> None:
    """A line for each replica: the leader, the other voters, the observers."""
    voters = sorted(quorum.current_voters, key=lambda replica: replica.replica_id != quorum.leader_id)
    end = voters[0].log_end_offset
    rows = []
    for replica, status in [
        *((voter, "Leader" if i == 0 else "Follower") for i, voter in enumerate(voters)),
        *((observer, "Observer") for observer in quorum.observers),
    ]:
        stamps = [
            stamp_text(stamp, human)
            for stamp in (replica.last_fetch_timestamp, replica.last_caught_up_timestamp)
        ]
        lag = end - replica.log_end_offset
        rows.append(
            [replica.replica_id, directory_text(replica), replica.log_end_offset, lag, *stamps, status]
        )
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


def stamp_text(stamp_ms: int, human: bool) -> str:
    """A time in ms, or its age."""
    if not human or stamp_ms < 0:
        return str(stamp_ms)
    return f"{time.time_ns() // 1_000_000 - stamp_ms} ms ago"
