"""The cluster's metadata as this broker knows it, and the requests that change it.

Each request is a function that decides (a pure core) and changes the tree through the executor, in its turn. The image
is what every handler reads; only the executor changes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.cluster import loggers
from barnabas.broker.cluster.configs import ConfigEntry, Configs
from barnabas.broker.cluster.executor import Executor
from barnabas.broker.cluster.internal_topics import INTERNAL, creation
from barnabas.broker.cluster.trees import WAIT_SHARE, copies_of, tree_opener
from barnabas.config import broker_log
from barnabas.config.option import ConfigError
from barnabas.coordination.local import LocalTree
from barnabas.coordination.tree import NodeExists, TreeError, ZnodeTree
from barnabas.cores import topic_names
from barnabas.cores.cluster_image import ClusterImage, TopicImage
from barnabas.cores.controller import (
    CreatePartitions,
    CreateTopic,
    decide_bootstrap,
    decide_config,
    decide_controller,
    decide_create_partitions,
    decide_create_topic,
    decide_deletion,
    require_new_name,
    require_topic,
)
from barnabas.cores.elections import decide_elections, decide_unclean_restart
from barnabas.cores.quota_entities import Entity, altered_quotas, entity_config
from barnabas.cores.znode_layout import (
    Broker,
    Endpoint,
    broker_path,
    encode_broker,
    entity_of,
    uuid_text,
)
from barnabas.cores.znode_ops import Op, Set, chunks
from barnabas.runtime.garbage import lasting_objects
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.partitions.registry import Partitions
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.machine import Machine

log = logging.getLogger("barnabas.controller")

Charge = Callable[[int], None]
"""Counts partitions that a client has made or deleted; raises ApiError when it must wait."""

AlteredConfig = tuple[str, str, dict[str, str]]
REGISTER_POLL_S: Final = 0.1
LARGE_TOPIC_PARTITIONS: Final = 1_000
BOOTSTRAP_ATTEMPTS: Final = 5


def no_charge(partitions: int) -> None:
    """The broker's own changes are not charged to any quota."""


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
        """patience_s: how long a request, or the registration, waits for a tree that is not as it should be."""
        self.config = config
        self.image = ClusterImage()
        self.node_id = config.node_id
        self.configs = Configs(config, self.image)
        self.on_topics_deleted: Callable[[frozenset[str]], None] = lambda names: None
        self.on_configs_changed: Callable[[str, str], None] = lambda kind, entity: None
        self._clock = machine.clock
        self._entropy = machine.entropy
        self._partitions = partitions
        self._patience_s = patience_s
        self._executor = Executor(self.image, open_tree, machine.entropy.uuid, patience_s=patience_s)
        self._registration: Broker | None = None
        self._levels = loggers.Levels(config.logger_levels)

    @classmethod
    async def open(cls, config: BrokerConfig, machine: Machine, partitions: Partitions) -> Controller:
        """Open the tree and load the image. Raises OSError when the tree cannot be used."""
        open_tree, session_timeout_s = tree_opener(config, machine)
        controller = cls(config, machine, partitions, open_tree, patience_s=session_timeout_s * WAIT_SHARE)
        try:
            await controller._executor.open()
        except TreeError as error:
            raise OSError(str(error)) from error
        try:
            await controller._load()
        except TreeError as error:
            await controller.close()
            raise OSError(str(error)) from error
        return controller

    async def _load(self) -> None:
        # Others may make the same nodes at this moment: what is missing then is looked up again.
        for attempt in range(BOOTSTRAP_ATTEMPTS):
            nodes = await self.tree.subtree("/")
            missing = decide_bootstrap(nodes.keys(), uuid_text(self._entropy.uuid()))
            try:
                for chunk in chunks(missing):
                    await self.tree.multi(chunk)
                break
            except NodeExists:
                if attempt + 1 == BOOTSTRAP_ATTEMPTS:
                    raise
        await self._executor.load()
        self.configs.refresh_broker(self.node_id)
        self._levels.apply(self.image.config(loggers.KIND, str(self.node_id)))

    @property
    def tree(self) -> ZnodeTree:
        """The session with the tree; another object after a session was lost."""
        return self._executor.tree

    @property
    def cluster_id(self) -> str:
        """The id that the cluster was given when its tree was made."""
        return self.image.cluster_id

    # --- registration ----------------------------------------------------------------------------------

    async def register(self, endpoints: Sequence[Endpoint], rack: str | None) -> None:
        """Become a live broker and the controller, and take up the partitions that this broker leads.

        Raises OSError: somebody else is registered under this node's id, or the tree cannot be used.
        """
        self._registration = Broker(self.node_id, tuple(endpoints), rack, self._clock.now_ms())
        self._executor.followers = self
        try:
            await self.settle()
            if self._partitions.recovered_unclean:
                await self._executor.change(lambda: decide_unclean_restart(self.image, self.node_id))
            self._partitions.load(self.image)
            await self._executor.finish_interrupted()
        except (TreeError, ApiError) as error:
            raise OSError(str(error)) from error
        self._executor.start()

    async def settle(self) -> None:
        """Be registered, be the controller, and give partitions the leaders that live brokers can be.

        Called at start, and whenever the session, the controller or the live brokers may have changed. Raises OSError.
        """
        self._refuse_company()
        await self._be_registered()
        self._refuse_company()  # both may have looked before either was registered
        if self.image.controller_id != self.node_id:
            await self._executor.change(self._controller_ops)
        touched: set[str] = set()

        def elections() -> Iterator[Op | None]:
            for op in decide_elections(self.image):
                if isinstance(op, Set):
                    touched.add(entity_of(op.path) or "")
                yield op

        await self._executor.change(elections)
        for name in {entity.rpartition("/")[2] for entity in touched}:
            await self.topic_changed(self.image.topics[name])

    def _controller_ops(self) -> tuple[Op, ...]:
        if self.image.controller_id == self.node_id:
            return ()
        if self.image.controller_id >= 0:
            raise ApiError(
                ErrorCode.NOT_CONTROLLER,
                f"broker {self.image.controller_id} is the controller of this cluster",
            )
        return decide_controller(self.image, self.node_id, self._clock.now_ms())

    async def _be_registered(self) -> None:
        """Make this broker's ephemeral node; wait while an earlier session's is there. Raises OSError, TreeError."""
        assert self._registration is not None
        path = broker_path(self.node_id)
        deadline_s = self._clock.monotonic_ms() / 1000 + self._patience_s
        warned = False
        while True:
            stat = await self.tree.exists(path)
            if stat is not None and stat.owner == self.tree.session_id:
                break
            if stat is None:
                try:
                    await self.tree.create(path, encode_broker(self._registration), ephemeral=True)
                except NodeExists:
                    continue
                log.info("registered", extra={"path": path})
                continue
            if not warned:
                warned = True
                log.warning(
                    "a node of this id is registered, perhaps by this broker's last run; waiting until it goes",
                    extra={"path": path, "wait_s": self._patience_s},
                )
            if self._clock.monotonic_ms() / 1000 > deadline_s:
                raise OSError(
                    f"a broker with node.id={self.node_id} is registered already: {path} belongs to another session, "
                    f"{stat.owner:#x}; stop that broker or give this one another node.id"
                )
            await asyncio.sleep(REGISTER_POLL_S)
        data, stat = await self.tree.get(path)
        self.image.put(path, data, stat.version, stat.czxid)

    def _refuse_company(self) -> None:
        """Raises OSError when other brokers are alive: nothing here copies records to them yet."""
        others = sorted(self.image.brokers.keys() - {self.node_id})
        if others and self.image.controller_id != self.node_id:
            raise OSError(
                f"broker {others[0]} is registered in the same place; this version runs one broker for each "
                "zookeeper.connect: choose another chroot (HOST:PORT/NAME) for this one"
            )

    # --- what the executor calls -----------------------------------------------------------------------

    async def topic_changed(self, topic: TopicImage) -> None:
        """A topic is new, or its partitions have changed."""
        large = len(topic.partitions) >= LARGE_TOPIC_PARTITIONS
        with lasting_objects() if large else contextlib.nullcontext():
            await self._partitions.create(topic)

    async def topic_gone(self, topic: TopicImage) -> None:
        """A topic has been deleted."""
        await self._partitions.delete(topic)
        self.on_topics_deleted(frozenset((topic.name,)))
        log.info("topic deleted", extra={"topic": topic.name})

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

    async def keep_copies(self) -> None:
        """Keep a checked copy of the tree in every log dir, where the tree is a file of ours."""
        tree = self.tree
        if not isinstance(tree, LocalTree):
            return
        try:
            await tree.copy_to(copies_of(self.config.log_dirs))
        except (TreeError, OSError, sqlite3.Error) as error:
            log.warning("the metadata's copies are not up to date", extra={"reason": str(error)})

    async def close(self) -> None:
        """Copy the tree into the log dirs a last time and end the session with it."""
        try:
            await self.keep_copies()
        finally:
            await self._executor.close()

    # --- topics ----------------------------------------------------------------------------------------

    def name_error(self, name: str) -> ErrorCode | None:
        """INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
        return ErrorCode.INVALID_TOPIC_EXCEPTION if topic_names.refusal(name) is not None else None

    async def create_topic(
        self,
        name: str,
        num_partitions: int,
        replication_factor: int,
        assignments: Mapping[int, tuple[int, ...]],
        configs: Mapping[str, str | None],
        *,
        validate_only: bool = False,
        clamp_replication: bool = False,
        charge: Charge = no_charge,
    ) -> TopicImage:
        """The topic as it was (or, with validate_only, would be) created. Raises ApiError."""
        topic_id = self._entropy.uuid()
        charge = _once(charge)
        decided: TopicImage | None = None

        def decide() -> Iterable[Op | None]:
            nonlocal decided
            if topic_id not in self.image.by_id:
                require_new_name(self.image, name)  # of two mistakes, Kafka names this one
            event = CreateTopic(
                name,
                topic_id,
                num_partitions,
                replication_factor,
                assignments,
                self.configs.check_new_topic(configs),
                self.config.get(broker_log.NUM_PARTITIONS),
                self.config.get(broker_log.DEFAULT_REPLICATION_FACTOR),
                clamp_replication,
            )
            decision = decide_create_topic(self.image, event)
            charge(len(decision.topic.partitions))
            decided = decision.topic
            return decision.ops

        async def create() -> TopicImage:
            if validate_only:
                decide()
            else:
                await self._executor.change_topic(name, decide)
                log.info(
                    "topic created",
                    extra={"topic": name, "partitions": len(self.image.topics[name].partitions)},
                )
            assert decided is not None
            return decided

        return await self._executor.run(create)

    async def auto_create(self, name: str, charge: Charge = no_charge) -> None:
        """Create a topic with the broker's defaults, because a client asked about it. Raises ApiError."""
        if name in self.image.topics:
            return
        if name in INTERNAL:
            await self.ensure_internal_topic(name)
            return
        try:
            await self.create_topic(name, -1, -1, {}, {}, clamp_replication=True, charge=charge)
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def ensure_internal_topic(self, name: str) -> int:
        """Create an internal topic unless it is there; returns its partition count. Raises ApiError."""
        topic = self.image.topics.get(name)
        if topic is None:
            partitions, replicas, configs = creation(self.config, name)
            try:
                await self.create_topic(name, partitions, replicas, {}, configs, clamp_replication=True)
            except ApiError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            topic = self.image.topics[name]
        return len(topic.partitions)

    async def delete_topic(self, name: str, *, charge: Charge = no_charge) -> UUID:
        """Delete a topic with its logs; returns the id it had. Raises ApiError."""
        if not self.config.get(broker_log.DELETE_TOPIC_ENABLE):
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker")
        charge = _once(charge)
        topic: TopicImage | None = None

        def decide() -> Iterable[Op]:
            nonlocal topic
            if topic is not None and name not in self.image.topics:
                return ()  # the mark was made, and only the answer lost
            topic = require_topic(self.image, name)
            charge(len(topic.partitions))
            return decide_deletion(self.image, name)

        async def delete() -> UUID:
            await self._executor.change(decide)
            assert topic is not None
            try:
                await self._executor.remove_topic(name)
            except TreeError as error:
                # It is gone for clients, and its mark stays: what is left goes once the tree answers.
                log.warning(
                    "a deleted topic's nodes stay for now", extra={"topic": name, "reason": str(error)}
                )
                self._executor.reload_soon()
            return topic.topic_id

        return await self._executor.run(delete)

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[tuple[int, ...]] | None,
        *,
        validate_only: bool = False,
        charge: Charge = no_charge,
    ) -> None:
        """Let a topic grow. Raises ApiError."""
        charge = _once(charge)
        wanted = CreatePartitions(name, count, assignments)
        decided = False

        def decide() -> Iterable[Op]:
            nonlocal decided
            topic = self.image.topics.get(name)
            if decided and topic is not None and len(topic.partitions) == count:
                return ()  # the change was made, and only the answer lost
            decision = decide_create_partitions(self.image, wanted)
            charge(count - len(require_topic(self.image, name).partitions))
            decided = True
            return decision.ops

        async def grow() -> None:
            if validate_only:
                decide()
                return
            await self._executor.change_topic(name, decide)
            log.info("partitions added", extra={"topic": name, "partitions": count})

        await self._executor.run(grow)

    # --- configs ---------------------------------------------------------------------------------------

    def describe_configs(self, resource_type: int, name: str) -> list[ConfigEntry]:
        """Every option of a resource. Raises ApiError."""
        return self.configs.describe(resource_type, name)

    def describe_new_topic(self, topic: TopicImage) -> list[ConfigEntry]:
        """The options of a topic that was just created."""
        return self.configs.describe_topic(topic.name)

    async def alter_configs(
        self,
        resource_type: int,
        name: str,
        changes: Sequence[tuple[str, int, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change a resource's own options; (option, operation, value). Raises ApiError."""
        await self._change_config(lambda: self.configs.altered(resource_type, name, changes), validate_only)

    async def replace_configs(
        self,
        resource_type: int,
        name: str,
        texts: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a resource exactly these options of its own. Raises ApiError."""

        def altered() -> AlteredConfig:
            changes = self.configs.replacing(resource_type, name, texts)
            return self.configs.altered(resource_type, name, changes)

        await self._change_config(altered, validate_only)

    async def alter_quotas(
        self, entity: Entity, changes: Sequence[tuple[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set (or with None remove) quotas of a user, client id or address. Raises ApiError."""
        kind, name = entity_config(entity)

        def altered() -> AlteredConfig:
            return kind, name, altered_quotas(entity, self.image.config(kind, name), changes)

        await self._change_config(altered, validate_only)

    async def alter_credentials(self, user: str, alter: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Change the SCRAM credentials among a user's texts; its quotas stay. Raises ApiError, as `alter` may."""
        kind, name = entity_config({"user": user})

        def altered() -> AlteredConfig:
            return kind, name, alter(dict(self.image.config(kind, name)))

        await self._change_config(altered, validate_only=False)

    async def _change_config(self, altered: Callable[[], AlteredConfig], validate_only: bool) -> None:
        """altered: (kind, entity, its texts after the change), decided anew each time."""
        changed: tuple[str, str] | None = None

        def decide() -> Iterable[Op]:
            nonlocal changed
            kind, entity, texts = altered()
            changed = kind, entity
            return decide_config(self.image, kind, entity, texts)

        async def change() -> None:
            if validate_only:
                altered()
                return
            await self._executor.change(decide)
            assert changed is not None
            self.config_changed(*changed)

        await self._executor.run(change)


def _once(charge: Charge) -> Charge:
    """The same charge, however often a request is decided."""
    charged = False

    def charge_once(partitions: int) -> None:
        nonlocal charged
        if not charged:
            charge(partitions)
            charged = True

    return charge_once
