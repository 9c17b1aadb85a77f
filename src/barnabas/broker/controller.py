"""Carries out what the controller core decides: decide, change the znode tree, replay, tell the partitions.

One change at a time: a lock serialises them, so that each decision reads an image that nothing is about to
change. The image is what every handler reads; it changes only here.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.broker import loggers
from barnabas.broker.configs import ConfigEntry, Configs
from barnabas.broker.internal_topics import INTERNAL, creation
from barnabas.config import broker_log
from barnabas.config.dynamic import Resource
from barnabas.coordination.local import LocalTree
from barnabas.coordination.tree import TreeError
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
    decide_delete_topic,
    decide_elections,
    decide_unclean_restart,
    require_topic,
)
from barnabas.cores.quota_entities import Entity, altered_quotas, entity_config
from barnabas.cores.znode_layout import Broker, Endpoint, broker_path, encode_broker, uuid_text
from barnabas.cores.znode_ops import Create, Op
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.partitions import Partitions
    from barnabas.config.loader import BrokerConfig
    from barnabas.coordination.tree import ZnodeTree
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.controller")

Charge = Callable[[int], None]
"""Counts partitions that a client has made or deleted; raises ApiError when it must wait."""


def free(partitions: int) -> None:
    """What the broker itself does costs nobody's quota."""


TREE_FILE: Final = "znodes.sqlite"


class Controller:
    """The cluster's metadata as this broker knows it, and the way to change it."""

    def __init__(self, config: BrokerConfig, clock: Clock, partitions: Partitions, tree: ZnodeTree) -> None:
        self.config = config
        self.tree = tree
        self.image = ClusterImage()
        self.node_id = config.node_id
        self.configs = Configs(config, self.image)
        self.on_topics_deleted: Callable[[frozenset[str]], None] = lambda names: None
        self.on_configs_changed: Callable[[str, str], None] = lambda kind, entity: None
        self._clock = clock
        self._partitions = partitions
        self._changing = asyncio.Lock()

    @classmethod
    async def open(cls, config: BrokerConfig, clock: Clock, partitions: Partitions) -> Controller:
        """Open the tree and load the image. Raises OSError when the tree cannot be used."""
        try:
            tree = LocalTree.open(Path(config.log_dirs[0]) / TREE_FILE)
        except TreeError as error:
            raise OSError(str(error)) from error
        controller = cls(config, clock, partitions, tree)
        await controller._load()
        return controller

    async def _load(self) -> None:
        nodes = await self.tree.subtree("/")
        missing = decide_bootstrap(nodes.keys(), uuid_text(uuid.uuid4()))
        if missing:
            await self.tree.multi(missing)
            nodes = await self.tree.subtree("/")
        for path, (data, stat) in nodes.items():
            self.image.put(path, data, stat.version, stat.czxid)
        self.configs.refresh_broker(self.node_id)

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    async def register(self, endpoints: Sequence[Endpoint], rack: str | None) -> None:
        """Become a live broker and the controller, and take up the partitions that this broker leads."""
        broker = Broker(self.node_id, tuple(endpoints), rack, self._clock.now_ms())
        await self._change((Create(broker_path(self.node_id), encode_broker(broker), ephemeral=True),))
        await self._change(decide_controller(self.image, self.node_id, self._clock.now_ms()))
        await self._change(decide_elections(self.image))
        if self._partitions.recovered_unclean:
            await self._change(decide_unclean_restart(self.image, self.node_id))
        self._partitions.load(self.image)

    async def close(self) -> None:
        await self.tree.close()

    async def _change(self, ops: Sequence[Op]) -> None:
        if not ops:
            return
        try:
            results = await self.tree.multi(ops)
        except TreeError as error:
            log.error("a metadata change was refused", extra={"reason": str(error)})
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata could not be changed: {error}"
            ) from error
        self.image.apply(ops, results)

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
        charge: Charge = free,
    ) -> TopicImage:
        """The topic as it was (or, with validate_only, would be) created. Raises ApiError."""
        async with self._changing:
            checked = self.configs.check_new_topic(configs)
            decision = decide_create_topic(
                self.image,
                CreateTopic(
                    name,
                    uuid.uuid4(),
                    num_partitions,
                    replication_factor,
                    assignments,
                    checked,
                    self.config.get(broker_log.NUM_PARTITIONS),
                    self.config.get(broker_log.DEFAULT_REPLICATION_FACTOR),
                    clamp_replication,
                ),
            )
            charge(len(decision.topic.partitions))
            if not validate_only:
                await self._change(decision.ops)
                self._partitions.create(self.image.topics[name])
                log.info("topic created", extra={"topic": name, "partitions": len(decision.topic.partitions)})
            return decision.topic

    async def auto_create(self, name: str, charge: Charge = free) -> None:
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

    async def delete_topic(self, name: str, *, charge: Charge = free) -> UUID:
        """Delete a topic with its logs; returns the id it had. Raises ApiError."""
        if not self.config.get(broker_log.DELETE_TOPIC_ENABLE):
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker")
        async with self._changing:
            topic = require_topic(self.image, name)
            charge(len(topic.partitions))
            await self._change(decide_delete_topic(self.image, name))
            self._partitions.delete(topic)
        self.on_topics_deleted(frozenset((name,)))
        log.info("topic deleted", extra={"topic": name})
        return topic.topic_id

    async def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[tuple[int, ...]] | None,
        *,
        validate_only: bool = False,
        charge: Charge = free,
    ) -> None:
        """Let a topic grow. Raises ApiError."""
        async with self._changing:
            decision = decide_create_partitions(self.image, CreatePartitions(name, count, assignments))
            charge(count - len(require_topic(self.image, name).partitions))
            if not validate_only:
                await self._change(decision.ops)
                self._partitions.create(self.image.topics[name])
                log.info("partitions added", extra={"topic": name, "partitions": count})

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
        if resource_type == Resource.BROKER_LOGGER:
            levels = self.configs.checked_loggers(name, changes)
            if not validate_only:
                loggers.apply(levels)
                self.on_configs_changed(loggers.KIND, name)
            return
        async with self._changing:
            altered = self.configs.altered(resource_type, name, changes)
            if not validate_only:
                await self._put_config(*altered)

    async def replace_configs(
        self,
        resource_type: int,
        name: str,
        texts: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a resource exactly these options of its own. Raises ApiError."""
        async with self._changing:
            changes = self.configs.replacing(resource_type, name, texts)
            altered = self.configs.altered(resource_type, name, changes)
            if not validate_only:
                await self._put_config(*altered)

    async def alter_quotas(
        self, entity: Entity, changes: Sequence[tuple[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set (or with None remove) quotas of a user, client id or address. Raises ApiError."""
        async with self._changing:
            kind, name = entity_config(entity)
            texts = altered_quotas(entity, self.image.config(kind, name), changes)
            if not validate_only:
                await self._put_config(kind, name, texts)

    async def _put_config(self, kind: str, entity: str, config: Mapping[str, str]) -> None:
        await self._change(decide_config(self.image, kind, entity, config))
        self.configs.refresh_broker(self.node_id)
        if kind == "topics":
            self._partitions.reconfigure(entity)
        elif kind == "brokers":
            for topic in self.image.topics:
                self._partitions.reconfigure(topic)
        self.on_configs_changed(kind, entity)
        log.info("options changed", extra={"kind": kind, "entity": entity})
