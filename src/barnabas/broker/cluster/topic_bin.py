"""Looks after the bin of deleted topics: what has rested long enough goes, earlier if a disk is nearly full.

The controller removes a topic's node from the bin when its time is over. Every broker removes the logs of topics whose
node is gone, and removes nodes itself when one of its log dirs has too little space. A log is removed only when two looks,
one after the other, have found it without a node and without a topic: a restored topic becomes visible before its node in
the bin is removed, but a broker may hear of both at different times.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.config import broker_log
from barnabas.cores.binning import expired, forgotten

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.broker.cluster.executor import Executor
    from barnabas.broker.cluster.topics import TopicChanges
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.config.loader import BrokerConfig
    from barnabas.cores.cluster_image import TopicImage

log = logging.getLogger("barnabas.controller")


class TopicBin:
    """See the module. `tend` is called every few seconds."""

    def __init__(
        self,
        executor: Executor,
        config: BrokerConfig,
        partitions: Partitions,
        topics: TopicChanges,
        on_topics_deleted: Callable[[frozenset[str]], None],
    ) -> None:
        """on_topics_deleted: called when topics have left the bin for good."""
        self._executor = executor
        self._image = executor.image
        self._config = config
        self._partitions = partitions
        self._topics = topics
        self._on_topics_deleted = on_topics_deleted
        self._seen: dict[UUID, str] = {}
        self._missed: set[UUID] = set()

    def is_another(self, topic: TopicImage) -> bool:
        """Whether a topic has the name of one in the bin, and is not that one."""
        return any(
            binned.name == topic.name and topic_id != topic.topic_id
            for topic_id, binned in self._image.bin.items()
        )

    async def tend(self, now_ms: int, *, in_office: bool) -> None:
        """Remove what has to go. in_office: this broker is the controller. Raises ApiError."""
        if not self._executor.is_current:
            return
        if in_office:
            over = [topic.topic_id for topic in expired(self._image, now_ms)]
            if over:
                await self._topics.purge(over)
        binned_ids = self._partitions.logs.bin.topic_ids
        if binned_ids:
            await self._make_room(binned_ids)
        self._seen |= {topic_id: topic.name for topic_id, topic in self._image.bin.items()}
        missed = forgotten(self._image, binned_ids | self._seen.keys())
        gone, self._missed = missed & self._missed, missed
        names = {self._seen.pop(topic_id) for topic_id in gone if topic_id in self._seen}
        self._seen = {i: name for i, name in self._seen.items() if i not in self._image.by_id}
        if names - self._image.topics.keys():
            self._on_topics_deleted(frozenset(names - self._image.topics.keys()))
        if gone & binned_ids:
            logs = self._partitions.logs
            await asyncio.get_running_loop().run_in_executor(None, logs.bin.remove, gone & binned_ids)
            log.info("logs removed from the bin", extra={"topics": len(gone & binned_ids)})

    async def _make_room(self, topic_ids: set[UUID]) -> None:
        """Remove the topic that has rested longest if a disk is nearly full; the next look may find that more have to go."""
        least = self._config.get(broker_log.BARNABAS_TOPIC_BIN_FREE_BYTES_MIN)
        dirs = [path for path in self._partitions.logs.dirs if path not in self._partitions.logs.offline_dirs]
        free = await asyncio.get_running_loop().run_in_executor(None, _least_free_bytes, dirs)
        if free is None or free >= least:
            return
        resting = [self._image.bin[topic_id] for topic_id in topic_ids if topic_id in self._image.bin]
        if resting:
            oldest = min(resting, key=lambda topic: topic.deleted_ms)
            log.warning(
                "a disk is nearly full: a topic is removed from the bin before its time",
                extra={"topic": oldest.name, "option": broker_log.BARNABAS_TOPIC_BIN_FREE_BYTES_MIN.name},
            )
            await self._topics.purge([oldest.topic_id])


def _least_free_bytes(dirs: Sequence[str]) -> int | None:
    """The free space of the fullest disk among those of these dirs; None if none of them can be asked."""
    free_bytes = []
    for path in dirs:
        with contextlib.suppress(OSError):
            free_bytes.append(shutil.disk_usage(path).free)
    return min(free_bytes, default=None)
