"""What goes wrong in a simulation, and when: drawn from the seed before it begins."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from barnabas.sim.disk import Trouble
from barnabas.sim.network import Weather
from tests.sim.broker.node import Died, StartError

if TYPE_CHECKING:
    from tests.sim.broker.world import World

CHAOS_S = 10.0
EVENTS_MAX = 4
RESTART_S_MAX = 3.0
STEPS_MS = [-3_600_000, -5_000, 5_000, 3_600_000]
"""By how much somebody sets the clock."""
DISK_ERROR = os.strerror(errno.EIO)


class Plan:
    """The faults of one simulation."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = world.stream("plan")
        self.flushes = self.chance.random() < 0.3
        self.power = self.chance.random() < 0.4
        self.lies = self.power and self.chance.random() < 0.2
        self.dirs = self.chance.choice([1, 1, 2])
        self._power_was_cut = False
        self._restarting: asyncio.Task[None] | None = None
        self.answer_leaves: asyncio.Event | None = None

    def options(self) -> dict[str, str]:
        """The broker's options."""
        texts = {
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "2",
            "offsets.topic.segment.bytes": self.chance.choice(["800", "100000"]),
            "group.initial.rebalance.delay.ms": self.chance.choice(["0", "3000"]),
            "log.index.size.max.bytes": "4096",
            "log.cleaner.dedupe.buffer.size": "1100000",
            "log.cleaner.backoff.ms": self.chance.choice(["500", "15000"]),
            "log.flush.offset.checkpoint.interval.ms": self.chance.choice(["1000", "60000"]),
            "log.flush.start.offset.checkpoint.interval.ms": "60000",
            "auto.create.topics.enable": "false",
        }
        if self.flushes:
            texts["log.flush.interval.messages"] = "1"
        return texts

    # --- the plan ----------------------------------------------------------------------------------------

    async def carry_out(self) -> None:
        """Everything that goes wrong; afterwards nothing does."""
        world = self.world
        world.node.disk.watch_power = self.power
        if self.power:
            world.node.disk.forget_the_past()
        self._set_weather()
        world.node.disk.trouble.short_chance = self.chance.choice([0.0, 0.0, 0.05])
        world.node.disk.trouble.lies = self.lies
        kinds: list[Callable[[], Awaitable[None]]] = [
            self._kill, self._kill_in_the_middle, self._restart, self._storm, self._part, self._slow_disk,
            self._full_disk, self._failing_disk, self._step_clock,
        ]  # fmt: skip
        if self.power:
            kinds += [self._power_cut, self._power_cut]
        moments = sorted(self.chance.random() * CHAOS_S for _ in range(self.chance.randint(0, EVENTS_MAX)))
        before_s = 0.0
        for moment_s in moments:
            await asyncio.sleep(moment_s - before_s)
            before_s = moment_s
            await self.chance.choice(kinds)()
        await asyncio.sleep(CHAOS_S - before_s if moments else 1.0)
        await self._make_well()

    async def _make_well(self) -> None:
        world = self.world
        world.network.weather = Weather()
        world.network.heal()
        world.node.disk.trouble = Trouble(lies=False)
        world.node.disk.trouble_of.clear()
        world.node.disk.kill_after = -1
        await self._settle()
        server = world.node.running
        if server is None or server.services.partitions.logs.offline_dirs:
            await world.node.stop()
            await self._come_back()

    def _set_weather(self) -> None:
        weather = Weather()
        if self.chance.random() < 0.6:
            weather.cut_chance = self.chance.choice([0.05, 0.5])
            weather.stall_chance = self.chance.choice([0.0, 0.02])
            weather.reset_chance = self.chance.choice([0.0, 0.01, 0.03])
            weather.window_bytes = self.chance.choice([65536, 3_000])
        self.world.network.weather = weather

    # --- ends of the process -----------------------------------------------------------------------------

    async def _kill(self) -> None:
        await self._settle()
        if self.chance.random() < 0.7:
            await self._an_answer_leaves()
            await self._settle()  # it may have been killed meanwhile, and be about to come back
        self.world.note("kill -9")
        self.world.crashes += 1
        self.world.node.kill()
        await self._come_back()

    async def _an_answer_leaves(self) -> None:
        """Wait for the moment in which a producer's records are written and it does not know it yet."""
        self.answer_leaves = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.answer_leaves.wait(), 2.0)
        self.answer_leaves = None

    def on_sent(self, text: str) -> None:
        """Something has left a host; `text` says from where to where."""
        if self.answer_leaves is not None and text.startswith(f"{self.world.node.name} > p"):
            self.answer_leaves.set()

    async def _kill_in_the_middle(self) -> None:
        """The process ends between two operations on its disk."""
        await self._settle()
        self.world.node.kill_in_the_middle(self.chance.randint(0, 40), self._died)

    def _died(self) -> None:
        self.world.note("killed in the middle")
        self.world.crashes += 1
        self._restarting = self.world.loop.spawn(None, self._come_back())

    async def _restart(self) -> None:
        await self._settle()
        self.world.note("stop")
        self.world.crashes += 1
        if await self.world.node.stop():
            await self._come_back()

    async def _power_cut(self) -> None:
        await self._settle()
        self.world.note("power cut")
        self.world.crashes += 1
        self.world.power_cuts += 1
        self.world.node.kill(silent=self.chance.random() < 0.5)
        self.world.node.disk.cut_power()
        self._power_was_cut = True
        await self._come_back()

    def on_started(self) -> None:
        """The broker has recovered."""
        if self._power_was_cut:
            self._power_was_cut = False
            self.world.take_stock(lied=self.lies or not self.flushes)
        else:
            for history in self.world._histories.values():
                history.on_killed()

    def on_fatal(self) -> None:
        """The broker gives up, as it does when all its disks have failed; what watches over it starts it again."""
        self.world.note("fatal")
        if self._restarting is None or self._restarting.done():
            self._restarting = self.world.loop.spawn(None, self._restart_failed())

    async def _restart_failed(self) -> None:
        self.world.crashes += 1
        stopped = await self.world.node.stop()
        disk = self.world.node.disk
        while disk.trouble.full or disk.trouble.error_chance:  # noqa: ASYNC110 - troubles are plain fields
            await asyncio.sleep(0.2)
        if stopped:
            await self._come_back()

    async def _settle(self) -> None:
        """Wait until no restart is under way."""
        while self._restarting is not None and not self._restarting.done():
            await asyncio.wait([self._restarting])
        if self._restarting is not None:
            self._restarting.result()

    async def _come_back(self) -> None:
        await asyncio.sleep(self.chance.random() * RESTART_S_MAX)
        disk = self.world.node.disk
        kept, disk.trouble = disk.trouble, Trouble(lies=self.lies)
        others, disk.trouble_of = disk.trouble_of, {}
        started = await self._starts()
        while not started:
            await asyncio.sleep(self.chance.random() * RESTART_S_MAX)
            started = await self._starts()
        disk.trouble, disk.trouble_of = kept, others

    async def _starts(self) -> bool:
        """Start the broker; False when it was killed while it recovered, or found its disk failing."""
        node = self.world.node
        if self.chance.random() < 0.15:
            node.kill_in_the_middle(
                self.chance.randint(0, 60), lambda: self.world.note("killed at the start")
            )
        try:
            await node.start()
        except Died:
            self.world.crashes += 1
            return False
        except StartError as error:
            if DISK_ERROR not in str(error):
                raise
            self.world.note("the disk fails at the start")
            self.world.crashes += 1
            node.kill()
            return False
        node.disk.kill_after = -1
        return True

    # --- other troubles ----------------------------------------------------------------------------------

    async def _for_a_while(self, seconds_max: float = 3.0) -> None:
        await asyncio.sleep(self.chance.random() * seconds_max)

    async def _storm(self) -> None:
        kept = self.world.network.weather
        self.world.note("storm")
        self.world.network.weather = Weather(
            stall_chance=0.3, stall_s=2.0, cut_chance=0.7, reset_chance=self.chance.choice([0.0, 0.1])
        )
        await self._for_a_while()
        self.world.network.weather = kept

    async def _part(self) -> None:
        people = [p.name for p in (*self.world.producers, *self.world.consumers, *self.world.members)]
        name = self.chance.choice(people)
        self.world.note(f"{name} is cut off")
        self.world.network.part(name, self.world.node.name)
        await self._for_a_while(12.0)
        self.world.network.heal()

    async def _slow_disk(self) -> None:
        trouble = self.world.node.disk.trouble
        self.world.note("slow disk")
        trouble.slow_chance, trouble.slow_s = 0.1, self.chance.choice([0.05, 1.0])
        await self._for_a_while()
        trouble.slow_chance = 0.0

    async def _full_disk(self) -> None:
        trouble = self._trouble()
        self.world.note("full disk")
        trouble.full = True
        await self._for_a_while()
        trouble.full = False

    async def _failing_disk(self) -> None:
        trouble = self._trouble()
        self.world.note("failing disk")
        trouble.error_chance, trouble.read_error_chance = 0.2, self.chance.choice([0.0, 0.1])
        await self._for_a_while()
        trouble.error_chance = trouble.read_error_chance = 0.0

    def _trouble(self) -> Trouble:
        """The trouble of the whole disk, or of one log dir."""
        disk = self.world.node.disk
        if self.dirs > 1 and self.chance.random() < 0.7:
            own = disk.trouble_of.setdefault(
                self.chance.choice(self.world.node.log_dirs) + "/", Trouble(lies=self.lies)
            )
            return own
        return disk.trouble

    async def _step_clock(self) -> None:
        """Somebody sets the clock."""
        clock = self.world.node.clock
        clock.wall_ahead_ms += self.chance.choice(STEPS_MS)
        self.world.note(f"the clock is set, {clock.wall_ahead_ms} ms ahead")
