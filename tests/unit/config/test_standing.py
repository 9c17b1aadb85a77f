"""Options that users of a broker rely on work; a change that takes one away must say so here."""

from __future__ import annotations

import pytest

from barnabas.config.broker_options import BROKER, retired_reason
from barnabas.config.client_options import CLIENT_METRICS, QUOTA
from barnabas.config.group_options import GROUP
from barnabas.config.option import Mark
from barnabas.config.topic_options import TOPIC

WORK = """
node.id broker.id listeners advertised.listeners listener.security.protocol.map log.dirs log.dir broker.rack
socket.request.max.bytes max.connections max.connections.per.ip max.connections.per.ip.overrides
max.connection.creation.rate connections.max.idle.ms message.max.bytes fetch.max.bytes
auto.create.topics.enable delete.topic.enable num.partitions default.replication.factor min.insync.replicas
log.retention.ms log.retention.minutes log.retention.hours log.retention.bytes log.retention.check.interval.ms
log.segment.bytes log.roll.ms log.roll.hours log.roll.jitter.ms log.roll.jitter.hours log.cleanup.policy
log.flush.interval.messages log.flush.interval.ms log.flush.scheduler.interval.ms log.message.timestamp.type
log.message.timestamp.before.max.ms log.message.timestamp.after.max.ms compression.type compression.gzip.level
compression.lz4.level compression.zstd.level log.cleaner.enable log.cleaner.min.cleanable.ratio
log.cleaner.delete.retention.ms log.cleaner.min.compaction.lag.ms log.cleaner.max.compaction.lag.ms
offsets.topic.num.partitions offsets.topic.replication.factor offsets.topic.segment.bytes
offsets.topic.compression.codec offsets.load.buffer.size offsets.retention.minutes
offsets.retention.check.interval.ms offset.metadata.max.bytes
group.min.session.timeout.ms group.max.session.timeout.ms group.initial.rebalance.delay.ms group.max.size
group.consumer.session.timeout.ms group.consumer.heartbeat.interval.ms group.consumer.max.size
group.consumer.assignors group.consumer.migration.policy group.consumer.assignment.interval.ms
group.share.delivery.count.limit group.share.record.lock.duration.ms group.share.partition.max.record.locks
quota.window.num quota.window.size.seconds controller.quota.window.num controller.quota.window.size.seconds
producer.id.expiration.ms telemetry.max.bytes
"""

RETIRED = """
log.message.format.version message.format.version log.message.timestamp.difference.max.ms
inter.broker.protocol.version zookeeper.connect control.plane.listener.name reserved.broker.max.id
offsets.commit.required.acks delegation.token.master.key
"""


@pytest.mark.parametrize("name", WORK.split())
def test_it_works(name: str) -> None:
    assert BROKER[name].mark is Mark.WORKS


@pytest.mark.parametrize("name", RETIRED.split())
def test_it_is_accepted_with_a_reason(name: str) -> None:
    assert name in BROKER or retired_reason(name)


def test_all_that_is_asked_of_quotas_and_subscriptions_works() -> None:
    assert {row.name for row in (*QUOTA, *CLIENT_METRICS) if row.mark is not Mark.WORKS} == set()


def test_what_topics_and_groups_can_be_told() -> None:
    """Tiered storage, throttled replication and Kafka Streams' own protocol are stored only."""
    idle = {row.name for row in TOPIC if row.mark is not Mark.WORKS}
    assert all(
        name.startswith(("remote.", "local.", "leader.", "follower.", "preallocate", "unclean."))
        for name in idle
    ), idle
    idle = {row.name for row in GROUP if row.mark is not Mark.WORKS}
    assert all(
        name.startswith("streams.") or name.endswith(("offload.enable", "share.assignment.interval.ms"))
        for name in idle
    ), idle
