"""A link between two simulated clusters: what it copies, and what becomes of that when it is promoted, and comes back.

The source is the cluster of `tests/sim/cluster`, with its writers and all its faults. Two more brokers with a tree of their
own are the target: they copy over the simulated network, are killed and cut off meanwhile, and clients try all the time to
write to the copies. Then the source is well, or gone for good but for its disks: the link is promoted, clients write to what
were copies, and at last the former source becomes a copy of the target.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from barnabas.broker.links import promoting
from barnabas.broker.partitions.partition import Partition
from barnabas.coordination.local import LocalStore
from barnabas.coordination.tree import ConnectionLost
from barnabas.cores.links import LinkSpec, linked_topics
from barnabas.records.batch import Record, build_batch
from barnabas.sim.loop import Killed, Stuck
from barnabas.sim.machine import EPOCH_MS, SameThread
from barnabas.sim.tree import SimTree
from barnabas.wire.errors import ApiError
from tests.sim.broker.node import Died, Node
from tests.sim.cluster.world import PARTITIONS, SESSION_S, TOPIC, World

TARGETS: Final = 2
FIRST_TARGET: Final = 40
LINK: Final = "link"
OWN: Final = b"own "
"""How values begin that clients of the target have written."""
OWN_WRITES: Final = 12
PATIENCE_S: Final = 60.0
Place = tuple[int, int]
"""Partition and offset."""


class LinkWorld(World):
    """See the module. `happened` counts what a history had."""

    def __init__(self, seed: int, root: Path, log: list[str] | None) -> None:
        super().__init__(seed, root, log)
        self.target_store = LocalStore(None, lambda: EPOCH_MS + int(self.loop.time() * 1000), SameThread)
        self.targets = [self._target(number, root) for number in range(1, TARGETS + 1)]
        self.copied: dict[Place, bytes] = {}
        """What somebody saw below a high watermark of the target."""
        self.own: dict[Place, bytes] = {}
        """What the target has acknowledged to its own clients."""
        self.is_lost = self.stream("fate").random() < 0.5
        """Whether the source dies, and is failed over; otherwise it is well, and all is copied before the promotion."""
        self.is_done = False
        self.happened: dict[str, int] = {}

    def everybody(self) -> list[Node]:
        return [*self.nodes, *self.targets]

    def stores(self) -> list[LocalStore]:
        return [self.store, self.target_store]

    def _target(self, number: int, root: Path) -> Node:
        node = self._node(FIRST_TARGET + number, root)
        node.open_tree = lambda: self._open_target_tree(node)
        node.on_fatal = lambda: self.fail("failed", f"{node.name} gives up")
        return node

    async def _open_target_tree(self, node: Node) -> SimTree:
        if node.name in self.faults.cut_off:
            await asyncio.sleep(0.1)
            raise ConnectionLost("session", "no server answers")
        chance = self.stream(f"tree {node.name} {len(self.trees)}")
        tree = self.sessions[node.name] = SimTree.begin(self.target_store, self.loop, node.life, chance)
        self.trees.append(tree)
        return tree

    def count(self, what: str, text: str = "") -> None:
        self.happened[what] = self.happened.get(what, 0) + 1
        self.note(f"{what} {text}")

    # --- the story -------------------------------------------------------------------------------------

    async def _live(self) -> None:
        for node in self.everybody():
            await node.start()
        await self._await(
            lambda: self._knows_all(self.nodes) and self._knows_all(self.targets), "brokers register"
        )
        configs = {"min.insync.replicas": str(self.min_in_sync)}
        await self._office(self.nodes).services.controller.topics.create(TOPIC, PARTITIONS, 3, {}, configs)
        await self._create(self.targets, self.nodes, takes_over=False)
        writing = [self.loop.create_task(self._write(index)) for index in range(PARTITIONS)]
        writing += [self.loop.create_task(producer.run()) for producer in self.producers]
        writing.append(self.loop.create_task(self._read()))
        looking = [self.loop.create_task(self._read_copies()), self.loop.create_task(self._write_to_target())]
        harming = self.loop.create_task(self._harm_targets())
        await self.faults.come()
        self.faults.end()
        await self._become_well()
        self.over = True
        await asyncio.wait(writing, timeout=PATIENCE_S)
        self._judge()
        if self.is_lost:
            await self._lose_source()
        await harming
        self.network.heal()
        if not self.is_lost:
            await self._await(self._is_same, "everything is copied")
        await self._promote()
        await self._await(lambda: len(self.own) >= OWN_WRITES, "the target takes records")
        self.is_done = True
        for task in looking:
            await task
        await self._await(lambda: self._knows_all(self.targets), "the target is whole")
        await self._await(lambda: min(self._ends(self.targets).values()) >= 0, "the target has leaders")
        self._judge_target()
        await self._bring_back()

    async def _lose_source(self) -> None:
        """Some more is written, which is copied or not, and the source is gone."""
        chance = self.stream("loss")
        for _ in range(chance.randrange(30)):
            for index in range(PARTITIONS):
                for node, partition in self.leaders_of(index):
                    self._append(node, partition, acks_all=True)
            await asyncio.sleep(chance.random() * 0.003)
        self.count("source lost")
        for node in self.nodes:
            node.kill(silent=chance.random() < 0.3)

    async def _bring_back(self) -> None:
        """The former source becomes a copy, without what was never copied."""
        for tree in [self.sessions[node.name] for node in self.nodes if self.is_lost]:
            self.expire(tree)
        for node in self.nodes if self.is_lost else ():
            await node.start()
        await self._await(lambda: self._knows_all(self.nodes), "brokers of the source register")
        await self._await(lambda: min(self._ends(self.nodes).values()) >= 0, "the source has leaders")
        before = self._ends(self.nodes)
        await self._create(self.nodes, self.targets, takes_over=True)
        await self._await(self._is_same, "the former source is a copy")
        if any(self._parts_at(index) < end for index, end in before.items()):
            self.count("records removed at the source")
        await self._must(self.targets, lambda server: promoting.delete(server.services.links, LINK))

    # --- clusters --------------------------------------------------------------------------------------

    def _knows_all(self, nodes: list[Node]) -> bool:
        found = [node.running for node in nodes if node.running is not None]
        return len(found) == len(nodes) and all(
            len(server.services.image.brokers) == len(nodes) for server in found
        )

    def _office(self, nodes: list[Node]) -> Any:
        """The controller's server; None while there is none."""
        for node in nodes:
            if node.running is not None and node.running.services.controller.in_office:
                return node.running
        return None

    async def _must(self, nodes: list[Node], change: Callable[[Any], Coroutine[Any, Any, Any]]) -> None:
        """Have the controller carry out a change, as often as it takes: whoever asked does not know what became of it."""
        deadline_s = self.loop.time() + PATIENCE_S
        why = "there is no controller"
        while self.loop.time() < deadline_s:
            for node in nodes:
                server = node.running
                if server is None or not server.services.controller.in_office or node.life is None:
                    continue
                task = self.loop.spawn(node.life, change(server))
                done, _ = await asyncio.wait({task}, timeout=15)
                error = task.exception() if done and not task.cancelled() else None
                if done and not task.cancelled() and error is None:
                    return
                if error is not None and not isinstance(error, ApiError):
                    raise error
                why = str(error)
            await asyncio.sleep(0.1)
        raise Stuck(f"a change of a link is not carried out: {why}")

    async def _create(self, at: list[Node], source: list[Node], *, takes_over: bool) -> None:
        addresses = ",".join(f"{node.name}:9092" for node in source)
        reach = {"bootstrap.servers": addresses, "request.timeout.ms": "2000"}
        spec = LinkSpec(LINK, reach, TOPIC, interval_ms=200, replicas=2, takes_over=takes_over)
        await self._must(
            at, lambda server: server.services.controller.options.alter_link(LINK, lambda _: spec.texts())
        )

    async def _promote(self) -> None:
        self.count("failover" if self.is_lost else "promotion")

        async def promote(server: Any) -> None:
            await promoting.promote(
                server.services.links, LINK, None, without_source=self.is_lost, validate_only=False
            )

        chance = self.stream("promotion")
        if chance.random() < 0.5:  # a broker dies in the midst of it
            self.loop.call_later(chance.random() * 0.3, self._kill_target, chance.choice(self.targets))
        await self._must(self.targets, promote)
        await self._await(
            lambda: all(
                node.running is None or not linked_topics(node.running.services.image, LINK)
                for node in self.targets
            ),
            "the topics are let go",
        )

    async def _await(self, holds: Callable[[], bool], what: str) -> None:
        deadline_s = self.loop.time() + PATIENCE_S
        while not holds():
            if self.loop.time() > deadline_s:
                raise Stuck(f"it does not come true that {what}: {self._told()}")
            await asyncio.sleep(0.05)

    def _told(self) -> list[str]:
        """What the links say of themselves."""
        return [
            f"{node.name}: {row.reason} {[(p.partition, p.state, p.reason, p.log_end) for p in row.partitions]}"
            for node in self.everybody()
            if node.running is not None
            for row in node.running.services.links.describe(None)
        ] + [f"source {self._ends(self.nodes)} target {self._ends(self.targets)}"]

    # --- the target's faults ---------------------------------------------------------------------------

    async def _harm_targets(self) -> None:
        chance = self.stream("targets")
        for _ in range(chance.randint(1, 4)):
            await asyncio.sleep(chance.random() * 2)
            node = chance.choice(self.targets)
            if chance.random() < 0.5:
                self._kill_target(node)
                continue
            other = chance.choice(self.nodes)
            self.count("cut network", f"{node.name} {other.name}")
            self.network.part(node.name, other.name)
            self.faults.later(chance.random() * 4, self.network.join, node.name, other.name)
        await self._await(lambda: self._knows_all(self.targets), "the target is whole")

    def _kill_target(self, node: Node) -> None:
        if node.running is None or self.is_done:
            return
        chance = self.stream(f"kill {node.name} {node.starts}")
        self.count("kill", node.name)
        tree = self.sessions[node.name]
        node.kill(silent=chance.random() < 0.3)

        async def come_back() -> None:
            await asyncio.sleep(SESSION_S * chance.choice([0.3, 1.0, 1.5]))
            self.target_store.expire(tree.session_id)
            try:
                await node.start()
            except Died:
                pass

        self.loop.spawn(None, come_back())

    # --- clients of the target -------------------------------------------------------------------------

    def copies(self, index: int) -> Iterator[tuple[Node, Partition]]:
        """The replicas of a partition in the target that run."""
        for node in self.targets:
            partition = None if node.running is None else node.running.services.partitions.get(TOPIC, index)
            if partition is not None:
                yield node, partition

    async def _read_copies(self) -> None:
        chance = self.stream("reader of copies")
        while not self.is_done:
            await asyncio.sleep(chance.random() * 0.3)
            for index in range(PARTITIONS):
                for node, partition in self.copies(index):
                    end = int(partition.high_watermark)
                    self._see_copy(node, partition, max(int(partition.log_start_offset), end - 30), end)

    def _see_copy(self, node: Node, partition: Partition, begin: int, end: int) -> None:
        """What the target shows stays there, and is what the source has at the same offset."""
        for offset, value in self.records_of(node, partition, begin, end).items():
            place = (partition.index, offset)
            before = self.copied.setdefault(place, value)
            if before != value:
                self.fail("changed", f"{node.name} shows {value!r} at {place}, where {before!r} was before")
            if not value.startswith(OWN):
                self._note(self.committed, place, value, f"{node.name}, a copy, shows")

    async def _write_to_target(self) -> None:
        """A client that cannot wait: it is refused as long as the topic is a copy."""
        chance = self.stream("writer to the target")
        while not self.is_done:
            await asyncio.sleep(chance.random() * 0.2)
            for index in range(PARTITIONS):
                for node, partition in [*self.copies(index)]:
                    if partition.is_leader:
                        self._append_own(node, partition)

    def _append_own(self, node: Node, partition: Partition) -> None:
        value = OWN + b"%d" % self.written
        data = build_batch([Record(0, EPOCH_MS, b"", value)])
        self.note_body(data, value)
        life = node.life
        try:
            appended = partition.append(memoryview(bytearray(data)), acks_all=True, zstd_allowed=True)
        except (ApiError, Killed):
            return

        def ready(appended: Any) -> None:
            if appended.error is None and life is not None and life.alive:
                self.own[partition.index, int(appended.base_offset)] = value

        appended.when_ready(ready)

    # --- judging ---------------------------------------------------------------------------------------

    def _leading(self, replicas: list[tuple[Node, Partition]]) -> tuple[Node, Partition] | None:
        return next(((node, p) for node, p in replicas if p.is_leader), None)

    def _ends(self, nodes: list[Node]) -> dict[int, int]:
        """Where the leaders' logs end; -1 for a partition without a leader."""
        found = {}
        for index in range(PARTITIONS):
            leading = self._leading(self.replicas(index) if nodes is self.nodes else [*self.copies(index)])
            found[index] = -1 if leading is None else int(leading[1].log_end_offset)
        return found

    def _is_same(self) -> bool:
        """Whether both clusters hold the same; differences below both high watermarks break a rule at once."""
        for index in range(PARTITIONS):
            sides = [self._leading(self.replicas(index)), self._leading([*self.copies(index)])]
            if None in sides:
                return False
            logs = [
                self.records_of(*side, int(side[1].log_start_offset), int(side[1].high_watermark))
                for side in sides
                if side
            ]
            if logs[0] != logs[1]:
                return False
        return self._ends(self.nodes) == self._ends(self.targets)

    def _parts_at(self, index: int) -> int:
        """Where what the target's own clients have written begins."""
        return min((offset for where, offset in self.own if where == index), default=1 << 62)

    def _judge_target(self) -> None:
        for index in range(PARTITIONS):
            leading = self._leading([*self.copies(index)])
            if leading is None:
                self.fail("stuck", f"{TOPIC}-{index} has no leader in the target")
                continue
            begin, end = int(leading[1].log_start_offset), int(leading[1].log_end_offset)
            content = self.records_of(*leading, begin, end)
            if len(content) != end - begin:
                self.fail("hole", f"{leading[0].name} lacks offsets of {leading[1]}")
            if len(set(content.values())) != len(content):
                self.fail("doubled", f"{leading[1]} has a record twice")
            own = [offset for offset, value in content.items() if value.startswith(OWN)]
            copied_to = min(own, default=end)
            if any(not content[offset].startswith(OWN) for offset in range(copied_to, end)):
                self.fail("mixed", f"{leading[1]} has copied records behind those of its own clients")
            for known, what in (
                (self.copied, "seen in the target"),
                (self.own, "acknowledged by the target"),
            ):
                for (where, offset), value in known.items():
                    if where == index and content.get(offset) != value:
                        self.fail(
                            "lost", f"{value!r}, {what} at {where}:{offset}: {content.get(offset)!r} is there"
                        )
            self._judge_copy(index, content, copied_to)

    def _judge_copy(self, index: int, content: dict[int, bytes], copied_to: int) -> None:
        for (where, offset), value in self.acknowledged.items():
            if where != index or content.get(offset) == value:
                continue
            if offset < copied_to:
                self.fail("lost", f"{value!r}, which the source had at {where}:{offset}, is not in the copy")
            elif not self.is_lost:
                self.fail("lost", f"{value!r} at {where}:{offset} was not copied before the promotion")
