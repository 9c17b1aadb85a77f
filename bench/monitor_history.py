"""Where a monitor's history is kept: rows in an SQLite file against the same rows in a compacted topic.

    .venv/bin/python -m bench.monitor_history [--series 1000] [--days 2]

Load: values of `series` gauges each minute (counts that walk, zeros, sizes that grow), packed by the hour. Rival: a
compacted topic whose keys are (series, hour). Budget: 15 days of 1,000 series in 100 MB; one series of
two days within 100 ms.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Producer, TopicPartition

from barnabas.monitor.history.packing import TIERS, pack
from barnabas.monitor.history.store import History, Series
from barnabas.testing import Broker

HOUR_S = 3600
START_S = 1_700_006_400


def walk(series: int, minutes: int) -> list[list[float]]:
    """Values by minute: a third each of counts that walk, of zeros, and of sizes that grow."""
    chance = random.Random(7)
    values = [0.0] * series
    rows = []
    for _ in range(minutes):
        for i in range(series):
            kind = i % 3
            if kind == 0:
                values[i] = max(values[i] + chance.randint(-50, 50), 0.0)
            elif kind == 2:
                values[i] += chance.randint(0, 100_000)
        rows.append(list(values))
    return rows


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--days", type=int, default=2)
    options = parser.parse_args()
    minutes = options.days * 1440
    rows = walk(options.series, minutes)
    names = [Series.of("group_lag", cluster="blue", group=f"group-{i}") for i in range(options.series)]
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), 1 << 34)
        began = time.perf_counter()
        tidied_s = 0.0
        for minute, values in enumerate(rows):
            history.write(START_S + minute * 60, dict(zip(names, values, strict=True)))
            if minute % 60 == 59:
                at = time.perf_counter()
                history.tidy(START_S + (minute + 1) * 60)
                tidied_s = max(tidied_s, time.perf_counter() - at)
        wrote_s = time.perf_counter() - began
        began = time.perf_counter()
        points = history.read(names[0], START_S, START_S + minutes * 60)
        read_s = time.perf_counter() - began
        size = history.size_bytes()
        history.close()
    print(
        f"sqlite: {minutes * options.series:,} values, {size / 1e6:.1f} MB, "
        f"{size / minutes / options.series:.2f} bytes a value, "
        f"{wrote_s / minutes * 1000:.1f} ms a minute, {tidied_s * 1000:.0f} ms the longest tidying, "
        f"{len(points)} points of one series in {read_s * 1000:.0f} ms"
    )
    span = TIERS[0].slots
    with Broker() as broker:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "compression.type": "zstd", "linger.ms": 50}
        )
        began = time.perf_counter()
        for start in range(0, minutes, span):
            for i, name in enumerate(names):
                key = json.dumps([name.name, name.labels, START_S + start * 60])
                producer.produce("history", pack([row[i] for row in rows[start : start + span]]), key)
                producer.poll(0)
        producer.flush()
        wrote_s = time.perf_counter() - began
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader"})
        low, high = consumer.get_watermark_offsets(TopicPartition("history", 0))
        consumer.assign([TopicPartition("history", 0, low)])
        began, matching, seen, size = time.perf_counter(), 0, 0, 0
        wanted = json.dumps([names[0].name, names[0].labels])[:-1].encode()
        while seen < high - low:
            for message in consumer.consume(5000, 1):
                assert message.timestamp()[0] != TIMESTAMP_NOT_AVAILABLE
                seen += 1
                size += len(message.key()) + len(message.value())
                matching += message.key().startswith(wanted)
        print(
            f"topic: {seen:,} rows, {size / 1e6:.1f} MB before compression, "
            f"{size / minutes / options.series:.2f} bytes a value, "
            f"{wrote_s:.1f} s to produce, {matching} rows of one series in {(time.perf_counter() - began) * 1000:.0f} ms"
        )
        consumer.close()


if __name__ == "__main__":
    main()
