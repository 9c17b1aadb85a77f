"""Consumers of one group, several in one process: `member.py JOURNAL SETTINGS` (JSON).

Settings: library, bootstrap, group, topic, protocol (classic or consumer), strategy, session_ms, heartbeat_ms,
rebalance_ms, names.
What happens is appended to the journal at once, one JSON list a line, so that a SIGKILL takes nothing back:

    ["assign", member, at, [partitions]]     at the beginning of the callback
    ["revoke", member, at, [partitions]]     at its end, when the client has let go; also when they were lost
    ["read", member, at, partition, first offset, last offset]
    ["commit", member, acknowledged at, {partition: offset}, sent at]
    ["closed", member, at]
    ["tick", "", at]                         twice a second: this process is running

Times are those of the machine's monotonic clock, which all processes share. SIGTERM: commit and leave.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time

TICK_S = 0.5
stopping = threading.Event()


class Journal:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, kind, member, *details, at=None):
        line = [kind, member, time.monotonic() if at is None else at, *details]
        os.write(self.fd, json.dumps(line).encode() + b"\n")

    def tick(self):
        while True:
            self.say("tick", "")
            time.sleep(TICK_S)


class Progress:
    """What one member has read and not committed yet. Commits only what is in the journal."""

    def __init__(self, journal, name):
        self.journal, self.name = journal, name
        self.next = {}

    def read(self, partition, offsets):
        self.journal.say("read", self.name, partition, offsets[0], offsets[-1])
        self.next[partition] = offsets[-1] + 1

    def committed(self, offsets, sent_at):
        self.journal.say("commit", self.name, {str(k): v for k, v in offsets.items()}, sent_at)
        for partition, offset in offsets.items():
            if self.next.get(partition) == offset:
                del self.next[partition]


def confluent(settings, name, journal):
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer_protocol = settings["protocol"] == "consumer"
    incremental = consumer_protocol or settings["strategy"] == "cooperative-sticky"
    config = {
        "bootstrap.servers": settings["bootstrap"],
        "group.id": settings["group"],
        "group.protocol": settings["protocol"],
        "client.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 60000,
        "max.poll.interval.ms": settings["rebalance_ms"],
    }
    if not consumer_protocol:
        config["session.timeout.ms"] = settings["session_ms"]
        config["heartbeat.interval.ms"] = settings["heartbeat_ms"]
        config["partition.assignment.strategy"] = settings["strategy"]
    progress = Progress(journal, name)

    def commit():
        wanted = dict(progress.next)
        if not wanted:
            return
        sent_at = time.monotonic()
        try:
            done = consumer.commit(
                offsets=[TopicPartition(settings["topic"], p, o) for p, o in wanted.items()],
                asynchronous=False,
            )
        except KafkaException:
            return  # it rebalances, or the broker is away: read again, by whoever has the partition then
        progress.committed({row.partition: row.offset for row in done if row.error is None}, sent_at)

    def on_assign(_, partitions):
        numbers = [partition.partition for partition in partitions]
        journal.say("assign", name, numbers)
        (consumer.incremental_assign if incremental else consumer.assign)(partitions)

    def let_go(partitions):
        for partition in partitions:
            progress.next.pop(partition.partition, None)
        if incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()
        journal.say("revoke", name, [row.partition for row in partitions])

    def on_revoke(_, partitions):
        commit()
        let_go(partitions)

    def on_lost(_, partitions):
        let_go(partitions)

    consumer = Consumer(config)
    consumer.subscribe([settings["topic"]], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    while not stopping.is_set():
        by_partition = {}
        for row in consumer.consume(500, 0.25):
            if row.error() is None:
                by_partition.setdefault(row.partition(), []).append(row.offset())
        for partition, offsets in by_partition.items():
            progress.read(partition, offsets)
        commit()
    consumer.close()
    journal.say("closed", name)


def kafka_python(settings, name, journal):
    from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    assignor = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
    consumer = KafkaConsumer(
        bootstrap_servers=settings["bootstrap"],
        group_id=settings["group"],
        client_id=name,
        session_timeout_ms=settings["session_ms"],
        heartbeat_interval_ms=settings["heartbeat_ms"],
        partition_assignment_strategy=[assignor[settings["strategy"]]],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    progress = Progress(journal, name)

    def commit():
        wanted = dict(progress.next)
        if not wanted:
            return
        sent_at = time.monotonic()
        try:
            consumer.commit(
                {
                    TopicPartition(settings["topic"], p): OffsetAndMetadata(o, "", -1)
                    for p, o in wanted.items()
                }
            )
        except KafkaError:
            return
        progress.committed(wanted, sent_at)

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            commit()
            progress.next.clear()
            journal.say("revoke", name, [row.partition for row in revoked])

        def on_partitions_assigned(self, assigned):
            journal.say("assign", name, [row.partition for row in assigned])

    consumer.subscribe([settings["topic"]], listener=Listener())
    while not stopping.is_set():
        for where, rows in consumer.poll(250).items():
            progress.read(where.partition, [row.offset for row in rows])
        commit()
    consumer.close()
    journal.say("revoke", name, "all")
    journal.say("closed", name)


async def aiokafka(settings, name, journal):
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    assignor = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings["bootstrap"],
        group_id=settings["group"],
        client_id=name,
        session_timeout_ms=settings["session_ms"],
        heartbeat_interval_ms=settings["heartbeat_ms"],
        partition_assignment_strategy=[assignor[settings["strategy"]]],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    progress = Progress(journal, name)

    async def commit():
        wanted = dict(progress.next)
        if not wanted:
            return
        sent_at = time.monotonic()
        try:
            await consumer.commit({TopicPartition(settings["topic"], p): o for p, o in wanted.items()})
        except KafkaError:
            return
        progress.committed(wanted, sent_at)

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked):
            await commit()
            progress.next.clear()
            journal.say("revoke", name, [row.partition for row in revoked])

        async def on_partitions_assigned(self, assigned):
            journal.say("assign", name, [row.partition for row in assigned])

    consumer.subscribe([settings["topic"]], listener=Listener())
    while not stopping.is_set():
        try:
            await consumer.start()
            break
        except KafkaError:
            await asyncio.sleep(0.5)  # the broker is away
    while not stopping.is_set():
        for where, rows in (await consumer.getmany(timeout_ms=250)).items():
            progress.read(where.partition, [row.offset for row in rows])
        await commit()
    await consumer.stop()
    journal.say("revoke", name, "all")
    journal.say("closed", name)


def main():
    journal, settings = Journal(sys.argv[1]), json.loads(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    threading.Thread(target=journal.tick, daemon=True).start()

    def run(name):
        if settings["library"] == "confluent-kafka":
            confluent(settings, name, journal)
        elif settings["library"] == "kafka-python":
            kafka_python(settings, name, journal)
        else:
            asyncio.run(aiokafka(settings, name, journal))

    threads = [threading.Thread(target=run, args=(name,)) for name in settings["names"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
