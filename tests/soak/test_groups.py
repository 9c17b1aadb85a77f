"""Groups whose members come, go, die and stall, while the broker dies too: what their own journals say of it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.soak.journal import Rules
from tests.soak.world import Protocol, World
from tests.support.process import BrokerProcess

PYTHON = ("confluent-kafka", "aiokafka", "kafka-python")

MEMBERS = int(os.environ.get("SOAK_MEMBERS", "200"))

Begin = Callable[..., World]


@pytest.fixture
def begin(tmp_path: Path, own_broker: Callable[..., BrokerProcess]) -> Iterator[Begin]:
    """Makes a world: `begin(kinds, sizes, partitions, rules, seed)`."""
    worlds: list[World] = []

    def make(
        kinds: Sequence[Protocol],
        sizes: Sequence[int],
        partitions: int,
        rules: Rules,
        *,
        rate: int,
        seed: int = 1,
    ) -> World:
        broker = own_broker(
            group__min__session__timeout__ms="1000",
            group__consumer__session__timeout__ms=str(int(rules.session_s * 1000)),
            group__consumer__heartbeat__interval__ms=str(int(rules.heartbeat_s * 1000)),
            group__consumer__min__heartbeat__interval__ms="100",
        )
        folder = tmp_path / "journals"
        folder.mkdir()
        world = World(broker, folder, rules, random.Random(seed), partitions)
        worlds.append(world)
        world.begin(kinds, sizes, rate)
        return world

    yield make
    for world in worlds:
        world.close()


@pytest.mark.soak
def test_two_groups_of_ten_through_one_of_each_fault(begin: Begin) -> None:
    kinds = (Protocol("classic", "cooperative-sticky"), Protocol("consumer"))
    rules = Rules(session_s=4, heartbeat_s=0.4, settle_s=10, revoke_s=12)
    world = begin(kinds, (4, 3, 1, 1, 1), 24, rules, rate=200)
    for group in world.groups:
        world.kill(group, 1)
        world.stall(group, 1, seconds=6)
    world.rest()
    world.crash_broker(0.5)
    for group in world.groups:
        world.leave(group, 1)
    report = world.finish()
    assert report["records"] > 0
    for group in world.groups:
        assert report[group.name]["assignments"] >= world.partitions


LONG = [
    pytest.param(Protocol("classic", "range"), id="range"),
    pytest.param(Protocol("classic", "roundrobin", PYTHON), id="roundrobin-three-libraries"),
    pytest.param(Protocol("classic", "cooperative-sticky"), id="cooperative"),
    pytest.param(Protocol("consumer"), id="consumer"),
]


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", LONG)
def test_two_hundred_members_for_minutes(begin: Begin, kind: Protocol) -> None:
    """8 rounds of faults, of about half a minute each; the broker dies in the middle."""
    # A heartbeat of the consumer protocol that is not answered within two intervals is followed by one in which
    # librdkafka says that it owns nothing of what it is about to take. The broker believes it, as Kafka does.
    beat_s = 2.0 if kind.protocol == "consumer" else 0.5
    rules = Rules(session_s=6, heartbeat_s=beat_s, settle_s=10, revoke_s=15)
    sizes = [MEMBERS // 8] * 4 + [MEMBERS // 25] * 10 + [1] * (MEMBERS // 10)
    if len(kind.libraries) > 1:  # the libraries in Python need more of the processor
        sizes = [5] * 6 + [1] * 10
    world = begin((kind,), sizes, 240, rules, rate=500, seed=7)
    (group,) = world.groups
    for turn in range(8):
        chance = world.random
        world.kill(group, chance.randint(0, 3))
        world.stall(group, chance.randint(0, 3), seconds=chance.uniform(1, 2 * rules.session_s))
        world.leave(group, chance.randint(0, 2))
        if turn == 2:
            world.stall_broker(1.2 * rules.session_s)
        if turn == 4:
            world.crash_broker(chance.uniform(0, 2))
        world.rest()
    report = world.finish()
    print(json.dumps(report, indent=1))
