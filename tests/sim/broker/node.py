"""One simulated broker: the real server on a simulated machine, which can be killed, cut off the power and restarted."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from barnabas.broker.server import BrokerServer, StartError
from barnabas.config.loader import load
from barnabas.runtime.machine import Machine
from barnabas.sim.disk import Disks, SimDisk
from barnabas.sim.loop import Life, SimLoop
from barnabas.sim.machine import SameThread, SeededEntropy, SimClock
from barnabas.sim.network import SimNetwork
from barnabas.sim.streams import connect


class Died(Exception):
    """The broker was killed while it started or stopped."""


class Node:
    """See the module. `running` is the server while clients may reach it."""

    def __init__(
        self,
        name: str,
        loop: SimLoop,
        network: SimNetwork,
        disks: Disks,
        root: Path,
        chance: random.Random,
        options: dict[str, str],
        dirs: int = 1,
    ) -> None:
        self.name = name
        self.address = (name, 9092)
        self.loop = loop
        self.network = network
        self.clock = SimClock(loop)
        self.chance = chance
        self.disk = SimDisk(root, random.Random(chance.random()), loop.spend)
        disks.disks.append(self.disk)
        self.log_dirs = [str(root / f"d{index}") for index in range(dirs)]
        self.options = options
        self.running: BrokerServer | None = None
        self.starts = 0
        self.on_started: Callable[[], None] = lambda: None
        """Called when the broker has recovered, before any client reaches it."""
        self.on_fatal: Callable[[], None] = lambda: None
        self.open_tree: Callable[[], Awaitable[Any]] | None = None
        """Opens sessions with the tree that several nodes share; None for a tree of its own, on its disk."""
        self._life: Life | None = None
        self._changing: asyncio.Future[None] | None = None
        """Its start or stop, while one is under way."""
        self._server: BrokerServer | None = None

    async def start(self) -> None:
        """Raises StartError; Died when it is killed meanwhile."""
        self.starts += 1
        life = self._life = Life(f"{self.name}#{self.starts}")

        def reach(host: str, port: int, _: Any) -> Awaitable[tuple[Any, Any]]:
            return connect(self.loop, self.network, self.name, host, port)

        machine = Machine(
            clock=self.clock,
            entropy=SeededEntropy(random.Random(self.chance.random())),
            new_pool=SameThread,
            new_socket=self.network.new_socket,
            connect=reach,
            dial=reach,
            open_tree=self.open_tree,
        )
        texts = {
            "log.dirs": ",".join(self.log_dirs),
            "listeners": f"PLAINTEXT://{self.name}:9092",
            "node.id": "1",
            **self.options,
        }
        server = self._server = BrokerServer(load(overrides=texts), machine=machine, on_fatal=self._fatal)

        async def begin() -> None:
            await server.start()
            self.running = server
            self.on_started()

        await self._unless_killed(life, begin())

    async def _unless_killed(self, life: Life, work: Coroutine[Any, Any, None]) -> None:
        """Carry out `work` as the process. Raises Died when it is killed meanwhile, and what `work` raises."""
        done: asyncio.Future[None] = self.loop.create_future()
        self._changing = done

        async def carry_out() -> None:
            try:
                await work
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self.loop.spawn(life, carry_out())
        await done

    @property
    def life(self) -> Life | None:
        """The process that runs now."""
        return self._life

    def _fatal(self) -> None:
        self.on_fatal()

    async def stop(self) -> bool:
        """As SIGTERM does; False when it was killed meanwhile."""
        server, life = self._server, self._life
        self.running = None
        if server is not None and life is not None:
            try:
                await self._unless_killed(life, server.stop())
            except Died:
                return False
            self._bury(life)
        return True

    def kill(self, *, silent: bool = False) -> None:
        """As SIGKILL does; silent: as a power cut does, of which no peer hears. Not to be called from within."""
        life = self._life
        if life is None:
            return
        self.running = None
        self.disk.dead = True
        self.loop.end(life)
        self.network.abandon(life, silent=silent)
        self._bury(life)
        if self._changing is not None and not self._changing.done():
            self._changing.set_exception(Died(self.name))

    def kill_in_the_middle(self, after: int, died: Callable[[], None]) -> None:
        """Kill it when it has changed its disk `after` times, whatever it is about to do then; calls `died`."""

        def end(life: Life | None) -> None:
            # Where another fault was quicker, whoever caused that one starts the next process.
            if self._life is life:
                self.kill()
                died()

        self.disk.kill_after = after
        # Later: from within, a process cannot be taken apart.
        self.disk.on_killed = lambda: self.loop.call_soon(end, self._life, context=contextvars.Context())

    def _bury(self, life: Life) -> None:
        """Release what the operating system would release of a process that has ended."""
        self.disk.dead = True
        life.alive = False
        self.network.abandon(life)
        self.disk.release()
        self._server = self._life = None
        self.disk.dead = False
        self.disk.kill_after = -1


__all__ = ["Died", "Node", "StartError"]
