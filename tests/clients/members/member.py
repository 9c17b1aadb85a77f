"""One consumer of a group in a process of its own: `member.py LIBRARY BOOTSTRAP GROUP TOPIC`.

Prints a JSON line whenever its partitions change, and one for each batch of values it read. SIGTERM makes it
commit and leave; SIGKILL is for the test to send.
"""

import asyncio
import json
import signal
import sys

LIBRARY, BOOTSTRAP, GROUP, TOPIC = sys.argv[1:]
SESSION_MS = 6000
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
    from confluent_kafka import Consumer

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
            consumer.commit(asynchronous=False)
            say(values=[row.value().decode() for row in rows])
        reporter.owns(part.partition for part in consumer.assignment())
    consumer.close()


def kafka_python():
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=BOOTSTRAP,
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    reporter = Reporter()
    while not stopping:
        rows = [row for batch in consumer.poll(100).values() for row in batch]
        if rows:
            consumer.commit()
            say(values=[row.value.decode() for row in rows])
        reporter.owns(part.partition for part in consumer.assignment())
    consumer.close()


async def aiokafka():
    from aiokafka import AIOKafkaConsumer

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
        rows = [row for batch in batches.values() for row in batch]
        if rows:
            await consumer.commit()
            say(values=[row.value.decode() for row in rows])
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
