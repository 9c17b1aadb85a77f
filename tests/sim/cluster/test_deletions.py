"""Records whose deletion was confirmed stay deleted, whoever leads next."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.partitions.partition import Partition
from barnabas.records.units import Offset
from barnabas.sim.network import Weather
from tests.sim.broker.node import Node
from tests.sim.cluster.test_holes import StoryWorld, until
from tests.sim.cluster.test_planted import find
from tests.sim.cluster.world import run_seed

INDEX = 0


class DeletionWorld(StoryWorld):
    """The leader deletes records and dies as soon as it has confirmed that."""

    async def _live(self) -> None:
        chance = self.stream("deletions")
        writers = await self._begin(1)
        self.network.weather = Weather(jitter_s=chance.choice([0.001, 0.02]), stall_chance=0.05, stall_s=0.3)
        await asyncio.sleep(chance.random())
        node, partition = self._leading()
        offset = self._some(partition, chance.random())
        await self._deleted(partition, offset)
        self.faults.kill(node)
        await until(lambda: any(n is not node and p.is_leader for n, p in self.replicas(INDEX)))
        after = self._leading(but=node)[1]
        if after.log_start_offset < offset:
            self.fail("undone", f"{after} begins at {after.log_start_offset} again, not at {offset}")
        self.network.weather = Weather()
        await self._end_of_writing(writers)
        await node.start()
        self.faults.away.clear()
        await self._become_well()

    def _leading(self, but: Node | None = None) -> tuple[Node, Partition]:
        return next((n, p) for n, p in self.replicas(INDEX) if p.is_leader and n is not but)

    def _some(self, partition: Partition, part: float) -> Offset:
        return Offset(1 + int((int(partition.high_watermark) - 1) * part))

    async def _deleted(self, partition: Partition, offset: Offset) -> None:
        deletion = partition.delete_before(offset)
        assert partition.log_start_offset == offset
        await until(lambda: deletion.is_ready, 0.001)
        assert deletion.error is None


class LostFollowerWorld(DeletionWorld):
    """A follower is away: nothing is confirmed until it is not alive any more."""

    async def _live(self) -> None:
        writers = await self._begin(1)
        node, partition = self._leading()
        away = next(other for other in self.nodes if other is not node)
        for other in self.nodes:
            if other is not away:
                self.network.part(other.name, away.name)
        offset = self._some(partition, 0.5)
        deletion = partition.delete_before(offset)
        await asyncio.sleep(3)  # it is out of the in-sync replicas, and alive
        assert not deletion.is_ready
        assert away.name not in self.in_sync(INDEX)
        self.faults.kill(away)
        await until(lambda: deletion.is_ready)
        assert deletion.error is None
        another = partition.delete_before(Offset(partition.high_watermark))
        assert not another.is_ready
        await node.stop()
        assert another.is_ready, "whoever waits for a leader that stops is told"
        self.network.heal()
        await self._end_of_writing(writers)
        for other in (node, away):
            await other.start()
        self.faults.away.clear()
        await self._become_well()


@pytest.mark.parametrize("seed", range(10))
def test_what_was_deleted_stays_deleted(seed: int) -> None:
    run_seed(seed, world=DeletionWorld)


def test_a_follower_that_is_away_is_waited_for_while_it_may_lead() -> None:
    run_seed(0, world=LostFollowerWorld)


def test_a_leader_that_waits_for_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "low_watermark", property(lambda self: self.log_start_offset))
    find({"undone"}, 10, DeletionWorld)
