"""Logs that differ from their leader's: with a hole, through a clean stop and while in sync; longer than the leader's."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.records.units import Offset
from tests.sim.broker.node import Node
from tests.sim.cluster.world import BROKERS, PARTITIONS, TOPIC, World, run_seed

RECOVERY_POINTS = "recovery-point-offset-checkpoint"


async def until(holds: Callable[[], bool], every_s: float = 0.01) -> None:
    for _ in range(100_000):
        if holds():
            return
        await asyncio.sleep(every_s)
    raise AssertionError("it does not come true")


class StoryWorld(World):
    """A single story instead of chance."""

    async def _begin(self, seconds: float) -> list[asyncio.Task[None]]:
        """All brokers run and have a topic; its writers, which have written for so long."""
        self.stirred_until_s = math.inf
        for node in self.nodes:
            await node.start()
        controller = self._running()[0].services.controller
        await until(lambda: len(controller.image.brokers) == BROKERS)
        await controller.topics.create(TOPIC, PARTITIONS, BROKERS, {}, {"min.insync.replicas": "1"})
        writers = [self.loop.create_task(self._write(index)) for index in range(PARTITIONS)]
        await asyncio.sleep(seconds)
        return writers

    async def _end_of_writing(self, writers: list[asyncio.Task[None]]) -> None:
        self.over = True
        for writer in writers:
            await writer


class HoleWorld(StoryWorld):
    """b1 loses a segment in the middle of its log, is up alone for a while, out of sync, and comes back with the others."""

    def _node(self, number: int, root: Path) -> Node:
        node = super()._node(number, root)
        node.options["log.segment.bytes"] = "700"
        return node

    async def _live(self) -> None:
        writers = await self._begin(5)
        victim, *others = self.nodes
        self.faults.kill(victim)
        await until(lambda: self._in_sync_without(1))
        await self._end_of_writing(writers)
        for other in others:
            await other.stop()
        lose_a_segment(victim)
        await victim.start()
        await asyncio.sleep(1)
        await victim.stop()
        for node in (*others, victim):
            await node.start()
        self.faults.away.clear()
        await self._become_well()
        self._judge()

    def _in_sync_without(self, broker: int) -> bool:
        return all(broker not in p.image.isr for index in range(PARTITIONS) for _, p in self.replicas(index))


class HeldBackWorld(StoryWorld):
    """A follower counts as in sync when it turns out that records are missing in its log."""

    async def _live(self) -> None:
        writers = await self._begin(5)
        index = 0
        leader, led = next(
            (node, partition) for node, partition in self.replicas(index) if partition.is_leader
        )
        follower = [number for number in led.image.replicas if number != int(leader.name[1:])][-1]
        victim = self.nodes[follower - 1]  # the other one will lead
        log = next(partition.log for node, partition in self.replicas(index) if node is victim)
        log.hole_from = Offset(log.log_end_offset // 2)
        await leader.stop()
        left: list[bool] = []

        def mended() -> bool:
            left.append(self._check(index, victim))
            return log.hole_from is None

        await until(mended, 0.001)
        assert any(left), "it was out of the in-sync replicas while it was mended"
        await self._end_of_writing(writers)
        await leader.start()
        await self._become_well()
        self._judge()

    def _check(self, index: int, victim: Node) -> bool:
        """Whether the victim is out of the in-sync replicas; before, its log must be as long as it was."""
        number = int(victim.name[1:])
        committed = max(place for at, place in self.acknowledged if at == index)
        ends = {node: partition.log_end_offset for node, partition in self.replicas(index)}
        newest = max((p.image for _, p in self.replicas(index)), key=lambda image: image.partition_epoch)
        if number in newest.isr:
            if ends[victim] <= committed:
                self.fail("lost", "it is in sync and lacks what was acknowledged")
            return False
        return True


class LongerWorld(StoryWorld):
    """A leader writes on with acks=1 while it is cut off; it comes back with a log that is longer than its successor's."""

    async def _live(self) -> None:
        writers = await self._begin(3)
        index = 0
        leader, partition = next((n, p) for n, p in self.replicas(index) if p.is_leader)
        for other in self.nodes:
            if other is not leader:
                self.network.part(leader.name, other.name)
        await self._end_of_writing(writers)
        for _ in range(500):
            self._append(leader, partition, acks_all=False)
        alone = partition.log_end_offset
        self.faults.kill(leader)
        await until(lambda: any(p.is_leader for n, p in self.replicas(index) if n is not leader))
        self.network.heal()
        successor = next((n, p) for n, p in self.replicas(index) if p.is_leader)
        self._append(*successor, acks_all=True)
        await leader.start()
        self.faults.away.clear()
        await self._become_well()
        ends = {int(p.log_end_offset) for _, p in self.replicas(index)}
        if len(ends) != 1 or ends.pop() >= alone:
            self.fail("differ", f"what only {leader.name} had was not cut off")
        self._judge()


class EmptyWorld(StoryWorld):
    """The leader dies, gets an empty disk, and is back before anybody has noticed."""

    async def _live(self) -> None:
        writers = await self._begin(2)
        await self._end_of_writing(writers)
        await self._lose_disks([next(node for node, partition in self.replicas(0) if partition.is_leader)])

    async def _lose_disks(self, victims: list[Node]) -> None:
        """All of `victims` die, and come back; the disk of the first, which is also the first to come back, is empty."""
        for node in victims:
            self.faults.kill(node)
        lose_all_logs(victims[0])
        for node in victims:
            await node.start()
            await asyncio.sleep(3)
        self.faults.away.clear()
        await self._become_well()
        self._judge()


class AllEmptyWorld(EmptyWorld):
    """The same when all of them die at the same time."""

    async def _live(self) -> None:
        writers = await self._begin(2)
        await self._end_of_writing(writers)
        await self._lose_disks(self.nodes)


def lose_all_logs(node: Node) -> None:
    for folder in Path(node.log_dirs[0]).glob(f"{TOPIC}-*"):
        shutil.rmtree(folder)


def lose_a_segment(node: Node) -> None:
    """What a power cut can do to a segment whose name was not synced, while later ones were written by the system."""
    folder = Path(node.log_dirs[0])
    (folder / RECOVERY_POINTS).unlink(missing_ok=True)
    for index in range(PARTITIONS):
        segments = sorted((folder / f"{TOPIC}-{index}").glob("*.log"))
        assert len(segments) > 3, "more must have been written"
        segments[1].unlink()


def test_a_hole_is_filled_although_there_was_a_clean_stop_in_between() -> None:
    run_seed(1, world=HoleWorld)


def test_a_follower_that_lacks_records_leaves_the_in_sync_replicas_before_it_is_mended() -> None:
    run_seed(1, world=HeldBackWorld)


def test_a_log_that_is_longer_than_its_leader_s_is_cut() -> None:
    run_seed(1, world=LongerWorld)


@pytest.mark.parametrize("world", [EmptyWorld, AllEmptyWorld])
def test_an_empty_disk_does_not_empty_those_of_others(world: type[StoryWorld]) -> None:
    run_seed(1, world=world)
