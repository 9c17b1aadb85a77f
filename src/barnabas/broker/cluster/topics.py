"""Creates, grows and deletes topics, also on behalf of this broker: internal topics, and those that clients just use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.cluster.internal_topics import INTERNAL, creation
from barnabas.broker.cluster.registration import REGISTER_POLL_S
from barnabas.config import broker_log, broker_zookeeper, topic_options
from barnabas.config.dynamic import TopicConfig
from barnabas.coordination.tree import TreeError
from barnabas.cores import links, topic_names
from barnabas.cores.cluster_image import TopicImage
from barnabas.cores.controller import (
    CreatePartitions,
    CreateTopic,
    decide_create_partitions,
    decide_create_topic,
    decide_deletion,
    decide_emptying,
    decide_restoration,
    require_binned,
    require_new_name,
    require_topic,
)
from barnabas.cores.znode_ops import Op
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.cluster.configs import Configs
    from barnabas.broker.cluster.executor import Executor
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.machine import Machine

log = logging.getLogger("barnabas.controller")

Charge = Callable[[int], None]
"""Charges partitions that a client has created or deleted; raises ApiError when the client must wait."""
HEARD_OF_MS_MAX: Final = 10_000


def no_charge(partitions: int) -> None:
    """The broker's own changes are not charged to any quota."""


def is_in_cluster(config: BrokerConfig) -> bool:
    """Whether other brokers may join, so that a topic must not be created with fewer replicas than configured."""
    return bool(config.get(broker_zookeeper.ZOOKEEPER_CONNECT))


class TopicChanges:
    """See the module."""

    def __init__(
        self,
        executor: Executor,
        config: BrokerConfig,
        configs: Configs,
        machine: Machine,
        require_office: Callable[[], None],
        in_office: Callable[[], bool],
    ) -> None:
        """require_office: raises ApiError unless this broker is the controller; in_office: whether it is."""
        self._executor = executor
        self._image = executor.image
        self._config = config
        self._configs = configs
        self._clock = machine.clock
        self._entropy = machine.entropy
        self._require_office = require_office
        self._in_office = in_office
        self.create_elsewhere: Callable[[str, int, int, Mapping[str, str | None]], Awaitable[None]] | None = (
            None
        )
        """Asks the controller, when it is another broker, to create a topic: (name, partitions, replicas, options)."""

    def name_error(self, name: str) -> ErrorCode | None:
        """INVALID_TOPIC_EXCEPTION if `name` is not a valid topic name."""
        return ErrorCode.INVALID_TOPIC_EXCEPTION if topic_names.refusal(name) is not None else None

    async def create(
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
        link: str = "",
    ) -> TopicImage:
        """The topic as created (with validate_only: as it would be created). link: mirrors it. Raises ApiError."""
        topic_id = self._entropy.uuid()
        charge = _once(charge)
        decided: TopicImage | None = None

        def decide() -> Iterable[Op | None]:
            nonlocal decided
            self._require_office()
            if topic_id not in self._image.by_id:
                require_new_name(self._image, name)  # checked first, as in Kafka
            event = CreateTopic(
                name,
                topic_id,
                num_partitions,
                replication_factor,
                assignments,
                self._configs.check_new_topic(configs) | ({links.TOPIC_OPTION: link} if link else {}),
                self._config.get(broker_log.NUM_PARTITIONS),
                self._config.get(broker_log.DEFAULT_REPLICATION_FACTOR),
                clamp_replication,
            )
            decision = decide_create_topic(self._image, event)
            charge(len(decision.topic.partitions))
            decided = decision.topic
            return decision.ops

        async def make() -> TopicImage:
            if validate_only:
                decide()
            else:
                await self._executor.change_topic(name, decide)
                log.info(
                    "topic created",
                    extra={"topic": name, "partitions": len(self._image.topics[name].partitions)},
                )
            assert decided is not None
            return decided

        return await self._executor.run(make)

    async def auto_create(self, name: str, charge: Charge = no_charge) -> None:
        """Create a topic with the broker's defaults, because a client asked for it. Raises ApiError."""
        if name in self._image.topics:
            return
        if name in INTERNAL:
            await self.ensure_internal(name)
            return
        try:
            may_clamp = not is_in_cluster(self._config) or not self._config.is_set(
                broker_log.DEFAULT_REPLICATION_FACTOR
            )
            await self._create_here_or_elsewhere(name, -1, -1, {}, clamp=may_clamp, charge=charge)
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def create_for_group(
        self,
        name: str,
        partitions: int,
        replicas: int,
        configs: Mapping[str, str | None],
        charge: Charge = no_charge,
    ) -> None:
        """Create a topic that a streams group needs, unless it exists. replicas: -1 is the default. Raises ApiError."""
        if name in self._image.topics:
            return
        may_clamp = replicas < 0 and not (
            is_in_cluster(self._config) and self._config.is_set(broker_log.DEFAULT_REPLICATION_FACTOR)
        )
        try:
            await self._create_here_or_elsewhere(
                name, partitions, replicas, configs, clamp=may_clamp, charge=charge
            )
        except ApiError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def ensure_internal(self, name: str) -> int:
        """Create an internal topic unless it exists; returns its partition count. Raises ApiError."""
        topic = self._image.topics.get(name)
        if topic is None:
            partitions, replicas, configs, may_clamp = creation(
                self._config, name, max(len(self._image.brokers), 1)
            )
            try:
                await self._create_here_or_elsewhere(name, partitions, replicas, configs, clamp=may_clamp)
            except ApiError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
            topic = await self._await_topic(name)
        return len(topic.partitions)

    async def _create_here_or_elsewhere(
        self,
        name: str,
        partitions: int,
        replicas: int,
        configs: Mapping[str, str | None],
        *,
        clamp: bool,
        charge: Charge = no_charge,
    ) -> None:
        """Create a topic that this broker needs, through the controller wherever it is. Raises ApiError."""
        if self._in_office() or self.create_elsewhere is None:
            await self.create(name, partitions, replicas, {}, configs, clamp_replication=clamp, charge=charge)
            return
        if clamp:
            default = self._config.get(broker_log.DEFAULT_REPLICATION_FACTOR)
            replicas = min(replicas if replicas > 0 else default, max(len(self._image.brokers), 1))
        charge(max(partitions, 1))
        await self.create_elsewhere(name, partitions, replicas, configs)
        await self._await_topic(name)

    async def _await_topic(self, name: str) -> TopicImage:
        """Wait until this broker has learned of a topic created on another one. Raises ApiError LEADER_NOT_AVAILABLE."""
        deadline_ms = self._clock.monotonic_ms() + HEARD_OF_MS_MAX
        while name not in self._image.topics:
            if self._clock.monotonic_ms() > deadline_ms:
                raise ApiError(
                    ErrorCode.LEADER_NOT_AVAILABLE,
                    f"{name} was created, and this broker has not heard of it yet",
                )
            await asyncio.sleep(REGISTER_POLL_S / 5)
        return self._image.topics[name]

    async def delete(self, name: str, *, charge: Charge = no_charge) -> UUID:
        """Delete a topic with its logs; returns the id it had. Raises ApiError."""
        if not self._config.get(broker_log.DELETE_TOPIC_ENABLE):
            raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker")
        charge = _once(charge)
        topic: TopicImage | None = None

        def decide() -> Iterable[Op]:
            nonlocal topic
            self._require_office()
            if topic is not None and name not in self._image.topics:
                return ()  # the mark was made, only the answer was lost
            topic = require_topic(self._image, name)
            charge(len(topic.partitions))
            return decide_deletion(self._image, name, self._clock.now_ms(), self.bin_ms(name))

        async def remove() -> UUID:
            await self._executor.change(decide)
            assert topic is not None
            try:
                await self._executor.remove_topic(name)
            except TreeError as error:
                # Clients no longer see the topic, and its mark stays: the rest is removed once the tree answers.
                log.warning(
                    "a deleted topic's nodes stay for now", extra={"topic": name, "reason": str(error)}
                )
                self._executor.reload_soon()
            return topic.topic_id

        return await self._executor.run(remove)

    def bin_ms(self, name: str) -> int:
        """How long a topic rests in the bin when it is deleted; 0 for not at all."""
        own = TopicConfig(self._config, self._image.config("topics", name))
        return int(own[topic_options.BARNABAS_TOPIC_BIN_MS.name])

    async def restore(self, topic_id: UUID, name: str, *, charge: Charge = no_charge) -> TopicImage:
        """Bring a topic back from the bin, with its records, under this name. Raises ApiError."""
        charge = _once(charge)
        decided: TopicImage | None = None

        def decide() -> Iterable[Op | None]:
            nonlocal decided
            self._require_office()
            decision = decide_restoration(self._image, topic_id, name)
            charge(len(decision.topic.partitions))
            decided = decision.topic
            return decision.ops

        def emptied() -> Iterable[Op]:
            self._require_office()
            return decide_emptying(self._image, (topic_id,))

        async def bring_back() -> TopicImage:
            await self._executor.change_topic(name, decide)
            await self._executor.change(emptied)
            assert decided is not None
            log.info("topic restored", extra={"topic": name, "partitions": len(decided.partitions)})
            return decided

        return await self._executor.run(bring_back)

    async def purge(self, topic_ids: Sequence[UUID]) -> None:
        """Remove topics from the bin for good. Any broker may. Raises ApiError UNKNOWN_TOPIC_ID."""
        for topic_id in topic_ids:
            require_binned(self._image, topic_id)

        async def remove() -> None:
            names = [binned.name for topic_id in topic_ids if (binned := self._image.bin.get(topic_id))]
            await self._executor.change(lambda: decide_emptying(self._image, topic_ids))
            log.info("topics removed from the bin", extra={"topics": names})

        await self._executor.run(remove)

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[tuple[int, ...]] | None,
        *,
        validate_only: bool = False,
        charge: Charge = no_charge,
    ) -> None:
        """Add partitions to a topic. Raises ApiError."""
        charge = _once(charge)
        wanted = CreatePartitions(name, count, assignments)
        decided = False

        def decide() -> Iterable[Op]:
            nonlocal decided
            self._require_office()
            topic = self._image.topics.get(name)
            if decided and topic is not None and len(topic.partitions) == count:
                return ()  # the change was made, only the answer was lost
            decision = decide_create_partitions(self._image, wanted)
            charge(count - len(require_topic(self._image, name).partitions))
            decided = True
            return decision.ops

        async def grow() -> None:
            if validate_only:
                decide()
                return
            await self._executor.change_topic(name, decide)
            log.info("partitions added", extra={"topic": name, "partitions": count})

        await self._executor.run(grow)


def _once(charge: Charge) -> Charge:
    """A charge that is made only once, however often a request is decided."""
    charged = False

    def charge_once(partitions: int) -> None:
        nonlocal charged
        if not charged:
            charge(partitions)
            charged = True

    return charge_once
