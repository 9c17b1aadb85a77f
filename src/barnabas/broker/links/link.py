"""One link as this broker runs it: the source's brokers, and who of them leads what this broker copies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.links.arriving import upgraded
from barnabas.broker.links.fetcher import Key, LinkFetcher
from barnabas.broker.links.mirror import Mirror
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.options import ClientOptions
from barnabas.config import broker_replication
from barnabas.cores.links import PAUSED, PROMOTED, Ends, LinkedTopic, LinkSpec
from barnabas.records.message_set import UnsupportedCodec
from barnabas.records.units import LeaderEpoch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition
    from barnabas.broker.partitions.registry import Partitions
    from barnabas.client.async_connection import Dial
    from barnabas.config.loader import BrokerConfig
    from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.links")

CONSUMER: Final = -1
EARLIEST: Final = -2
LATEST: Final = -1
NO_CREATION_VERSION: Final = 4
"""The first version of Metadata that can name topics without creating them: before it, all topics are asked for."""
TOPICS_ASKED: Final = 500
LOOK_MS: Final = 2_000
"""How often leaders, epochs and ids are looked up while nothing says that they have changed."""
LOOK_PAUSE_MS: Final = 100
LOG_START_LOOK_MS: Final = 30_000
"""How often log starts are looked up at brokers whose fetches do not name them."""


class Link:
    """See the module. `follow`, `forget`; `close` ends it."""

    def __init__(
        self,
        spec: LinkSpec,
        options: Mapping[str, str],
        config: BrokerConfig,
        clock: Clock,
        partitions: Partitions,
        raise_epoch: Callable[[Partition, int], None],
        tend: Callable[[Link], Any],
        dial: Dial | None = None,
    ) -> None:
        """options: the client options of the source, decrypted. raise_epoch: asks for a higher leader epoch of a partition.
        tend: awaited every `interval_ms`. dial: how to connect to the source. Raises ClientError."""
        self.spec = spec
        self.clock = clock
        self.partitions = partitions
        self.reason = ""
        """Why the source cannot be reached; empty if it can."""
        self.problems: dict[str, str] = {}
        """What of the source cannot be mirrored, by topic or group, and why."""
        self.groups = 0
        """How many groups' offsets this broker copies."""
        self.committed: dict[str, dict[tuple[str, int], tuple[int, int, str]]] = {}
        """What was committed for each group: offset, leader epoch, metadata."""
        self.mirrors: dict[Key, Mirror] = {}
        self._config = config
        self._raise_epoch = raise_epoch
        self._tend = tend
        self._fetchers: dict[int, LinkFetcher] = {}
        self._woken = asyncio.Event()
        parsed = ClientOptions.from_kafka({"client.id": f"barnabas-link-{spec.name}", **options})
        self.source = AsyncCluster(
            replace(parsed, contact_timeout_s=0.0, deadline_s=10.0, retries_max=0), dial
        )
        self._tasks = [asyncio.ensure_future(self._look_always()), asyncio.ensure_future(self._tend_always())]

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def copies(self) -> bool:
        """Whether records are copied; otherwise `mirrors` says only what there is."""
        return self.spec.state not in (PAUSED, PROMOTED)

    async def close(self) -> None:
        """End it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(fetcher.close() for fetcher in self._fetchers.values()))
        self._fetchers.clear()
        await self.source.close()

    # --- what is copied --------------------------------------------------------------------------------

    def follow(self, partition: Partition, linked: LinkedTopic) -> None:
        """Copy a partition that this broker leads."""
        key = (partition.topic, partition.index)
        known = self.mirrors.get(key)
        if known is not None and known.partition is partition and known.linked == linked:
            known.retry_ms = 0.0
            return
        self.forget(key)
        self.mirrors[key] = Mirror(partition, linked, is_placed=self.spec.start_ms < 0)
        self.look_soon()

    def forget(self, key: Key) -> None:
        """This broker no longer leads a partition, or the link no longer mirrors it."""
        mirror = self.mirrors.pop(key, None)
        if mirror is not None and mirror.leader in self._fetchers:
            self._fetchers[mirror.leader].forget(key)

    def raise_epoch(self, mirror: Mirror, epoch: int) -> None:
        """The source has written in a leader epoch above that of the copy."""
        self._raise_epoch(mirror.partition, epoch)

    def lost(self, reason: str) -> None:
        """The source does not answer."""
        if not self.reason:
            log.warning(
                "a link cannot reach its source; it tries again", extra={"link": self.name, "reason": reason}
            )
        self.reason = reason
        self.source.forget_routes()
        self.look_soon()

    def reached(self) -> None:
        """The source has answered."""
        if self.reason:
            log.info("a link reaches its source again", extra={"link": self.name})
            self.reason = ""

    # --- looking at the source -------------------------------------------------------------------------

    def look_soon(self) -> None:
        """Look for leaders again."""
        self._woken.set()

    async def _tend_always(self) -> None:
        while True:
            try:
                await self._tend(self)
            except ClientError as error:
                self.lost(str(error))
            except Exception:
                log.exception("a link's upkeep met a bug; it is tried again", extra={"link": self.name})
            await asyncio.sleep(self.spec.interval_ms / 1000)

    async def _look_always(self) -> None:
        looked_at_starts_ms = float("-inf")
        while True:
            self._woken.clear()
            try:
                if self.mirrors and self.copies:
                    await self._look()
                    self.reached()
                    now_ms = self.clock.monotonic_ms()
                    if now_ms - looked_at_starts_ms >= LOG_START_LOOK_MS:
                        looked_at_starts_ms = now_ms
                        await self._look_at_starts()
            except ClientError as error:
                self.lost(str(error))
                await asyncio.sleep(LOOK_MS / 2000)
            except Exception:
                log.exception("a link met a bug; it begins again", extra={"link": self.name})
            await asyncio.sleep(LOOK_PAUSE_MS / 1000)
            try:
                async with asyncio.timeout(LOOK_MS / 1000):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        """Learn who leads what, and whether the topics are still the same. Raises ClientError."""
        names = sorted({topic for topic, _ in self.mirrors})
        rows_by_topic: dict[str, Any] = {}
        may_create = (await self.source.any()).version_for(MetadataRequest) < NO_CREATION_VERSION
        for start in range(0, len(names), TOPICS_ASKED):
            answer = await self.source.metadata(None if may_create else names[start : start + TOPICS_ASKED])
            rows_by_topic |= {row.name: row for row in answer.topics if row.name is not None}
            if may_create:
                break
        for (topic, index), mirror in list(self.mirrors.items()):
            row = rows_by_topic.get(topic)
            if mirror.stopped or self.spec.lets_go(topic):
                continue
            if row is None or row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                mirror.reason = "the topic does not exist in the source"
                self._assign((topic, index), mirror, -1)
                continue
            source_id = uuid_text(row.topic_id) if row.topic_id.int else ""
            if mirror.linked.source_id and source_id and source_id != mirror.linked.source_id:
                self._stop((topic, index), mirror, source_id)
                continue
            for partition in row.partitions:
                if partition.partition_index == index:
                    mirror.source_epoch = partition.leader_epoch
                    if partition.leader_epoch > mirror.partition.leader_epoch:
                        self.raise_epoch(mirror, partition.leader_epoch)
                    self._assign((topic, index), mirror, partition.leader_id)

    def _stop(self, key: Key, mirror: Mirror, source_id: str) -> None:
        mirror.stopped = (
            f"the topic was deleted in the source and made again (its id is {source_id}, not {mirror.linked.source_id}); "
            "the copy stays as it is: promote it, or delete it, and it is copied from the start"
        )
        self._assign(key, mirror, -1)
        log.error(
            "a topic was deleted in a link's source and made again; copying ends",
            extra={"link": self.name, "partition": str(mirror.partition), "source_id": source_id},
        )

    def _assign(self, key: Key, mirror: Mirror, leader: int) -> None:
        if mirror.leader == leader:
            return
        if mirror.leader in self._fetchers:
            self._fetchers[mirror.leader].forget(key)
        mirror.leader = leader
        if leader < 0:
            if not mirror.reason and not mirror.stopped:
                mirror.reason = "no broker of the source leads the partition"
            return
        mirror.reason = ""
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = LinkFetcher(
                self,
                leader,
                self._config.get(broker_replication.REPLICA_FETCH_RESPONSE_MAX_BYTES),
                self._config.get(broker_replication.REPLICA_FETCH_MAX_BYTES),
            )
        fetcher.follow(key, mirror)

    # --- offsets ---------------------------------------------------------------------------------------

    async def _look_at_starts(self) -> None:
        """For brokers before 1.0, whose fetches do not name the log start."""
        for mirror in [
            mirror for mirror in self.mirrors.values() if mirror.source_start < 0 and mirror.leader >= 0
        ]:
            mirror.source_start = await self._offset(mirror, EARLIEST)

    async def source_ends(self, mirror: Mirror) -> Ends:
        """Where the source's log starts and ends. Raises ClientError."""
        return Ends(await self._offset(mirror, EARLIEST), await self._offset(mirror, LATEST))

    async def first_offset(self, mirror: Mirror) -> int:
        """Where a new copy begins: at the first record since `start_ms`, or at the end. Raises ClientError."""
        offset = await self._offset(mirror, self.spec.start_ms)
        return offset if offset >= 0 else await self._offset(mirror, LATEST)

    async def _offset(self, mirror: Mirror, when_ms: int) -> int:
        """The offset of a time, -1 if no record is so new. Raises ClientError."""
        topic, index = mirror.partition.topic, mirror.partition.index
        connection = await self.source.node(mirror.leader)
        rows = [ListOffsetsPartition(partition_index=index, timestamp=when_ms, max_num_offsets=1)]
        request = ListOffsetsRequest(
            replica_id=CONSUMER, topics=[ListOffsetsTopic(name=topic, partitions=rows)]
        )
        answer: ListOffsetsResponse = await connection.call(request, ListOffsetsResponse)
        row = answer.topics[0].partitions[0]
        if row.error_code:
            raise BrokerError(row.error_code, f"asking for offsets of {topic}-{index}")
        if row.old_style_offsets:
            return int(row.old_style_offsets[0])
        return int(row.offset)

    async def converted(self, mirror: Mirror, records: memoryview) -> memoryview:
        """Messages of an old format as batches. Raises CorruptBatch, ClientError."""
        epoch = LeaderEpoch(max(mirror.partition.log.core.epochs.latest, 0))
        try:
            return await asyncio.get_running_loop().run_in_executor(None, upgraded, records, epoch)
        except UnsupportedCodec as error:
            raise ClientError(str(error)) from None
