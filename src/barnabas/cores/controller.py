"""The controller: administrative requests and broker failures -> changes of the znode tree.

Nothing here changes anything. Each `decide_*` reads the image and returns the list of changes that must be
made atomically; the executor gives it to `ZnodeTree.multi` and, once it is made, replays it with
`ClusterImage.apply`. When the tree refuses (somebody else was quicker), the executor loads what changed and
decides again.

Every list begins with a check of the controller's epoch, so that a controller that was replaced without
noticing it changes nothing any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from barnabas.cores import placement, topic_names
from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from barnabas.cores.znode_layout import PartitionState
from barnabas.cores.znode_ops import Check, Create, Delete, Op, Set
from barnabas.wire.errors import ApiError, ErrorCode

__all__ = ["ClusterImage", "PartitionImage", "TopicImage"]

USE_DEFAULT: Final = -1
PARTITIONS_PER_REQUEST_MAX: Final = 10_000

Ops = tuple[Op, ...]
Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic to make. topic_id: fresh; it also decides on which broker the first partition begins.

    num_partitions, replication_factor: USE_DEFAULT for the defaults. assignments: replicas by partition, when
    the client places them itself. configs: checked already. clamp_replication: take as many replicas as there
    are brokers when the factor asks for more (internal topics).
    """

    name: str
    topic_id: UUID
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Mapping[int, Replicas] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    num_partitions_default: int = 1
    replication_factor_default: int = 1
    clamp_replication: bool = False


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Let a topic grow to `count` partitions. assignments: of the new ones; None lets us place them."""

    topic: str
    count: int
    assignments: Sequence[Replicas] | None = None


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """A topic as it will be once the changes are made."""

    ops: Ops
    topic: TopicImage


def fenced(image: ClusterImage, ops: Iterable[Op]) -> Ops:
    """The changes, refused as a whole when another controller has taken over since the image was loaded."""
    if image.controller_epoch_version < 0:
        return tuple(ops)
    return (Check(layout.CONTROLLER_EPOCH, image.controller_epoch_version), *ops)


# --- the tree and the controller's office -------------------------------------------------------------------


def decide_bootstrap(existing: Collection[str], cluster_id: str) -> Ops:
    """Nodes that a tree lacks. existing: all its paths. cluster_id: used when the cluster has none yet."""
    missing: list[Op] = [Create(path) for path in layout.PERSISTENT if path not in existing]
    if layout.CLUSTER_ID not in existing:
        missing.append(Create(layout.CLUSTER_ID, layout.encode_cluster_id(cluster_id)))
    return tuple(missing)


def decide_controller(image: ClusterImage, broker_id: int, now_ms: int) -> Ops:
    """Become controller, with a new epoch. The tree refuses when another is quicker."""
    epoch = str(image.controller_epoch + 1).encode()
    return (
        Create(layout.CONTROLLER, layout.encode_controller(broker_id, now_ms), ephemeral=True),
        Create(layout.CONTROLLER_EPOCH, epoch)
        if image.controller_epoch_version < 0
        else Set(layout.CONTROLLER_EPOCH, epoch, image.controller_epoch_version),
    )


# --- topics -------------------------------------------------------------------------------------------------


def decide_create_topic(image: ClusterImage, event: CreateTopic) -> TopicDecision:
    """Raises ApiError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, POLICY_VIOLATION.
    """
    require_new_name(image, event.name)
    if event.assignments:
        replicas = _given_replicas(image, event)
    else:
        replicas = _placed_replicas(image, event)
    partitions = {index: _new_partition(image, brokers) for index, brokers in replicas.items()}
    topic = TopicImage(event.name, event.topic_id, partitions)
    ops: list[Op] = []
    if event.configs:
        ops.append(_config_op(image, "topics", event.name, event.configs))
    ops += (
        Create(layout.topic_path(event.name), layout.encode_assignment(topic.assignment())),
        Create(layout.partitions_path(event.name)),
    )
    for index, partition in partitions.items():
        ops += _create_partition_ops(event.name, index, partition)
    return TopicDecision(fenced(image, ops), topic)


def require_new_name(image: ClusterImage, name: str) -> None:
    """Raises ApiError unless a topic of that name may be made."""
    if name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    why = topic_names.refusal(name)
    if why is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    other = topic_names.collision(name, image.topics)
    if other is not None:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
        )


def _placed_replicas(image: ClusterImage, event: CreateTopic) -> dict[int, Replicas]:
    count, factor = event.num_partitions, event.replication_factor
    if count == USE_DEFAULT:
        count = event.num_partitions_default
    if factor == USE_DEFAULT:
        factor = event.replication_factor_default
    if count <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {count} > {PARTITIONS_PER_REQUEST_MAX}",
        )
    if factor <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if event.clamp_replication and image.brokers:
        factor = min(factor, len(image.brokers))
    return _place(image, range(count), factor, event.topic_id.int)


def _place(image: ClusterImage, partitions: range, factor: int, seed: int) -> dict[int, Replicas]:
    racks = {broker.id: broker.rack for broker in image.brokers.values()}
    try:
        return placement.assign(racks, partitions, factor, seed)
    except placement.NotEnoughBrokers:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
            f"cannot be reached because only {len(racks)} broker(s) are registered.",
        ) from None


def _given_replicas(image: ClusterImage, event: CreateTopic) -> dict[int, Replicas]:
    """The client's own assignment, checked."""
    why = "A manual partition assignment was specified, but {} was not set to -1."
    if event.replication_factor != USE_DEFAULT:
        raise ApiError(ErrorCode.INVALID_REQUEST, why.format("replication factor"))
    if event.num_partitions != USE_DEFAULT:
        raise ApiError(ErrorCode.INVALID_REQUEST, why.format("numPartitions"))
    if sorted(event.assignments) != list(range(len(event.assignments))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    replicas = {index: event.assignments[index] for index in range(len(event.assignments))}
    _check_replicas(image, replicas.values(), len(replicas[0]))
    return replicas


def _check_replicas(image: ClusterImage, assignments: Iterable[Replicas], factor: int) -> None:
    what = "The manual partition assignment includes"
    for replicas in assignments:
        if not replicas:
            raise _bad_assignment(f"{what} an empty replica list.")
        for broker in replicas:
            if broker not in image.brokers:
                raise _bad_assignment(f"{what} broker {broker}, but no such broker is registered.")
            if replicas.count(broker) > 1:
                raise _bad_assignment(f"{what} the broker {broker} more than once.")
        if len(replicas) != factor:
            raise _bad_assignment(
                f"{what} a partition with {len(replicas)} replica(s), but this is not consistent with "
                f"previous partitions, which have {factor} replica(s)."
            )


def _bad_assignment(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def _new_partition(image: ClusterImage, replicas: Replicas) -> PartitionImage:
    """A partition's first state: led by its first live replica, with all live ones in sync."""
    isr = tuple(broker for broker in replicas if broker in image.brokers)
    return PartitionImage(
        replicas,
        leader=isr[0] if isr else NO_LEADER,
        leader_epoch=0,
        isr=isr,
        partition_epoch=0,
        controller_epoch=image.controller_epoch,
    )


def _state(partition: PartitionImage) -> PartitionState:
    return PartitionState(
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        partition.controller_epoch,
        partition.recovering,
    )


def _create_partition_ops(topic: str, index: int, partition: PartitionImage) -> Ops:
    return (
        Create(layout.partition_path(topic, index)),
        Create(layout.state_path(topic, index), layout.encode_state(_state(partition))),
    )


def require_topic(image: ClusterImage, name: str) -> TopicImage:
    """Raises ApiError unless there is such a topic."""
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    return topic


def decide_delete_topic(image: ClusterImage, name: str) -> Ops:
    """Remove a topic with its configs. Brokers delete the logs when they see it gone. Raises ApiError.

    The nodes go in one step, where Kafka marks the topic under /admin/delete_topics first: here a log
    whose topic id is unknown is dropped at the next start, so that nothing needs to wait for a broker that is
    away.
    """
    topic = require_topic(image, name)
    ops: list[Op] = []
    if ("topics", name) in image.configs:
        ops.append(Delete(layout.config_path("topics", name)))
    for index, partition in topic.partitions.items():
        if partition.partition_epoch >= 0:
            ops += (Delete(layout.state_path(name, index)), Delete(layout.partition_path(name, index)))
    ops += (Delete(layout.partitions_path(name)), Delete(layout.topic_path(name), topic.version))
    return fenced(image, ops)


def decide_create_partitions(image: ClusterImage, event: CreatePartitions) -> TopicDecision:
    """Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR, REASSIGNMENT_IN_PROGRESS, POLICY_VIOLATION.
    """
    topic = require_topic(image, event.topic)
    current = len(topic.partitions)
    if event.count < current:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {current} partition(s); {event.count} would not be an "
            "increase.",
        )
    if event.count == current:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if event.count - current > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"at most {PARTITIONS_PER_REQUEST_MAX} partitions may be added at once",
        )
    if any(partition.adding or partition.removing for partition in topic.partitions.values()):
        raise ApiError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, "Partitions of the topic are being moved; try again later."
        )
    added = range(current, event.count)
    factor = len(topic.partitions[0].replicas)
    if event.assignments is None:
        # The old partitions began at some broker; counting on from their number keeps the leaders spread.
        replicas = _place(image, added, factor, topic.topic_id.int + current)
    else:
        if len(event.assignments) != len(added):
            raise _bad_assignment(
                f"Attempted to add {len(added)} additional partition(s), but only {len(event.assignments)} "
                "assignment(s) were specified."
            )
        _check_replicas(image, event.assignments, factor)
        replicas = dict(zip(added, event.assignments, strict=True))
    new = {index: _new_partition(image, brokers) for index, brokers in replicas.items()}
    grown = replace(topic, partitions={**topic.partitions, **new}, version=topic.version + 1)
    path, data = layout.topic_path(topic.name), layout.encode_assignment(grown.assignment())
    ops: list[Op] = [Set(path, data, topic.version)]
    for index, partition in new.items():
        ops += _create_partition_ops(topic.name, index, partition)
    return TopicDecision(fenced(image, ops), grown)


# --- configs ------------------------------------------------------------------------------------------------


def decide_config(image: ClusterImage, kind: str, name: str, config: Mapping[str, str]) -> Ops:
    """Replace an entity's own configs, which the caller has checked. An empty config removes its node.

    kind, name: as in layout.config_path. Brokers watch /config; no notification nodes are written.
    """
    if not config and any(k == kind and other.startswith(f"{name}/clients/") for k, other in image.configs):
        # The user's node holds its pairs with client ids: it stays, with an empty config.
        return (
            fenced(image, (_config_op(image, kind, name, config),)) if (kind, name) in image.configs else ()
        )
    if not config:
        gone = (Delete(layout.config_path(kind, name)),) if (kind, name) in image.configs else ()
        return fenced(image, gone) if gone else ()
    if image.configs.get((kind, name)) == config:
        return ()
    op = _config_op(image, kind, name, config)
    parents = _missing_config_parents(image, kind, name) if isinstance(op, Create) else ()
    return fenced(image, (*parents, op))


def _config_op(image: ClusterImage, kind: str, name: str, config: Mapping[str, str]) -> Op:
    path, data = layout.config_path(kind, name), layout.encode_config(config)
    return Set(path, data) if (kind, name) in image.configs else Create(path, data)


def _missing_config_parents(image: ClusterImage, kind: str, name: str) -> Ops:
    """What /config/users/U/clients/C needs above it: /config/users/U and /config/users/U/clients."""
    user, slash, _ = name.partition("/clients/")
    if kind != "users" or not slash:
        return ()
    if (kind, user) in image.configs:
        siblings = any(each == kind and other.startswith(f"{user}/clients/") for each, other in image.configs)
        return () if siblings else (Create(layout.config_path(kind, f"{user}/clients")),)
    path = layout.config_path(kind, user)
    # The holder of the pair has a config of its own, an empty one: so ZooKeeper-era Kafka leaves it too.
    return (Create(path, layout.encode_config({})), Create(f"{path}/clients"))


# --- leaders and in-sync replicas ---------------------------------------------------------------------------


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
            leader = next((broker for broker in partition.replicas if broker in live), NO_LEADER)
            if leader != NO_LEADER:
                isr, recovering = (leader,), True
    if leader == partition.leader and isr == partition.isr:
        return partition
    # Every change of leader or in-sync set by the controller counts the leader epoch up, as in Kafka: a
    # leader that does not know of it is fenced by its followers.
    return replace(
        partition, leader=leader, leader_epoch=partition.leader_epoch + 1, isr=isr, recovering=recovering
    )


def _state_op(image: ClusterImage, topic: str, index: int, new: PartitionImage) -> Op:
    state = replace(_state(new), controller_epoch=image.controller_epoch)
    return Set(layout.state_path(topic, index), layout.encode_state(state), new.partition_epoch)


def decide_elections(image: ClusterImage, unclean_topics: Collection[str] = ()) -> Ops:
    """Give every partition a live leader where that is possible, after brokers came or went.

    unclean_topics: those whose unclean.leader.election.enable is true.
    """
    live = image.brokers.keys()
    ops: list[Op] = []
    for topic in image.topics.values():
        unclean = topic.name in unclean_topics
        for index, partition in topic.partitions.items():
            if partition.partition_epoch < 0:
                # The topic's maker died between two steps of a layout that has more than one.
                ops += _create_partition_ops(topic.name, index, _new_partition(image, partition.replicas))
                continue
            new = elect(partition, live, unclean)
            if new is not partition:
                ops.append(_state_op(image, topic.name, index, new))
    return fenced(image, ops) if ops else ()


def decide_unclean_restart(image: ClusterImage, broker_id: int) -> Ops:
    """New leader epochs for what a broker leads that came back without a clean shutdown.

    It may have lost its last records. Consumers and followers that saw them notice by the epoch.
    """
    ops = [
        _state_op(image, topic.name, index, replace(partition, leader_epoch=partition.leader_epoch + 1))
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
        if partition.leader == broker_id and partition.partition_epoch >= 0
    ]
    return fenced(image, ops) if ops else ()


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
    return fenced(image, (_state_op(image, topic, index, new),))


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
    return fenced(image, (_state_op(image, topic, index, new),))


def decide_shutdown(image: ClusterImage, broker_id: int) -> Ops:
    """Move leadership off a broker that is about to stop, where another in-sync replica is alive."""
    live = image.brokers.keys() - {broker_id}
    ops: list[Op] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.isr and any(broker in live for broker in partition.isr):
                new = elect(partition, live, unclean=False)
                if new.leader != NO_LEADER:
                    ops.append(_state_op(image, topic.name, index, new))
    return fenced(image, ops) if ops else ()


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
    return fenced(image, (_state_op(image, topic.name, event.partition, new),))


def _require_partition(image: ClusterImage, topic: str, index: int) -> PartitionImage:
    partition = image.partition(topic, index)
    if partition is None or partition.partition_epoch < 0:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
    return partition
