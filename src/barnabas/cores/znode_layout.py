"""Where metadata is stored in the znode tree, and in which format.

Paths and JSON are those of ZooKeeper-based Kafka (2.8 to 3.9), so that its tools and documentation apply. Each kind of
node has an encode and a decode function; decoding tolerates unknown fields.
Source: Kafka 3.9's ZkData.scala.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import quote
from uuid import UUID

from barnabas.cores import acl, tokens
from barnabas.wire.uuids import parse_uuid_text, uuid_text

BROKER_IDS: Final = "/brokers/ids"
INCARNATIONS: Final = "/brokers/incarnations"
"""Ours, not Kafka's: below it, one node per broker that ever was. The node's version counts the broker's registrations, and
a change that depends on a broker's present registration checks it."""
TOPICS: Final = "/brokers/topics"
CONFIG_CHANGES: Final = "/config/changes"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
CLUSTER_SECRET: Final = "/cluster/secret"
"""Ours, not Kafka's: random text that all brokers share, from which they compute values that nobody else can predict."""
SEQUENCE_ID: Final = "/brokers/seqid"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
DELETE_TOPICS: Final = "/admin/delete_topics"
DELETED_TOPICS: Final = "/admin/deleted_topics"
"""Ours, not Kafka's: below it, one node per topic in the bin, named by the topic's id. See topic_bin.py."""
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
ASKED: Final = (REASSIGN_PARTITIONS, PREFERRED_REPLICA_ELECTION)
"""Nodes by which older tools send requests to the controller."""
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
FEATURE: Final = "/feature"
DEFAULT_ENTITY: Final = "<default>"

CONFIG_TYPES: Final = (
    "topics", "brokers", "users", "clients", "ips", "groups", "client-metrics", "broker-loggers",
    "links",
)  # fmt: skip

# Nodes that exist in every tree, parents first.
PERSISTENT: Final = (
    "/cluster",
    "/brokers",
    BROKER_IDS,
    INCARNATIONS,
    TOPICS,
    "/config",
    *(f"/config/{kind}" for kind in CONFIG_TYPES),
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
    DELETED_TOPICS,
    SEQUENCE_ID,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PRODUCER_ID_BLOCK,
    *acl.PARENTS,
    *tokens.PARENTS,
)


class BadPayload(Exception):
    """The contents of a znode do not have the expected format."""


def broker_path(broker_id: int) -> str:
    """The ephemeral node of a live broker."""
    return f"{BROKER_IDS}/{broker_id}"


def incarnation_path(broker_id: int) -> str:
    """The node whose version counts a broker's registrations."""
    return f"{INCARNATIONS}/{broker_id}"


def topic_path(topic: str) -> str:
    """The node with a topic's id and replica assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """The node with a partition's leader and in-sync replicas."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def config_path(kind: str, name: str) -> str:
    """The node with an entity's configs. kind: one of CONFIG_TYPES; name: as in `entity_name`.

    For users and clients: a sanitized name, DEFAULT_ENTITY, or user/clients/client for a pair.
    """
    return f"/config/{kind}/{name}"


def deletion_path(topic: str) -> str:
    """The node that marks a topic for deletion."""
    return f"{DELETE_TOPICS}/{topic}"


def binned_path(topic_id: UUID) -> str:
    """The node of a topic in the bin."""
    return f"{DELETED_TOPICS}/{uuid_text(topic_id)}"


def entity_of(path: str) -> str | None:
    """The node to read again, with everything below it, after a change of `path`; None for nodes without metadata.

    This is a topic with its partitions (also for its deletion mark), a topic in the bin, a broker, an entity's configs, the
    controller, or a request of an older tool.
    """
    parts = path.split("/")[1:]
    if parts[:2] == ["brokers", "topics"] and len(parts) >= 3:
        return topic_path(parts[2])
    if parts[:2] == ["admin", "delete_topics"] and len(parts) == 3:
        return topic_path(parts[2])
    if parts[:2] == ["admin", "deleted_topics"] and len(parts) == 3:
        return path
    if parts[:2] in (["brokers", "ids"], ["brokers", "incarnations"]):
        return broker_path(int(parts[2])) if len(parts) == 3 and parts[2].isdecimal() else None
    if parts[0] == "config" and len(parts) >= 3 and parts[1] in CONFIG_TYPES:
        return path
    if parts[0] in acl.ROOTS:
        return path if acl.resource_of(path) is not None else None
    if path in ASKED:
        return path
    if parts[0] == tokens.ROOT[1:]:
        return path if tokens.token_id_of(path) is not None else None
    return CONTROLLER if path in (CONTROLLER, CONTROLLER_EPOCH) else None


def state_of_path(path: str) -> tuple[str, int] | None:
    """(topic, partition) of a partition's state node; None for every other path."""
    parts = path.split("/")
    is_state = len(parts) == 7 and parts[6] == "state" and path.startswith(TOPICS + "/")
    return (parts[3], int(parts[5])) if is_state and parts[5].isdecimal() else None


def sanitize(name: str) -> str:
    """A user, client id or group as a path component: everything but letters, digits and -_. becomes %XX.

    A name that consists of one or two dots is escaped, too.
    """
    if name in (".", ".."):
        return "%2E" * len(name)
    return quote(name, safe="").replace("~", "%7E")


def unsanitize(name: str) -> str:
    """The name from which `sanitize` made a path component."""
    raw, at = bytearray(), 0
    data = name.encode()
    while at < len(data):
        if data[at] == 0x25:
            raw.append(int(data[at + 1 : at + 3], 16))
            at += 3
        else:
            raw.append(data[at])
            at += 1
    return raw.decode()


def topic_id_of(text: str) -> UUID:
    """The id of a topic in a node's name or payload. Raises BadPayload."""
    try:
        return parse_uuid_text(text)
    except ValueError as error:
        raise BadPayload(str(error)) from None


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _load(path: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BadPayload(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadPayload(f"{path}: not a JSON object")
    return value


class Endpoint(NamedTuple):
    """One advertised address of a broker. listener: its listener's name."""

    listener: str
    host: str
    port: int
    security_protocol: str


@dataclass(frozen=True, slots=True)
class Broker:
    """A live broker. epoch: czxid of its node, which orders the broker's registrations; not part of the payload.

    incarnation: the version that its node below INCARNATIONS got with this registration; -1 if it did not say.
    """

    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    timestamp_ms: int = 0
    epoch: int = -1
    incarnation: int = -1

    def endpoint(self, listener: str) -> Endpoint | None:
        """The client address of a listener, or None."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


def encode_broker(broker: Broker) -> bytes:
    """Payload of /brokers/ids/N, version 5."""
    plain = next(
        (endpoint for endpoint in broker.endpoints if endpoint.security_protocol == "PLAINTEXT"), None
    )
    incarnation = {"incarnation": broker.incarnation} if broker.incarnation >= 0 else {}
    return _dump(
        {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "jmx_port": -1,
            "timestamp": str(broker.timestamp_ms),
            "endpoints": [
                f"{endpoint.listener}://{_bracketed(endpoint.host)}:{endpoint.port}"
                for endpoint in broker.endpoints
            ],
            "listener_security_protocol_map": {
                endpoint.listener: endpoint.security_protocol for endpoint in broker.endpoints
            },
            "rack": broker.rack,
            "features": {},
            **incarnation,
        }
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def decode_broker(broker_id: int, data: bytes, epoch: int = -1) -> Broker:
    """The broker in a payload of versions 2 to 5. Raises BadPayload."""
    path = broker_path(broker_id)
    value = _load(path, data)
    protocols = value.get("listener_security_protocol_map") or {}
    endpoints = []
    try:
        for text in value["endpoints"]:
            name, _, address = text.partition("://")
            host, _, port = address.rpartition(":")
            endpoints.append(Endpoint(name, host.strip("[]"), int(port), protocols.get(name, name)))
        return Broker(
            broker_id,
            tuple(endpoints),
            value.get("rack"),
            int(value.get("timestamp", 0)),
            epoch,
            int(value.get("incarnation", -1)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadPayload(f"{path}: {error!r}") from None


@dataclass(frozen=True, slots=True)
class Assignment:
    """A topic's id and its replicas by partition; `adding` and `removing` while partitions move."""

    topic_id: UUID
    replicas: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def _replica_map(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {str(partition): replicas[partition] for partition in sorted(replicas)}


def encode_assignment(assignment: Assignment) -> bytes:
    """Payload of /brokers/topics/T, version 3."""
    return _dump(
        {
            "version": 3,
            "topic_id": uuid_text(assignment.topic_id),
            "partitions": _replica_map(assignment.replicas),
            "adding_replicas": _replica_map(assignment.adding),
            "removing_replicas": _replica_map(assignment.removing),
        }
    )


def decode_assignment(topic: str, data: bytes) -> Assignment:
    """The topic in a payload of versions 1 to 3 (1 and 2 have no id: it is zero then). Raises BadPayload."""
    path = topic_path(topic)
    value = _load(path, data)

    def replicas(key: str) -> dict[int, tuple[int, ...]]:
        rows = value.get(key) or {}
        return {int(partition): tuple(map(int, brokers)) for partition, brokers in rows.items()}

    topic_id = topic_id_of(value["topic_id"]) if value.get("topic_id") else UUID(int=0)
    try:
        return Assignment(
            topic_id, replicas("partitions"), replicas("adding_replicas"), replicas("removing_replicas")
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise BadPayload(f"{path}: {error!r}") from None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader of a partition and its in-sync replicas. leader: -1 for none. recovering: it was elected uncleanly.

    partition_epoch: version of the node, not part of the payload; increases by one with each change.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool = False
    partition_epoch: int = 0


def encode_state(state: PartitionState) -> bytes:
    """Payload of a partition's state node, version 1."""
    value: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.recovering:
        value["leader_recovery_state"] = 1
    return _dump(value)


def decode_state(path: str, data: bytes, version: int) -> PartitionState:
    """The partition state in a payload. version: of the node. Raises BadPayload."""
    value = _load(path, data)
    try:
        return PartitionState(
            leader=int(value["leader"]),
            leader_epoch=int(value["leader_epoch"]),
            isr=tuple(int(broker) for broker in value["isr"]),
            controller_epoch=int(value.get("controller_epoch", 0)),
            recovering=value.get("leader_recovery_state", 0) == 1,
            partition_epoch=version,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadPayload(f"{path}: {error!r}") from None


def encode_config(config: Mapping[str, str]) -> bytes:
    """Payload of /config/KIND/NAME, version 1."""
    return _dump({"version": 1, "config": dict(sorted(config.items()))})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """The configs in a payload; an empty node has none. Raises BadPayload."""
    if not data:
        return {}
    config = _load(path, data).get("config")
    if not isinstance(config, dict):
        raise BadPayload(f"{path}: no config object")
    return {str(name): str(text) for name, text in config.items()}


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Payload of /controller, version 1."""
    return _dump({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def decode_controller(data: bytes) -> int:
    """The controller's broker id. Raises BadPayload."""
    try:
        return int(_load(CONTROLLER, data)["brokerid"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadPayload(f"{CONTROLLER}: {error!r}") from None


def encode_cluster_id(cluster_id: str) -> bytes:
    """Payload of /cluster/id."""
    return _dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The cluster's id. Raises BadPayload."""
    cluster_id = _load(CLUSTER_ID, data).get("id")
    if not isinstance(cluster_id, str):
        raise BadPayload(f"{CLUSTER_ID}: no id")
    return cluster_id


class ProducerIdBlock(NamedTuple):
    """Producer ids first to last (both included) that one broker may hand out."""

    broker: int
    first: int
    last: int


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    """Payload of /latest_producer_id_block, version 1."""
    return _dump(
        {"version": 1, "broker": block.broker, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock | None:
    """The newest block; None for the empty node of a new cluster. Raises BadPayload."""
    if not data:
        return None
    value = _load(PRODUCER_ID_BLOCK, data)
    try:
        return ProducerIdBlock(int(value["broker"]), int(value["block_start"]), int(value["block_end"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadPayload(f"{PRODUCER_ID_BLOCK}: {error!r}") from None


def encode_partition_list(partitions: Iterable[tuple[str, int]]) -> bytes:
    """Payload of ISR change notifications and /admin/preferred_replica_election, version 1."""
    listed = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return _dump({"version": 1, "partitions": listed})


def decode_partition_list(path: str, data: bytes) -> list[tuple[str, int]]:
    """(topic, partition) pairs. Raises BadPayload."""
    try:
        return [(str(row["topic"]), int(row["partition"])) for row in _load(path, data)["partitions"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BadPayload(f"{path}: {error!r}") from None


def encode_reassignment(moves: Mapping[tuple[str, int], Iterable[int]]) -> bytes:
    """Payload of /admin/reassign_partitions, version 1."""
    listed = [
        {"topic": topic, "partition": partition, "replicas": list(replicas)}
        for (topic, partition), replicas in moves.items()
    ]
    return _dump({"version": 1, "partitions": listed})


def decode_reassignment(data: bytes) -> dict[tuple[str, int], tuple[int, ...]]:
    """Target replicas by (topic, partition). Raises BadPayload."""
    try:
        return {
            (str(row["topic"]), int(row["partition"])): tuple(int(broker) for broker in row["replicas"])
            for row in _load(REASSIGN_PARTITIONS, data)["partitions"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise BadPayload(f"{REASSIGN_PARTITIONS}: {error!r}") from None
