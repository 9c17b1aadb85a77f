"""`barnabas group lag`: how far groups are behind, in records and in seconds."""

from __future__ import annotations

import json
import sys
import time
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import preloaded
from tests.support.admin import KEPT, create_topic

RECORDS, READ = 10, 4
AGE_S = 600
WAIT_S = 120


def test_a_group_that_is_behind_comes_first(bootstrap: str) -> None:
    topic = f"lag-{uuid4().hex[:8]}"
    create_topic(bootstrap, topic, 1, KEPT)
    producer = Producer({"bootstrap.servers": bootstrap})
    written_ms = int(time.time() - AGE_S) * 1000
    for _ in range(RECORDS):
        producer.produce(topic, b"x", timestamp=written_ms)
    assert producer.flush(WAIT_S) == 0
    for group, offset in ((f"{topic}-done", RECORDS), (f"{topic}-slow", READ)):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()
    command = [sys.executable, "-m", "barnabas", "group", "lag", "-b", bootstrap, "--json"]
    for names in ([], [f"{topic}-done", f"{topic}-slow"]):
        ended = preloaded.run([*command, *names], capture_output=True, text=True, timeout=WAIT_S, check=True)
        rows = [row for row in json.loads(ended.stdout) if row["group"].startswith(topic)]
        assert [(row["group"], row["lag"]) for row in rows] == [
            (f"{topic}-slow", RECORDS - READ),
            (f"{topic}-done", 0),
        ]
        assert rows[0]["lag_seconds"] >= AGE_S
        assert rows[1]["lag_seconds"] == 0
    ended = preloaded.run(
        [*command, f"{topic}-none"], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert ended.returncode != 0
    assert f"{topic}-none" in ended.stderr
