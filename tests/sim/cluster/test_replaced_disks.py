"""A follower that has caught up comes back with an empty disk before its leader has said that it is in sync (KIP-903)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from barnabas.broker.partitions.partition import Partition
from barnabas.cores.replication import InSyncReplicas
from barnabas.records.units import Offset
from tests.sim.broker.node import Node
from tests.sim.cluster.test_holes import StoryWorld, until
from tests.sim.cluster.test_planted import find
from tests.sim.cluster.world import run_seed

INDEX = 0
AWAY_S = 1.0
"""How long the leader hears nothing: its session, which takes longer to end, goes on."""


class UnseenWorld(StoryWorld):
    """The leader stands still when the follower's last request arrives."""

    async def _live(self) -> None:
        writers = await self._begin(2)
        leader = next(node for node, partition in self.replicas(INDEX) if partition.is_leader)
        follower, third = (node for node in self.nodes if node is not leader)
        await third.stop()
        await follower.stop()
        await until(lambda: self.in_sync(INDEX) == {leader.name})
        await asyncio.sleep(1)
        await self._end_of_writing(writers)
        self.network.part(leader.name, follower.name)
        await follower.start()
        await self._be_away(leader, follower)
        await self._watch()
        await until(lambda: self._is_in_sync_and_complete(follower, leader), 0.001)
        self.faults.kill(leader)
        await until(lambda: any(p.is_leader for _, p in self.replicas(INDEX)))
        await leader.start()
        await third.start()
        self.faults.away.clear()
        await self._become_well()
        self._judge()

    async def _be_away(self, leader: Node, follower: Node) -> None:
        self.network.heal()
        await self._until_caught_up(leader, follower)
        assert leader.life is not None
        self.loop.pause(leader.life, AWAY_S)
        await self._replace_disk(leader, follower)
        await until(lambda: leader.life is not None and leader.life.pauses == 0)

    async def _until_caught_up(self, leader: Node, follower: Node) -> None:
        def has_all() -> bool:
            ends = {node: partition.log_end_offset for node, partition in self.replicas(INDEX)}
            return ends[leader] == ends[follower]

        await until(has_all, 0.0001)

    async def _replace_disk(self, leader: Node, follower: Node) -> None:
        """The follower cannot reach its leader at first: else it copies everything before the leader does anything."""
        await follower.stop()
        self.network.part(leader.name, follower.name)
        follower.disk.replace()
        await follower.start()

    async def _watch(self) -> None:
        for _ in range(1_000):
            self._compare_with_in_sync(INDEX)
            await asyncio.sleep(0.001)
        self.network.heal()

    def _is_in_sync_and_complete(self, follower: Node, leader: Node) -> bool:
        self._compare_with_in_sync(INDEX)
        return follower.name in self.in_sync(INDEX) or bool(self.violations)


class CutOffWorld(UnseenWorld):
    """The leader knows that the follower has everything, and does not reach the tree to say so."""

    async def _be_away(self, leader: Node, follower: Node) -> None:
        self.sessions[leader.name].cut()
        self.network.heal()
        await self._until_caught_up(leader, follower)
        await asyncio.sleep(AWAY_S / 2)  # the leader tries, and does not know what has become of it
        await self._replace_disk(leader, follower)
        self.sessions[leader.name].join()


@pytest.mark.parametrize("world", [UnseenWorld, CutOffWorld])
@pytest.mark.parametrize("seed", range(3))
def test_a_replaced_disk_does_not_count_as_in_sync(world: type[UnseenWorld], seed: int) -> None:
    run_seed(seed, world=world)


def _forget_nobody(patch: pytest.MonkeyPatch) -> None:
    """What is known of a follower is kept when its broker registers anew."""
    patch.setattr(Partition, "follower_registered", lambda self, follower, epoch: None)


def _know_no_registrations(patch: pytest.MonkeyPatch) -> None:
    """Followers do not say in which registration they ask."""
    _forget_nobody(patch)
    real = InSyncReplicas.note_fetch

    def note_fetch(
        self: InSyncReplicas, node: int, offset: Offset, leader_end: Offset, now_ms: float, epoch: int = -1
    ) -> None:
        real(self, node, offset, leader_end, now_ms)

    patch.setattr(InSyncReplicas, "note_fetch", note_fetch)


def _try_again_blindly(patch: pytest.MonkeyPatch) -> None:
    """What could not be written is written again without a look at the follower."""
    _know_no_registrations(patch)
    patch.setattr(Partition, "in_sync_to_request", lambda self: self.wanted_in_sync)


@pytest.mark.parametrize(
    ("plant", "world"), [(_know_no_registrations, UnseenWorld), (_try_again_blindly, CutOffWorld)]
)
def test_a_leader_that_knows_no_registrations_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    world: type[UnseenWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    find({"watermark", "lost", "changed"}, 5, world)
