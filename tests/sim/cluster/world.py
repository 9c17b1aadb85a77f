"""Three simulated brokers on one znode tree: writers, readers, faults, moves of replicas, and the rules of replication.

Writers and readers know everything: they go to any running broker that takes itself for the leader, so that two leaders at
a time, or a leader that does not know of its end, are used as often as they could be. Brokers talk over the simulated
network and have simulated disks, and clocks that may be an hour apart; the tree tells each of them of changes a while later.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from barnabas.broker.partitions.acknowledgement import Acknowledgement
from barnabas.broker.partitions.partition import Partition
from barnabas.coordination.local import LocalStore
from barnabas.coordination.tree import ConnectionLost, SessionExpired, TreeError
from barnabas.cores import znode_layout as layout
from barnabas.cores.reassignment import Move, is_moving
from barnabas.records.batch import LOG_OVERHEAD, Record, build_batch
from barnabas.records.units import Offset
from barnabas.sim.disk import Disks
from barnabas.sim.loop import Killed, SimLoop, Stuck
from barnabas.sim.machine import EPOCH_MS, SameThread
from barnabas.sim.network import SimNetwork
from barnabas.sim.tree import SimTree
from barnabas.storage.errors import LogDirOffline, StorageError
from barnabas.wire.errors import ApiError
from tests.sim.broker.node import Node, StartError
from tests.sim.cluster.producers import Producer
from tests.sim.cluster.trouble import Faults

BROKERS: Final = 3
SESSION_S: Final = 1.5
LAG_S: Final = 1.0
QUIET_S_MAX: Final = 120.0
TURNS_MAX: Final = 1_000_000
REST_S: Final = 0.6
"""How long those who write rest at most; and the same while things go wrong."""
STIRRED_REST_S: Final = 0.06
STIR_S: Final = 0.25
READ_S_MAX: Final = 0.3
OVERHEAD: Final = struct.Struct(">qii")
"""Of a batch: base offset, length of what follows it, leader epoch; the rest is the producer's."""
TOPIC: Final = "t"
PARTITIONS: Final = 2
HOUR_MS: Final = 3_600_000
MEMORY: Final = "/dev/shm"


class Failed(Exception):
    """A rule was broken; the message names the seed."""


class Bugs(logging.Handler):
    """Fails a history for each exception that a broker has logged and that no fault of the history explains.

    A guard keeps a broker's own bug from costing more than one request, partition or pass, and logs it with its stack: a
    history must not pass because the guards work. Disks, peers and the tree fail as planned, which is not a bug.
    """

    PLANNED: Final = (OSError, StorageError, TreeError, Killed)

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, self.PLANNED):
            self._world.fail("logged", f"{record.name}: {record.getMessage()}: {error!r}")


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
        self.sessions: dict[str, SimTree] = {}
        self.trees: list[SimTree] = []
        self.session_s = SESSION_S
        self.lag_s = LAG_S
        self.partitions = range(PARTITIONS)
        self.faults = Faults(self, self.stream("faults"))
        self.bodies: dict[bytes, bytes] = {}
        """What a producer sent -> value of its only record: logs hold this to the byte."""
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """(partition, offset) -> value of a record that was acknowledged with acks=all."""
        self.committed: dict[tuple[int, int], bytes] = {}
        """(partition, offset) -> value that somebody saw below a leader's high watermark."""
        self.leaders: dict[tuple[int, int], str] = {}
        """(partition, leader epoch) -> the broker that wrote in it."""
        self.producers = [
            Producer(self, index, self.stream(f"producer {index}")) for index in range(PARTITIONS)
        ]
        self.over = False
        self.stirred_until_s = 0.0
        self.written = 0
        self.violations: list[str] = []

    def stream(self, name: str) -> random.Random:
        return random.Random(f"{self.seed} {name}")

    def note(self, text: str) -> None:
        if self.log is not None:
            self.log.append(f"{self.loop.time():10.4f} {text}")

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken; its name is one of those that docs/simulation.md explains."""
        self.note(f"BROKEN {rule}: {text}")
        self.violations.append(f"{rule}: at {self.loop.time():.3f} s: {text}")

    def _node(self, number: int, root: Path) -> Node:
        name = f"b{number}"
        options = {
            "node.id": str(number),
            "zookeeper.connect": "simulated",
            "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
            "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
            "replica.socket.timeout.ms": "1000",
            "replica.fetch.backoff.ms": "300",
            "log.flush.offset.checkpoint.interval.ms": "1500",
            "log.index.size.max.bytes": "4096",
            "log.cleaner.enable": "false",
            "log.segment.bytes": self.stream(name).choice(["700", "100000"]),
        }
        folder = root / name
        folder.mkdir()
        node = Node(name, self.loop, self.network, self.disks, folder, self.stream(f"node {name}"), options)
        node.open_tree = lambda: self._open_tree(node)
        node.on_fatal = lambda: self.faults.gave_up(node)
        node.disk.spend = lambda seconds: self._spend(node, seconds)
        node.clock.wall_ahead_ms = self.stream(f"clock {name}").choice([0, HOUR_MS, -HOUR_MS])
        return node

    def _spend(self, node: Node, seconds: float) -> None:
        """A disk keeps a node waiting: the thread that asked it, or the whole process."""
        if self.loop.in_executor or node.life is None:
            self.loop.spend(seconds)
        else:
            self.loop.pause(node.life, seconds)

    # --- the tree --------------------------------------------------------------------------------------

    async def _open_tree(self, node: Node) -> SimTree:
        if node.name in self.faults.cut_off:
            await asyncio.sleep(0.1)
            raise ConnectionLost("session", "no server answers")
        chance = self.stream(f"tree {node.name} {len(self.trees)}")
        tree = self.sessions[node.name] = SimTree.begin(self.store, self.loop, node.life, chance)
        self.trees.append(tree)
        return tree

    def expire(self, tree: SimTree) -> None:
        try:
            self.store.expire(tree.session_id)
        except (KeyError, SessionExpired):
            pass  # it was closed in order

    @property
    def trace(self) -> tuple[float, int, int, int]:
        """Differs where histories differ."""
        return self.loop.time(), self.loop.turns, self.written, hash(tuple(sorted(self.acknowledged)))

    # --- running ---------------------------------------------------------------------------------------

    def run(self) -> None:
        with self.disks.installed():
            try:
                self.loop.run_until_complete(self._live())
            except (Stuck, StartError) as error:
                self.fail("stuck" if isinstance(error, Stuck) else "start", str(error))
            finally:
                for node in self.everybody():
                    node.kill()
                tasks = asyncio.all_tasks(self.loop)
                for task in tasks:
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    task.cancel()
                self.over = True
                self.loop.set_exception_handler(lambda loop, context: None)
                self.loop.close()
                for store in self.stores():
                    store.close()
        for context in self.loop.failures:
            self.fail("failed", f"the loop met {context.get('message')}: {context.get('exception')!r}")
        if self.violations:
            violations_text = "\n".join(f"  {violation}" for violation in self.violations[:10])
            raise Failed(f"seed {self.seed}:\n{violations_text}")

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
        await controller.topics.create(TOPIC, PARTITIONS, factor, {}, configs)
        tasks = [self.loop.create_task(self._write(index)) for index in range(PARTITIONS)]
        tasks += [self.loop.create_task(producer.run()) for producer in self.producers]
        tasks.append(self.loop.create_task(self._read()))
        await self.faults.come()
        self.faults.end()
        await self._become_well()
        self.over = True
        _, late = await asyncio.wait(tasks, timeout=QUIET_S_MAX)
        for task in tasks:
            if task in late:
                self.fail("stuck", "a producer is not told what became of its records")
            elif task.exception() is not None:
                raise task.exception()  # type: ignore[misc]
        self._judge()

    def everybody(self) -> list[Node]:
        """All brokers of all clusters."""
        return self.nodes

    def stores(self) -> list[LocalStore]:
        """The trees of all clusters."""
        return [self.store]

    def _running(self) -> list[Any]:
        return [node.running for node in self.nodes if node.running is not None]

    def served(self) -> Iterator[tuple[Node, Partition]]:
        """All replicas that run."""
        for index in range(PARTITIONS):
            yield from self.replicas(index)

    def replicas(self, index: int) -> list[tuple[Node, Partition]]:
        """The replicas of a partition that run."""
        replicas = []
        for node in self.nodes:
            partition = None if node.running is None else node.running.services.partitions.get(TOPIC, index)
            if partition is not None:
                replicas.append((node, partition))
        return replicas

    def stir(self) -> None:
        """Something goes wrong now: everybody is busy for a while."""
        self.stirred_until_s = max(self.stirred_until_s, self.loop.time() + STIR_S)

    def a_move(self, chance: random.Random) -> Move:
        """A partition to other brokers, or its move called off."""
        target = tuple(chance.sample(range(1, BROKERS + 1), chance.choice([2, 2, 3])))
        return Move(TOPIC, chance.randrange(PARTITIONS), target if chance.random() < 0.8 else None)

    def rest_s(self) -> float:
        """How long those who write rest at most."""
        return STIRRED_REST_S if self.loop.time() < self.stirred_until_s else REST_S

    def leaders_of(self, index: int) -> list[tuple[Node, Partition]]:
        """The brokers that answer and take themselves for the leader."""
        return [(node, p) for node, p in self.replicas(index) if p.is_leader and not stands_still(node)]

    def note_body(self, batch: bytes, value: bytes) -> None:
        """A batch that holds the one record `value` is sent."""
        self.written += 1
        self.bodies[batch[OVERHEAD.size :]] = value

    def note_acknowledged(self, node: Node, index: int, offset: int, value: bytes) -> None:
        """`node` has acknowledged a record with acks=all."""
        self._note(self.acknowledged, (index, offset), value, f"{node.name} acknowledges")

    # --- clients ---------------------------------------------------------------------------------------

    async def _write(self, index: int) -> None:
        chance = self.stream(f"writer {index}")
        while not self.over:
            await asyncio.sleep(chance.random() * self.rest_s())
            leaders = self.leaders_of(index)
            if leaders:
                node, partition = chance.choice(leaders)
                self._append(node, partition, acks_all=chance.random() < 0.8)

    def _append(self, node: Node, partition: Partition, *, acks_all: bool) -> None:
        value = f"{self.written}".encode()
        data = build_batch([Record(0, EPOCH_MS, b"", value)])
        self.note_body(data, value)
        batch = memoryview(bytearray(data))
        life = node.life
        try:
            appended = self.append_batch(node, partition, batch, acks_all=acks_all)
        except (ApiError, Killed):
            return
        if not acks_all:
            return

        def ready(appended: Any) -> None:
            if appended.error is None and life is not None and life.alive:
                self.note_acknowledged(node, partition.index, int(appended.base_offset), value)

        appended.when_ready(ready)

    def append_batch(
        self, node: Node, partition: Partition, batch: memoryview, *, acks_all: bool
    ) -> Acknowledgement:
        """Write to a broker that takes itself for the leader. Raises what it raises."""
        epoch = int(partition.leader_epoch)
        appended = partition.append(batch, acks_all=acks_all, zstd_allowed=True)
        first = self.leaders.setdefault((partition.index, epoch), node.name)
        if first != node.name:
            self.fail("leaders", f"{node.name} and {first} both write to {partition} in leader epoch {epoch}")
        return appended

    def _note(
        self, known: dict[tuple[int, int], bytes], place: tuple[int, int], value: bytes, what: str
    ) -> None:
        """What was acknowledged, or seen below a high watermark, is so for all and for ever."""
        for others in (self.acknowledged, self.committed):
            before = others.get(place, value)
            if before != value:
                self.fail("changed", f"{what} {value!r} at {place}, where {before!r} was before")
        known[place] = value

    async def _read(self) -> None:
        chance = self.stream("reader")
        while not self.over:
            await asyncio.sleep(chance.random() * READ_S_MAX)
            served = list(self.served())
            if served:
                node, partition = chance.choice(served)
                begin = max(int(partition.log_start_offset), int(partition.high_watermark) - 30)
                self._see(node, partition, begin)
                self._compare_with_in_sync(partition.index)

    def _see(self, node: Node, partition: Partition, begin: int) -> None:
        """Leaders and followers agree on all that lies below the high watermark of any of them."""
        for offset, value in self.records_of(node, partition, begin, int(partition.high_watermark)).items():
            self._note(self.committed, (partition.index, offset), value, f"{node.name} shows")

    def _compare_with_in_sync(self, index: int) -> None:
        """No high watermark passes what a replica has that the tree counts as in sync."""
        state = self._state(index)
        if state is None:
            return
        in_sync = {f"b{number}" for number in state.isr}
        replicas = self.replicas(index)
        highest = max(int(partition.high_watermark) for _, partition in replicas)
        for node, partition in replicas:
            if node.name in in_sync and partition.offline is None and partition.log_end_offset < highest:
                self.fail(
                    "watermark",
                    f"{partition} is committed up to {highest}, and {node.name}, which is in sync, "
                    f"has it up to {partition.log_end_offset}",
                )

    def _state(self, index: int) -> layout.PartitionState | None:
        """What the tree says of a partition."""
        path = layout.state_path(TOPIC, index)
        row = self.store.row(path)
        return None if row is None else layout.decode_state(path, row[0], row[1].version)

    def in_sync(self, index: int) -> set[str]:
        """The nodes that the tree counts as in sync."""
        state = self._state(index)
        return set() if state is None else {f"b{number}" for number in state.isr}

    def is_in_office(self, node: Node, partition: Partition) -> bool:
        """Whether the tree has the node, which takes itself for the leader, for the leader in the same epoch as well."""
        state = self._state(partition.index)
        return (
            state is not None
            and f"b{state.leader}" == node.name
            and state.leader_epoch == int(partition.leader_epoch)
        )

    # --- the end ---------------------------------------------------------------------------------------

    async def _become_well(self) -> None:
        self.note("quiet")
        deadline_s = self.loop.time() + QUIET_S_MAX
        while self.loop.time() < deadline_s:
            if self.faults.are_over and self.all_in_sync():
                self.stir()
                await asyncio.sleep(1.0)  # some more is written and copied
                return
            await asyncio.sleep(0.1)
        for index in range(PARTITIONS):
            states = [
                f"{n.name}: leader {p.image.leader} isr {p.image.isr} end {p.log_end_offset}"
                for n, p in self.replicas(index)
            ]
            self.fail(
                "stuck",
                f"{TOPIC}-{index} does not become whole again: {states}; away: {sorted(self.faults.away)}",
            )

    def all_in_sync(self) -> bool:
        """Every running broker knows the same of each partition, none of which is on its way to other brokers."""
        for index in range(PARTITIONS):
            served = self.replicas(index)
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
            self.fail("silent", "nothing was acknowledged in all this time")
        for index in range(PARTITIONS):
            logs: dict[str, dict[int, bytes]] = {}
            low = min((int(p.high_watermark) for _, p in self.replicas(index)), default=0)
            for node, partition in self.replicas(index):
                partition.log.core.check()
                begin, end = int(partition.log_start_offset), int(partition.log_end_offset)
                self._see(node, partition, begin)
                records = self.records_of(node, partition, begin, end)
                if len(records) != end - begin:
                    missing = sorted(set(range(begin, end)) - set(records))
                    self.fail("hole", f"{node.name} has nothing at {missing[:5]} of {partition}")
                logs[node.name] = {offset: value for offset, value in records.items() if offset < low}
            if len({tuple(sorted(log.items())) for log in logs.values()}) > 1:
                every = set().union(*logs.values())
                differ = sorted(o for o in every if len({log.get(o) for log in logs.values()}) > 1)
                rows = [{name: log.get(offset) for name, log in logs.items()} for offset in differ[:3]]
                self.fail(
                    "differ",
                    f"the logs of {TOPIC}-{index} differ below their high watermarks at {differ[:5]}: {rows}",
                )
            leading = next(((n, p) for n, p in self.replicas(index) if p.is_leader), None)
            if leading is None:
                self.fail("stuck", f"{TOPIC}-{index} has no leader")
                continue
            begin, end = int(leading[1].log_start_offset), int(leading[1].log_end_offset)
            content = self.records_of(*leading, begin, end)
            self.producers[index].judge(content)
            for (where, offset), value in self.acknowledged.items():
                if where == index and content.get(offset) != value:
                    self.fail(
                        "lost",
                        f"{value!r}, acknowledged at {where}:{offset}, is lost: {content.get(offset)!r} is there",
                    )

    def records_of(self, node: Node, partition: Partition, begin: int, end: int) -> dict[int, bytes]:
        """Offset -> value, from `begin` up to `end`; what no producer has sent in these bytes breaks a rule."""
        records: dict[int, bytes] = {}
        position = begin
        while position < end:
            read = self._read_bytes(node, partition, position)
            if not read:
                break
            at = 0
            while at < len(read):
                offset, length, _ = OVERHEAD.unpack_from(read, at)
                body = read[at + OVERHEAD.size : at + LOG_OVERHEAD + length]
                at += LOG_OVERHEAD + length
                if offset not in records and body not in self.bodies:
                    self.fail("foreign", f"{partition} holds at {offset} what nobody has sent: {body!r}")
                if begin <= offset < end:
                    records[offset] = self.bodies.get(body, b"")
                position = offset + 1
        return records

    def _read_bytes(self, node: Node, partition: Partition, position: int) -> bytes:
        """Some batches; none at the end, or where the disk has failed or the process has died."""
        try:
            data = partition.log.read(Offset(position), 1 << 20, upper_offset=partition.log_end_offset)
            return b"" if data is None else data.read()
        except (OSError, LogDirOffline, Killed) as error:
            is_bad = node.name in self.faults.bad_disks and not isinstance(error, Killed)
            if not (is_bad or node.disk.dead or node.name in self.faults.away):
                self.fail("failed", f"{node.name} cannot read {partition} at {position}: {error!r}")
            return b""


def stands_still(node: Node) -> bool:
    return node.life is not None and node.life.pauses > 0


def run_seed(seed: int, *, log: list[str] | None = None, world: type[World] = World) -> World:
    """One whole simulation in a fresh folder. Raises Failed."""
    logging.disable(logging.WARNING if log is None else logging.NOTSET)
    brokers = logging.getLogger("barnabas")
    propagates, brokers.propagate = brokers.propagate, log is not None
    root = Path(tempfile.mkdtemp(prefix="barnabas-sim-", dir=MEMORY if os.path.isdir(MEMORY) else None))
    collecting = gc.isenabled()
    try:
        world_made = world(seed, root, log)
        bugs = Bugs(world_made)
        brokers.addHandler(bugs)
        try:
            world_made.run()
        finally:
            brokers.removeHandler(bugs)
        return world_made
    finally:
        brokers.propagate = propagates
        logging.disable(logging.NOTSET)
        if collecting:
            gc.enable()
        shutil.rmtree(root, ignore_errors=True)
