"""Moves of replicas in random histories, on a real tree in memory, with controllers that die between two changes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Iterable

import pytest

from barnabas.coordination.local import LocalTree
from barnabas.cores import znode_layout as layout
from barnabas.cores.cluster_image import ClusterImage, PartitionImage
from barnabas.cores.controller import CreateTopic, decide_bootstrap, decide_controller, decide_create_topic
from barnabas.cores.elections import AlterIsr, decide_alter_isr, decide_elections
from barnabas.cores.reassignment import (
    Move,
    decide_advance,
    decide_asked,
    decide_moves,
    decide_overridden,
    is_moving,
    target_of,
    topics_to_advance,
)
from barnabas.cores.znode_layout import Broker, Endpoint
from barnabas.cores.znode_ops import Check, Create, Delete, Op
from barnabas.wire.errors import ApiError

BROKERS = (1, 2, 3, 4)
PARTITIONS = (0, 1)


class History:
    """A cluster of which the controller may die after any single change."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.tree = LocalTree.open(None, now_ms=lambda: 0)
        self.image = ClusterImage()
        self.asked: dict[int, tuple[int, ...]] = {}
        self.change(decide_bootstrap((), "history", b"secret"))
        self.change(decide_controller(self.image, 1, 0))
        for broker in BROKERS:
            self.start(broker)
        event = CreateTopic("t", uuid.UUID(int=1), assignments={0: (1, 2), 1: (2, 3)})
        self.change(tuple(decide_create_topic(self.image, event).ops))

    def change(self, ops: Iterable[Op | None], *, may_die: bool = False) -> None:
        """Make the changes one by one, with may_die perhaps not all; a controller that comes new would load the same."""
        changes = [op for op in ops if op is not None and not isinstance(op, Check)]
        for op in changes:
            was = dict(self.image.topics["t"].partitions) if "t" in self.image.topics else {}
            self.image.apply([op], asyncio.run(self.tree.multi([op])))
            self.check(was)
            if may_die and self.chance.random() < 0.2:
                break
        loaded = ClusterImage()
        for path, (data, stat) in asyncio.run(self.tree.subtree("/")).items():
            loaded.put(path, data, stat.version, stat.czxid)
        assert (loaded.topics, loaded.moves_asked) == (self.image.topics, self.image.moves_asked)

    def check(self, was: dict[int, PartitionImage]) -> None:
        self.image.check()
        topic = self.image.topics.get("t")
        for index, now in (topic.partitions if topic is not None else {}).items():
            before = was.get(index)
            if before is None or now.partition_epoch <= 0 or before.partition_epoch == now.partition_epoch:
                continue
            assert now.isr, "somebody has everything"
            if now.leader_epoch != before.leader_epoch:
                assert set(now.isr) <= set(before.isr), "the controller takes nobody in"
                assert now.leader_epoch > before.leader_epoch
            else:
                assert now.leader == before.leader

    def start(self, broker: int) -> None:
        data = layout.encode_broker(Broker(broker, (Endpoint("P", "h", 1, "PLAINTEXT"),)))
        self.change([Create(layout.broker_path(broker), data, ephemeral=True)])

    def play(self) -> None:
        verb = self.chance.choice(["move", "move", "cancel", "ask", "bounce", "join", "join", "advance"])
        index = self.chance.choice(PARTITIONS)
        if verb == "move":
            self.move(index, tuple(self.chance.sample(BROKERS, self.chance.randint(1, 3))))
        elif verb == "cancel":
            self.move(index, None)
        elif verb == "ask" and self.image.moves_asked_version < 0:
            target = tuple(self.chance.sample(BROKERS, 2))
            self.change(
                [Create(layout.REASSIGN_PARTITIONS, layout.encode_reassignment({("t", index): target}))]
            )
        elif verb == "bounce":
            broker = self.chance.choice(BROKERS)
            if broker in self.image.brokers:
                self.change([Delete(layout.broker_path(broker))])
            else:
                self.start(broker)
            self.advance(may_die=True)
        elif verb == "join":
            self.join(index)
        else:
            self.advance(may_die=True)

    def move(self, index: int, target: tuple[int, ...] | None) -> None:
        move = Move("t", index, target)
        decision = decide_moves(self.image, "t", [move])
        if decision.refused:
            assert not decision.ops
            return
        self.change(decide_overridden(self.image, [move]))
        self.change(decision.ops, may_die=True)

    def join(self, index: int) -> None:
        """A live replica that is not in sync has caught up."""
        now = self.image.topics["t"].partitions[index]
        behind = [b for b in now.replicas if b in self.image.brokers and b not in now.isr]
        if now.leader not in self.image.brokers or not behind:
            return
        isr = (*now.isr, self.chance.choice(behind))
        event = AlterIsr(now.leader, uuid.UUID(int=1), index, now.leader_epoch, now.partition_epoch, isr)
        with contextlib.suppress(ApiError):  # a broker that is in sync has died: elections come first
            self.change(decide_alter_isr(self.image, event))

    def advance(self, *, may_die: bool = False) -> None:
        self.change(decide_elections(self.image))
        for topic in topics_to_advance(self.image):
            self.change(decide_advance(self.image, topic), may_die=may_die)
        self.change(decide_asked(self.image))


@pytest.mark.parametrize("seed", range(12))
def test_moves_come_to_their_end_whatever_happens(seed: int) -> None:
    history = History(seed)
    for _ in range(25):
        history.play()
    for broker in BROKERS:
        if broker not in history.image.brokers:
            history.start(broker)
    for _ in range(6):  # more than any partition has replicas
        history.advance()
        for index in PARTITIONS:
            history.join(index)
    history.advance()
    for index in PARTITIONS:
        now = history.image.topics["t"].partitions[index]
        assert not is_moving(now)
        assert sorted(now.isr) == sorted(now.replicas) == sorted(target_of(now))
    assert history.image.moves_asked_version < 0, "older tools see that everything has ended"
    final = dict(history.image.topics["t"].partitions)
    history.advance()
    assert history.image.topics["t"].partitions == final


def test_one_request_moves_many_partitions_with_one_change_of_the_topic() -> None:
    history = History(0)
    moves = [Move("t", 0, (3, 4)), Move("t", 1, (1, 4)), Move("t", 9, (1,))]
    decision = decide_moves(history.image, "t", moves)
    assert [op.path for op in decision.ops] == [layout.CONTROLLER_EPOCH, layout.topic_path("t")]
    assert list(decision.refused) == [9]
