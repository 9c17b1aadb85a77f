"""The controller: administrative requests -> changes of the znode tree. Leader elections are in elections.py.

Nothing here has side effects. Each `decide_*` reads the image and returns the changes to make, in an order that may be cut
into chunks: after each chunk the tree is in a state that the next controller understands and completes. The executor
passes the chunks to `ZnodeTree.multi` and then replays them with `ClusterImage.apply`. When the tree refuses them
(somebody else was quicker), the executor loads what changed and decides again.

Every list begins with a check of the controller's epoch, so that a controller that was replaced without noticing it
cannot change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from barnabas.cores import placement, topic_bin, topic_names
from barnabas.cores import znode_layout as layout
from barnabas.cores.binning import restored_partition, restored_topic
from barnabas.cores.cluster_image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from barnabas.cores.znode_layout import PartitionState
from barnabas.cores.znode_ops import Check, Create, Delete, LazyOps, Op, Ops, Set
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.uuids import uuid_text

__all__ = ["ClusterImage", "PartitionImage", "TopicImage"]

USE_DEFAULT: Final = -1
PARTITIONS_PER_REQUEST_MAX: Final = 10_000


Replicas = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic to create. topic_id: new; it also determines the broker with which the first partition begins.

    num_partitions, replication_factor: USE_DEFAULT for the defaults. assignments: replicas by partition, when
    the client places them itself. configs: already checked. clamp_replication: use all brokers when there are fewer
    than the replication factor (internal topics).
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
    """Add partitions to a topic, up to `count`. assignments: of the new ones; None to place them automatically."""

    topic: str
    count: int
    assignments: Sequence[Replicas] | None = None


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """A topic as it will be after the changes, and the changes in an order that may be cut anywhere.

    If they are cut short, the topic's partitions lack nodes, which `decide_completion` adds.
    """

    ops: Iterable[Op]
    topic: TopicImage


def fenced(image: ClusterImage, ops: Iterable[Op]) -> Ops:
    """The changes, preceded by a check that fails if another controller has taken over since the image was loaded."""
    if image.controller_epoch_version < 0:
        return tuple(ops)
    return (Check(layout.CONTROLLER_EPOCH, image.controller_epoch_version), *ops)


# --- the tree and the controller's office -------------------------------------------------------------------


def decide_bootstrap(existing: Collection[str], cluster_id: str, secret: bytes) -> Ops:
    """The nodes that a tree lacks. existing: all its paths. cluster_id, secret: used if the cluster has none yet."""
    missing: list[Op] = [Create(path) for path in layout.PERSISTENT if path not in existing]
    if layout.CLUSTER_ID not in existing:
        missing.append(Create(layout.CLUSTER_ID, layout.encode_cluster_id(cluster_id)))
    if layout.CLUSTER_SECRET not in existing:
        missing.append(Create(layout.CLUSTER_SECRET, secret))
    return tuple(missing)


def decide_controller(image: ClusterImage, broker_id: int, now_ms: int) -> Ops:
    """Become controller, with a new epoch. The tree refuses if another broker is quicker."""
    epoch = str(image.controller_epoch + 1).encode()
    return (
        Create(layout.CONTROLLER, layout.encode_controller(broker_id, now_ms), ephemeral=True),
        Create(layout.CONTROLLER_EPOCH, epoch)
        if image.controller_epoch_version < 0
        else Set(layout.CONTROLLER_EPOCH, epoch, image.controller_epoch_version),
    )


# --- topics -------------------------------------------------------------------------------------------------


def decide_create_topic(image: ClusterImage, event: CreateTopic) -> TopicDecision:
    """Create a topic. Raises ApiError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, POLICY_VIOLATION.

    When it is decided again after an answer was lost, it recognizes its own topic by the id and changes nothing more.
    """
    own = image.by_id.get(event.topic_id)
    if own is not None:
        return TopicDecision((), own)
    require_new_name(image, event.name)
    if event.assignments:
        replicas = _given_replicas(image, event)
    else:
        replicas = _placed_replicas(image, event)
    partitions = _new_partitions(image, replicas)
    topic = TopicImage(event.name, event.topic_id, partitions)
    config = (_config_op(image, "topics", event.name, event.configs),) if event.configs else ()

    def assignment() -> Ops:
        data = layout.encode_assignment(topic.assignment())
        return Create(layout.topic_path(event.name), data), Create(layout.partitions_path(event.name))

    return TopicDecision(
        _followed_by_partitions(fenced(image, config), assignment, event.name, partitions), topic
    )


def _followed_by_partitions(
    first: Ops, assignment: Callable[[], Ops], topic: str, new: Mapping[int, PartitionImage]
) -> LazyOps[Op]:
    """`first`, the assignment (which takes long to encode), then the nodes of the new partitions."""

    def ops() -> Iterator[Op]:
        yield from first
        yield from assignment()
        encoded: dict[PartitionImage, bytes] = {}  # few different initial states per topic
        for index, partition in new.items():
            data = encoded.get(partition)
            if data is None:
                data = encoded[partition] = layout.encode_state(state_of(partition))
            yield Create(layout.partition_path(topic, index))
            yield Create(layout.state_path(topic, index), data)

    return LazyOps(ops)


def require_new_name(image: ClusterImage, name: str) -> None:
    """Raises ApiError unless a topic of this name may be created."""
    if name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if name in image.deleting:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
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
    """The assignment given by the client, checked."""
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
    """A partition's initial state: led by its first live replica, with all live replicas in sync."""
    isr = tuple(broker for broker in replicas if broker in image.brokers)
    return PartitionImage(
        replicas,
        leader=isr[0] if isr else NO_LEADER,
        leader_epoch=0,
        isr=isr,
        partition_epoch=0,
        controller_epoch=image.controller_epoch,
    )


def _new_partitions(image: ClusterImage, placed: Mapping[int, Replicas]) -> dict[int, PartitionImage]:
    """The initial states of partitions; those with the same replicas share one object."""
    by_replicas = {replicas: _new_partition(image, replicas) for replicas in set(placed.values())}
    return {index: by_replicas[replicas] for index, replicas in placed.items()}


def state_of(partition: PartitionImage) -> PartitionState:
    """The contents of a partition's state node."""
    return PartitionState(
        partition.leader,
        partition.leader_epoch,
        partition.isr,
        partition.controller_epoch,
        partition.recovering,
    )


def decide_completion(
    image: ClusterImage, topic: TopicImage, existing: Collection[str], fresh_id: UUID
) -> Iterable[Op]:
    """Add what a topic lacks: its id, the nodes of its partitions, their first leaders.

    Its creator died half-way, or was a tool that writes only the assignment and leaves the rest to the controller, as
    Kafka's own tools did. existing: the paths that exist. fresh_id: used if the topic has no id.
    """
    first: list[Op] = []
    if not topic.topic_id.int:
        topic = replace(topic, topic_id=fresh_id)
        first.append(
            Set(layout.topic_path(topic.name), layout.encode_assignment(topic.assignment()), topic.version)
        )
    if layout.partitions_path(topic.name) not in existing:
        first.append(Create(layout.partitions_path(topic.name)))
    lacking = {
        index: partition.replicas
        for index, partition in topic.partitions.items()
        if partition.partition_epoch < 0
    }
    if not first and not lacking:
        return ()
    binned = image.bin.get(topic.topic_id)
    if binned is None:
        new = _new_partitions(image, lacking)
    else:  # its restoration was interrupted: new states would lose its records
        new = {
            index: restored_partition(image, binned, index) for index in lacking if index in binned.replicas
        }
    ops = _followed_by_partitions(fenced(image, first), lambda: (), topic.name, new)
    return LazyOps(lambda: (op for op in ops if not isinstance(op, Create) or op.path not in existing))


def require_topic(image: ClusterImage, name: str) -> TopicImage:
    """The topic of this name. Raises ApiError UNKNOWN_TOPIC_OR_PARTITION."""
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    return topic


def decide_deletion(image: ClusterImage, name: str, now_ms: int = 0, bin_ms: int = 0) -> Ops:
    """Mark a topic for deletion: clients no longer see it from then on, and its remains are removed afterwards.

    bin_ms: how long it rests in the bin first; 0 for not at all. Internal topics never do. Raises ApiError
    UNKNOWN_TOPIC_OR_PARTITION.
    """
    topic = require_topic(image, name)
    if name in image.deleting:
        return ()
    data = b""
    if bin_ms > 0 and topic.topic_id.int and not topic.internal:
        data = topic_bin.encode_mark(topic_bin.Mark(topic.topic_id, now_ms, now_ms + bin_ms))
    return fenced(image, (Create(layout.deletion_path(name), data),))


def require_binned(image: ClusterImage, topic_id: UUID) -> topic_bin.BinnedTopic:
    """The topic in the bin. Raises ApiError UNKNOWN_TOPIC_ID."""
    binned = image.bin.get(topic_id)
    if binned is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no deleted topic has the id {uuid_text(topic_id)}")
    return binned


def decide_restoration(image: ClusterImage, topic_id: UUID, name: str) -> TopicDecision:
    """Restore a topic from the bin under this name, which may be another one than before; its node there is removed
    afterwards (`decide_emptying`), so that an interrupted restoration is completed.

    Raises ApiError: UNKNOWN_TOPIC_ID, TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION.
    """
    own = image.by_id.get(topic_id)
    if own is not None and own.name == name:
        return TopicDecision((), own)  # restored already, only the answer was lost
    binned = require_binned(image, topic_id)
    if own is not None:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"the topic is being restored as '{own.name}'")
    require_new_name(image, name)
    topic = restored_topic(image, binned, name)
    config = (_config_op(image, "topics", name, binned.config),) if binned.config else ()

    def assignment() -> Ops:
        data = layout.encode_assignment(topic.assignment())
        return Create(layout.topic_path(name), data), Create(layout.partitions_path(name))

    ops = _followed_by_partitions(fenced(image, config), assignment, name, topic.partitions)
    return TopicDecision(ops, topic)


def decide_emptying(image: ClusterImage, topic_ids: Iterable[UUID]) -> Ops:
    """Remove topics from the bin: they have been restored, or are to go for good."""
    gone = [Delete(layout.binned_path(topic_id)) for topic_id in topic_ids if topic_id in image.bin]
    return fenced(image, gone) if gone else ()


def decide_removal(image: ClusterImage, name: str, existing: Collection[str]) -> Iterable[Op]:
    """Remove the nodes of a topic that is marked for deletion, the deepest first and the mark last.

    May be cut anywhere, because the mark remains until everything else is gone. existing: the topic's paths, parents first.
    """
    config = (_config_gone(image, "topics", name),) if ("topics", name) in image.configs else ()
    first = fenced(image, config)
    mark = (Delete(layout.deletion_path(name)),) if name in image.deleting else ()

    def ops() -> Iterator[Op]:
        yield from first
        for path in sorted(existing, key=_depth, reverse=True):
            yield Delete(path)
        yield from mark

    return LazyOps(ops)


def _depth(path: str) -> int:
    return path.count("/")


def decide_create_partitions(image: ClusterImage, event: CreatePartitions) -> TopicDecision:
    """Add partitions. Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
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
        # The existing partitions began at some broker; continuing from their count keeps the leaders spread evenly.
        replicas = _place(image, added, factor, topic.topic_id.int + current)
    else:
        if len(event.assignments) != len(added):
            raise _bad_assignment(
                f"Attempted to add {len(added)} additional partition(s), but only {len(event.assignments)} "
                "assignment(s) were specified."
            )
        _check_replicas(image, event.assignments, factor)
        replicas = dict(zip(added, event.assignments, strict=True))
    new = _new_partitions(image, replicas)
    grown = replace(topic, partitions={**topic.partitions, **new}, version=topic.version + 1)

    def assignment() -> Ops:
        data = layout.encode_assignment(grown.assignment())
        return (Set(layout.topic_path(topic.name), data, topic.version),)

    return TopicDecision(_followed_by_partitions(fenced(image, ()), assignment, topic.name, new), grown)


# --- configs ------------------------------------------------------------------------------------------------


def decide_config(image: ClusterImage, kind: str, name: str, config: Mapping[str, str]) -> Ops:
    """Replace an entity's own configs, which the caller has checked. An empty config removes the node.

    The tree refuses if somebody else has changed them since the image was loaded. kind, name: as in layout.config_path.
    Brokers watch /config, so no notification nodes are written.
    """
    if not config and any(k == kind and other.startswith(f"{name}/clients/") for k, other in image.configs):
        # The user's node is the parent of its pairs with client ids: it stays, with an empty config.
        return (
            fenced(image, (_config_op(image, kind, name, config),)) if (kind, name) in image.configs else ()
        )
    if not config:
        gone = (_config_gone(image, kind, name),) if (kind, name) in image.configs else ()
        return fenced(image, gone) if gone else ()
    if image.configs.get((kind, name)) == config:
        return ()
    op = _config_op(image, kind, name, config)
    parents = _missing_config_parents(image, kind, name) if isinstance(op, Create) else ()
    return fenced(image, (*parents, op))


def _config_op(image: ClusterImage, kind: str, name: str, config: Mapping[str, str]) -> Op:
    path, data = layout.config_path(kind, name), layout.encode_config(config)
    if (kind, name) in image.configs:
        return Set(path, data, image.config_versions[kind, name])
    return Create(path, data)


def _config_gone(image: ClusterImage, kind: str, name: str) -> Op:
    return Delete(layout.config_path(kind, name), image.config_versions[kind, name])


def _missing_config_parents(image: ClusterImage, kind: str, name: str) -> Ops:
    """The parents that /config/users/U/clients/C needs: /config/users/U and /config/users/U/clients."""
    user, slash, _ = name.partition("/clients/")
    if kind != "users" or not slash:
        return ()
    if (kind, user) in image.configs:
        siblings = any(
            config_kind == kind and other.startswith(f"{user}/clients/")
            for config_kind, other in image.configs
        )
        return () if siblings else (Create(layout.config_path(kind, f"{user}/clients")),)
    path = layout.config_path(kind, user)
    # The parent gets an empty config of its own, as in ZooKeeper-based Kafka.
    return (Create(path, layout.encode_config({})), Create(f"{path}/clients"))
