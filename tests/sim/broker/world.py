"""One simulation: a broker, its clients, what goes wrong, and the judgement; all of it follows from the seed."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import os
import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from barnabas.broker.coordinators.loading import replay_log
from barnabas.broker.coordinators.runtime import CoordinatorRuntime
from barnabas.records.batch import batches, read_records
from barnabas.sim.coordinators import check_follows_log
from barnabas.sim.disk import Disks
from barnabas.sim.history import PartitionHistory, Violation
from barnabas.sim.loop import Killed, SimLoop, Stuck
from barnabas.sim.network import SimNetwork
from barnabas.sim.transactions import TransactionHistory
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.sim.broker.consumers import Consumer, Fetcher
from tests.sim.broker.members import ClassicMember, ConsumerMember, Group
from tests.sim.broker.node import Node, StartError
from tests.sim.broker.producers import Producer
from tests.sim.broker.transactional import (
    CommittedReader,
    Rivals,
    TransactionalProducer,
    committed_offsets,
)
from tests.sim.broker.trouble import Plan
from tests.sim.broker.wire import Client, Lost

MEMORY = "/dev/shm"
CALM_S = 10.0
QUIET_S_MAX = 150.0
"""How long everybody may take to finish when nothing goes wrong any more."""
SIZES = {"log.index.size.max.bytes": "2000", "log.cleaner.dedupe.buffer.size": "2000000"}


@dataclass(slots=True)
class Topic:
    """A topic of the simulation."""

    name: str
    partitions: int
    configs: dict[str, str]

    @property
    def compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"


class Failed(AssertionError):
    """A promise was broken."""


class World:
    """See the module. `run()` once."""

    def __init__(self, seed: int, root: Path, *, log: list[str] | None = None) -> None:
        self.seed = seed
        self.log = log
        self.loop = SimLoop(self.stream("loop"))
        self.network = SimNetwork(self.loop, self.stream("network"))
        self.network.on_event = self._note_bytes
        self.disks = Disks()
        self.chance = self.stream("world")
        self.violations: list[Violation] = []
        self.quiet_since_s: float | None = None
        self.over = False
        self.power_cuts = 0
        self.crashes = 0
        self._root = str(root).encode()
        self._hash = hashlib.blake2b(digest_size=16)
        self._histories: dict[tuple[str, int], PartitionHistory] = {}
        self._ids: dict[str, UUID] = {}
        self.plan = Plan(self)
        self.node = Node(
            "broker1", self.loop, self.network, self.disks, root / "broker1", self.stream("node"),
            self.plan.options(), self.plan.dirs,
        )  # fmt: skip
        self.address = self.node.address
        self.flushes = self.plan.flushes
        self.topics = self._topics()
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.groups: list[Group] = []
        self.members: list[Any] = []
        self.transactions = TransactionHistory("ledger")
        self.ledger: Topic | None = None
        self.transactional: list[TransactionalProducer] = []
        self.readers: list[CommittedReader] = []
        self._people()
        self._transactional_people()

    def stream(self, name: str) -> random.Random:
        """Randomness of its own for one part, so that a change in one does not change all others."""
        return random.Random(f"{self.seed}:{name}")

    # --- who takes part ----------------------------------------------------------------------------------

    def _topics(self) -> list[Topic]:
        flush = {"flush.messages": "1"} if self.flushes else {}
        small = {"segment.bytes": str(self.chance.choice([2_500, 6_000, 1 << 20]))}
        topics = [Topic("plain", self.chance.randint(1, 3), {**small, **flush})]
        if self.chance.random() < 0.4:
            compact = {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "segment.bytes": "2500",
            }
            topics.append(Topic("latest", 1, {**compact, **flush}))
        return topics

    def _people(self) -> None:
        plain = self.topics[0]
        for number in range(self.chance.randint(1, 3)):
            topic = plain if number == 0 else self.chance.choice(self.topics)
            self.producers.append(Producer(self, f"p{number}", topic, self.chance.randint(5, 25)))
        for number in range(self.chance.randint(1, 2)):
            self.consumers.append(Consumer(self, f"c{number}", self.chance.choice(self.topics)))
        kind = self.chance.choice(["classic", "consumer", "none"])
        if kind != "none":
            group = Group(self, f"{kind}-group", plain)
            self.groups.append(group)
            for number in range(self.chance.randint(1, 3)):
                member_class: Any = ClassicMember if kind == "classic" else ConsumerMember
                self.members.append(member_class(self, f"m{number}", group))

    def _transactional_people(self) -> None:
        """Where a power cut may take what was acknowledged there is nothing to be said about transactions."""
        chance = self.stream("transactions")
        if chance.random() > 0.35 or (self.plan.power and (not self.flushes or self.plan.lies)):
            return
        segment_bytes = str(chance.choice([1_500, 6_000, 1 << 20]))
        self.ledger = ledger = Topic("ledger", chance.randint(1, 3), {"segment.bytes": segment_bytes})
        if self.flushes:
            ledger.configs["flush.messages"] = "1"
        for number in range(chance.randint(1, 2)):
            count = chance.choice([1, 1, 2])
            rivals = Rivals(f"id{number}", count)
            for rival in range(count):
                name = f"t{number}{'ab'[rival]}"
                producer = TransactionalProducer(self, name, ledger, rivals, chance.randint(3, 12))
                self.transactional.append(producer)
        self.readers.append(CommittedReader(self, "r0", ledger))

    def partition(self, topic: str, index: int) -> PartitionHistory:
        history = self._histories.get((topic, index))
        if history is None:
            compacted = any(t.compacted for t in self.topics if t.name == topic)
            history = self._histories[topic, index] = PartitionHistory(f"{topic}-{index}", compacted)
        return history

    async def topic_id(self, client: Client, topic: Topic) -> UUID:
        """Raises Lost."""
        known = self._ids.get(topic.name)
        if known is None:
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=False
            )
            answer = await client.call(asked, low=10)
            if answer.topics[0].error_code:
                await client.rest()
                raise Lost("the topic is not there yet")
            known = self._ids[topic.name] = answer.topics[0].topic_id
        return known

    @property
    def is_calm(self) -> bool:
        """Whether nothing has gone wrong for so long that everybody should be served at once."""
        return self.quiet_since_s is not None and self.loop.time() - self.quiet_since_s > CALM_S

    # --- what happens ------------------------------------------------------------------------------------

    def fail(self, rule: str, text: str) -> None:
        """A promise was broken, as a client has seen."""
        self.violations.append(Violation(rule, text))

    def note(self, text: str) -> None:
        """Something happened; it is part of the trace."""
        line = f"{self.loop.time():10.4f} {text}"
        self._hash.update(line.encode())
        if self.log is not None:
            self.log.append(line)

    def _note_bytes(self, text: str, data: bytes) -> None:
        self.plan.on_sent(text)
        self._hash.update(f"{self.loop.time():.6f}{text}".encode())
        # Some error messages name the folder, which has another name each time.
        self._hash.update(data.replace(self._root, b""))
        if self.log is not None and data:
            self.log.append(f"{self.loop.time():10.4f} {text} {len(data)} bytes")

    @property
    def trace(self) -> str:
        """A hash of everything that went over the network, and when."""
        return self._hash.hexdigest()

    def run(self) -> None:
        """Raises Failed with everything that was found."""
        with self.disks.installed():
            try:
                self.loop.run_until_complete(self._live())
            except Stuck as error:
                self.fail("stuck", str(error))
            except StartError as error:
                self.fail("failed", f"the broker does not start: {error}")
            finally:
                self.node.kill()
                self._end_clients()
        self._gather()
        if self.violations:
            violations_text = "\n".join(f"  {violation}" for violation in self.violations[:12])
            raise Failed(f"seed {self.seed}, at {self.loop.time():.3f} s:\n{violations_text}")

    def _end_clients(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            task.cancel()
        self.over = True
        self.loop.set_exception_handler(lambda loop, context: None)
        self.loop.close()

    def _gather(self) -> None:
        for history in self._histories.values():
            self.violations += history.violations
        self.violations += self.transactions.violations
        for group in self.groups:
            self.violations += group.generations.violations
            for commits in group.commits.values():
                self.violations += commits.violations
        for context in self.loop.failures:
            error = context.get("exception")
            self.fail("failed", f"the loop met {context.get('message')}: {error!r}")

    async def _live(self) -> None:
        self.node.on_started = self._started
        self.node.on_fatal = self.plan.on_fatal
        await self.node.start()
        admin = Client(self, "admin")
        await self._create_topics(admin)
        tasks = [
            self.loop.create_task(p.run(), name=p.name)
            for p in (
                *self.producers,
                *self.consumers,
                *self.members,
                *self.transactional,
                *self.readers,
            )
        ]
        await self.plan.carry_out()
        self.quiet_since_s = self.loop.time()
        self.note("quiet")
        self._compare_coordinators_with_their_logs()
        await self._wait_for_all(tasks)
        self.producers.append(Producer(self, "last", self.topics[0], 3))
        tasks.append(self.loop.create_task(self._one_more(), name="the last producer"))
        await self._wait_for_all(tasks)
        self._compare_coordinators_with_their_logs()
        self.over = True
        for task in tasks:
            await self._end_of(task)
        await self._read_everything(admin)
        if self.ledger is not None:
            await self._read_transactions(self.ledger)

    def _compare_coordinators_with_their_logs(self) -> None:
        """What the coordinators have in memory is what a restart would find in their logs."""
        if self.node.running is None:
            return
        services = self.node.running.services
        for coordinator in (services.groups, services.transactions, services.shares.states):
            runtime: CoordinatorRuntime[Any] = coordinator.runtime
            for index, live in runtime.cores():
                partition = services.partitions.get(runtime.topic, index)
                assert partition is not None
                replayed = runtime.new_core(index)
                for _ in replay_log(partition, replayed, 1 << 20, lambda *_: None):
                    pass
                try:
                    check_follows_log(live, replayed)
                except AssertionError as error:
                    self.fail("coordinators", f"{partition}: {error}")

    async def _read_transactions(self, ledger: Topic) -> None:
        """All committed records and offsets once more."""
        self.over = False
        last = CommittedReader(self, "the last reader", ledger)
        for _ in range(600):
            before = dict(last.positions)
            polls = last.polls
            try:
                await last.poll()
            except Lost:
                await last.rest()
            if last.polls > polls and before == last.positions and last.waiting_for is None:
                break
        else:
            self.fail("stuck", str(last.waiting_for))
        groups = sorted({txn.producer for txn in self.transactions.txns if txn.offset is not None})
        offsets = await committed_offsets(last, ledger, groups)
        self.transactions.finish(last.found, offsets)
        self.over = True
        last.close()

    async def _one_more(self) -> None:
        """When all have read everything and wait for more, a last producer writes some."""
        assert self.quiet_since_s is not None
        await asyncio.sleep(max(0.0, self.quiet_since_s + CALM_S + 0.1 - self.loop.time()))
        await self.producers[-1].run()

    async def _end_of(self, task: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait_for(task, 60)
        except TimeoutError:
            self.fail("stuck", f"{task.get_name()} does not come to an end")

    async def _create_topics(self, admin: Client) -> None:
        rows = [
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
                ],
            )
            for topic in (*self.topics, *([self.ledger] if self.ledger else []))
        ]
        answer = await admin.call(CreateTopicsRequest(topics=rows), low=2)
        for row in answer.topics:
            assert not row.error_code, f"{row.name}: {ErrorCode(row.error_code).name} {row.error_message}"

    def _started(self) -> None:
        """The broker has recovered: what a power cut took is known now."""
        self.plan.on_started()
        self.note("started")

    def take_stock(self, *, lied: bool) -> None:
        """After a power cut: how much of each log is left."""
        assert self.node.running is not None
        for (topic, index), history in self._histories.items():
            partition = self.node.running.services.partitions.get(topic, index)
            left: dict[int, bytes] = {}
            if partition is not None:
                position = partition.log_start_offset
                while data := partition.read_bytes(position, 1 << 20):
                    left |= {record.offset: record.value or b"" for record in read_records(data)}
                    position = max(header.next_offset for _, header in batches(data))
            history.on_power_cut(partition.log_end_offset if partition else 0, left, lied=lied)
        for group in self.groups:
            group.on_power_cut()

    async def _wait_for_all(self, tasks: list[asyncio.Task[None]]) -> None:
        deadline_s = self.loop.time() + QUIET_S_MAX
        parties: list[Any] = [
            *self.producers, *self.consumers, *self.groups, *self.transactional, *self.readers,
        ]  # fmt: skip
        while self.loop.time() < deadline_s:
            for task in tasks:
                if task.done():
                    task.result()
            if not any(party.waiting_for for party in parties) or self.violations:
                return
            await asyncio.sleep(0.25)
        for party in parties:
            if party.waiting_for:
                self.fail("stuck", party.waiting_for)

    async def _read_everything(self, admin: Client) -> None:
        """Every log once more, from its start to its end."""
        admin.close()
        for (topic_name, index), history in self._histories.items():
            topic = next(t for t in self.topics if t.name == topic_name)
            assert self.node.running is not None
            partition = self.node.running.services.partitions.get(topic_name, index)
            if partition is None:
                self.fail("lost", f"{history.name} is not there any more")
                continue
            start, end = partition.log_start_offset, partition.log_end_offset
            fetcher = Fetcher(admin, topic, "the last reader")
            fetcher.positions, fetcher.max_bytes = {index: start}, 1 << 20
            content: dict[int, bytes] = {}
            fetcher.on_records = lambda index, records, content=content: content.update(  # type: ignore[misc]
                (r.offset, r.value) for r in records
            )
            for _ in range(300):
                if fetcher.positions[index] >= end or history.is_read_from(fetcher.positions[index]):
                    break
                try:
                    await fetcher.poll(0)
                except Lost:
                    await admin.rest()
            else:
                self.fail(
                    "stuck", f"{history.name} cannot be read to its end {end}: {fetcher.positions[index]}"
                )
            history.finish(start, end, content)
        admin.close()


def run_seed(seed: int, *, log: list[str] | None = None) -> World:
    """One whole simulation in a fresh folder. Raises Failed."""
    logging.disable(logging.CRITICAL if log is None else logging.NOTSET)
    root = Path(tempfile.mkdtemp(prefix="barnabas-sim-", dir=MEMORY if os.path.isdir(MEMORY) else None))
    collecting = gc.isenabled()
    try:
        world = World(seed, root, log=log)
        world.run()
        return world
    finally:
        logging.disable(logging.NOTSET)
        if collecting:
            gc.enable()
        shutil.rmtree(root, ignore_errors=True)


__all__ = ["Failed", "Killed", "Topic", "World", "run_seed"]
