"""The clusters of a console, and what is known of each: read through `barnabas.admin`, and kept for seconds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from barnabas.admin import AsyncAdmin, Results
from barnabas.admin.families.cluster import ClusterView
from barnabas.admin.families.group_offsets import CommittedOffset
from barnabas.admin.families.groups import GroupListing
from barnabas.admin.families.log_dirs import LogDir
from barnabas.admin.families.records import Bounds
from barnabas.admin.families.topics import Topic
from barnabas.admin.values import NodeId, TopicPartition
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.client.registry import request
from barnabas.console.apart import apart
from barnabas.console.changes import KEPT_MAX, Entry, read_topic
from barnabas.console.kept import Kept
from barnabas.console.records.decoding import Decoder
from barnabas.http_client import Address

log = logging.getLogger("barnabas.console")

SAMPLE_S: Final = 10.0
"""Time between two samples of the ends of all logs."""
SAMPLES_MAX: Final = 360
SIZES_MAX: Final = 61
"""Samples of the sizes of topics, a minute between two."""
SIZES_S: Final = 60.0
STEPS_MAX: Final = 8
"""Samples of the groups' offsets, of which only rates are made."""
REGISTRY_S: Final = 5.0
VISITED_S: Final = 600.0
"""How long after the last visit samples are still taken."""


def patient_for_pages(options: ClientOptions) -> ClientOptions:
    """These options with times that somebody who looks at a page is willing to wait."""
    return replace(
        options, connect_timeout_s=3.0, contact_timeout_s=1.0, request_timeout_s=10.0, deadline_s=4.0
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """Brokers and topics, as one broker knows them."""

    view: ClusterView
    topics: Mapping[str, Topic]

    def partitions(self) -> list[TopicPartition]:
        """All partitions that have a leader."""
        return [
            TopicPartition(topic.name, partition.number)
            for topic in self.topics.values()
            for partition in topic.partitions
            if partition.leader >= 0
        ]


@dataclass(frozen=True, slots=True)
class Sample:
    """The sum of a topic's log end offsets, for all topics, at one time (seconds since 1970); or of the offsets that a group
    has committed, for all groups; or a topic's size in bytes."""

    time_s: float
    ends: Mapping[str, int]


def _rates(samples: Sequence[Sample], window_s: float) -> dict[str, float]:
    if len(samples) < 2:
        return {}
    last = samples[-1]
    first = next(s for s in samples if last.time_s - s.time_s <= window_s or s is last)
    if first is last:
        first = samples[-2]
    seconds = max(last.time_s - first.time_s, 0.001)
    return {
        name: max(end - first.ends[name], 0) / seconds
        for name, end in last.ends.items()
        if name in first.ends
    }


def sizes_of(dirs: Results[NodeId, Sequence[LogDir]]) -> Counter[str]:
    """Bytes of each topic, of all replicas."""
    sizes: Counter[str] = Counter()
    for directories in dirs.done.values():
        for directory in directories:
            for replica in directory.replicas:
                sizes[replica.partition.topic] += replica.size_bytes
    return sizes


class Cluster:
    """One cluster. name: of the console's own, in its addresses. where: its brokers, as commands take them.

    registry: the address of its schema registry; None without one. services: those of others, by the names of
    `console.services`. tables: folders of tables with older lines of logs, by topic.
    """

    def __init__(
        self,
        name: str,
        options: ClientOptions,
        registry: Callable[[], Address | None] = lambda: None,
        services: Mapping[str, Callable[[], Address | None]] | None = None,
        tables: Mapping[str, str] | None = None,
        decoder: Decoder | None = None,
    ) -> None:
        self.name = name
        self.options = options
        self.registry = registry
        self._services = services or {}
        self.tables = tables or {}
        self.where = ",".join(f"{host}:{port}" for host, port in options.bootstrap)
        self.patient = patient_for_pages(options)
        self.others: Mapping[str, Cluster] = {}
        """All clusters of the console by their names, once they are made."""
        self.admin = AsyncAdmin(self.patient)
        self.reading = AsyncCluster(self.patient)
        """Connections for records: a broker answers in order, so a large answer would hold up the others."""
        self.decoder = decoder or Decoder(registry)
        self.layout = Kept(self._read_layout, 2, 20)
        self.dirs = Kept(self._read_dirs, 10, 60)
        self.bounds = Kept(self._read_bounds, 4, 30)
        self.groups = Kept(self._read_groups, 3, 20)
        self.commits = Kept(self._read_commits, 5, 30)
        self.audit: str | None = None
        """The topic that gets a record for each change."""
        self.changes: deque[Entry] = deque(maxlen=KEPT_MAX)
        """The changes that were made here, the newest last."""
        self.lately = Kept(self._read_changes, 5, 30)
        self.subjects = Kept(self._read_subjects, 10, 300)
        """Of the schema registry; the cluster is shown without them when that does not answer."""
        self.samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._sizes: deque[Sample] = deque(maxlen=SIZES_MAX)
        self._steps: deque[Sample] = deque(maxlen=STEPS_MAX)
        self._visited_s = 0.0
        self._sampling: asyncio.Task[None] | None = None

    def service(self, name: str) -> Address | None:
        """Where a service of this cluster answers; None if none is known."""
        where = self._services.get(name)
        return None if where is None else where()

    def changed(self) -> None:
        """Something was changed through the console: what is kept is read again."""
        for kept in self._kept():
            kept.drop()
        self.subjects.drop()

    def _kept(self) -> Sequence[Kept[object]]:
        return (self.layout, self.dirs, self.bounds, self.groups, self.commits, self.lately)  # type: ignore[return-value]

    def failures(self) -> list[str]:
        """Why what is shown could not be renewed, each reason once."""
        return list(dict.fromkeys(str(kept.failure) for kept in self._kept() if kept.failure is not None))

    def visited(self) -> None:
        """Somebody looks at the cluster: take samples from now on."""
        self._visited_s = time.monotonic()
        if self._sampling is None or self._sampling.done():
            self._sampling = asyncio.create_task(self._sample())

    async def close(self) -> None:
        """Close the connections."""
        for kept in self._kept():
            kept.close()
        self.subjects.close()
        if self._sampling is not None:
            self._sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sampling
        await self.admin.close()
        await self.reading.close()

    def rates(self, window_s: float = 60.0) -> dict[str, float]:
        """Records per second produced to each topic, over the last samples; empty until there are two."""
        return _rates(self.samples, window_s)

    def group_rates(self) -> dict[str, float]:
        """Records per second that each group has got past, over the last samples; empty until there are two."""
        return _rates(self._steps, SAMPLE_S * STEPS_MAX)

    def growth(self) -> dict[str, float]:
        """Bytes per hour that each topic grows by, all replicas, over the last hour at most; empty in the first minute."""
        if len(self._sizes) < 2:
            return {}
        first, last = self._sizes[0], self._sizes[-1]
        hours = max(last.time_s - first.time_s, 1.0) / 3600
        return {name: (size - first.ends.get(name, 0)) / hours for name, size in last.ends.items()}

    def history(self, topic: str | None = None) -> list[tuple[float, float]]:
        """(time, records per second since the sample before) of one topic, or of all."""
        rates = []
        samples = list(self.samples)
        for before, after in pairwise(samples):
            seconds = max(after.time_s - before.time_s, 0.001)
            names = after.ends.keys() & before.ends.keys() if topic is None else {topic}
            records = sum(
                max(after.ends[n] - before.ends[n], 0) for n in names if n in after.ends and n in before.ends
            )
            rates.append((after.time_s, records / seconds))
        return rates

    # --- reading ----------------------------------------------------------------------------------------

    async def _read_layout(self) -> Layout:
        view, topics = await asyncio.gather(self.admin.cluster.describe(), self.admin.topics.list())
        return Layout(view, topics)

    async def _read_dirs(self) -> Results[NodeId, Sequence[LogDir]]:
        dirs = await self.admin.log_dirs.describe()
        now_s = time.time()
        if not dirs.failed and (not self._sizes or now_s - self._sizes[-1].time_s >= SIZES_S):
            self._sizes.append(Sample(now_s, sizes_of(dirs)))
        return dirs

    async def _read_bounds(self) -> Mapping[TopicPartition, Bounds]:
        layout = await self.layout.get()
        bounds = (await self.admin.records.bounds(layout.partitions())).done
        ends: Counter[str] = Counter()
        for key, bound in bounds.items():
            ends[key.topic] += bound.end
        now_s = time.time()
        if not self.samples or now_s - self.samples[-1].time_s >= SAMPLE_S / 2:
            self.samples.append(Sample(now_s, ends))
        return bounds

    async def _read_groups(self) -> Results[NodeId, Sequence[GroupListing]]:
        return await self.admin.groups.list()

    async def _read_commits(self) -> Mapping[str, Mapping[TopicPartition, CommittedOffset]]:
        listed = await self.groups.get()
        names = [
            g.name
            for groups_of_broker in listed.done.values()
            for g in groups_of_broker
            if g.type.lower() != "share"
        ]
        commits = (await self.admin.groups.offsets(names)).done
        sums = {
            name: sum(committed.offset for committed in places.values()) for name, places in commits.items()
        }
        self._steps.append(Sample(time.time(), sums))
        return commits

    async def _read_subjects(self) -> Sequence[str]:
        address = self.registry()
        if address is None:
            return ()
        answer = await apart(
            address.url,
            lambda: request(address.url, "GET", "/subjects", timeout_s=REGISTRY_S, context=address.context),
            REGISTRY_S + 1,
        )
        return [str(subject) for subject in answer] if isinstance(answer, list) else ()

    async def _read_changes(self) -> Sequence[Entry]:
        """Those of the audit topic, or else of this process: the topic may not be there yet, or may not be read."""
        if self.audit is not None:
            try:
                return await read_topic(self.admin, self.reading, self.audit)
            except ClientError as error:
                log.debug("the audit topic is not read", extra={"topic": self.audit, "reason": str(error)})
        return list(self.changes)

    async def _sample(self) -> None:
        while time.monotonic() - self._visited_s < VISITED_S:
            try:
                await asyncio.gather(self.bounds.get(), self.dirs.get(), self.commits.get())
            except ClientError as error:
                log.debug("no sample", extra={"cluster": self.name, "reason": str(error)})
            await asyncio.sleep(SAMPLE_S)
