"""Replicas that move to other brokers (KIP-455): requests of administrators -> changes of the znode tree.

A moving partition has both its old and its new replicas, the new ones first; `adding` and `removing` say which ones are
added and removed. There are two states, and each change leads from one to the other:

    at rest  --requested-->  moving: the new replicas copy the log and join the in-sync set
    moving   --all new replicas live and in sync-->  at rest, with only the new replicas
    moving   --cancelled-->  at rest, with the old replicas

Everything is stored in the tree: the replicas in the topic's node, the leader and the in-sync set in the partition's. A new
controller continues from there. States are changed before replicas, so that the in-sync set contains only replicas
wherever the list of changes is cut.

Source: KIP-455; Kafka 3.9's KafkaController.onPartitionReassignment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import ClusterImage, PartitionImage, TopicImage
from barnabas.cores.controller import Replicas, fenced, require_topic
from barnabas.cores.elections import state_op
from barnabas.cores.znode_ops import Delete, Op, Ops, Set
from barnabas.wire.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class Move:
    """A request to give one partition `replicas`, the preferred leader first; None cancels its move."""

    topic: str
    partition: int
    replicas: Replicas | None
    factor_may_change: bool = True


@dataclass(frozen=True, slots=True)
class MovesDecision:
    """The changes for the possible moves in one topic, and the refusals of the others, by partition."""

    ops: Ops
    refused: Mapping[int, ApiError]


# --- one partition ------------------------------------------------------------------------------------------


def is_moving(partition: PartitionImage) -> bool:
    """Whether replicas of a partition are being moved."""
    return bool(partition.adding or partition.removing)


def target_of(partition: PartitionImage) -> Replicas:
    """The replicas after the move; the current replicas of a partition at rest."""
    return tuple(broker for broker in partition.replicas if broker not in partition.removing)


def origin_of(partition: PartitionImage) -> Replicas:
    """The replicas before the move; the current replicas of a partition at rest."""
    return tuple(broker for broker in partition.replicas if broker not in partition.adding)


def retargeted(partition: PartitionImage, target: Replicas, live: Collection[int]) -> PartitionImage:
    """The partition at the beginning of a move to `target`, whether or not it was moving elsewhere before.

    Replicas that an earlier move was adding and that are no longer wanted are removed at once. Raises ApiError
    INVALID_REPLICA_ASSIGNMENT if only such replicas are in sync: their records would be lost.
    """
    origin = origin_of(partition)
    replicas = tuple(dict.fromkeys((*target, *origin)))
    new = replace(
        partition,
        replicas=replicas,
        adding=tuple(broker for broker in replicas if broker not in origin),
        removing=tuple(broker for broker in replicas if broker not in target),
    )
    if set(partition.isr) <= set(replicas):
        return new if new != partition else partition
    isr = tuple(broker for broker in partition.isr if broker in replicas)
    leader = partition.leader if partition.leader in isr else next((b for b in isr if b in live), None)
    if leader is None:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"None of the replicas that would stay is alive and in sync; in sync are {list(partition.isr)}.",
        )
    return replace(new, leader=leader, leader_epoch=partition.leader_epoch + 1, isr=isr)


def finished(partition: PartitionImage, live: Collection[int]) -> PartitionImage:
    """The partition with only its new replicas, if all of these are alive and in sync; otherwise itself."""
    if not is_moving(partition):
        return partition
    target = target_of(partition)
    if not target or not all(broker in partition.isr and broker in live for broker in target):
        return partition
    leader = partition.leader if partition.leader in target else target[0]
    return replace(
        partition,
        replicas=target,
        adding=(),
        removing=(),
        isr=tuple(broker for broker in partition.isr if broker in target),
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
    )


# --- what administrators ask for ----------------------------------------------------------------------------


def decide_moves(image: ClusterImage, topic: str, moves: Collection[Move]) -> MovesDecision:
    """Begin, redirect or cancel moves of partitions of one topic; moves that need no copying end at once.

    A partition is refused with UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR or
    NO_REASSIGNMENT_IN_PROGRESS.
    """
    changed: dict[int, PartitionImage] = {}
    refused: dict[int, ApiError] = {}
    for move in moves:
        try:
            changed[move.partition] = _moved(image, move)
        except ApiError as error:
            # With their frames, thousands of refusals would be garbage that only a long collection finds.
            refused[move.partition] = error.with_traceback(None)
    ops = _changes(image, topic, changed)
    return MovesDecision(fenced(image, ops) if ops else (), refused)


def decide_overridden(image: ClusterImage, moves: Collection[Move]) -> Ops:
    """Drop requests of older tools for the partitions of `moves`: the newest request counts."""
    overridden = {(move.topic, move.partition) for move in moves}
    left = {key: target for key, target in image.moves_asked.items() if key not in overridden}
    ops = _asked_ops(image, left)
    return fenced(image, ops) if ops else ()


def _moved(image: ClusterImage, move: Move) -> PartitionImage:
    partition = require_topic(image, move.topic).partitions.get(move.partition)
    where = f"{move.topic}-{move.partition}"
    if partition is None or partition.partition_epoch < 0:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {where}.")
    target = move.replicas
    if target is None:
        if not is_moving(partition):
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{where} is not being moved.")
        target = origin_of(partition)
    else:
        _check_target(image, target)
        factor = len(origin_of(partition))
        if len(target) != factor and not move.factor_may_change:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{where} has {factor} replica(s), and {len(target)} were asked for; "
                "the request does not allow to change their number.",
            )
    live = image.brokers.keys()
    return finished(retargeted(partition, target, live), live)


def _check_target(image: ClusterImage, target: Replicas) -> None:
    what = "The manual partition assignment includes"
    if not target:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{what} an empty replica list.")
    for broker in target:
        if target.count(broker) > 1:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{what} the broker {broker} more than once."
            )
        if broker not in image.brokers:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{what} broker {broker}, but no such broker is registered.",
            )


# --- what the controller does by itself ---------------------------------------------------------------------


def topics_to_advance(image: ClusterImage) -> list[str]:
    """The topics for which `decide_advance` has something to change."""
    live = image.brokers.keys()
    due = dict.fromkeys(
        topic.name
        for topic in image.topics.values()
        if any(finished(partition, live) is not partition for partition in topic.partitions.values())
    )
    for topic, index in image.moves_asked:
        if _is_due(image, topic, index):
            due[topic] = None
    return list(due)


def decide_advance(image: ClusterImage, topic: str) -> Ops:
    """Finish the moves of a topic that can be finished, and begin those that older tools have requested."""
    known = image.topics.get(topic)
    if known is None:
        return ()
    live = image.brokers.keys()
    changed: dict[int, PartitionImage] = {}
    for index, partition in known.partitions.items():
        new = partition
        if _is_due(image, topic, index):
            new = retargeted(partition, image.moves_asked[topic, index], live)
        changed[index] = finished(new, live)
    ops = _changes(image, topic, changed)
    return fenced(image, ops) if ops else ()


def _is_due(image: ClusterImage, topic: str, index: int) -> bool:
    """Whether an older tool has requested a move that is possible and has not begun."""
    target = image.moves_asked.get((topic, index))
    partition = image.partition(topic, index)
    if target is None or partition is None or target_of(partition) == target:
        return False
    try:
        _moved(image, Move(topic, index, target))
    except ApiError:
        return False
    return True


def decide_asked(image: ClusterImage) -> Ops:
    """Remove finished and impossible moves from /admin/reassign_partitions; after the last one, remove the node.

    Called after `decide_advance`, which begins the moves. Older tools take a move that is not in the node as finished.
    """
    ops = _asked_ops(
        image,
        {
            (topic, index): target
            for (topic, index), target in image.moves_asked.items()
            if (partition := image.partition(topic, index)) is not None
            and is_moving(partition)
            and target_of(partition) == target
        },
    )
    return fenced(image, ops) if ops else ()


def _asked_ops(image: ClusterImage, left: Mapping[tuple[str, int], Replicas]) -> Ops:
    version = image.moves_asked_version
    if version < 0 or (left and left == image.moves_asked):
        return ()
    if not left:
        return (Delete(layout.REASSIGN_PARTITIONS, version),)
    return (Set(layout.REASSIGN_PARTITIONS, layout.encode_reassignment(left), version),)


def _changes(image: ClusterImage, topic: str, changed: Mapping[int, PartitionImage]) -> Ops:
    """Change the states, then the topic's replicas. changed: the new values of the partitions."""
    known = image.topics.get(topic)
    if known is None:
        return ()
    new = {index: partition for index, partition in changed.items() if partition != known.partitions[index]}
    if not new:
        return ()
    states: list[Op] = [
        state_op(image, topic, index, partition)
        for index, partition in new.items()
        if _state(partition) != _state(known.partitions[index])
    ]
    grown = TopicImage(topic, known.topic_id, {**known.partitions, **new}, known.version)
    if grown.assignment() == known.assignment():
        return tuple(states)
    data = layout.encode_assignment(grown.assignment())
    return (*states, Set(layout.topic_path(topic), data, known.version))


def _state(partition: PartitionImage) -> tuple[int, int, Replicas]:
    return partition.leader, partition.leader_epoch, partition.isr
