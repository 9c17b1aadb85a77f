"""Leaders and in-sync replicas: brokers that come and go -> changes of the partitions' state nodes.

Like controller.py, nothing here changes anything: each `decide_*` reads the image and returns the changes to make.
What concerns every partition is decided as it is asked for, with places to pause (see `znode_ops.chunks`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from barnabas.cores.controller import Replicas, fenced, state_of
from barnabas.cores.znode_ops import Delete, LazyOps, Op, Ops, Set
from barnabas.wire.errors import ApiError, ErrorCode

PARTITIONS_PER_PIECE: Final = 500
"""How many partitions are looked at between two places to pause."""


def elect(partition: PartitionImage, live: Collection[int], unclean: bool) -> PartitionImage:
    """The partition as it should be when exactly `live` brokers are alive; itself when nothing changes.

    A leader that lives stays. Else the first live replica in sync leads; else, if `unclean`, the first live
    one at all, alone in sync: what the others had more is lost. Dead replicas leave the in-sync set
    while it has a live one; when all of it is dead, it stays: only they have everything, so only one of
    them may lead again.
    """
    isr = tuple(broker for broker in partition.isr if broker in live) or partition.isr
    leader = partition.leader if partition.leader in live else NO_LEADER
    recovering = partition.recovering
    if leader == NO_LEADER:
        leader = next(
            (broker for broker in partition.replicas if broker in isr and broker in live), NO_LEADER
        )
        if leader == NO_LEADER and unclean:
            # Replicas that a move is adding may have nothing yet: they come last.
            by_age = sorted(partition.replicas, key=lambda broker: broker in partition.adding)
            leader = next((broker for broker in by_age if broker in live), NO_LEADER)
            if leader != NO_LEADER:
                isr, recovering = (leader,), True
    if leader == partition.leader and isr == partition.isr:
        return partition
    # Every change of leader or in-sync set by the controller counts the leader epoch up, as in Kafka: a
    # leader that does not know of it is fenced by its followers.
    return replace(
        partition, leader=leader, leader_epoch=partition.leader_epoch + 1, isr=isr, recovering=recovering
    )


def state_op(image: ClusterImage, topic: str, index: int, new: PartitionImage) -> Op:
    """Write a partition's leader and in-sync set; refused when somebody else has changed them since."""
    state = replace(state_of(new), controller_epoch=image.controller_epoch)
    return Set(layout.state_path(topic, index), layout.encode_state(state), new.partition_epoch)


Change = Callable[[TopicImage, PartitionImage], PartitionImage]


def _all_changed(image: ClusterImage, change: Change) -> LazyOps[Op | None]:
    """The changes that `change` makes of every partition; it returns the partition itself where nothing changes."""

    def ops() -> Iterator[Op | None]:
        yield from fenced(image, ())
        seen = 0
        # What has been decided is replayed onto the image before the next piece is asked for.
        for topic in list(image.topics.values()):
            for index, partition in list(topic.partitions.items()):
                seen += 1
                if seen % PARTITIONS_PER_PIECE == 0:
                    yield None
                if partition.partition_epoch < 0:
                    continue  # it has no state yet; see decide_completion
                new = change(topic, partition)
                if new is not partition:
                    yield state_op(image, topic.name, index, new)

    return LazyOps(ops)


def decide_elections(image: ClusterImage, unclean_topics: Collection[str] = ()) -> LazyOps[Op | None]:
    """Give every partition a live leader where that is possible, after brokers came or went.

    unclean_topics: those whose unclean.leader.election.enable is true.
    """
    live = image.brokers.keys()
    return _all_changed(image, lambda topic, partition: elect(partition, live, topic.name in unclean_topics))


def decide_unclean_restart(image: ClusterImage, broker_id: int) -> LazyOps[Op | None]:
    """What becomes of the partitions of a broker that came back without a clean shutdown.

    It may have lost its last records: where another replica in sync is alive, that one leads, and this broker is not in sync
    until it has caught up. What it leads alone gets a new leader epoch: consumers and followers that saw
    the lost records notice by the epoch.
    """
    others = image.brokers.keys() - {broker_id}

    def without_broker(_: TopicImage, partition: PartitionImage) -> PartitionImage:
        if broker_id in partition.isr and any(broker in others for broker in partition.isr):
            return elect(partition, others, unclean=False)
        if partition.leader == broker_id:
            return replace(partition, leader_epoch=partition.leader_epoch + 1)
        return partition

    return _all_changed(image, without_broker)


def decide_shutdown(image: ClusterImage, broker_id: int) -> LazyOps[Op | None]:
    """Move leadership off a broker that is about to stop, where another in-sync replica is alive."""
    live = image.brokers.keys() - {broker_id}

    def without_broker(_: TopicImage, partition: PartitionImage) -> PartitionImage:
        if broker_id not in partition.isr or not any(broker in live for broker in partition.isr):
            return partition
        new = elect(partition, live, unclean=False)
        return new if new.leader != NO_LEADER else partition

    return _all_changed(image, without_broker)


def decide_preferred_leader(image: ClusterImage, topic: str, index: int) -> Ops:
    """Give leadership back to the first replica. Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION,
    ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE.
    """
    partition = _require_partition(image, topic, index)
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica is the leader already.")
    if preferred not in image.brokers or preferred not in partition.isr:
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"Broker {preferred} is not alive and in sync; it cannot lead.",
        )
    new = replace(partition, leader=preferred, leader_epoch=partition.leader_epoch + 1)
    return fenced(image, (state_op(image, topic, index, new),))


def decide_asked_elections(image: ClusterImage) -> Ops:
    """Give leadership back where an older tool asks for that in /admin/preferred_replica_election; the node goes."""
    if image.elections_asked_version < 0:
        return ()
    ops: list[Op] = []
    for topic, index in dict.fromkeys(image.elections_asked):
        try:
            elected = decide_preferred_leader(image, topic, index)
        except ApiError:
            continue  # there is nothing to do, or it cannot be done: the node has no place for an answer
        ops += (op for op in elected if isinstance(op, Set))
    return fenced(image, (*ops, Delete(layout.PREFERRED_REPLICA_ELECTION, image.elections_asked_version)))


def decide_unclean_leader(image: ClusterImage, topic: str, index: int) -> Ops:
    """Let any live replica lead a partition that has no leader. Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION,
    ELECTION_NOT_NEEDED, ELIGIBLE_LEADERS_NOT_AVAILABLE.
    """
    partition = _require_partition(image, topic, index)
    if partition.leader in image.brokers:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "The partition has a live leader.")
    new = elect(partition, image.brokers.keys(), unclean=True)
    if new.leader == NO_LEADER:
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is alive.")
    return fenced(image, (state_op(image, topic, index, new),))


@dataclass(frozen=True, slots=True)
class AlterIsr:
    """A leader asks for another in-sync set (AlterPartition). The epochs are those that it knows."""

    broker_id: int
    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Replicas
    recovering: bool = False


def decide_alter_isr(image: ClusterImage, event: AlterIsr) -> Ops:
    """Raises ApiError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
    FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA.
    """
    topic = image.by_id.get(event.topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {event.topic_id}")
    partition = _require_partition(image, topic.name, event.partition)
    where = f"{topic.name}-{event.partition}"
    if event.leader_epoch < partition.leader_epoch:
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{where} is in leader epoch {partition.leader_epoch}, not {event.leader_epoch}",
        )
    if partition.leader != event.broker_id or event.leader_epoch != partition.leader_epoch:
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{where} is led by {partition.leader}, not {event.broker_id}"
        )
    if event.partition_epoch != partition.partition_epoch:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{where} is in partition epoch {partition.partition_epoch}, not {event.partition_epoch}",
        )
    if event.broker_id not in event.isr or not set(event.isr) <= set(partition.replicas):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the in-sync replicas of {where} must hold its leader, and only replicas",
        )
    dead = [broker for broker in event.isr if broker not in image.brokers]
    if dead:
        raise ApiError(
            ErrorCode.INELIGIBLE_REPLICA, f"broker {dead[0]} is not alive; it cannot be in sync for {where}"
        )
    # The leader asked for it and goes on leading: no new leader epoch.
    new = replace(partition, isr=event.isr, recovering=event.recovering)
    return fenced(image, (state_op(image, topic.name, event.partition, new),))


def decide_balance(image: ClusterImage) -> LazyOps[Op | None]:
    """Give leadership back to preferred replicas that are alive and in sync (auto.leader.rebalance.enable)."""

    def with_preferred(_: TopicImage, partition: PartitionImage) -> PartitionImage:
        preferred = partition.replicas[0] if partition.replicas else partition.leader
        if partition.leader == preferred or preferred not in image.brokers or preferred not in partition.isr:
            return partition
        return replace(partition, leader=preferred, leader_epoch=partition.leader_epoch + 1)

    return _all_changed(image, with_preferred)


def _require_partition(image: ClusterImage, topic: str, index: int) -> PartitionImage:
    partition = image.partition(topic, index)
    if partition is None or partition.partition_epoch < 0:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
    return partition
