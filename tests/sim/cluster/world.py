"""Three simulated brokers on one znode tree: writers, readers, faults, moves of replicas, and the rules of replication.

Writers and readers know everything: they go to any running broker that takes itself for the leader, so that two leaders at
a time, or a leader that does not know of its end, are used as often as they could be. Brokers talk over the simulated
network and have simulated disks, and clocks that may be an hour apart; the tree tells each of them of changes a while later.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.broker.partitions.partition import Partition
from barnabas.coordination.local import LocalStore, LocalTree
from barnabas.coordination.tree import Event, SessionExpired
from barnabas.cores import znode_layout as layout
from barnabas.cores.reassignment import Move, is_moving
from barnabas.records.batch import Record, build_batch, read_records
from barnabas.sim.disk import Disks
from barnabas.sim.loop import LIFE, SimLoop, Stuck
from barnabas.sim.machine import EPOCH_MS, SameThread
from barnabas.sim.network import SimNetwork, Weather
from barnabas.wire.errors import ApiError
from tests.sim.broker.node import Died, Node, StartError

BROKERS: Final = 3
SESSION_S: Final = 4.0
CHAOS_S: Final = 30.0
QUIET_S_MAX: Final = 120.0
TURNS_MAX: Final = 3_000_000
TOPIC: Final = "t"
PARTITIONS: Final = 2
HOUR_MS: Final = 3_600_000
MEMORY: Final = "/dev/shm"
NOBODY: Final = contextvars.Context()


class Failed(Exception):
    """A rule was broken; the message names the seed."""


class World:
    """See the module. `run` once."""

    def __init__(self, seed: int, root: Path, log: list[str] | None) -> None:
        self.seed = seed
        self.log = log
        self.loop = SimLoop(self.stream("loop"), TURNS_MAX)
        self.network = SimNetwork(self.loop, self.stream("network"))
        self.disks = Disks()
        self.chance = self.stream("plan")
        self.store = LocalStore(None, lambda: EPOCH_MS + int(self.loop.time() * 1000), SameThread)
        self.min_in_sync = self.chance.choice([1, 2, 2])
        self.nodes = [self._node(number, root) for number in range(1, BROKERS + 1)]
        self.sessions: dict[str, LocalTree] = {}
        self.away: set[str] = set()
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """(partition, offset) -> value of a record that was acknowledged with acks=all."""
        self.committed: dict[tuple[int, int], bytes] = {}
        """(partition, offset) -> value that somebody saw below a leader's high watermark."""
        self.leaders: dict[tuple[int, int], str] = {}
        """(partition, leader epoch) -> the broker that wrote in it."""
        self.over = False
        self.written = 0
        self.violations: list[str] = []
        for node in self.nodes:
            node.on_fatal = lambda: None

    def stream(self, name: str) -> random.Random:
        return random.Random(f"{self.seed} {name}")

    def note(self, text: str) -> None:
        if self.log is not None:
            self.log.append(f"{self.loop.time():10.4f} {text}")

    def fail(self, text: str) -> None:
        self.note(f"BROKEN {text}")
        self.violations.append(f"at {self.loop.time():.3f} s: {text}")

    def _node(self, number: int, root: Path) -> Node:
        name = f"b{number}"
        options = {
            "node.id": str(number),
            "zookeeper.connect": "simulated",
            "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
            "replica.lag.time.max.ms": "3000",
            "replica.socket.timeout.ms": "3000",
            "log.flush.offset.checkpoint.interval.ms": "5000",
            "log.index.size.max.bytes": "4096",
            "log.cleaner.enable": "false",
            "log.segment.bytes": self.stream(name).choice(["700", "100000"]),
        }
        folder = root / name
        folder.mkdir()
        node = Node(name, self.loop, self.network, self.disks, folder, self.stream(f"node {name}"), options)
        node.open_tree = lambda: self._open_tree(node)
        node.clock.wall_ahead_ms = self.stream(f"clock {name}").choice([0, HOUR_MS, -HOUR_MS])
        return node

    # --- the tree --------------------------------------------------------------------------------------

    async def _open_tree(self, node: Node) -> LocalTree:
        """A session whose events arrive a while later, in the order in which they happened, in the node's own process."""
        tree = self.store.session()
        self.sessions[node.name] = tree
        context = contextvars.Context()
        context.run(LIFE.set, node.life)
        hand_over = tree._hand_over
        chance = self.stream(f"watch {node.name} {node.starts}")
        due_s = 0.0

        def deliver(events: Sequence[Event]) -> None:
            nonlocal due_s
            due_s = max(due_s + 1e-7, self.loop.time() + chance.random() * 0.02)
            self.loop.call_at(due_s, hand_over, events, context=context)

        tree.deliver = deliver  # type: ignore[method-assign]
        return tree

    def expire(self, tree: LocalTree) -> None:
        try:
            self.store.expire(tree.session_id)
        except (KeyError, SessionExpired):
            pass  # it was closed in order

    # --- running ---------------------------------------------------------------------------------------

    def run(self) -> None:
        with self.disks.installed():
            try:
                self.loop.run_until_complete(self._live())
            except (Stuck, StartError) as error:
                self.fail(f"{type(error).__name__}: {error}")
            finally:
                for node in self.nodes:
                    node.kill()
                tasks = asyncio.all_tasks(self.loop)
                for task in tasks:
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    task.cancel()
                self.over = True
                self.loop.set_exception_handler(lambda loop, context: None)
                self.loop.close()
                self.store.close()
        for context in self.loop.failures:
            self.fail(f"the loop met {context.get('message')}: {context.get('exception')!r}")
        if self.violations:
            found = "\n".join(f"  {violation}" for violation in self.violations[:10])
            raise Failed(f"seed {self.seed}:\n{found}")

    async def _live(self) -> None:
        for node in self.nodes:
            await node.start()
        controller = self._running()[0].services.controller
        for _ in range(1_000):  # it hears of them a while later
            if len(controller.image.brokers) == BROKERS:
                break
            await asyncio.sleep(0.01)
        configs = {"min.insync.replicas": str(self.min_in_sync)}
        factor = self.chance.choice([BROKERS, BROKERS - 1])
        await controller.create_topic(TOPIC, PARTITIONS, factor, {}, configs)
        tasks = [self.loop.create_task(self._write(index)) for index in range(PARTITIONS)]
        tasks.append(self.loop.create_task(self._read()))
        await self._trouble()
        await self._become_well()
        self.over = True
        for task in tasks:
            await task
        self._judge()

    def _running(self) -> list[Any]:
        return [node.running for node in self.nodes if node.running is not None]

    def _partitions(self, index: int) -> list[tuple[Node, Partition]]:
        found = []
        for node in self.nodes:
            partition = None if node.running is None else node.running.services.partitions.get(TOPIC, index)
            if partition is not None:
                found.append((node, partition))
        return found

    # --- clients ---------------------------------------------------------------------------------------

    async def _write(self, index: int) -> None:
        chance = self.stream(f"writer {index}")
        while not self.over:
            await asyncio.sleep(chance.random() * 0.1)
            leaders = [(node, p) for node, p in self._partitions(index) if p.is_leader]
            if leaders:
                node, partition = chance.choice(leaders)
                self._append(node, partition, acks_all=chance.random() < 0.8)

    def _append(self, node: Node, partition: Partition, *, acks_all: bool) -> None:
        self.written += 1
        value = f"{self.written}".encode()
        batch = memoryview(bytearray(build_batch([Record(0, EPOCH_MS, b"", value)])))
        epoch = int(partition.leader_epoch)
        life = node.life
        try:
            appended = partition.append(batch, acks_all=acks_all, zstd_allowed=True)
        except ApiError:
            return
        first = self.leaders.setdefault((partition.index, epoch), node.name)
        if first != node.name:
            self.fail(f"{node.name} and {first} both write to {partition} in leader epoch {epoch}")
        if not acks_all:
            return
        place = partition.index, int(appended.base_offset)

        def ready(appended: Any) -> None:
            if appended.error is None and life is not None and life.alive:
                self._note(self.acknowledged, place, value, f"{node.name} acknowledges")

        appended.when_ready(ready)

    def _note(
        self, known: dict[tuple[int, int], bytes], place: tuple[int, int], value: bytes, what: str
    ) -> None:
        """What was acknowledged, or seen below a high watermark, is so for all and for ever."""
        for others in (self.acknowledged, self.committed):
            before = others.get(place, value)
            if before != value:
                self.fail(f"{what} {value!r} at {place}, where {before!r} was before")
        known[place] = value

    async def _read(self) -> None:
        chance = self.stream("reader")
        while not self.over:
            await asyncio.sleep(chance.random() * 0.1)
            found = [pair for index in range(PARTITIONS) for pair in self._partitions(index)]
            if found:
                node, partition = chance.choice(found)
                begin = max(int(partition.log_start_offset), int(partition.high_watermark) - 30)
                self._see(node, partition, begin)

    def _see(self, node: Node, partition: Partition, begin: int) -> None:
        """Leaders and followers agree on all that lies below the high watermark of any of them."""
        for offset, value in records_of(partition, begin, int(partition.high_watermark)).items():
            self._note(self.committed, (partition.index, offset), value, f"{node.name} shows")

    # --- faults ----------------------------------------------------------------------------------------

    async def _trouble(self) -> None:
        for node in self.nodes:
            node.disk.watch_power = True
            node.disk.forget_the_past()
        self.network.weather = Weather(
            jitter_s=self.chance.choice([0.001, 0.02]),
            stall_chance=self.chance.choice([0.0, 0.02]),
            cut_chance=self.chance.choice([0.0, 0.2]),
            reset_chance=self.chance.choice([0.0, 0.002]),
        )
        kinds = [
            self._kill, self._kill, self._stop, self._lose_session, self._part, self._power_cut, self._move, self._move,
        ]  # fmt: skip
        moments = sorted(self.chance.random() * CHAOS_S for _ in range(self.chance.randint(1, 10)))
        for moment_s in moments:
            await asyncio.sleep(max(moment_s - self.loop.time(), 0))
            await self.chance.choice(kinds)(self.chance.choice(self.nodes))
        await asyncio.sleep(max(CHAOS_S - self.loop.time(), 1))

    async def _kill(self, node: Node) -> None:
        if node.name in self.away:
            return
        self.note(f"kill {node.name}")
        self._end(node)
        self._come_back(node)

    def _end(self, node: Node) -> None:
        """The process dies; its session lives until its time is over."""
        self.away.add(node.name)
        tree = self.sessions[node.name]
        node.kill(silent=self.chance.random() < 0.3)
        after_s = SESSION_S * (0.7 + self.chance.random() * 0.6)
        self.loop.call_later(after_s, self.expire, tree, context=NOBODY.copy())

    async def _power_cut(self, node: Node) -> None:
        """Only while all others have all, and until they have it again: what one disk has lost is then with them.

        Whoever loses what one replica has not flushed, and in the same seconds the other one, has lost both.
        """
        await asyncio.sleep(
            0.5
        )  # what the tree knows already, such as a session that has ended, reaches everybody
        if self.away or not self._all_in_sync():
            return
        self.note(f"power cut {node.name}")
        self._end(node)
        node.disk.cut_power()
        self._come_back(node)
        for _ in range(1_000):
            if self._all_in_sync() and not self.away:
                break
            await asyncio.sleep(0.2)

    async def _stop(self, node: Node) -> None:
        if node.name in self.away:
            return
        self.note(f"stop {node.name}")
        self.away.add(node.name)
        await node.stop()
        self._come_back(node)

    def _come_back(self, node: Node) -> None:
        delay_s = self.chance.choice([0.1, 2.0, 8.0]) * (0.5 + self.chance.random())

        async def start() -> None:
            await asyncio.sleep(delay_s)
            self.note(f"start {node.name}")
            try:
                await node.start()
            except Died:
                return
            except StartError as error:
                self.fail(f"{node.name} does not start: {error}")
                return
            self.note(f"started {node.name}")
            self.away.discard(node.name)

        self.loop.spawn(None, start())

    async def _lose_session(self, node: Node) -> None:
        if node.name in self.away:
            return
        self.note(f"session of {node.name} ends")
        self.expire(self.sessions[node.name])

    async def _part(self, node: Node) -> None:
        """The network between brokers is cut for a while; all of them still reach the tree."""
        other = self.chance.choice([other for other in self.nodes if other is not node])
        self.note(f"{node.name} and {other.name} are apart")
        self.network.part(node.name, other.name)
        await asyncio.sleep(self.chance.random() * 6)
        self.network.heal()

    async def _move(self, _: Node) -> None:
        """An administrator moves a partition to other brokers, or calls its move off; no answer is waited for."""
        index = self.chance.randrange(PARTITIONS)
        target = tuple(self.chance.sample(range(1, BROKERS + 1), self.chance.choice([2, 2, 3])))
        move = Move(TOPIC, index, target if self.chance.random() < 0.8 else None)
        self.note(f"move {TOPIC}-{index} to {move.replicas}")

        async def ask(server: Any) -> None:
            try:
                refused = await server.services.controller.reassigning.alter([move])
            except ApiError as error:
                refused = {(TOPIC, index): error}
            self.note(f"moves refused: {[error.message for error in refused.values()]}")

        for node in self.nodes:
            server = node.running
            if server is not None and server.services.controller.in_office:
                self.loop.spawn(node.life, ask(server))

    async def _become_well(self) -> None:
        self.note("quiet")
        self.network.weather = Weather()
        self.network.heal()
        deadline_s = self.loop.time() + QUIET_S_MAX
        while self.loop.time() < deadline_s:
            if not self.away and self._all_in_sync():
                await asyncio.sleep(2.0)  # some more is written and copied
                return
            await asyncio.sleep(0.2)
        for index in range(PARTITIONS):
            found = [
                f"{n.name}: leader {p.image.leader} isr {p.image.isr} end {p.log_end_offset}"
                for n, p in self._partitions(index)
            ]
            self.fail(f"{TOPIC}-{index} does not become whole again: {found}; away: {sorted(self.away)}")

    def _all_in_sync(self) -> bool:
        """Every running broker knows the same of each partition, none of which is on its way to other brokers."""
        for index in range(PARTITIONS):
            served = self._partitions(index)
            images = {server.services.image.partition(TOPIC, index) for server in self._running()}
            if len(images) != 1 or any(p.image not in images for _, p in served):
                return False
            (image,) = images
            if image is None or is_moving(image) or sorted(image.isr) != sorted(image.replicas):
                return False
            if {node.name for node, _ in served} != {f"b{replica}" for replica in image.replicas}:
                return False
        return True

    # --- judging ---------------------------------------------------------------------------------------

    def _judge(self) -> None:
        if not self.acknowledged:
            self.fail("nothing was acknowledged in all this time")
        for index in range(PARTITIONS):
            logs: dict[str, dict[int, bytes]] = {}
            for node, partition in self._partitions(index):
                partition.log.core.check()
                self._see(node, partition, int(partition.log_start_offset))
                low = min(int(p.high_watermark) for _, p in self._partitions(index))
                logs[node.name] = records_of(partition, int(partition.log_start_offset), low)
            if len({tuple(sorted(log.items())) for log in logs.values()}) > 1:
                every = set().union(*logs.values())
                differ = sorted(o for o in every if len({log.get(o) for log in logs.values()}) > 1)
                rows = [{name: log.get(offset) for name, log in logs.items()} for offset in differ[:3]]
                self.fail(
                    f"the logs of {TOPIC}-{index} differ below their high watermarks at {differ[:5]}: {rows}"
                )
            leader = next((p for _, p in self._partitions(index) if p.is_leader), None)
            if leader is None:
                self.fail(f"{TOPIC}-{index} has no leader")
                continue
            content = records_of(leader, int(leader.log_start_offset), int(leader.log_end_offset))
            for (where, offset), value in self.acknowledged.items():
                if where == index and content.get(offset) != value:
                    self.fail(
                        f"{value!r}, acknowledged at {where}:{offset}, is lost: {content.get(offset)!r} is there"
                    )
        states = [
            partition.controller_epoch
            for server in self._running()
            for partition in server.services.image.topics[TOPIC].partitions.values()
        ]
        assert states, layout.TOPICS


def records_of(partition: Partition, begin: int, end: int) -> dict[int, bytes]:
    """Offset -> value, from `begin` up to `end`."""
    found: dict[int, bytes] = {}
    position = begin
    while position < end:
        data = partition.log.read(position, 1 << 20, upper_offset=partition.log_end_offset)  # type: ignore[arg-type]
        if data is None:
            break
        records = list(read_records(data.read()))
        found |= {r.offset: r.value or b"" for r in records if begin <= r.offset < end}
        position = max((record.offset for record in records), default=end) + 1
    return found


def run_seed(seed: int, *, log: list[str] | None = None, world: type[World] = World) -> World:
    """One whole simulation in a fresh folder. Raises Failed."""
    logging.disable(logging.CRITICAL if log is None else logging.NOTSET)
    root = Path(tempfile.mkdtemp(prefix="barnabas-sim-", dir=MEMORY if os.path.isdir(MEMORY) else None))
    collecting = gc.isenabled()
    try:
        made = world(seed, root, log)
        made.run()
        return made
    finally:
        logging.disable(logging.NOTSET)
        if collecting:
            gc.enable()
        shutil.rmtree(root, ignore_errors=True)
