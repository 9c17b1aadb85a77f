"""Many threads: `python threads.py consumers` has a consumer in each, `python threads.py workers` one for all of them."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from confluent_kafka import Consumer, Message, Producer, TopicPartition

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
TOPIC = "lesson-threads"
THREADS = 3
COUNT = 300
LIMIT_S = 60


def consumer_of(group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def send() -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(COUNT):
        producer.produce(TOPIC, str(number), partition=number % THREADS)
    producer.flush()


def committed(group: str) -> int:
    """The sum of what a group has committed."""
    consumer = consumer_of(group)
    rows = consumer.committed([TopicPartition(TOPIC, i) for i in range(THREADS)], timeout=LIMIT_S)
    consumer.close()
    return sum(max(row.offset, 0) for row in rows)


def consumers() -> None:
    """A consumer belongs to one thread; more threads are more members of the group. Order is kept within a partition."""
    read: list[int] = []
    all_read = threading.Event()

    def work() -> None:
        consumer = consumer_of("lesson-consumers")
        consumer.subscribe([TOPIC])
        while not all_read.is_set():
            for message in consumer.consume(50, 0.1):
                if message.error() is None:
                    read.append(int(message.value()))
                    consumer.commit(message, asynchronous=False)
            if len(set(read)) == COUNT:
                all_read.set()
        consumer.close()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    all_read.wait(LIMIT_S)
    all_read.set()
    for thread in threads:
        thread.join()
    print(f"consumers: {len(set(read))} read in {THREADS} threads, {committed('lesson-consumers')} committed")


def workers() -> None:
    """One thread polls, others work. A partition's offset moves on only over what is done, in order."""
    consumer = consumer_of("lesson-workers")
    consumer.subscribe([TOPIC])
    waiting: dict[int, list[tuple[int, Future[int]]]] = {i: [] for i in range(THREADS)}
    done: list[int] = []
    deadline_s = time.monotonic() + LIMIT_S
    with ThreadPoolExecutor(THREADS) as pool:
        while len(done) < COUNT and time.monotonic() < deadline_s:
            for message in consumer.consume(50, 0.1):
                if message.error() is None:
                    job = pool.submit(work_on, message)
                    waiting[message.partition()].append((message.offset(), job))
            for partition, jobs in waiting.items():
                finished = 0
                while finished < len(jobs) and jobs[finished][1].done():
                    finished += 1
                if finished:
                    done += [job.result() for _, job in jobs[:finished]]
                    last = TopicPartition(TOPIC, partition, jobs[finished - 1][0] + 1)
                    consumer.commit(offsets=[last], asynchronous=False)
                    del jobs[:finished]
    consumer.close()
    print(f"workers: {len(set(done))} done by {THREADS} workers, {committed('lesson-workers')} committed")


def work_on(message: Message) -> int:
    return int(message.value())


if __name__ == "__main__":
    if sys.argv[1] == "consumers":
        send()
        consumers()
    else:
        workers()
