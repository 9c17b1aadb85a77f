"""What goes wrong in a history of the simulated cluster, and when."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.sim.disk import Trouble
from barnabas.sim.loop import NOBODY
from barnabas.sim.network import Weather
from barnabas.wire.errors import ApiError
from tests.sim.broker.node import Died, Node, StartError

if TYPE_CHECKING:
    from tests.sim.cluster.world import World

CHAOS_S_MIN: Final = 1.5
CHAOS_S_MAX: Final = 6.0
KINDS: Final = (
    "kill", "kill in the middle", "stop", "pause", "lost session", "cut from the tree", "cut network", "power cut",
    "full disk", "failing disk", "slow disk", "gives up", "move", "disk replaced",
)  # fmt: skip
"""What `Faults.happened` counts."""
REPLACED_CHANCE: Final = 0.05
"""How often a broker that comes back has an empty disk, where that may be."""
TOGETHER_S: Final = 0.05
"""How close together faults are that come at once."""


class Faults:
    """See the module. `come` for as long as they come, then `end`. `happened` counts them."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.happened: Counter[str] = Counter()
        self.away: set[str] = set()
        """The nodes that do not run, or stand still."""
        self.cut_off: set[str] = set()
        """The nodes that do not reach the tree."""
        self.ending = 0
        """How many sessions may end soon, of nodes that have died or been silent."""
        self.bad_disks: set[str] = set()
        """The nodes whose present process has met, or may have met, a disk that fails."""
        self.emptied: set[str] = set()
        """The nodes that have an empty disk and may count as in sync still: they have not come back with it yet."""
        self._sessions_quiet_s = 0.0
        """When everybody has heard of the last session that has ended by itself."""
        self._usual = Trouble(short_chance=chance.choice([0.0, 0.0, 0.05]))
        """How disks behave when nothing is wrong with them."""
        self._session_s = world.session_s
        self._kinds: list[Callable[[Node], Awaitable[None]]] = [
            self._kill, self._kill_in_the_middle, self._stop, self._pause, self._pause, self._lose_session, self._cut_tree,
            self._part, self._isolate, self._power_cut, self._full_disk, self._failing_disk, self._slow_disk, self._move,
            self._move, self._kill_controller, self._replace_disk, self._replace_disk_unseen,
        ]  # fmt: skip

    async def come(self) -> None:
        """More of them in some histories, for longer in some, several at once in some."""
        world, chance = self.world, self.chance
        for node in world.nodes:
            node.disk.watch_power = True
            node.disk.forget_the_past()
            node.disk.trouble = self._usual
        world.network.weather = Weather(
            jitter_s=chance.choice([0.001, 0.02]),
            stall_chance=chance.choice([0.0, 0.02]),
            stall_s=0.3,
            cut_chance=chance.choice([0.0, 0.2]),
            reset_chance=chance.choice([0.0, 0.002]),
        )
        begin_s = world.loop.time()
        chaos_s = CHAOS_S_MIN + chance.random() * (CHAOS_S_MAX - CHAOS_S_MIN)
        moments = sorted(chance.random() * chaos_s for _ in range(chance.randint(2, 4 + int(chaos_s * 1.5))))
        for number in range(1, len(moments)):
            if chance.random() < 0.25:
                moments[number] = moments[number - 1] + chance.random() * TOGETHER_S
        for moment_s in sorted(moments):
            await asyncio.sleep(max(begin_s + moment_s - world.loop.time(), 0))
            await self._until_none_is_empty()
            await chance.choice(self._kinds)(self._victim())
        await asyncio.sleep(max(begin_s + chaos_s - world.loop.time(), 0.5))

    def end(self) -> None:
        """Everything works again; who is away comes back as planned."""
        self.world.network.weather = Weather()
        self.world.network.heal()
        for node in self.world.nodes:
            node.disk.trouble = Trouble()
            node.disk.kill_after = -1
            self._join_tree(node)

    @property
    def are_over(self) -> bool:
        """Whether everybody runs, and nobody will be taken for dead any more."""
        return not self.away and not self.ending

    def note(self, fault: str, text: str) -> None:
        self.happened[fault] += 1
        self.world.note(f"{fault}: {text}")
        self.world.stir()

    def _victim(self) -> Node:
        """The leader of some partition as often as not."""
        leaders = [node for node, partition in self.world.served() if partition.is_leader]
        if leaders and self.chance.random() < 0.5:
            return self.chance.choice(leaders)
        return self.chance.choice(self.world.nodes)

    def _for_s(self) -> float:
        """A moment, or about as long as a session lasts, or longer."""
        return self._session_s * self.chance.choice([0.1, 0.5, 1.0, 2.0]) * (0.5 + self.chance.random())

    def later(self, seconds: float, function: Callable[..., object], *args: Any) -> None:
        """Call `function` then, whatever has become of the processes."""
        self.world.loop.call_later(seconds, function, *args, context=NOBODY.copy())

    def _expire_later(self, node: Node, is_silent: Callable[[], bool] = lambda: True) -> None:
        """The session of a node that is silent from now on ends when its time is over, if it is silent still."""
        tree = self.world.sessions[node.name]

        def end() -> None:
            self.ending -= 1
            if is_silent():
                self.world.expire(tree)
                self.world.stir()  # leaders are elected now

        self.ending += 1
        self.later(self._session_s * (0.7 + self.chance.random() * 0.6), end)

    # --- processes -------------------------------------------------------------------------------------

    async def _kill(self, node: Node) -> None:
        if node.name not in self.away:
            self.note("kill", node.name)
            self.kill(node)
            self.come_back(node)

    async def _kill_controller(self, node: Node) -> None:
        in_office = [
            n for n in self.world.nodes if n.running is not None and n.running.services.controller.in_office
        ]
        await self._kill(in_office[0] if in_office else node)

    def kill(self, node: Node) -> None:
        """The process dies; its session lives until its time is over."""
        self.away.add(node.name)
        self._expire_later(node)
        node.kill(silent=self.chance.random() < 0.3)

    async def _kill_in_the_middle(self, node: Node) -> None:
        """Between any two things that it does to its disk."""
        if node.name in self.away:
            return
        life = node.life

        def died() -> None:
            self.note("kill in the middle", node.name)
            self.away.add(node.name)
            self._expire_later(node)
            self.come_back(node)

        def give_up() -> None:
            if node.life is life:
                node.disk.kill_after = -1

        node.kill_in_the_middle(self.chance.randrange(30), died)
        self.later(1.0, give_up)

    async def _power_cut(self, node: Node) -> None:
        """Only while all others have all, and until they have it again: what one disk has lost is then with them.

        Whoever loses what one replica has not flushed, and in the same seconds the other one, has lost both.
        """
        # What the tree knows already, such as a session that has ended, reaches everybody.
        await asyncio.sleep(0.5)
        world = self.world
        if self.cut_off or not self.are_over or not world.all_in_sync():
            return
        if any(n.disk.kill_after >= 0 or n.disk.trouble is not self._usual for n in world.nodes):
            return  # which may end one that is to keep what this one loses
        self.note("power cut", node.name)
        self.kill(node)
        node.disk.cut_power()
        self.come_back(node)
        for _ in range(1_000):
            if self.are_over and world.all_in_sync():
                break
            await asyncio.sleep(0.1)

    async def _stop(self, node: Node) -> None:
        if node.name in self.away or node.name in self.cut_off:
            return
        self.note("stop", node.name)
        self.away.add(node.name)
        if await node.stop():  # else it was killed meanwhile, and comes back after that
            self.come_back(node)

    def come_back(self, node: Node, *, at_once: bool = False, with_empty_disk: bool = False) -> None:
        delay_s = 0.0 if at_once else self.chance.choice([0.05, 0.5, 2.0]) * (0.5 + self.chance.random())
        is_replaced = self.chance.random() < REPLACED_CHANCE or with_empty_disk

        async def start() -> None:
            await asyncio.sleep(delay_s)
            if is_replaced and self._may_lose_disk(node):
                self.note("disk replaced", node.name)
                self.emptied.add(node.name)
                node.disk.replace()
            self.world.note(f"start {node.name}")
            self._join_tree(node)
            node.disk.trouble = self._usual
            self.bad_disks.discard(node.name)
            try:
                await node.start()
            except Died:
                return
            except StartError as error:
                self.world.fail("start", f"{node.name} does not start: {error}")
                return
            self.world.note(f"started {node.name}")
            self.emptied.discard(node.name)
            self.away.discard(node.name)
            self.world.stir()

        self.world.loop.spawn(None, start())

    def _may_lose_disk(self, node: Node) -> bool:
        """Whether others that are well count as in sync in each partition where this one does: they have all that was
        acknowledged, and will count as in sync until this one is back and has left the sets.
        """
        others = [other for other in self.world.nodes if other is not node]
        well = {other.name for other in others} - self.away - self.cut_off - self.emptied
        is_quiet = self.world.loop.time() > self._sessions_quiet_s and not any(
            other.disk.kill_after >= 0 or other.disk.trouble is not self._usual for other in others
        )
        in_sync = [self.world.in_sync(index) for index in self.world.partitions]
        return all(node.name not in names or (is_quiet and names & well) for names in in_sync)

    async def _until_none_is_empty(self) -> None:
        """Nothing else happens until a broker with an empty disk is back: those that keep what it lost are needed."""
        for _ in range(100):
            if not self.emptied:
                return
            await asyncio.sleep(0.1)

    async def _replace_disk(self, node: Node) -> None:
        """It stops or dies, and comes back with an empty disk, perhaps before anybody has noticed."""
        if node.name in self.away or node.name in self.cut_off:
            return
        self.away.add(node.name)
        if self.chance.random() < 0.5:
            self.kill(node)
        elif not await node.stop():
            return  # it was killed meanwhile
        self.come_back(node, at_once=self.chance.random() < 0.5, with_empty_disk=True)

    async def _replace_disk_unseen(self, _: Node) -> None:
        """The disk of a follower that has caught up is replaced while its leader stands still or does not reach the tree.

        The leader dies soon after it goes on: whoever it has added to the in-sync replicas meanwhile may lead next.
        """
        pairs = [
            (leader, follower)
            for leader, partition in self.world.served()
            for follower in self.world.nodes
            if partition.is_leader
            and follower is not leader
            and int(follower.name[1:]) in partition.image.replicas
            and not {leader.name, follower.name} & (self.away | self.cut_off)
        ]
        if not pairs:
            return
        leader, follower = self.chance.choice(pairs)
        apart_s = self.world.lag_s * 1.6
        self._apart(follower, [leader], for_s=apart_s)
        await asyncio.sleep(apart_s)
        if {leader.name, follower.name} & (self.away | self.cut_off):
            return
        life = leader.life
        if self.chance.random() < 0.5:
            await self._cut_tree(leader)
            await self._until_caught_up(follower, leader)
            await asyncio.sleep(self.chance.random() * 0.1)
        else:
            await self._until_caught_up(follower, leader)
            await self._pause(leader)
        if follower.name not in self.away:
            self.away.add(follower.name)
            if await follower.stop():
                self.come_back(follower, at_once=True, with_empty_disk=True)
        for _ in range(50):
            if leader.name not in self.away | self.cut_off:
                break
            await asyncio.sleep(0.1)
        await self._until_none_is_empty()
        await asyncio.sleep(self.chance.random() * 0.6)
        if leader.life is life:
            await self._kill(leader)

    async def _until_caught_up(self, follower: Node, leader: Node) -> None:
        """Wait, not for ever, until a follower has all that a leader has of some partition, which may not know it yet."""
        for _ in range(1_000):
            ends = [
                {node.name: int(p.log_end_offset) for node, p in self.world.replicas(index)}
                for index in self.world.partitions
                if leader in [node for node, _ in self.world.leaders_of(index)]
                and follower.name not in self.world.in_sync(index)
            ]
            if not ends or any(end.get(follower.name, -1) >= end[leader.name] for end in ends):
                return
            await asyncio.sleep(0.001)

    async def _pause(self, node: Node) -> None:
        """It stands still, as after SIGSTOP, and may be taken for dead meanwhile."""
        life = node.life
        if node.name in self.away or life is None:
            return
        for_s = self._for_s()
        self.note("pause", f"{node.name} for {for_s:.3f} s")
        self.away.add(node.name)
        self.world.loop.pause(life, for_s)
        if for_s > self._session_s:
            self._expire_later(node, lambda: life.pauses > 0)

        def goes_on() -> None:
            self.away.discard(node.name)
            self.world.stir()

        self.later(for_s, goes_on)

    # --- the tree --------------------------------------------------------------------------------------

    async def _lose_session(self, node: Node) -> None:
        if node.name not in self.away and node.name not in self.cut_off:
            self.note("lost session", node.name)
            self._sessions_quiet_s = self.world.loop.time() + 0.5
            self.world.expire(self.world.sessions[node.name])

    async def _cut_tree(self, node: Node) -> None:
        """A node does not reach the tree for a while, and is taken for dead if that takes long."""
        if node.name in self.away or node.name in self.cut_off:
            return
        for_s = self._for_s()
        self.note("cut from the tree", f"{node.name} for {for_s:.3f} s")
        self.cut_off.add(node.name)
        tree = self.world.sessions[node.name]
        tree.cut()
        if for_s > self._session_s:
            self._expire_later(node, lambda: tree.is_cut)
        self.later(for_s, self._join_tree, node)

    def _join_tree(self, node: Node) -> None:
        if node.name in self.cut_off:
            self.cut_off.discard(node.name)
            self.world.sessions[node.name].join()
            self.world.stir()

    # --- the network -----------------------------------------------------------------------------------

    async def _part(self, node: Node) -> None:
        """The network between two brokers is cut for a while; both still reach the tree."""
        self._apart(node, [self.chance.choice([other for other in self.world.nodes if other is not node])])

    async def _isolate(self, node: Node) -> None:
        """The network between a broker and all others is cut, and often that to the tree as well."""
        self._apart(node, [other for other in self.world.nodes if other is not node])
        if self.chance.random() < 0.5:
            await self._cut_tree(node)

    def _apart(self, node: Node, others: list[Node], for_s: float | None = None) -> None:
        for_s = self._for_s() if for_s is None else for_s
        self.note("cut network", f"{node.name} and {[other.name for other in others]} for {for_s:.3f} s")
        for other in others:
            self.world.network.part(node.name, other.name)
            self.later(for_s, self._join, node.name, other.name)

    def _join(self, one: str, other: str) -> None:
        self.world.network.join(one, other)
        self.world.stir()

    # --- disks -----------------------------------------------------------------------------------------

    async def _full_disk(self, node: Node) -> None:
        self._disk_trouble(node, "full disk", Trouble(full=True))

    async def _failing_disk(self, node: Node) -> None:
        errors = self.chance.choice([0.0, 0.05])
        self._disk_trouble(node, "failing disk", Trouble(error_chance=0.1, read_error_chance=errors))

    async def _slow_disk(self, node: Node) -> None:
        """Each operation may keep the whole process waiting."""
        slow_s = self._session_s * self.chance.choice([0.05, 0.5])
        self._disk_trouble(node, "slow disk", Trouble(slow_chance=0.1, slow_s=slow_s))

    def _disk_trouble(self, node: Node, name: str, trouble: Trouble) -> None:
        if node.name in self.away:
            return
        self.note(name, node.name)
        node.disk.trouble = trouble
        if trouble.full or trouble.error_chance or trouble.read_error_chance:
            self.bad_disks.add(node.name)

        def ends() -> None:
            if node.disk.trouble is trouble:
                node.disk.trouble = self._usual

        self.later(self._for_s(), ends)

    def gave_up(self, node: Node) -> None:
        """A broker without a disk that works ends."""
        life = node.life

        def end() -> None:
            if node.life is not life:
                return
            if node.name in self.away:
                self.later(0.5, end)
            else:
                self.note("gives up", node.name)
                self.kill(node)
                self.come_back(node)

        self.later(0, end)

    # --- administrators --------------------------------------------------------------------------------

    async def _move(self, _: Node) -> None:
        """Somebody moves a partition to other brokers, or calls its move off; no answer is waited for."""
        world = self.world
        move = world.a_move(self.chance)
        self.note("move", f"{move.topic}-{move.partition} to {move.replicas}")

        async def ask(server: Any) -> None:
            try:
                refused = await server.services.controller.reassigning.alter([move])
            except ApiError as error:
                refused = {(move.topic, move.partition): error}
            world.note(f"moves refused: {[error.message for error in refused.values()]}")

        for node in world.nodes:
            server = node.running
            if server is not None and server.services.controller.in_office:
                world.loop.spawn(node.life, ask(server))
