"""A topic's way into the bin and back may be cut after any change: what follows leads to the same end."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from barnabas.cores import znode_layout as layout
from barnabas.cores.binning import forgotten, into_the_bin, resting
from barnabas.cores.cluster_image import ClusterImage
from barnabas.cores.controller import (
    CreateTopic,
    decide_completion,
    decide_create_topic,
    decide_deletion,
    decide_emptying,
    decide_removal,
    decide_restoration,
)
from barnabas.cores.znode_layout import Broker, PartitionState
from barnabas.cores.znode_ops import ANY_VERSION, Check, Create, Delete, Op, Set
from barnabas.wire.errors import ApiError, ErrorCode

ID = UUID(int=7)
OPTIONS = {"segment.bytes": "200000"}


class Tree:
    """A tree of nodes with versions, and an image that follows it."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.image = ClusterImage(brokers={n: Broker(n, ()) for n in (1, 2)})

    def make(self, op: Op) -> None:
        if isinstance(op, Create):
            assert op.path not in self.nodes, op.path
            self.nodes[op.path] = (op.data, 0)
        elif isinstance(op, Set):
            self.nodes[op.path] = (op.data, self.nodes[op.path][1] + 1)
        elif isinstance(op, Delete):
            assert op.version in (ANY_VERSION, self.nodes[op.path][1])
            del self.nodes[op.path]
        if isinstance(op, Delete):
            self.image.remove(op.path)
        elif not isinstance(op, Check):
            self.image.put(op.path, *self.nodes[op.path])

    def reload(self) -> None:
        """What a new controller knows."""
        fresh = ClusterImage(brokers=self.image.brokers)
        for path, (data, version) in self.nodes.items():
            fresh.put(path, data, version)
        self.image = fresh

    def below(self, path: str) -> dict[str, tuple[bytes, int]]:
        return {at: node for at, node in self.nodes.items() if at == path or at.startswith(path + "/")}

    def removal(self) -> list[Op]:
        nodes = self.below(layout.topic_path("orders"))
        removal = decide_removal(self.image, "orders", nodes)
        topic = resting(self.image, "orders", self.image.marks["orders"], nodes)
        return list(removal if topic is None else into_the_bin(self.image, topic, removal, nodes))


def with_topic() -> Tree:
    tree = Tree()
    placed = dict.fromkeys(range(3), (1, 2))
    for op in decide_create_topic(
        tree.image, CreateTopic("orders", ID, assignments=placed, configs=OPTIONS)
    ).ops:
        tree.make(op)
    state = PartitionState(2, 5, (2,), 0)
    tree.make(Set(layout.state_path("orders", 1), layout.encode_state(state)))
    return tree


def deleted(cuts_at: int = 1 << 30) -> Tree:
    """After a deletion whose removal was cut, and continued by another controller."""
    tree = with_topic()
    for op in decide_deletion(tree.image, "orders", 1_000, 500):
        tree.make(op)
    for op in tree.removal()[:cuts_at]:
        tree.make(op)
    tree.reload()
    if tree.image.deleting:
        for op in tree.removal():
            tree.make(op)
    return tree


@pytest.mark.parametrize("cuts_at", range(14))
def test_a_cut_removal_keeps_everything_in_the_bin(cuts_at: int) -> None:
    tree = deleted(cuts_at)
    assert list(tree.nodes) == [layout.binned_path(ID)]
    binned = tree.image.bin[ID]
    assert (binned.name, binned.until_ms, binned.config) == ("orders", 1_500, OPTIONS)
    assert {n: (s.leader_epoch, s.in_sync) for n, s in binned.states.items()} == {
        0: (0, (1, 2)),
        1: (5, (2,)),
        2: (0, (1, 2)),
    }


@pytest.mark.parametrize("cuts_at", range(12))
def test_a_cut_restoration_is_completed_with_the_old_leaders(cuts_at: int) -> None:
    tree = deleted()
    for op in list(decide_restoration(tree.image, ID, "again").ops)[:cuts_at]:
        tree.make(op)
    tree.reload()
    if "again" not in tree.image.topics:
        for op in decide_restoration(tree.image, ID, "again").ops:
            tree.make(op)
    existing = tree.below(layout.topic_path("again"))
    for op in decide_completion(tree.image, tree.image.topics["again"], existing, UUID(int=9)):
        tree.make(op)
    for op in decide_emptying(tree.image, [ID]):
        tree.make(op)
    topic = tree.image.topics["again"]
    assert topic.topic_id == ID
    assert topic.is_complete
    assert [(p.leader, p.leader_epoch, p.isr) for p in topic.partitions.values()] == [
        (1, 1, (1, 2)),
        (2, 6, (2,)),
        (1, 1, (1, 2)),
    ]
    assert tree.image.config("topics", "again") == OPTIONS
    assert tree.image.bin == {}
    tree.image.check()


def test_a_leader_that_was_in_sync_alone_and_is_away_is_waited_for() -> None:
    tree = deleted()
    del tree.image.brokers[2]
    topic = decide_restoration(tree.image, ID, "orders").topic
    assert (topic.partitions[1].leader, topic.partitions[1].isr) == (-1, (2,))
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (1, (1,))


def test_a_set_that_shrinks_during_the_removal_is_what_counts() -> None:
    tree = with_topic()
    for op in decide_deletion(tree.image, "orders", 1_000, 500):
        tree.make(op)
    begun = tree.removal()[:2]
    for op in begun:
        tree.make(op)
    path = layout.state_path("orders", 0)
    tree.make(Set(path, layout.encode_state(PartitionState(2, 1, (2,), 0))))
    assert [op.version for op in tree.removal() if isinstance(op, Delete) and op.path == path] == [1]
    for op in tree.removal():
        tree.make(op)
    assert tree.image.bin[ID].states[0].in_sync == (2,)


def test_names_and_ids_are_checked() -> None:
    tree = deleted()
    with pytest.raises(ApiError) as refused:
        decide_restoration(tree.image, UUID(int=8), "orders")
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_ID
    for op in decide_create_topic(tree.image, CreateTopic("orders", UUID(int=8), assignments={0: (1,)})).ops:
        tree.make(op)
    with pytest.raises(ApiError) as refused:
        decide_restoration(tree.image, ID, "orders")
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_internal_topics_and_topics_without_a_bin_go_at_once() -> None:
    tree = with_topic()
    assert [op.data for op in decide_deletion(tree.image, "orders", 1_000, 0) if isinstance(op, Create)] == [
        b""
    ]
    tree.image.topics["__consumer_offsets"] = replace(tree.image.topics["orders"], name="__consumer_offsets")
    ops = decide_deletion(tree.image, "__consumer_offsets", 1_000, 500)
    assert [op.data for op in ops if isinstance(op, Create)] == [b""]


def test_logs_are_forgotten_only_if_no_node_names_them() -> None:
    tree = deleted()
    assert forgotten(tree.image, {ID, UUID(int=8)}) == {UUID(int=8)}
    for op in decide_emptying(tree.image, [ID]):
        tree.make(op)
    assert forgotten(tree.image, {ID}) == {ID}
