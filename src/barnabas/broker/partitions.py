"""The partitions of this broker: found by name, made, deleted, kept on disk by the log manager."""

from __future__ import annotations

import os, shutil
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.partition import Partition
from barnabas.cores.cluster_image import ClusterImage, TopicImage
from barnabas.storage.config import LogConfig
from barnabas.storage.recovery import create_log, open_log
from barnabas.storage import checkpoints

if TYPE_CHECKING:
    from barnabas.broker.shard import Shard
    from barnabas.config.loader import BrokerConfig


class Partitions:
    def __init__(self, shard: Shard, config: BrokerConfig) -> None:
        self._shard = shard
        self._config = config
        self._by_topic: dict[str, dict[int, Partition]] = {}
        self._names: dict[UUID, str] = {}
        self._logs = {}
        self.recovered_unclean = False

    async def open(self) -> None:
        d = str(self._config.log_dirs[0])
        os.makedirs(d, exist_ok=True)
        self._dir = d

    def load(self, image: ClusterImage, log_config: Callable[[str], LogConfig]) -> None:
        for topic in image.topics.values():
            self.create(topic, log_config(topic.name))

    def create(self, topic: TopicImage, config: LogConfig) -> None:
        self._names[topic.topic_id] = topic.name
        mine = self._by_topic.setdefault(topic.name, {})
        now = self._shard.clock.now_ms()
        for index, image in topic.partitions.items():
            if index in mine:
                continue
            folder = os.path.join(self._dir, f"{topic.name}-{index}")
            if os.path.isdir(folder):
                log = open_log(folder, config, now, clean=False)
            else:
                log = create_log(folder, config, now)
            mine[index] = Partition(self._shard, topic.name, index, topic.topic_id, log, image.leader_epoch)

    def delete(self, topic: TopicImage) -> None:
        for p in self._by_topic.pop(topic.name, {}).values():
            shutil.rmtree(p.log.folder)
        self._names.pop(topic.topic_id, None)

    def reconfigure(self, topic: str, config: LogConfig) -> None:
        for p in self._by_topic.get(topic, {}).values():
            p.log.set_config(config)

    def get(self, topic: str, index: int) -> Partition | None:
        found = self._by_topic.get(topic)
        return None if found is None else found.get(index)

    def exists(self, topic: str, index: int) -> bool:
        return self.get(topic, index) is not None

    def count(self, topic: str) -> int:
        return len(self._by_topic.get(topic, ()))

    def name_of(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def id_of(self, topic: str) -> UUID | None:
        for i, n in self._names.items():
            if n == topic: return i
        return None

    async def flush(self, partition: Partition) -> None:
        await self._shard.loop.run_in_executor(None, partition.log.flush)

    async def delete_old_segments(self): pass
    async def checkpoint(self): pass
    async def flush_due(self): pass
    def close(self) -> None:
        for t in self._by_topic.values():
            for p in t.values():
                p.log.close()
