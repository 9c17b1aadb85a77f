"""The controller core against a real tree in memory: what it decides is applied there, and replayed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordination.local import LocalTree
from barnabas.coordination.tree import BadVersion
from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import NO_LEADER, ClusterImage
from barnabas.cores.controller import (
    CreatePartitions,
    CreateTopic,
    decide_bootstrap,
    decide_config,
    decide_controller,
    decide_create_partitions,
    decide_create_topic,
    decide_deletion,
    decide_removal,
)
from barnabas.cores.elections import (
    AlterIsr,
    decide_alter_isr,
    decide_elections,
    decide_lost_logs,
    decide_preferred_leader,
    decide_shutdown,
    decide_unclean_leader,
    decide_unclean_restart,
)
from barnabas.cores.znode_layout import Broker, Endpoint
from barnabas.cores.znode_ops import Check, Create, Delete, Op, Set, chunks
from barnabas.wire.errors import ApiError, ErrorCode


class Cluster:
    """A tree, the image that follows it, and the executor's loop in small."""

    def __init__(self, brokers: Sequence[int] = (1,)) -> None:
        self.tree = LocalTree.open(None, now_ms=lambda: 0)
        self.image = ClusterImage()
        self.change(decide_bootstrap((), "cluster-1", b"secret"))
        self.change(decide_controller(self.image, 1, 0))
        for broker in brokers:
            self.start(broker)

    def change(self, ops: Iterable[Op | None]) -> None:
        changes = tuple(op for op in ops if op is not None)
        self.image.apply(changes, asyncio.run(self.tree.multi(changes)))

    def delete(self, name: str) -> None:
        self.change(decide_deletion(self.image, name))
        nodes = asyncio.run(self.tree.subtree(layout.topic_path(name)))
        self.change(decide_removal(self.image, name, nodes))

    def start(self, broker: int, rack: str | None = None) -> None:
        broker_info = Broker(broker, (Endpoint("PLAINTEXT", "h", 9000 + broker, "PLAINTEXT"),), rack)
        self.change([Create(layout.broker_path(broker), layout.encode_broker(broker_info), ephemeral=True)])

    def stop(self, broker: int) -> None:
        self.change([Delete(layout.broker_path(broker))])

    def create(self, name: str, **fields: object) -> None:
        self.change(decide_create_topic(self.image, event(name, **fields)).ops)

    def loaded(self) -> ClusterImage:
        """The image that a broker would load now."""
        image = ClusterImage()
        for path, (data, stat) in asyncio.run(self.tree.subtree("/")).items():
            image.put(path, data, stat.version)
        return image


def event(name: str, **fields: object) -> CreateTopic:
    return CreateTopic(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), **fields)  # type: ignore[arg-type]


def refused(code: ErrorCode, says: str):
    return pytest.raises(ApiError, match=says, check=lambda error: error.code == code)


def test_a_topic_is_made_led_and_found_by_name_and_id() -> None:
    cluster = Cluster()
    cluster.create("orders", num_partitions=3, configs={"retention.ms": "5"})
    topic = cluster.image.topics["orders"]
    assert cluster.image.by_id[topic.topic_id] is topic
    assert [(p.leader, p.leader_epoch, p.isr, p.partition_epoch) for p in topic.partitions.values()] == [
        (1, 0, (1,), 0)
    ] * 3
    assert cluster.image.config("topics", "orders") == {"retention.ms": "5"}
    assert cluster.loaded() == cluster.image
    assert not topic.internal


def test_defaults_and_clamping() -> None:
    cluster = Cluster()
    cluster.create("a", num_partitions_default=4)
    assert len(cluster.image.topics["a"].partitions) == 4
    cluster.create("__consumer_offsets", num_partitions=2, replication_factor=3, clamp_replication=True)
    assert cluster.image.topics["__consumer_offsets"].partitions[0].replicas == (1,)
    assert cluster.image.topics["__consumer_offsets"].internal


@pytest.mark.parametrize(
    ("name", "fields", "code", "says"),
    [
        ("have", {}, ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'have' already exists."),
        ("a/b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        ("x.y", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with existing topic: x_y"),
        ("n", {"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS, "non-positive"),
        ("n", {"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS, "non-positive"),
        ("n", {"num_partitions": 10_001}, ErrorCode.POLICY_VIOLATION, "Excessively large"),
        ("n", {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (
            "n",
            {"replication_factor": 3},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            r"only 2 broker\(s\) are registered",
        ),
        (
            "n",
            {"assignments": {0: (1,)}, "num_partitions": 1},
            ErrorCode.INVALID_REQUEST,
            "numPartitions was not",
        ),
        (
            "n",
            {"assignments": {0: (1,)}, "replication_factor": 1},
            ErrorCode.INVALID_REQUEST,
            "replication factor was",
        ),
        ("n", {"assignments": {1: (1,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based"),
        ("n", {"assignments": {0: ()}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
        ("n", {"assignments": {0: (7,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker"),
        ("n", {"assignments": {0: (1, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        ("n", {"assignments": {0: (1, 2), 1: (1,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not consistent"),
    ],
)
def test_refused_topics(name: str, fields: dict[str, object], code: ErrorCode, says: str) -> None:
    cluster = Cluster([1, 2])
    cluster.change(decide_create_topic(cluster.image, CreateTopic("have", uuid.uuid4())).ops)
    cluster.create("x_y")
    with refused(code, says):
        decide_create_topic(cluster.image, event(name, **fields))


def test_the_client_may_place_replicas_itself() -> None:
    cluster = Cluster([1, 2])
    cluster.create("t", assignments={1: (1, 2), 0: (2, 1)})
    assert {index: each.replicas for index, each in cluster.image.topics["t"].partitions.items()} == {
        0: (2, 1),
        1: (1, 2),
    }


def test_deleting_leaves_nothing_behind() -> None:
    cluster = Cluster()
    before = set(asyncio.run(cluster.tree.subtree("/")))
    cluster.create("t", num_partitions=3, configs={"retention.ms": "5"})
    cluster.delete("t")
    assert set(asyncio.run(cluster.tree.subtree("/"))) == before
    assert (cluster.image.topics, cluster.image.by_id, cluster.image.configs) == ({}, {}, {})
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not host"):
        decide_deletion(cluster.image, "t")
    cluster.create("t")


def test_topics_grow() -> None:
    cluster = Cluster([1, 2])
    cluster.create("t", num_partitions=2, replication_factor=2)
    first = dict(cluster.image.topics["t"].partitions)
    cluster.change(decide_create_partitions(cluster.image, CreatePartitions("t", 4)).ops)
    grown = cluster.image.topics["t"].partitions
    assert len(grown) == 4
    assert {index: grown[index] for index in first} == first
    assert all(len(row.replicas) == 2 and row.leader == row.replicas[0] for row in grown.values())
    cluster.change(decide_create_partitions(cluster.image, CreatePartitions("t", 5, [(2, 1)])).ops)
    assert cluster.image.topics["t"].partitions[4].leader == 2
    assert cluster.loaded() == cluster.image


@pytest.mark.parametrize(
    ("event", "code", "says"),
    [
        (CreatePartitions("none", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not host"),
        (
            CreatePartitions("t", 1),
            ErrorCode.INVALID_PARTITIONS,
            r"currently has 2 partition\(s\); 1 would not be",
        ),
        (CreatePartitions("t", 2), ErrorCode.INVALID_PARTITIONS, r"already has 2 partition\(s\)"),
        (CreatePartitions("t", 20_000), ErrorCode.POLICY_VIOLATION, "at once"),
        (CreatePartitions("t", 4, [(1,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "only 1 assignment"),
        (CreatePartitions("t", 3, [(9,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker"),
        (CreatePartitions("t", 3, [()]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
    ],
)
def test_refused_growth(event: CreatePartitions, code: ErrorCode, says: str) -> None:
    cluster = Cluster()
    cluster.create("t", num_partitions=2)
    with refused(code, says):
        decide_create_partitions(cluster.image, event)


def test_configs_come_change_and_go() -> None:
    cluster = Cluster()
    cluster.create("t")
    cluster.change(decide_config(cluster.image, "topics", "t", {"retention.ms": "1"}))
    assert decide_config(cluster.image, "topics", "t", {"retention.ms": "1"}) == ()
    cluster.change(decide_config(cluster.image, "topics", "t", {"retention.ms": "2"}))
    cluster.change(decide_config(cluster.image, "users", "u/clients/c", {"producer_byte_rate": "1"}))
    cluster.change(decide_config(cluster.image, "users", "u/clients/d", {"producer_byte_rate": "2"}))
    cluster.change(decide_config(cluster.image, "users", "u", {"producer_byte_rate": "3"}))
    assert cluster.image.config("users", "u/clients/d") == {"producer_byte_rate": "2"}
    assert cluster.loaded() == cluster.image
    cluster.change(decide_config(cluster.image, "topics", "t", {}))
    assert cluster.image.config("topics", "t") == {}
    assert decide_config(cluster.image, "topics", "t", {}) == ()


def test_a_replaced_controller_changes_nothing() -> None:
    cluster = Cluster()
    decided = decide_create_topic(cluster.image, event("t")).ops
    cluster.change([Delete(layout.CONTROLLER)])
    cluster.change(decide_controller(cluster.image, 2, 0))
    assert (cluster.image.controller_id, cluster.image.controller_epoch) == (2, 2)
    with pytest.raises(BadVersion):
        cluster.change(decided)
    assert cluster.loaded().topics == {}


def test_leaders_move_when_brokers_fail_and_come_back() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create("t", assignments={0: (1, 2, 3)})

    def now() -> tuple[int, int, tuple[int, ...]]:
        cluster.change(decide_elections(cluster.image))
        partition = cluster.image.topics["t"].partitions[0]
        return partition.leader, partition.leader_epoch, partition.isr

    assert now() == (1, 0, (1, 2, 3))
    cluster.stop(1)
    assert now() == (2, 1, (2, 3))
    cluster.stop(2)
    assert now() == (3, 2, (3,))
    cluster.stop(3)
    assert now() == (NO_LEADER, 3, (3,))
    cluster.start(1)
    assert now() == (NO_LEADER, 3, (3,))
    cluster.start(3)
    assert now() == (3, 4, (3,))


def test_an_unclean_election_only_where_it_is_allowed() -> None:
    cluster = Cluster([1, 2])
    cluster.create("t", assignments={0: (1, 2)})
    cluster.change(decide_elections(cluster.image))
    cluster.stop(2)
    cluster.change(decide_elections(cluster.image))
    cluster.stop(1)
    cluster.start(2)
    cluster.change(decide_elections(cluster.image))
    assert cluster.image.topics["t"].partitions[0].leader == NO_LEADER
    cluster.change(decide_elections(cluster.image, {"t"}))
    partition = cluster.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.recovering) == (2, (2,), True)
    with refused(ErrorCode.ELECTION_NOT_NEEDED, "live leader"):
        decide_unclean_leader(cluster.image, "t", 0)
    cluster.stop(2)
    with refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica"):
        decide_unclean_leader(cluster.image, "t", 0)


def test_leadership_goes_back_to_the_preferred_replica() -> None:
    cluster = Cluster([1, 2])
    cluster.create("t", assignments={0: (1, 2)})
    with refused(ErrorCode.ELECTION_NOT_NEEDED, "already"):
        decide_preferred_leader(cluster.image, "t", 0)
    cluster.stop(1)
    cluster.change(decide_elections(cluster.image))
    with refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "not alive and in sync"):
        decide_preferred_leader(cluster.image, "t", 0)
    cluster.start(1)
    topic = cluster.image.topics["t"]
    partition = topic.partitions[0]
    asked = AlterIsr(2, topic.topic_id, 0, partition.leader_epoch, partition.partition_epoch, (2, 1))
    cluster.change(decide_alter_isr(cluster.image, asked))
    assert topic.partitions[0].leader_epoch == partition.leader_epoch
    cluster.change(decide_preferred_leader(cluster.image, "t", 0))
    assert topic.partitions[0].leader == 1


def test_in_sync_sets_change_only_for_who_knows_the_present() -> None:
    cluster = Cluster([1, 2])
    cluster.create("t", assignments={0: (1, 2)})
    topic_id = cluster.image.topics["t"].topic_id
    for asked, code in (
        (AlterIsr(1, uuid.UUID(int=9), 0, 0, 0, (1,)), ErrorCode.UNKNOWN_TOPIC_ID),
        (AlterIsr(1, topic_id, 7, 0, 0, (1,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (AlterIsr(1, topic_id, 0, -1, 0, (1,)), ErrorCode.FENCED_LEADER_EPOCH),
        (AlterIsr(2, topic_id, 0, 0, 0, (2,)), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (AlterIsr(1, topic_id, 0, 0, 3, (1,)), ErrorCode.INVALID_UPDATE_VERSION),
        (AlterIsr(1, topic_id, 0, 0, 0, (2,)), ErrorCode.INVALID_REQUEST),
        (AlterIsr(1, topic_id, 0, 0, 0, (1, 5)), ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(ApiError) as error:
            decide_alter_isr(cluster.image, asked)
        assert error.value.code == code
    cluster.stop(2)
    with refused(ErrorCode.INELIGIBLE_REPLICA, "not alive"):
        decide_alter_isr(cluster.image, AlterIsr(1, topic_id, 0, 0, 0, (1, 2)))


def test_a_broker_that_has_registered_anew_is_not_the_one_that_was_in_sync() -> None:
    """The leader's image may not have heard of it: then the tree refuses, since the registrations are counted there."""
    cluster = Cluster([1])
    cluster.create("t", assignments={0: (1,)})
    cluster.image.topics["t"].partitions[0] = replace(
        cluster.image.topics["t"].partitions[0], replicas=(1, 2)
    )
    counter = layout.incarnation_path(2)
    cluster.change([Create(counter)])
    endpoints = (Endpoint("PLAINTEXT", "h", 9002, "PLAINTEXT"),)
    cluster.image.brokers[2] = Broker(2, endpoints, epoch=50, incarnation=0)
    topic_id = cluster.image.topics["t"].topic_id
    for epochs, is_refused in (((-1, 49), True), ((-1, 51), True), ((-1, 50), False), ((-1, -1), False)):
        asked = AlterIsr(1, topic_id, 0, 0, 0, (1, 2), epochs=epochs)
        if is_refused:
            with refused(ErrorCode.INELIGIBLE_REPLICA, "broker 2 has registered anew"):
                decide_alter_isr(cluster.image, asked)
        else:
            assert Check(counter, 0) in decide_alter_isr(cluster.image, asked)
    asyncio.run(cluster.tree.multi([Set(counter, b"", 0)]))
    with pytest.raises(BadVersion, match="incarnations/2"):
        asyncio.run(cluster.tree.multi(decide_alter_isr(cluster.image, asked)))


def test_checks_at_the_beginning_guard_every_list_of_changes() -> None:
    checks = [Check("/a", 1), Check("/b", 2)]
    changes = [Set(f"/c/{number}", b"") for number in range(25)]
    lists = list(chunks([*checks, *changes], ops_max=10))
    assert [part[:2] for part in lists] == [checks] * 3
    assert [op for part in lists for op in part[2:]] == changes


def test_shutdown_moves_what_can_move_and_an_unclean_restart_counts_epochs_up() -> None:
    cluster = Cluster([1, 2])
    cluster.create("both", assignments={0: (1, 2), 1: (2, 1)})
    cluster.create("alone", assignments={0: (1,)})
    cluster.change(decide_shutdown(cluster.image, 1))
    both = cluster.image.topics["both"].partitions
    assert [(row.leader, row.isr) for row in both.values()] == [(2, (2,)), (2, (2,))]
    alone = cluster.image.topics["alone"].partitions
    assert (alone[0].leader, alone[0].leader_epoch) == (1, 0)
    cluster.change(decide_unclean_restart(cluster.image, 1))
    assert (alone[0].leader, alone[0].leader_epoch, alone[0].partition_epoch) == (1, 1, 1)
    assert both[0].leader_epoch == 1
    assert cluster.loaded() == cluster.image


def test_a_broker_without_its_logs_leaves_the_in_sync_sets_of_the_dead_as_well() -> None:
    cluster = Cluster([1, 2, 3])
    cluster.create("led", assignments={0: (1, 2), 1: (1, 3)})
    cluster.create("followed", assignments={0: (2, 1)})
    cluster.create("alone", assignments={0: (1,)})
    cluster.create("kept", assignments={0: (1, 2)})
    cluster.stop(3)
    cluster.change(
        decide_lost_logs(cluster.image, 1, [("led", 0), ("led", 1), ("followed", 0), ("alone", 0)])
    )
    states = {
        f"{topic.name}-{index}": (row.leader, row.isr, row.leader_epoch)
        for topic in cluster.image.topics.values()
        for index, row in topic.partitions.items()
    }
    assert states == {
        "led-0": (2, (2,), 1),
        "led-1": (-1, (3,), 1),  # what broker 3 has is worth waiting for
        "followed-0": (2, (2,), 1),
        "alone-0": (1, (1,), 0),
        "kept-0": (1, (1, 2), 0),
    }
    assert cluster.loaded() == cluster.image


NAMES = st.sampled_from(["a", "b", "c.d", "c_d", "__x"])
BROKERS = st.sampled_from([1, 2, 3, 4])


class Administration(RuleBasedStateMachine):
    """Any order of requests and failures: the image always equals what a new broker would load."""

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster([1, 2, 3])
        self.epochs: dict[tuple[uuid.UUID, int], tuple[int, int]] = {}
        self.made = 0

    @rule(name=NAMES, partitions=st.integers(0, 4), factor=st.integers(1, 4))
    def create(self, name: str, partitions: int, factor: int) -> None:
        self.made += 1
        asked = CreateTopic(name, uuid.UUID(int=self.made), partitions, factor, configs={"retention.ms": "1"})
        self.request(lambda: decide_create_topic(self.cluster.image, asked).ops)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.cluster.image.topics:
            self.cluster.delete(name)

    @rule(name=NAMES, count=st.integers(0, 6))
    def grow(self, name: str, count: int) -> None:
        self.request(lambda: decide_create_partitions(self.cluster.image, CreatePartitions(name, count)).ops)

    @rule(name=NAMES, index=st.integers(0, 3))
    def prefer(self, name: str, index: int) -> None:
        self.request(lambda: decide_preferred_leader(self.cluster.image, name, index))

    @rule(broker=BROKERS)
    def start_or_stop(self, broker: int) -> None:
        if broker in self.cluster.image.brokers:
            self.cluster.stop(broker)
        else:
            self.cluster.start(broker)
        self.cluster.change(decide_elections(self.cluster.image))

    @rule(name=NAMES, text=st.sampled_from(["1", "2"]))
    def configure(self, name: str, text: str) -> None:
        if name in self.cluster.image.topics:
            self.cluster.change(decide_config(self.cluster.image, "topics", name, {"retention.ms": text}))

    def request(self, decide) -> None:
        try:
            ops = decide()
        except ApiError:
            return
        self.cluster.change(ops)

    @invariant()
    def image_is_what_a_new_broker_would_load(self) -> None:
        self.cluster.image.check()
        assert self.cluster.loaded() == self.cluster.image

    @invariant()
    def epochs_only_grow_and_leaders_live(self) -> None:
        image = self.cluster.image
        for topic in image.topics.values():
            for index, partition in topic.partitions.items():
                key = (topic.topic_id, index)
                before = self.epochs.get(key, (-1, -1))
                assert partition.leader_epoch >= before[0]
                assert partition.partition_epoch >= before[1]
                self.epochs[key] = (partition.leader_epoch, partition.partition_epoch)
                assert partition.leader == NO_LEADER or partition.leader in image.brokers


Administration.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestAdministration = Administration.TestCase


def test_a_cluster_of_before_gets_a_secret_once() -> None:
    cluster = Cluster()
    assert cluster.image.secret == b"secret"
    paths = set(asyncio.run(cluster.tree.subtree("/")))
    assert decide_bootstrap(paths, "another", b"another") == ()
    wanted = (Create(layout.CLUSTER_SECRET, b"another"),)
    assert decide_bootstrap(paths - {layout.CLUSTER_SECRET}, "another", b"another") == wanted
