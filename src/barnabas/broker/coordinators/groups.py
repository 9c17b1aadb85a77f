"""The group coordinator: one core for each partition of `__consumer_offsets` that this broker leads.

The runtime drives the cores; this module holds what is specific to groups: their options, the topics that they see, and the
expiry of offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.cluster.internal_topics import OFFSETS_TOPIC
from barnabas.broker.coordinators.group_limits import (
    StreamsOptions,
    limits_of_all,
    limits_of_one,
    streams_options,
    streams_options_of_all,
)
from barnabas.broker.coordinators.runtime import CoordinatorRuntime, MakeEvent, R
from barnabas.broker.coordinators.seats import CoordinatorKind
from barnabas.broker.coordinators.streams_topics import StreamsTopics
from barnabas.config import broker_groups, broker_security
from barnabas.cores.group import GroupCoordinatorCore, TopicInfo, TopicsMatched
from barnabas.cores.group.consumer.topic_regex import InvalidRegex, compile_topic_regex
from barnabas.cores.group.records import offset_tombstone
from barnabas.records.compression import Codec
from barnabas.records.partitioner import partition_for_name
from barnabas.runtime.pace import in_pieces

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.groups")


class GroupCoordinator:
    """All groups of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        controller: Controller,
        partitions: Partitions,
    ) -> None:
        self._controller = controller
        self._partitions = partitions
        self._limits = limits_of_all(config)
        self._streams_options = streams_options_of_all(config)
        self._hides_topics = bool(config.get(broker_security.AUTHORIZER_CLASS_NAME))
        self.on_effect: Callable[[object], None] = lambda effect: None
        """Carries out what share groups request from the share coordinator (cores.group.share.events)."""
        self.streams_topics = StreamsTopics(controller.topics, loop)
        self._topics: Mapping[str, TopicInfo] = {}
        self._topology = -1
        self._matching: dict[str, asyncio.Task[None]] = {}
        """The groups whose topics are being matched."""
        kind = CoordinatorKind(
            "group",
            OFFSETS_TOPIC,
            self._make_core,
            Codec(config.get(broker_groups.OFFSETS_TOPIC_COMPRESSION_CODEC)),
            config.get(broker_groups.OFFSETS_LOAD_BUFFER_SIZE),
            proof=offset_tombstone("", ("", -1)),
            before_step=self._refresh_topics,
            on_effect=lambda effect: self.on_effect(effect),
        )
        self.runtime = CoordinatorRuntime(
            kind, loop, clock, partitions, controller.topics.ensure_internal, lambda: controller.is_certain
        )

    def _make_core(self, index: int) -> GroupCoordinatorCore:
        core = GroupCoordinatorCore(self._limits)
        core.state.hides_topics = self._hides_topics
        count = self._partitions.count(OFFSETS_TOPIC)
        self._refresh_topics(core)
        for kind, name in self._controller.image.configs:
            if kind == "groups" and partition_for_name(name, count) == index:
                self._set_group_limits(core, name)
        return core

    async def prepare(self) -> None:
        """Create and load the offsets topic, once. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
        await self.runtime.prepare()

    async def load_existing(self) -> None:
        """At start: load existing groups, so that they keep their offsets, and members their session timeouts."""
        await self.runtime.load_existing()

    def streams_options(self, group_id: str) -> StreamsOptions:
        """What members of a streams group are told of their tasks' offsets."""
        return streams_options(self._streams_options, self._controller.image.config("groups", group_id))

    def has_forgotten(self, group_id: str, topic_id: UUID, index: int) -> bool:
        """Whether no share group uses this state any more; False also while the group is not loaded."""
        core = self.runtime.core_of(group_id)
        return core is not None and not core.keeps_share_state(group_id, topic_id, index)

    def keeps(self, group_id: str) -> bool:
        """Whether this broker is the coordinator of a group, and has loaded it."""
        return self.runtime.core_of(group_id) is not None

    # --- asking ----------------------------------------------------------------------------------------

    async def ask(self, make_event: MakeEvent[R], group_id: str) -> R:
        """The core's reply to an event about one group, which may take long."""
        if not self.runtime.partition_count:
            await self.runtime.prepare()
        return await self.runtime.request(group_id, make_event)

    def match_topics_soon(self, group_id: str, sees_topic: Callable[[str], bool]) -> None:
        """After a member's heartbeat: match topics against its group's regular expressions, if it is time for that.

        sees_topic: the member's right to describe topics. As in Kafka, it decides for the whole group.
        """
        core = self.runtime.core_of(group_id)
        if core is None or group_id in self._matching:
            return
        self._refresh_topics(core)
        if core.must_match(group_id, self.runtime.clock.now_ms()):
            task = self.runtime.loop.create_task(self._match_topics(core, group_id, sees_topic))
            self._matching[group_id] = task
            task.add_done_callback(lambda _: self._matching.pop(group_id))

    async def _match_topics(
        self, core: GroupCoordinatorCore, group_id: str, sees_topic: Callable[[str], bool]
    ) -> None:
        """Done in pieces, so that other work runs in between: 10,000 names take up to a second.

        Nothing waits for this, neither the member's answer nor other heartbeats of the group. Expressions and topics that
        come in the meantime are matched after the next heartbeat.
        """
        try:
            topics, names_by_regex = self._known_topics(), {}
            for text, known in core.regexes_of(group_id).items():
                names_by_regex[text] = known
                with contextlib.suppress(InvalidRegex):  # one that another broker has stored
                    compiled = compile_topic_regex(text)
                    await in_pieces(self.runtime.loop, self.runtime.clock, compiled.prepare(topics))
                    names_by_regex[text] = compiled.among(topics)
            if self._hides_topics:
                names = frozenset().union(*names_by_regex.values())
                visible: set[str] = set()

                def look() -> Iterator[None]:
                    for name in names:
                        if sees_topic(name):
                            visible.add(name)
                        yield

                await in_pieces(self.runtime.loop, self.runtime.clock, look())
                names_by_regex = {text: names & visible for text, names in names_by_regex.items()}
            await self.ask(
                lambda token, now_ms: TopicsMatched(token, now_ms, group_id, topics, names_by_regex), group_id
            )
        except Exception:
            log.exception("topics were not matched; the next heartbeat does it", extra={"group": group_id})

    async def ask_all(self, make_event: MakeEvent[R]) -> list[R]:
        """The replies of all partitions to the same request."""
        return [await self.runtime.request_at(index, make_event) for index, _ in self.runtime.cores()]

    # --- time and topics -------------------------------------------------------------------------------

    def poll_timers(self) -> None:
        """Fire the timers that are due; for tests that move the clock."""
        self.runtime.poll_timers()

    async def expire_offsets(self) -> None:
        """Called every offsets.retention.check.interval.ms."""
        await self.runtime.sweep(GroupCoordinatorCore.expiry)

    def on_topics_deleted(self, topics: frozenset[str]) -> None:
        """Groups forget deleted topics; when the offsets topic itself is deleted, all groups end."""
        if OFFSETS_TOPIC in topics:
            self.runtime.topic_deleted()
        else:
            self.runtime.sweep(lambda core, now_ms: core.topics_deleted(now_ms, topics))

    def on_configs_changed(self, kind: str, entity: str) -> None:
        """An administrator has changed options. Those of a group apply from its next event on."""
        core = self.runtime.core_of(entity) if kind == "groups" else None
        if core is not None:
            self._set_group_limits(core, entity)

    def _set_group_limits(self, core: GroupCoordinatorCore, group_id: str) -> None:
        texts = self._controller.image.config("groups", group_id)
        core.set_group_limits(group_id, limits_of_one(self._limits, texts))

    def _refresh_topics(self, core: GroupCoordinatorCore) -> None:
        """Cores learn of new, grown and deleted topics with their next event, so idle cores cost nothing."""
        if core.topology != self._partitions.topology:
            core.set_topics(self._known_topics())
            core.topology = self._topology

    def _known_topics(self) -> Mapping[str, TopicInfo]:
        """One mapping shared by all cores, rebuilt when topics have changed."""
        if self._topology != self._partitions.topology:
            self._topology = self._partitions.topology
            self._topics = {
                name: TopicInfo(topic.topic_id, len(topic.partitions))
                for name, topic in self._controller.image.topics.items()
            }
        return self._topics

    def close(self) -> None:
        """Answer all pending requests."""
        for task in self._matching.values():
            task.cancel()
        self.streams_topics.close()
        self.runtime.close()
