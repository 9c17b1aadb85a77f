"""What a broker knows of its cluster: brokers, topics, configs, as stored in the znode tree.

The image changes only by replaying znodes: when it is loaded, after this broker's own changes, and when a watch has
announced changes by others. Entries are immutable; the dicts that hold them change in place, and only between
requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final
from uuid import UUID

from barnabas.cores import acl, topic_bin
from barnabas.cores import znode_layout as layout
from barnabas.cores.tokens import Token, decode_token, token_id_of
from barnabas.cores.znode_layout import Assignment, Broker, PartitionState
from barnabas.cores.znode_ops import Check, Create, Delete, Op

NO_LEADER: Final = -1
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
ConfigKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition. leader: a broker id or NO_LEADER. replicas: the preferred leader first.

    partition_epoch: counts changes of the leader and the in-sync replicas; -1 before the first.
    """

    replicas: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    controller_epoch: int = -1
    recovering: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    def with_state(self, state: PartitionState) -> PartitionImage:
        """The partition with the contents of its state node."""
        return replace(
            self,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
            controller_epoch=state.controller_epoch,
            recovering=state.recovering,
        )


@lru_cache(maxsize=4096)
def _in_state(partition: PartitionImage, data: bytes, version: int) -> PartitionImage:
    """`with_state`, by the payload of the state node. Most partitions of a cluster have one of a few states; those share an
    object, and of a hundred thousand payloads only the different ones are decoded. Raises BadPayload, without the path."""
    return partition.with_state(layout.decode_state("", data, version))


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic. version: of its znode, for changes of the assignment."""

    name: str
    topic_id: UUID
    partitions: dict[int, PartitionImage]
    version: int = 0

    @property
    def is_complete(self) -> bool:
        """False while some partitions have no state yet, because the creation of the topic was interrupted."""
        return bool(self.topic_id.int) and all(
            partition.partition_epoch >= 0 for partition in self.partitions.values()
        )

    @property
    def internal(self) -> bool:
        """True for topics in which the broker stores its own state."""
        return self.name in INTERNAL_TOPICS

    def assignment(self) -> Assignment:
        """The contents of the topic's znode."""
        partitions = self.partitions.items()
        return Assignment(
            self.topic_id,
            {index: partition.replicas for index, partition in partitions},
            {index: partition.adding for index, partition in partitions if partition.adding},
            {index: partition.removing for index, partition in partitions if partition.removing},
        )


@dataclass(slots=True)
class ClusterImage:
    """The whole cluster. configs: (kind, name) -> texts, for example ("topics", "orders").

    secret: random text that all brokers share; empty if the tree has none.
    deleting: topics that are marked for deletion, whose remaining nodes are being removed. marks: those of them that go to
    the bin. bin: the deleted topics that can be restored. moves_asked, elections_asked:
    requests of older tools under /admin; their version is -1 if the node does not exist.
    """

    cluster_id: str = ""
    secret: bytes = field(default=b"", repr=False)
    controller_id: int = -1
    controller_epoch: int = 0
    controller_epoch_version: int = -1
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, TopicImage] = field(default_factory=dict)
    by_id: dict[UUID, TopicImage] = field(default_factory=dict)
    configs: dict[ConfigKey, Mapping[str, str]] = field(default_factory=dict)
    config_versions: dict[ConfigKey, int] = field(default_factory=dict, compare=False)  # of their znodes
    acls: dict[acl.Resource, frozenset[acl.Rule]] = field(default_factory=dict)
    acl_versions: dict[acl.Resource, int] = field(default_factory=dict, compare=False)  # of their znodes
    tokens: dict[str, Token] = field(default_factory=dict)
    token_versions: dict[str, int] = field(default_factory=dict, compare=False)  # of their znodes
    deleting: set[str] = field(default_factory=set)
    marks: dict[str, topic_bin.Mark] = field(default_factory=dict)
    bin: dict[UUID, topic_bin.BinnedTopic] = field(default_factory=dict)
    moves_asked: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    moves_asked_version: int = -1
    elections_asked: list[tuple[str, int]] = field(default_factory=list)
    elections_asked_version: int = -1
    changes: int = field(default=0, compare=False)  # grows with each node that is replayed

    def config(self, kind: str, name: str) -> Mapping[str, str]:
        """An entity's own configs; empty when it has none."""
        return self.configs.get((kind, name), {})

    def take_config(self, kind: str, name: str, source: ClusterImage) -> None:
        """Copy an entity's own configs from another image."""
        key = (kind, name)
        if key in source.configs:
            self.configs[key] = source.configs[key]
            self.config_versions[key] = source.config_versions[key]
        else:
            self.configs.pop(key, None)
            self.config_versions.pop(key, None)

    def take_acls(self, resource: acl.Resource, source: ClusterImage) -> bool:
        """Copy a resource's access rules from another image; True if they differ from the previous ones."""
        was, now = self.acls.pop(resource, None), source.acls.get(resource)
        self.acl_versions.pop(resource, None)
        if now is not None:
            self.acls[resource], self.acl_versions[resource] = now, source.acl_versions[resource]
        self.changes += 1
        return was != now

    def take_token(self, token_id: str, source: ClusterImage) -> None:
        """Copy a delegation token from another image."""
        self.tokens.pop(token_id, None)
        self.token_versions.pop(token_id, None)
        if token_id in source.tokens:
            self.tokens[token_id] = source.tokens[token_id]
            self.token_versions[token_id] = source.token_versions[token_id]

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """A partition, or None."""
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(index)

    def take_asked(self, source: ClusterImage) -> None:
        """Copy the requests of older tools from another image."""
        self.moves_asked, self.moves_asked_version = source.moves_asked, source.moves_asked_version
        self.elections_asked = source.elections_asked
        self.elections_asked_version = source.elections_asked_version

    def rests(self, topic_id: UUID) -> bool:
        """Whether a deleted topic is in the bin, or on its way there."""
        return topic_id in self.bin or any(mark.topic_id == topic_id for mark in self.marks.values())

    def draft(self, name: str) -> ClusterImage:
        """An image of one topic alone, as it is now. Changes are replayed there until `adopt` makes them visible."""
        draft = ClusterImage()
        topic = self.topics.get(name)
        if topic is not None:
            draft.adopt(replace(topic, partitions=dict(topic.partitions)))
        return draft

    def adopt(self, topic: TopicImage) -> None:
        """Replace what is known under the topic's name with the drafted topic."""
        self.changes += 1
        self.forget(topic.name)
        self.topics[topic.name] = topic
        self.by_id[topic.topic_id] = topic

    def forget(self, name: str) -> None:
        """Remove a topic, if it exists."""
        self.changes += 1
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.by_id.pop(topic.topic_id, None)

    def put(self, path: str, data: bytes, version: int, czxid: int = -1) -> None:
        """Replay a node that was created or set. Unrelated nodes are ignored.

        Raises BadPayload.
        """
        self.changes += 1
        parts = path.split("/")[1:]
        if parts[:2] == ["brokers", "topics"] and len(parts) >= 3:
            self._put_topic(path, parts, data, version)
        elif parts[0] == "config" and len(parts) >= 3 and parts[1] != "changes":
            # /config/users/U/clients only exists to hold the nodes below it.
            if len(parts) != 4:
                key = (parts[1], "/".join(parts[2:]))
                self.configs[key] = layout.decode_config(path, data)
                self.config_versions[key] = version
        elif parts[:2] == ["brokers", "ids"] and len(parts) == 3 and parts[2].isdecimal():
            broker_id = int(parts[2])
            self.brokers[broker_id] = layout.decode_broker(broker_id, data, czxid)
        elif parts[:2] == ["admin", "delete_topics"] and len(parts) == 3:
            self.deleting.add(parts[2])
            self.marks.pop(parts[2], None)
            mark = topic_bin.decode_mark(path, data)
            if mark is not None:
                self.marks[parts[2]] = mark
        elif parts[:2] == ["admin", "deleted_topics"] and len(parts) == 3:
            binned = topic_bin.decode_binned(path, data)
            self.bin[binned.topic_id] = binned
        elif path == layout.REASSIGN_PARTITIONS:
            self.moves_asked, self.moves_asked_version = {}, version
            self.moves_asked = layout.decode_reassignment(data)
        elif path == layout.PREFERRED_REPLICA_ELECTION:
            self.elections_asked, self.elections_asked_version = [], version
            self.elections_asked = layout.decode_partition_list(path, data)
        elif parts[0] in acl.ROOTS and (resource := acl.resource_of(path)) is not None:
            # Unreadable rules must not be mistaken for no rules: deny everything.
            self.acls[resource], self.acl_versions[resource] = acl.DENY_ALL, version
            self.acls[resource] = acl.decode_rules(path, data)
        elif (token_id := token_id_of(path)) is not None:
            self.tokens[token_id], self.token_versions[token_id] = decode_token(path, data), version
        elif path == layout.CONTROLLER:
            self.controller_id = layout.decode_controller(data)
        elif path == layout.CONTROLLER_EPOCH:
            self.controller_epoch, self.controller_epoch_version = int(data), version
        elif path == layout.CLUSTER_ID:
            self.cluster_id = layout.decode_cluster_id(data)
        elif path == layout.CLUSTER_SECRET:
            self.secret = data

    def _put_topic(self, path: str, parts: list[str], data: bytes, version: int) -> None:
        name = parts[2]
        if len(parts) == 3:
            self._put_assignment(name, layout.decode_assignment(name, data), version)
        elif len(parts) == 6 and parts[5] == "state" and name in self.topics:
            partitions, index = self.topics[name].partitions, int(parts[4])
            if index in partitions:
                try:
                    partitions[index] = _in_state(partitions[index], data, version)
                except layout.BadPayload as error:
                    raise layout.BadPayload(f"{path}{error}") from None

    def _put_assignment(self, name: str, assignment: Assignment, version: int) -> None:
        before = self.topics.get(name)
        known = before.partitions if before is not None and before.topic_id == assignment.topic_id else {}
        partitions: dict[int, PartitionImage] = {}
        new: dict[tuple[int, ...], PartitionImage] = {}  # partitions with the same replicas share an object
        for index, replicas in sorted(assignment.replicas.items()):
            was = known.get(index)
            adding, removing = assignment.adding.get(index, ()), assignment.removing.get(index, ())
            if was is None and not adding and not removing:
                was = new.get(replicas)
                if was is None:
                    was = new[replicas] = PartitionImage(replicas)
            elif was is None:
                was = PartitionImage(replicas, adding=adding, removing=removing)
            elif (was.replicas, was.adding, was.removing) != (replicas, adding, removing):
                was = replace(was, replicas=replicas, adding=adding, removing=removing)
            partitions[index] = was
        self.adopt(TopicImage(name, assignment.topic_id, partitions, version))

    def remove(self, path: str) -> None:
        """Replay the deletion of a node."""
        self.changes += 1
        parts = path.split("/")[1:]
        if parts[:2] == ["brokers", "topics"] and len(parts) == 3:
            self.forget(parts[2])
        elif parts[0] == "config" and len(parts) >= 3:
            self.configs.pop((parts[1], "/".join(parts[2:])), None)
            self.config_versions.pop((parts[1], "/".join(parts[2:])), None)
        elif parts[:2] == ["brokers", "ids"] and len(parts) == 3 and parts[2].isdecimal():
            self.brokers.pop(int(parts[2]), None)
        elif parts[:2] == ["admin", "delete_topics"] and len(parts) == 3:
            self.deleting.discard(parts[2])
            self.marks.pop(parts[2], None)
        elif parts[:2] == ["admin", "deleted_topics"] and len(parts) == 3:
            self.bin.pop(layout.topic_id_of(parts[2]), None)
        elif path == layout.REASSIGN_PARTITIONS:
            self.moves_asked, self.moves_asked_version = {}, -1
        elif path == layout.PREFERRED_REPLICA_ELECTION:
            self.elections_asked, self.elections_asked_version = [], -1
        elif parts[0] in acl.ROOTS and (resource := acl.resource_of(path)) is not None:
            self.acls.pop(resource, None)
            self.acl_versions.pop(resource, None)
        elif (token_id := token_id_of(path)) is not None:
            self.tokens.pop(token_id, None)
            self.token_versions.pop(token_id, None)
        elif path == layout.CONTROLLER:
            self.controller_id = -1

    def apply(self, ops: Iterable[Op], results: Iterable[object]) -> None:
        """Replay changes that were made. results: what `ZnodeTree.multi` returned for them."""
        for op, result in zip(ops, results, strict=True):
            if isinstance(op, Create):
                self.put(str(result), op.data, 0)
            elif isinstance(op, Delete):
                self.remove(op.path)
            elif not isinstance(op, Check):
                version = getattr(result, "version", None)
                assert isinstance(version, int), "a set returns the node's stat"
                self.put(op.path, op.data, version)

    def check(self) -> None:
        """Assert the invariants between the parts of the image."""
        assert set(self.by_id) == {topic.topic_id for topic in self.topics.values()}
        for topic in self.topics.values():
            assert self.by_id[topic.topic_id] is topic
            for index, partition in topic.partitions.items():
                where = f"{topic.name}-{index}"
                assert len(set(partition.replicas)) == len(partition.replicas), where
                assert set(partition.isr) <= set(partition.replicas), where
                assert partition.leader == NO_LEADER or partition.leader in partition.isr, where
