"""What the controller does for a link, again and again: topics, their partitions and options follow the source's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.admin.families.acls import AclFilter, AsyncAcls
from barnabas.admin.families.configs import AsyncConfigs, ConfigKind, ConfigResource, ConfigSource
from barnabas.admin.families.topics import AsyncTopics
from barnabas.client.errors import BrokerError, UnsupportedByBroker
from barnabas.config.topic_options import TOPIC
from barnabas.cores.acl import ResourceType
from barnabas.cores.links import LinkedTopic, link_of, linked_topics
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.admin.families.topics import Topic
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.links.link import Link

log = logging.getLogger("barnabas.links")

NOT_COPIED: Final = frozenset(
    {
        "barnabas.link",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
    }
)
"""Options that are about the brokers of a cluster rather than about a topic's records."""


class Surroundings(Protocol):
    """What the upkeep needs of all links."""

    @property
    def controller(self) -> Controller: ...


class Upkeep:
    """See the module."""

    def __init__(self, links: Surroundings) -> None:
        self._links = links

    @property
    def _controller(self) -> Controller:
        return self._links.controller

    async def tend(self, link: Link) -> None:
        """One look at the source. Raises ClientError."""
        if not link.copies:
            return
        topics = await AsyncTopics(link.source).list(internal=False)
        link.reached()
        problems: dict[str, str] = {}
        taken = {name: topic for name, topic in topics.items() if link.spec.takes_topic(name)}
        configs = await self._configs(link, taken)
        for name, topic in taken.items():
            if not topic.partitions:
                continue
            try:
                await self._follow(link, topic, configs.get(name))
            except ApiError as error:
                problems[name] = error.message
        for name in linked_topics(self._controller.image, link.name):
            if name not in topics:
                problems[name] = "the source has no such topic any more; the copy stays as it is"
        if link.spec.acls:
            await self._follow_rules(link, taken, problems)
        for name, why in problems.items():
            if link.problems.get(name) != why:
                log.warning(
                    "a link cannot mirror something", extra={"link": link.name, "what": name, "reason": why}
                )
        link.problems = problems

    async def _configs(self, link: Link, topics: Mapping[str, Topic]) -> Mapping[str, dict[str, str]]:
        """The options that the topics have of their own; nothing from brokers that cannot say. Raises ClientError."""
        resources = [ConfigResource(ConfigKind.TOPIC, name) for name in topics]
        try:
            described = await AsyncConfigs(link.source).describe(resources)
        except UnsupportedByBroker:
            return {}
        return {
            resource.name: {
                name: config.value
                for name, config in configs.items()
                if config.value is not None
                and name in TOPIC
                and name not in NOT_COPIED
                and (
                    config.source == ConfigSource.DYNAMIC_TOPIC_CONFIG
                    or (config.source == ConfigSource.UNKNOWN and not config.is_default)
                )
            }
            for resource, configs in described.done.items()
        }

    async def _follow(self, link: Link, topic: Topic, configs: dict[str, str] | None) -> None:
        """Create a topic, or let it follow. Raises ApiError."""
        controller, image = self._controller, self._controller.image
        source_id = uuid_text(topic.id) if topic.id is not None and topic.id.int else ""
        wanted = LinkedTopic(link.name, source_id)
        known = image.topics.get(topic.name)
        if known is None:
            await controller.topics.create(
                topic.name,
                len(topic.partitions),
                link.spec.replicas,
                {},
                dict(configs or {}),
                clamp_replication=link.spec.replicas < 0,
                link=str(wanted),
            )
            return
        linked = link_of(image, topic.name)
        if linked is None and link.spec.takes_over:
            if len(known.partitions) > len(topic.partitions):
                raise ApiError(
                    ErrorCode.INVALID_PARTITIONS,
                    f"the topic has {len(known.partitions)} partitions here and {len(topic.partitions)} in the source",
                )
            await controller.options.set_link(topic.name, str(wanted))
            linked = wanted
        if linked is None:
            raise ApiError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                "a topic of this name exists here and is no copy; delete it, or leave it out of the link",
            )
        if linked.link != link.name:
            raise ApiError(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"the link {linked.link!r} mirrors a topic of this name"
            )
        if linked.source_id and source_id and linked.source_id != source_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                "the topic was deleted in the source and made again; the copy stays as it is: promote it, or delete it",
            )
        if len(topic.partitions) > len(known.partitions):
            await controller.topics.add_partitions(topic.name, len(topic.partitions), None)
        if configs is not None:
            await self._follow_configs(topic.name, configs)

    async def _follow_configs(self, topic: str, configs: dict[str, str]) -> None:
        own = self._controller.image.config("topics", topic)
        kept = {name: text for name, text in own.items() if name in NOT_COPIED}
        if {name: text for name, text in own.items() if name not in NOT_COPIED} == configs:
            return
        await self._controller.options.replace_configs(ConfigKind.TOPIC, topic, {**configs, **kept})

    async def _follow_rules(self, link: Link, topics: Mapping[str, Topic], problems: dict[str, str]) -> None:
        """Take over access rules about topics, except those to write: a copy is read-only. Raises ClientError."""
        try:
            rules = await AsyncAcls(link.source).list(AclFilter(resource=ResourceType.TOPIC))
        except (UnsupportedByBroker, BrokerError) as error:
            problems["access rules"] = str(error)
            return
        from barnabas.broker.links.rules import copied

        await self._controller.options.alter_acls(lambda present: copied(rules, present, frozenset(topics)))
