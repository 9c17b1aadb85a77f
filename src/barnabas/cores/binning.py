"""Decisions about the bin of deleted topics (topic_bin.py): how topics go there, and how they come back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from uuid import UUID

from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from barnabas.cores.topic_bin import BinnedTopic, LastState, Mark, Replicas, encode_binned
from barnabas.cores.znode_ops import Check, Create, Delete, LazyOps, Op, Set

Nodes = Mapping[str, tuple[bytes, int]]
"""Data and version of nodes, by path."""


# --- into the bin -------------------------------------------------------------------------------------------


def resting(image: ClusterImage, name: str, mark: Mark, nodes: Nodes) -> BinnedTopic | None:
    """What the bin's node has to contain of a topic with this mark; None if nothing of the topic was ever there.

    nodes: those of the topic that are still there. What was removed before is taken from the bin's present node.
    """
    before = image.bin.get(mark.topic_id)
    replicas: dict[int, Replicas] = dict(before.replicas) if before is not None else {}
    states: dict[int, LastState] = dict(before.states) if before is not None else {}
    config = image.config("topics", name) or (before.config if before is not None else {})
    path = layout.topic_path(name)
    if path in nodes:
        assignment = layout.decode_assignment(name, nodes[path][0])
        if assignment.topic_id != mark.topic_id:
            return None
        replicas.update(assignment.replicas)
    for index in replicas:
        node = nodes.get(layout.state_path(name, index))
        if node is not None:
            state = layout.decode_state(layout.state_path(name, index), *node)
            states[index] = LastState(state.leader_epoch, state.isr)
    if not replicas:
        return None
    return BinnedTopic(name, mark.topic_id, mark.deleted_ms, mark.until_ms, replicas, states, config)


def into_the_bin(
    image: ClusterImage, topic: BinnedTopic, removal: Iterable[Op], nodes: Nodes
) -> Iterable[Op]:
    """The removal of a topic's nodes, preceded by the node of the bin.

    A state is removed only in the version that was copied: a leader that has not heard of the deletion yet may shrink its
    in-sync set meanwhile, and a replica that has left it must not lead the restored partition.
    """
    path, data = layout.binned_path(topic.topic_id), encode_binned(topic)
    kept: Op = Set(path, data) if topic.topic_id in image.bin else Create(path, data)

    def ops() -> Iterator[Op]:
        is_kept = False
        for op in removal:
            if not is_kept and not isinstance(op, Check):
                is_kept = True
                yield kept
            if isinstance(op, Delete) and op.path in nodes:
                yield Delete(op.path, nodes[op.path][1])
            else:
                yield op

    return LazyOps(ops)


# --- back from it -------------------------------------------------------------------------------------------


def restored_partition(image: ClusterImage, topic: BinnedTopic, index: int) -> PartitionImage:
    """The first state of a restored partition: led by the first live replica that was in sync, in a new leader epoch."""
    replicas = topic.replicas[index]
    last = topic.states.get(index, LastState(-1, replicas))
    alive = tuple(broker for broker in last.in_sync if broker in image.brokers)
    first = [broker for broker in replicas if broker in alive]
    return PartitionImage(
        replicas,
        leader=first[0] if first else NO_LEADER,
        leader_epoch=last.leader_epoch + 1,
        isr=alive or last.in_sync,
        partition_epoch=0,
        controller_epoch=image.controller_epoch,
    )


def restored_topic(image: ClusterImage, topic: BinnedTopic, name: str) -> TopicImage:
    """The topic as it will be under this name."""
    partitions = {index: restored_partition(image, topic, index) for index in sorted(topic.replicas)}
    return TopicImage(name, topic.topic_id, partitions)


def expired(image: ClusterImage, now_ms: int) -> list[BinnedTopic]:
    """The topics that have rested long enough, those that wait for longest first."""
    overdue = [topic for topic in image.bin.values() if topic.until_ms <= now_ms]
    return sorted(overdue, key=lambda topic: topic.until_ms)


def forgotten(image: ClusterImage, topic_ids: Collection[UUID]) -> set[UUID]:
    """Of the topics whose logs a broker holds in its bin, those that can never be restored any more."""
    marked = {mark.topic_id for mark in image.marks.values()}
    return {
        topic_id
        for topic_id in topic_ids
        if topic_id not in image.bin and topic_id not in image.by_id and topic_id not in marked
    }
