"""The numbers of topics and their partitions: of this broker's replicas, and of the whole cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from operator import add, attrgetter
from typing import TYPE_CHECKING, Final

from barnabas.broker.api.measuring.requests import distributed
from barnabas.cores.cluster_image import NO_LEADER
from barnabas.observe import metrics
from barnabas.observe.metric import Metric, Sample

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.broker.partitions.partition import Partition
    from barnabas.wire.messages.links import LinkPartition

STEP: Final = 25
"""After how many partitions the clock is looked at."""
OF_TOPIC: Final = (
    (metrics.MESSAGES_IN, "messages_in"),
    (metrics.BYTES_IN, "bytes_in"),
    (metrics.BYTES_OUT, "bytes_out"),
    (metrics.PRODUCE_REQUESTS, "produce_requests"),
    (metrics.FETCH_REQUESTS, "fetch_requests"),
    (metrics.FAILED_PRODUCES, "failed_produces"),
    (metrics.FAILED_FETCHES, "failed_fetches"),
)
OF_BROKER: Final = (
    (metrics.REPLICATED_IN, "replicated_in"),
    (metrics.REPLICATED_OUT, "replicated_out"),
)
COUNTED: Final = tuple(name for _, name in (*OF_TOPIC, *OF_BROKER))
counts_of: Final = attrgetter(*COUNTED)
fast_sample: Final = partial(tuple.__new__, Sample)
OF_REPLICAS: Final = (
    metrics.PARTITION_COUNT,
    metrics.LEADER_COUNT,
    metrics.UNDER_REPLICATED,
    metrics.UNDER_MIN_ISR,
    metrics.AT_MIN_ISR,
    metrics.OFFLINE_REPLICAS,
)


def of_cluster(services: Services, samples: list[Sample]) -> Iterator[None]:
    """What is known of the whole cluster."""
    controller, topics = services.controller, list(services.image.topics.values())
    partitions = leaderless = imbalanced = 0
    for topic in topics:
        for partition in list(topic.partitions.values()):
            partitions += 1
            leaderless += partition.leader == NO_LEADER
            imbalanced += partition.leader != partition.replicas[0]
            if partitions % STEP == 0:
                yield
    in_office = controller.in_office
    samples += [
        Sample(metrics.ACTIVE_CONTROLLER, int(in_office)),
        Sample(metrics.OFFLINE_PARTITIONS, leaderless if in_office else 0),
        Sample(metrics.PREFERRED_IMBALANCE, imbalanced if in_office else 0),
        distributed(metrics.ELECTIONS, controller.elections.took, per_unit=1),
        Sample(metrics.UNCLEAN_ELECTIONS, controller.elections.unclean),
        Sample(metrics.TREE_CONNECTS, controller.sessions.connects),
        Sample(metrics.TREE_DISCONNECTS, controller.sessions.disconnects),
        Sample(metrics.TREE_EXPIRES, controller.sessions.expires),
        Sample(metrics.ACTIVE_BROKERS, len(services.image.brokers)),
        Sample(metrics.TOPIC_COUNT, len(topics)),
        Sample(metrics.GLOBAL_PARTITION_COUNT, partitions),
    ]


def of_links(services: Services) -> Iterator[Sample]:
    """The copies that this broker leads, by link and topic."""
    for link in services.links.describe(None):
        rows: dict[str, list[LinkPartition]] = {}
        for row in link.partitions:
            rows.setdefault(row.topic, []).append(row)
        for topic, parts in rows.items():
            labels = link.name, topic
            yield Sample(metrics.LINK_LAG, sum(max(row.source_end - row.log_end, 0) for row in parts), labels)
            yield Sample(metrics.LINK_LAG_MS, max(0, *(row.lag_ms for row in parts)), labels)
            yield Sample(metrics.LINK_MISSED, sum(row.missed for row in parts), labels)
            yield Sample(metrics.LINK_DROPPED, sum(row.dropped for row in parts), labels)
            yield Sample(metrics.LINK_WAITING, sum(bool(row.reason) for row in parts), labels)


def of_topics(services: Services, samples: list[Sample]) -> Iterator[None]:
    """The replicas of this broker, by topic and partition, and their sums."""
    partitions = services.partitions
    counts: Counter[Metric] = Counter()
    totals: Counter[str] = Counter(partitions.retired)
    waiting = seen = 0
    for topic in list(services.image.topics):
        sums = [0] * len(COUNTED)
        of_topic = list(partitions.of_topic(topic).items())
        for index, partition in of_topic:
            sums = list(map(add, sums, counts_of(partition)))
            _count(partition, counts)
            waiting += partition.waiting_writes
            if partition.offline is None:
                samples += _of_log(topic, index, partition)
            seen += 1
            if seen % STEP == 0:
                yield
        if of_topic:
            here, labels = dict(zip(COUNTED, sums, strict=True)), (topic,)
            samples += [Sample(metric, here[name], labels) for metric, name in OF_TOPIC]
            totals.update(here)
        counts[metrics.OFFLINE_REPLICAS] += len(partitions.offline_of(topic))
    samples += [Sample(metric, totals[name], ("",)) for metric, name in OF_TOPIC]
    samples += [Sample(metric, totals[name]) for metric, name in OF_BROKER]
    samples += [Sample(metric, counts[metric]) for metric in OF_REPLICAS]
    samples.append(Sample(metrics.PURGATORY, waiting, ("Produce",)))


def _count(partition: Partition, counts: Counter[Metric]) -> None:
    counts[metrics.PARTITION_COUNT] += 1
    if partition.is_leader:
        image, in_sync_min = partition.image, partition.config.min_insync_replicas
        in_sync = len(image.isr)
        counts[metrics.LEADER_COUNT] += 1
        counts[metrics.UNDER_REPLICATED] += in_sync < len(image.replicas)
        counts[metrics.UNDER_MIN_ISR] += in_sync < in_sync_min
        counts[metrics.AT_MIN_ISR] += in_sync == in_sync_min


def _of_log(topic: str, index: int, partition: Partition) -> tuple[Sample, ...]:
    """A partition whose log dir has failed has no such values. There are many: `fast_sample`
    is three times as quick as Sample."""
    log, core, labels = partition.log, partition.log.core, (topic, str(index))
    return (
        fast_sample((metrics.LOG_SIZE, log.size_bytes, labels, None)),
        fast_sample((metrics.LOG_START, core.log_start_offset, labels, None)),
        fast_sample((metrics.LOG_END, core.log_end_offset, labels, None)),
        fast_sample((metrics.LOG_SEGMENTS, len(log.segments), labels, None)),
    )
