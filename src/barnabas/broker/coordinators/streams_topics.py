"""Creates the repartition and changelog topics that streams groups lack, after a member's heartbeat was answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.cores.group.streams.topology import NewTopic
from barnabas.wire.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.cluster.topics import TopicChanges

log = logging.getLogger("barnabas.groups")

GROUPS_REMEMBERED: Final = 1_000
"""Groups whose failures are remembered, so that members can be told."""


class StreamsTopics:
    """At most one task per group creates its topics, one after the other; nothing waits for it."""

    def __init__(self, topics: TopicChanges, loop: asyncio.AbstractEventLoop) -> None:
        self._topics = topics
        self._loop = loop
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, dict[str, str]] = {}

    def create_soon(
        self, group_id: str, missing: Iterable[NewTopic], charge: Callable[[int], None]
    ) -> Mapping[str, str]:
        """Create the missing topics, unless that is being done. Returns why the last attempt failed, by topic.

        charge: called with the number of partitions before each creation; raises ApiError to refuse it.
        """
        if group_id not in self._tasks:
            task = self._loop.create_task(self._create(group_id, tuple(missing), charge))
            self._tasks[group_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(group_id))
        return self._failures.get(group_id, {})

    async def _create(
        self, group_id: str, missing: tuple[NewTopic, ...], charge: Callable[[int], None]
    ) -> None:
        failures: dict[str, str] = {}
        for topic in missing:
            try:
                await self._topics.create_for_group(
                    topic.name, topic.partitions, topic.replication_factor, dict(topic.configs), charge
                )
            except ApiError as error:
                failures[topic.name] = f"{error.code.name}: {error.message}"
            except Exception as error:
                failures[topic.name] = f"{type(error).__name__}: {error}"
                log.exception(
                    "an internal topic of a streams group was not created", extra={"topic": topic.name}
                )
        self._failures.pop(group_id, None)
        if failures:
            name, reason = next(iter(failures.items()))
            log.warning(
                "internal topics of a streams group were not created",
                extra={"group": group_id, "topics": len(failures), "first": name, "reason": reason},
            )
            while len(self._failures) >= GROUPS_REMEMBERED:
                del self._failures[next(iter(self._failures))]
            self._failures[group_id] = failures

    def close(self) -> None:
        """Stop creating topics."""
        for task in self._tasks.values():
            task.cancel()
