"""The metadata of a cluster in ZooKeeper mode, from the nodes of a ZooKeeper that runs. Nothing is written there."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.importing.metadata import CannotImport, KnownTopic, Metadata
from barnabas.cores import acl, tokens
from barnabas.cores import znode_layout as layout


def read(address: str, nodes: Mapping[str, bytes]) -> Metadata:
    """The metadata in these nodes, by path below the chroot. Raises CannotImport."""
    metadata = Metadata(f"ZooKeeper {address}")
    if layout.CLUSTER_ID not in nodes:
        raise CannotImport(
            f"{metadata.source} has no {layout.CLUSTER_ID}: no Kafka has used it, or under a chroot"
        )
    try:
        for path, data in nodes.items():
            _note(metadata, path, data)
    except (layout.BadPayload, ValueError) as error:
        raise CannotImport(f"{metadata.source}: {error}") from error
    return metadata


def _note(metadata: Metadata, path: str, data: bytes) -> None:
    parts = path.split("/")[1:]
    if parts[:2] == ["brokers", "topics"] and len(parts) == 3:
        topic = metadata.topics.setdefault(parts[2], KnownTopic(None))
        topic.topic_id = layout.decode_assignment(parts[2], data).topic_id
    elif (state := layout.state_of_path(path)) is not None:
        state_of_partition = layout.decode_state(path, data, 0)
        topic = metadata.topics.setdefault(state[0], KnownTopic(None))
        topic.leaders[state[1]], topic.epochs[state[1]] = (
            state_of_partition.leader,
            state_of_partition.leader_epoch,
        )
        topic.in_sync[state[1]] = state_of_partition.isr
    elif parts[0] == "config" and len(parts) in (3, 5) and parts[1] in layout.CONFIG_TYPES and data:
        options = layout.decode_config(path, data)
        if options:
            metadata.configs[parts[1], "/".join(parts[2:])] = options
    elif parts[0] in acl.ROOTS and (resource := acl.resource_of(path)) is not None:
        metadata.rules[resource] = set(acl.decode_rules(path, data))
    elif (token_id := tokens.token_id_of(path)) is not None:
        metadata.tokens[token_id] = tokens.decode_token(path, data)
    elif path == layout.PRODUCER_ID_BLOCK:
        block = layout.decode_producer_id_block(data)
        metadata.next_producer_id = 0 if block is None else block.last + 1


def cluster_id(nodes: Mapping[str, bytes]) -> str:
    """The id of the cluster of these nodes."""
    return layout.decode_cluster_id(nodes[layout.CLUSTER_ID])
