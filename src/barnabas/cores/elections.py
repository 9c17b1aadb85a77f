"""Leaders and in-sync replicas: brokers that join and leave -> changes of the partitions' state nodes.

As in controller.py, nothing here has side effects: each `decide_*` reads the image and returns the changes to make.
Decisions about all partitions are computed lazily, with points to pause (see `znode_ops.chunks`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from barnabas.cores.controller import Replicas, fenced, state_of
from barnabas.cores.znode_ops import Check, Delete, LazyOps, Op, Ops, Set
from barnabas.wire.errors import ApiError, ErrorCode

PARTITIONS_PER_PIECE: Final = 500
"""How many partitions are examined between two points to pause."""


def elect(partition: PartitionImage, live: Collection[int], unclean: bool) -> PartitionImage:
    """The partition as it should be when exactly the `live` brokers are alive; itself when nothing changes.

    A live leader stays. Otherwise the first live in-sync replica becomes leader; if there is none and `unclean` is set, the
    first live replica of all, which is then alone in sync: records that only others have are lost. Dead replicas leave
    the in-sync set as long as it has a live one. When all of them are dead, the set is kept: only they have all records, so
    only one of them may become leader again.
    """
    isr = tuple(broker for broker in partition.isr if broker in live) or partition.isr
    leader = partition.leader if partition.leader in live else NO_LEADER
    recovering = partition.recovering
    if leader == NO_LEADER:
        leader = next(
            (broker for broker in partition.replicas if broker in isr and broker in live), NO_LEADER
        )
        if leader == NO_LEADER and unclean:
            # Replicas that a move is adding may have no records yet: they come last.
            by_age = sorted(partition.replicas, key=lambda broker: broker in partition.adding)
            leader = next((broker for broker in by_age if broker in live), NO_LEADER)
            if leader != NO_LEADER:
                isr, recovering = (leader,), True
    if leader == partition.leader and isr == partition.isr:
        return partition
    # As in Kafka, the controller increments the leader epoch with every change of the leader or the in-sync set:
    # followers then fence a leader that does not know of the change.
    return replace(
        partition, leader=leader, leader_epoch=partition.leader_epoch + 1, isr=isr, recovering=recovering
    )


def state_op(image: ClusterImage, topic: str, index: int, new: PartitionImage) -> Op:
    """Write a partition's leader and in-sync set; refused if somebody else has changed them since."""
    state = replace(state_of(new), controller_epoch=image.controller_epoch)
    return Set(layout.state_path(topic, index), layout.encode_state(state), new.partition_epoch)


Change = Callable[[TopicImage, PartitionImage], PartitionImage]


def _all_changed(image: ClusterImage, change: Change) -> LazyOps[Op | None]:
    """Apply `change` to every partition; it returns the partition itself if nothing changes."""

    def ops() -> Iterator[Op | None]:
        yield from fenced(image, ())
        seen = 0
        # Decided changes are replayed onto the image before the next piece is requested.
        for topic in list(image.topics.values()):
            for index, partition in list(topic.partitions.items()):
                seen += 1
                if seen % PARTITIONS_PER_PIECE == 0:
                    yield None
                if partition.partition_epoch < 0:
                    continue  # without a state yet; see decide_completion
                new = change(topic, partition)
                if new is not partition:
                    yield state_op(image, topic.name, index, new)

    return LazyOps(ops)


def decide_elections(image: ClusterImage, unclean_topics: Collection[str] = ()) -> LazyOps[Op | None]:
    """Give every partition a live leader if possible, after brokers have joined or left.

    unclean_topics: topics with unclean.leader.election.enable=true.
    """
    live = image.brokers.keys()
    return _all_changed(image, lambda topic, partition: elect(partition, live, topic.name in unclean_topics))


def decide_unclean_restart(image: ClusterImage, broker_id: int) -> LazyOps[Op | None]:
    """Demote a broker that is back after an unclean stop, in all of its partitions.

    It may have lost its last records. If another in-sync replica is alive, that one becomes leader, and this broker is out
    of sync until it has caught up. If it is the only one, it leads with a new leader epoch, by which consumers and followers
    that have seen the lost records notice the loss.
    """
    others = image.brokers.keys() - {broker_id}

    def without_broker(_: TopicImage, partition: PartitionImage) -> PartitionImage:
        if broker_id in partition.isr and any(broker in others for broker in partition.isr):
            return elect(partition, others, unclean=False)
        if partition.leader == broker_id:
            return replace(partition, leader_epoch=partition.leader_epoch + 1)
        return partition

    return _all_changed(image, without_broker)


def decide_lost_logs(
    image: ClusterImage, broker_id: int, lost: Iterable[tuple[str, int]]
) -> LazyOps[Op | None]:
    """The changes when a broker no longer has the logs of some partitions, for example because its disk was replaced.

    It leaves their in-sync sets, even if no other replica in sync is alive: with an empty log as the leader, all others
    would be truncated to nothing. Such a partition waits for one of the others. If no other replica is in sync, there is
    nothing to wait for.
    """
    live = image.brokers.keys() - {broker_id}

    def ops() -> Iterator[Op | None]:
        yield from fenced(image, ())
        for topic, index in lost:
            partition = image.partition(topic, index)
            if partition is None or partition.partition_epoch < 0 or broker_id not in partition.isr:
                continue
            others = tuple(broker for broker in partition.isr if broker != broker_id)
            if others:
                left = replace(partition, isr=others, leader_epoch=partition.leader_epoch + 1)
                if left.leader == broker_id:
                    left = replace(left, leader=NO_LEADER)
                new = elect(left, live, unclean=False)
                yield state_op(image, topic, index, replace(new, leader_epoch=left.leader_epoch))

    return LazyOps(ops)


def decide_shutdown(image: ClusterImage, broker_id: int) -> LazyOps[Op | None]:
    """Move leadership away from a broker that is about to stop, if another in-sync replica is alive."""
    live = image.brokers.keys() - {broker_id}

    def without_broker(_: TopicImage, partition: PartitionImage) -> PartitionImage:
        if broker_id not in partition.isr or not any(broker in live for broker in partition.isr):
            return partition
        new = elect(partition, live, unclean=False)
        return new if new.leader != NO_LEADER else partition

    return _all_changed(image, without_broker)


def decide_preferred_leader(image: ClusterImage, topic: str, index: int) -> Ops:
    """Make the first replica leader again. Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED,
    PREFERRED_LEADER_NOT_AVAILABLE.
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
    """Carry out the elections requested by older tools in /admin/preferred_replica_election, and remove that node."""
    if image.elections_asked_version < 0:
        return ()
    ops: list[Op] = []
    for topic, index in dict.fromkeys(image.elections_asked):
        try:
            elected = decide_preferred_leader(image, topic, index)
        except ApiError:
            continue  # not needed or not possible; this API has no answers
        ops += (op for op in elected if isinstance(op, Set))
    return fenced(image, (*ops, Delete(layout.PREFERRED_REPLICA_ELECTION, image.elections_asked_version)))


def decide_unclean_leader(image: ClusterImage, topic: str, index: int) -> Ops:
    """Make any live replica leader of a partition without a leader. Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION,
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
    """A leader requests another in-sync set (AlterPartition). The epochs are those known to the leader."""

    broker_id: int
    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Replicas
    recovering: bool = False
    epochs: tuple[int, ...] = ()
    """The broker epochs of `isr`, one for each: the registrations that the leader means; -1 for any."""


def decide_alter_isr(image: ClusterImage, event: AlterIsr) -> Ops:
    """Change the in-sync set. The change checks the registrations of its members (KIP-903): a follower that has come back
    since may have another disk. Raises ApiError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
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
    for broker, epoch in zip(event.isr, event.epochs, strict=False):
        if broker != event.broker_id and epoch not in (-1, image.brokers[broker].epoch):
            raise ApiError(
                ErrorCode.INELIGIBLE_REPLICA,
                f"broker {broker} has registered anew; what {where}'s leader knows is about its registration {epoch}, and "
                f"{image.brokers[broker].epoch} is the present one",
            )
    # The leader has requested this and stays leader: the leader epoch does not change.
    new = replace(partition, isr=event.isr, recovering=event.recovering)
    present = [
        Check(layout.incarnation_path(broker), image.brokers[broker].incarnation)
        for broker in event.isr
        if broker != event.broker_id and image.brokers[broker].incarnation >= 0
    ]
    return fenced(image, (*present, state_op(image, topic.name, event.partition, new)))


def decide_balance(image: ClusterImage) -> LazyOps[Op | None]:
    """Make preferred replicas leaders again if they are alive and in sync (auto.leader.rebalance.enable)."""

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
