"""The broker's metrics, read from its state when somebody asks: requests pay nothing for them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from barnabas.cores.cluster_image import NO_LEADER
from barnabas.observe import metrics
from barnabas.observe.metrics import Sample

if TYPE_CHECKING:
    from barnabas.broker.api.services import Services
    from barnabas.broker.partitions.partition import Partition

PARTITIONS_PER_TURN: Final = 200


async def measure(services: Services) -> list[Sample]:
    """The values of all metrics. Reads a few partitions in each turn of the loop."""
    samples = await _of_cluster(services)
    counts: Counter[metrics.Metric] = Counter()
    seen = 0
    for topic in list(services.image.topics):
        messages, served = 0, list(services.partitions.of_topic(topic).items())
        for index, partition in served:
            messages += partition.messages_in
            samples += _of_partition(topic, index, partition, counts)
            seen += 1
            if seen % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        if served:
            samples.append(Sample(metrics.MESSAGES_IN, messages, (topic,)))
        counts[metrics.OFFLINE_REPLICAS] += len(services.partitions.offline_of(topic))
    for metric in (
        metrics.PARTITION_COUNT,
        metrics.LEADER_COUNT,
        metrics.UNDER_REPLICATED,
        metrics.UNDER_MIN_ISR,
        metrics.OFFLINE_REPLICAS,
    ):
        samples.append(Sample(metric, counts[metric]))
    connections = Counter(connection.listener for connection in services.listeners.connections)
    for listener in services.config.listeners:
        samples.append(Sample(metrics.CONNECTIONS, connections[listener.name], (listener.name,)))
    return samples


async def _of_cluster(services: Services) -> list[Sample]:
    """What is known of the whole cluster."""
    controller, topics = services.controller, list(services.image.topics.values())
    partitions = leaderless = seen = 0
    for topic in topics:
        leaderless += sum(partition.leader == NO_LEADER for partition in list(topic.partitions.values()))
        partitions += len(topic.partitions)
        if partitions - seen >= PARTITIONS_PER_TURN:
            seen = partitions
            await asyncio.sleep(0)
    return [
        Sample(metrics.ACTIVE_CONTROLLER, int(controller.in_office)),
        Sample(metrics.OFFLINE_PARTITIONS, leaderless if controller.in_office else 0),
        Sample(metrics.TOPIC_COUNT, len(topics)),
        Sample(metrics.GLOBAL_PARTITION_COUNT, partitions),
    ]


def _of_partition(
    topic: str, index: int, partition: Partition, counts: Counter[metrics.Metric]
) -> list[Sample]:
    """The values of one partition, which is counted, too. A partition whose log dir has failed has none."""
    counts[metrics.PARTITION_COUNT] += 1
    log, image = partition.log, partition.image
    if partition.is_leader:
        counts[metrics.LEADER_COUNT] += 1
        counts[metrics.UNDER_REPLICATED] += len(image.isr) < len(image.replicas)
        counts[metrics.UNDER_MIN_ISR] += len(image.isr) < log.config.min_insync_replicas
    if partition.offline is not None:
        return []
    labels = (topic, str(index))
    return [
        Sample(metrics.LOG_SIZE, log.size_bytes, labels),
        Sample(metrics.LOG_START, log.core.log_start_offset, labels),
        Sample(metrics.LOG_END, log.core.log_end_offset, labels),
    ]
