"""One consumer of a group in a process of its own: `member.py LIBRARY BOOTSTRAP GROUP TOPIC`.

Prints a JSON line whenever its partitions change, and one for each batch of values whose offsets it has committed.
SIGTERM makes it commit and leave; SIGKILL is for the test to send.

A commit fails when the group rebalances or when this process did not run for longer than its session. Then the member
does what such a program must do: it goes back to what is committed, and those records are read again, here or by
another member.
"""

import asyncio
import json
import logging
import signal
import sys
import time

LIBRARY, BOOTSTRAP, GROUP, TOPIC = sys.argv[1:]
SESSION_MS = 8000
HEARTBEAT_MS = 300
stopping = False


def stop(*_):
    global stopping
    stopping = True


def say(**what):
    print(json.dumps(what), flush=True)


class Reporter:
    """Says which partitions are owned when that has changed."""

    def __init__(self):
        self.told = None

    def owns(self, partitions):
        partitions = sorted(partitions)
        if partitions != self.told:
            self.told = partitions
            say(owns=partitions)


def confluent():
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": GROUP,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.subscribe([TOPIC])
    reporter = Reporter()
    while not stopping:
        rows = [row for row in consumer.consume(1000, 0.1) if row.error() is None]
        if rows:
            try:
                consumer.commit(asynchronous=False)
                say(values=[row.value().decode() for row in rows])
            except KafkaException as reason:
                say(failed=str(reason))
                first = {(row.topic(), row.partition()): row.offset() for row in reversed(rows)}
                owned = [part for part in consumer.assignment() if (part.topic, part.partition) in first]
                for part in consumer.committed(owned, 30):
                    place = part.offset if part.offset >= 0 else first[part.topic, part.partition]
                    consumer.seek(TopicPartition(part.topic, part.partition, place))
        reporter.owns(part.partition for part in consumer.assignment())
    consumer.close()


def kafka_python():
    from kafka import KafkaConsumer
    from kafka.errors import CommitFailedError, RebalanceInProgressError

    # kafka-python writes nothing, not even errors, unless its program configures logging; the test shows the last lines.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=BOOTSTRAP,
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    # kafka-python 3.0.12 loses a join. A leader that joins before it has the topic's metadata assigns nothing and joins
    # again when they arrive. If that join ends just after poll()'s 100 ms, need_rejoin() of the next poll compares the
    # metadata, finds them equal by now, and never fetches the result (`_join_task`). The member then stays outside of
    # the group for good, without heartbeats and without an error. So the metadata come first.
    while not stopping and not consumer.partitions_for_topic(TOPIC):
        time.sleep(0.1)
    reporter = Reporter()
    while not stopping:
        batches = consumer.poll(100)
        if batches:
            try:
                consumer.commit()
                say(values=[row.value.decode() for rows in batches.values() for row in rows])
            except (CommitFailedError, RebalanceInProgressError) as reason:
                say(failed=str(reason))
                for part in batches.keys() & consumer.assignment():
                    place = consumer.committed(part)
                    consumer.seek(part, batches[part][0].offset if place is None else place)
        reporter.owns(part.partition for part in consumer.assignment())
    consumer.close()


async def aiokafka():
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import CommitFailedError, RebalanceInProgressError

    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=BOOTSTRAP,
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    reporter = Reporter()
    while not stopping:
        batches = await consumer.getmany(timeout_ms=100)
        if batches:
            try:
                await consumer.commit()
                say(values=[row.value.decode() for rows in batches.values() for row in rows])
            except (CommitFailedError, RebalanceInProgressError) as reason:
                say(failed=str(reason))
                for part in batches.keys() & consumer.assignment():
                    place = await consumer.committed(part)
                    consumer.seek(part, batches[part][0].offset if place is None else place)
        reporter.owns(part.partition for part in consumer.assignment())
    await consumer.stop()


signal.signal(signal.SIGTERM, stop)
if LIBRARY == "confluent-kafka":
    confluent()
elif LIBRARY == "kafka-python":
    kafka_python()
else:
    asyncio.run(aiokafka())
say(left=True)
