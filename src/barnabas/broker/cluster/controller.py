"""The cluster's metadata as this broker knows it, and the requests that change it.

Each request is a pure function that decides, and a change of the tree through the executor, which runs one request at a
time. Every handler reads the image; only the executor changes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.broker.cluster import loggers
from barnabas.broker.cluster.config_changes import ConfigChanges
from barnabas.broker.cluster.configs import Configs
from barnabas.broker.cluster.executor import Executor, SessionCounts
from barnabas.broker.cluster.reassigning import Reassigning
from barnabas.broker.cluster.registration import Registration
from barnabas.broker.cluster.topic_bin import TopicBin
from barnabas.broker.cluster.topics import TopicChanges, is_in_cluster
from barnabas.broker.cluster.trees import copies_of, formatted_cluster_id, patience_s, tree_opener
from barnabas.config import broker_identity, broker_log, broker_replication
from barnabas.config.option import ConfigError
from barnabas.coordination.local import LocalTree
from barnabas.coordination.tree import ConnectionLost, NodeExists, TreeError, ZnodeTree
from barnabas.cores.acl import Resource
from barnabas.cores.cluster_image import ClusterImage, TopicImage
from barnabas.cores.controller import (
    decide_bootstrap,
    decide_controller,
)
from barnabas.cores.elections import (
    PARTITIONS_PER_PIECE,
    decide_asked_elections,
    decide_balance,
    decide_elections,
    decide_lost_logs,
    decide_shutdown,
    decide_unclean_restart,
    elect,
)
from barnabas.cores.znode_layout import (
    Broker,
    Endpoint,
    state_of_path,
)
from barnabas.cores.znode_ops import Check, Op, Set, chunks
from barnabas.runtime.garbage import lasting_objects
from barnabas.runtime.timing import Histogram
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.machine import Machine

log = logging.getLogger("barnabas.controller")

T = TypeVar("T")
LARGE_TOPIC_PARTITIONS: Final = 1_000
BOOTSTRAP_ATTEMPTS: Final = 5
OPEN_AGAIN_S: Final = 1.0
HAND_OVER_S: Final = 5.0
"""How long a broker that stops waits for a tree that does not answer."""


class Elections:
    """What this broker has elected as controller. took: in ms, of each look at all partitions that changed any."""

    def __init__(self) -> None:
        self.took = Histogram()
        self.unclean = 0
        self._recovering: set[tuple[str, int]] = set()

    def note(self, image: ClusterImage, changed: Iterable[tuple[str, int]]) -> None:
        """The states of these partitions have been written."""
        for topic, number in changed:
            known = image.topics.get(topic)
            state = None if known is None else known.partitions.get(number)
            if state is None or not state.recovering:
                self._recovering.discard((topic, number))
            elif (topic, number) not in self._recovering:
                self._recovering.add((topic, number))
                self.unclean += 1


class Controller:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        machine: Machine,
        partitions: Partitions,
        open_tree: Callable[[], Awaitable[ZnodeTree]],
        *,
        patience_s: float = 20.0,
    ) -> None:
        """patience_s: how long a request or the registration waits for a tree that is not ready."""
        self.config = config
        self.image = ClusterImage()
        self.node_id = config.node_id
        self.configs = Configs(config, self.image)
        self.on_topics_deleted: Callable[[frozenset[str]], None] = lambda names: None
        self.on_acls_changed: Callable[[Iterable[Resource]], None] = lambda resources: None
        self.on_configs_changed: Callable[[str, str], None] = lambda kind, entity: None
        self._clock = machine.clock
        self._entropy = machine.entropy
        self._partitions = partitions
        self._patience_s = patience_s
        self.executor = Executor(
            self.image,
            open_tree,
            machine.entropy.uuid,
            patience_s=patience_s,
            in_office=lambda: self.in_office,
        )
        self.options = ConfigChanges(self.executor, self.configs, self.config_changed, self.acls_changed)
        self.reassigning = Reassigning(self.executor, self.require_office)
        self.topics = TopicChanges(
            self.executor, config, self.configs, machine, self.require_office, lambda: self.in_office
        )
        self.bin = TopicBin(
            self.executor, config, partitions, self.topics, lambda names: self.on_topics_deleted(names)
        )
        self.elections = Elections()
        self._registration: Registration | None = None
        self._has_taken_up = False
        """Whether the partitions that the metadata assign to this broker are being served."""
        self._levels = loggers.Levels(config.logger_levels)

    @classmethod
    async def open(
        cls,
        config: BrokerConfig,
        machine: Machine,
        partitions: Partitions,
        ended: asyncio.Future[int] | None = None,
    ) -> Controller:
        """Open the tree and load the image, once ZooKeeper answers. ended: done when there is nothing to wait for any more.

        Raises OSError when the tree cannot be used, and when the broker is to end.
        """
        open_tree, session_timeout_s = tree_opener(config, machine)
        controller = cls(config, machine, partitions, open_tree, patience_s=patience_s(session_timeout_s))
        wanted_id = formatted_cluster_id(config)  # before the tree's file is created beside the logs
        ended = ended or asyncio.get_running_loop().create_future()
        while True:
            opening = asyncio.ensure_future(controller._open(wanted_id))
            await asyncio.wait((opening, ended), return_when=asyncio.FIRST_COMPLETED)
            opening.cancel()  # unless it is done
            try:
                await opening
                return controller
            except asyncio.CancelledError:
                if not ended.done():
                    raise
            except ConnectionLost as error:
                if not is_in_cluster(config):
                    raise OSError(str(error)) from error
                log.warning(
                    "ZooKeeper does not answer; the broker waits for it", extra={"reason": str(error)}
                )
                await asyncio.wait((ended,), timeout=OPEN_AGAIN_S)
            except TreeError as error:
                raise OSError(str(error)) from error
            if ended.done():
                raise OSError("the broker was stopped while it waited for ZooKeeper")

    async def _open(self, wanted_id: str | None) -> None:
        """Raises TreeError."""
        await self.executor.open()
        try:
            await self._load(wanted_id)
        except BaseException:
            await self.close()
            raise

    async def _load(self, wanted_id: str | None = None) -> None:
        """wanted_id: the cluster id to use if the cluster is new; None for a random one."""
        cluster_id = wanted_id or uuid_text(self._entropy.uuid())
        secret = self._entropy.secret()
        # Other brokers may be creating the same nodes right now: whatever is missing then is looked up again.
        for attempt in range(BOOTSTRAP_ATTEMPTS):
            nodes = await self.tree.subtree("/")
            missing = decide_bootstrap(nodes.keys(), cluster_id, secret)
            try:
                for chunk in chunks(missing):
                    await self.tree.multi(chunk)
                break
            except NodeExists:
                if attempt + 1 == BOOTSTRAP_ATTEMPTS:
                    raise
        await self.executor.load()
        if not self.image.secret:
            # The node exists, but somebody has emptied it. A secret that only this broker knows is better than none.
            self.image.secret = secret
        self.configs.refresh_broker(self.node_id)
        self._levels.apply(self.image.config(loggers.KIND, str(self.node_id)))

    @property
    def tree(self) -> ZnodeTree:
        """The session with the tree; a different object after a session was lost."""
        return self.executor.tree

    @property
    def is_certain(self) -> bool:
        """Whether no other broker can have taken over from this one unnoticed: its session is alive, and everything that
        happened before the session began has been read."""
        now_s = self._clock.monotonic_ms() / 1000
        return self.executor.is_current and now_s < self.tree.safe_until_s

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's present registration, -1 before the first."""
        return -1 if self._registration is None else self._registration.epoch

    def epoch_of(self, broker_id: int) -> int | None:
        """The epoch of a live broker's registration as far as known here; None if it is not alive."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    @property
    def cluster_id(self) -> str:
        """The id that the cluster got when its tree was created."""
        return self.image.cluster_id

    # --- registration ----------------------------------------------------------------------------------

    async def register(self, endpoints: Sequence[Endpoint], rack: str | None) -> None:
        """Register as a live broker, become the controller if there is none, and take up the partitions assigned to this
        broker.

        Raises OSError when another broker is registered under this node id, or the tree cannot be used.
        """
        broker = Broker(self.node_id, tuple(endpoints), rack, self._clock.now_ms())
        self._registration = Registration(self.executor, self._clock, broker, self._patience_s)
        try:
            await self._registration.be_registered()
            await self.executor.load()  # others may have changed things since the first look
            if self._partitions.recovered_unclean:
                await self.executor.change(lambda: decide_unclean_restart(self.image, self.node_id))
            lost = self._partitions.without_logs(self.image)
            if lost:
                log.warning(
                    "logs that this broker had are missing; it leaves the in-sync replicas of their partitions",
                    extra={"partitions": len(lost), "first": "{}-{}".format(*lost[0])},
                )
                await self.executor.change(lambda: decide_lost_logs(self.image, self.node_id, lost))
            self.executor.followers = self
            await self.settle()
            self._partitions.load(self.image)
            self._has_taken_up = True
            await self.executor.finish_interrupted()
        except (TreeError, ApiError) as error:
            raise OSError(str(error)) from error
        self.executor.start()

    @property
    def sessions(self) -> SessionCounts:
        """What has happened to this broker's sessions with the metadata tree."""
        return self.executor.sessions

    @property
    def in_office(self) -> bool:
        """Whether this broker believes that it is the controller; the tree refuses changes by one that was replaced."""
        return self.image.controller_id == self.node_id

    async def settle(self) -> None:
        """Make sure that this broker is registered and that there is a controller; as controller, elect live leaders.

        Called at start, and whenever the session, the controller or the live brokers may have changed. Raises OSError.
        """
        assert self._registration is not None
        await self._registration.be_registered()
        if self.image.controller_id < 0:
            await self.executor.change(self._controller_ops)
            if self.in_office:
                log.info("this broker is the controller", extra={"epoch": self.image.controller_epoch})
                if self._has_taken_up:  # finish what the previous controller left half done
                    self.executor.reload_soon()
        if self.in_office:
            begun_ms = self._clock.monotonic_ms()
            if await self.change_states(lambda: decide_elections(self.image, self._unclean_topics())):
                self.elections.took.add(int(self._clock.monotonic_ms() - begun_ms))
            await self.change_states(lambda: decide_asked_elections(self.image))
            await self.reassigning.advance()

    async def change_states(self, decide: Callable[[], Iterable[Op | None]]) -> int:
        """Change leaders and in-sync replicas, in one turn of the executor. Returns of how many partitions. Raises ApiError.

        Each partition gets its role as soon as its state is in the tree, not when all are: the states of thousands take
        seconds, and meanwhile its followers follow another leader already, so a write to the old one would wait in vain.
        """
        touched: dict[tuple[str, int], None] = {}

        def note_chunk(chunk: Sequence[Op]) -> None:
            changed = [state_of_path(op.path) for op in chunk if isinstance(op, Set)]
            partitions = dict.fromkeys(partition for partition in changed if partition is not None)
            touched.update(partitions)
            self.elections.note(self.image, partitions)
            self._give_roles(partitions)

        try:
            await self.executor.change(decide, note_chunk)
        finally:
            self._look_at_moves(touched)
        if touched:
            log.info("leaders or in-sync replicas changed", extra={"partitions": len(touched)})
        return len(touched)

    def _look_at_moves(self, partitions: Iterable[tuple[str, int]]) -> None:
        """When the in-sync set of a moving partition has changed, all of its new replicas may be in sync."""
        if self.in_office and any(self.reassigning.may_end(*partition) for partition in partitions):
            self.executor.settle_soon()

    async def hand_over(self) -> None:
        """Controlled shutdown: move leadership to other brokers, and leave the in-sync sets."""
        if not self.config.get(broker_identity.CONTROLLED_SHUTDOWN_ENABLE) or len(self.image.brokers) < 2:
            return
        try:
            async with asyncio.timeout(None if self.executor.is_current else HAND_OVER_S):
                await self.run(lambda: self.change_states(lambda: decide_shutdown(self.image, self.node_id)))
        except (ApiError, TimeoutError) as error:
            reason = error.message if isinstance(error, ApiError) else "the metadata tree does not answer"
            log.warning(
                "leadership was not handed over; others take over once this broker's session has ended",
                extra={"reason": reason},
            )

    async def balance(self) -> None:
        """Move leadership back to preferred replicas; done by the controller only. Raises ApiError."""
        if self.in_office and self.config.get(broker_replication.AUTO_LEADER_REBALANCE_ENABLE):
            await self.run(lambda: self.change_states(lambda: decide_balance(self.image)))

    async def elect(
        self,
        partitions: Sequence[tuple[str, int]],
        decide_one: Callable[[ClusterImage, str, int], Iterable[Op]],
    ) -> dict[tuple[str, int], ApiError]:
        """Elect leaders for an administrator; returns refusals by partition. Raises ApiError NOT_CONTROLLER and others."""
        refused: dict[tuple[str, int], ApiError] = {}
        elected: set[tuple[str, int]] = set()

        def decide() -> Iterator[Op | None]:
            self.require_office()
            guarded = False
            for number, partition in enumerate(partitions, 1):
                if number % PARTITIONS_PER_PIECE == 0:
                    yield None
                try:
                    ops = tuple(decide_one(self.image, *partition))
                except ApiError as error:
                    if partition not in elected:  # otherwise elected in an earlier attempt of this change
                        refused[partition] = error.with_traceback(None)
                    continue
                elected.add(partition)
                yield from (op for op in ops if not (guarded and isinstance(op, Check)))
                guarded = True

        await self.run(lambda: self.change_states(decide))
        return refused

    def _give_roles(self, partitions: Iterable[tuple[str, int]]) -> None:
        if not self._has_taken_up:
            return  # partitions get their roles when they are taken up
        for topic, index in partitions:
            image = self.image.partition(topic, index)
            if image is not None:
                self._partitions.update(topic, index, image)

    def _unclean_topics(self) -> Collection[str]:
        """The topics that allow unclean leader election."""
        default = self.config.get(broker_log.UNCLEAN_LEADER_ELECTION_ENABLE)
        name = broker_log.UNCLEAN_LEADER_ELECTION_ENABLE.name
        return {
            topic
            for topic in self.image.topics
            if self.image.config("topics", topic).get(name, str(default)).lower() == "true"
        }

    def require_office(self) -> None:
        """Raises ApiError NOT_CONTROLLER unless this broker is the controller; the client then tries the right one."""
        if not self.in_office:
            raise ApiError(
                ErrorCode.NOT_CONTROLLER,
                f"broker {self.image.controller_id} is the controller of this cluster"
                if self.image.controller_id >= 0
                else "the cluster has no controller at this moment",
            )

    def _controller_ops(self) -> tuple[Op, ...]:
        if self.image.controller_id >= 0:
            return ()  # another broker was quicker
        return decide_controller(self.image, self.node_id, self._clock.now_ms())

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, which runs while nothing else changes metadata. Raises ApiError."""
        return await self.executor.run(work)

    # --- what the executor calls -----------------------------------------------------------------------

    def partitions_changed(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Other brokers have changed leaders or in-sync replicas."""
        self._give_roles(partitions)
        if self.in_office and any(self._wants_election(*partition) for partition in partitions):
            self.executor.settle_soon()
        self._look_at_moves(partitions)

    def _wants_election(self, topic: str, index: int) -> bool:
        """Whether a partition was assigned a leader that has died meanwhile."""
        image = self.image.partition(topic, index)
        return image is not None and elect(image, self.image.brokers.keys(), False) is not image

    def broker_registered(self, broker_id: int, epoch: int | None) -> None:
        """A broker has registered, perhaps with another disk than before; or, without an epoch, it is not alive any more."""
        if broker_id != self.node_id:
            self._partitions.broker_registered(broker_id, epoch)

    async def topic_changed(self, topic: TopicImage) -> None:
        """A topic is new, or its partitions have changed."""
        if not self._has_taken_up:
            return
        if self.in_office and self.reassigning.has_ended_moves(topic):
            self.executor.settle_soon()
        if topic.name not in self.image.topics and self.bin.is_another(topic):
            # Groups have kept their offsets for the topic in the bin. In this one they mean nothing.
            self.on_topics_deleted(frozenset((topic.name,)))
        large = len(topic.partitions) >= LARGE_TOPIC_PARTITIONS
        with lasting_objects() if large else contextlib.nullcontext():
            await self._partitions.create(topic)

    async def topic_gone(self, topic: TopicImage) -> None:
        """A topic has been deleted. Groups keep their offsets in a topic that can be restored."""
        rests = self.image.rests(topic.topic_id)
        await self._partitions.delete(topic, rests=rests)
        if not rests:
            self.on_topics_deleted(frozenset((topic.name,)))
        log.info("topic deleted", extra={"topic": topic.name, "rests_in_bin": rests})

    def config_changed(self, kind: str, name: str) -> None:
        """The options of an entity have changed."""
        try:
            self.configs.refresh_broker(self.node_id)
        except ConfigError as error:
            log.error(
                "options in the metadata tree are refused", extra={"entity": name, "reason": str(error)}
            )
            return
        if kind == loggers.KIND and name == str(self.node_id):
            self._levels.apply(self.image.config(loggers.KIND, name))
        if kind == "topics":
            self._partitions.reconfigure(name)
        elif kind == "brokers":
            for topic in self.image.topics:
                self._partitions.reconfigure(topic)
        self.on_configs_changed(kind, name)
        log.info("options changed", extra={"kind": kind, "entity": name})

    def acls_changed(self, resources: Iterable[Resource]) -> None:
        """The access rules of resources have changed."""
        self.on_acls_changed(resources)

    async def keep_copies(self) -> None:
        """Store a verified copy of the tree in every log dir, if the tree is a local file."""
        tree = self.tree
        if not isinstance(tree, LocalTree):
            return
        try:
            await tree.copy_to(copies_of(self.config.log_dirs))
        except (TreeError, OSError, sqlite3.Error) as error:
            log.warning("the metadata's copies are not up to date", extra={"reason": str(error)})

    async def close(self) -> None:
        """Copy the tree into the log dirs a last time, and end the session with it."""
        try:
            await self.keep_copies()
        finally:
            await self.executor.close()
