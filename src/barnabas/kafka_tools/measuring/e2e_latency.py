"""kafka-e2e-latency: how long one record takes from send to receive, one after the other."""

from __future__ import annotations

import random
import string
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from barnabas.kafka_tools.measuring.perf import Latencies
from barnabas.kafka_tools.shared.common import ToolError, client_properties, parse, read_properties, servers
from barnabas.kafka_tools.shared.librdkafka import connection, consumer_defaults
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError

POLL_SECONDS: Final = 60.0
REPORT_EVERY: Final = 1000
USAGE: Final = "USAGE: kafka-e2e-latency broker_list topic num_messages producer_acks message_size_bytes [properties_file]"
TOOL: Final = Tool(
    "This tool measures end-to-end latency.",
    (
        *COMMON,
        Opt("topic", "The topic to use.", "String: topic"),
        Opt("num-records", "How many records.", "Int: count", aliases=("num-messages",)),
        Opt("producer-acks", "0, 1 or all.", "String: acks", aliases=("acks",)),
        Opt("record-size", "Bytes of a record.", "Int: bytes", aliases=("message-size",)),
    ),
)


def main(arguments: Sequence[str]) -> int:
    """Measure and print; the exit code. Takes the old words and the new options."""
    parsed = parse(TOOL, arguments)
    words = parsed.words
    if len(words) in (5, 6):
        where, topic, count, acks, size = words[0], words[1], int(words[2]), words[3], int(words[4])
        properties = read_properties(str(Path(words[5]))) if len(words) == 6 else {}
    elif "topic" in parsed and "num-records" in parsed:
        properties = client_properties(parsed, ["command-config"], ["command-property"])
        where, topic = servers(parsed, properties), parsed.text("topic")
        count = parsed.number("num-records", 0)
        acks, size = parsed.text("producer-acks", "1"), parsed.number("record-size", 100)
    else:
        print(USAGE, file=sys.stderr)
        return EXIT_FAILED
    try:
        producer = connection(where, properties, producing=True).producer({"acks": acks, "linger.ms": 0})
        consumer = connection(where, properties, producing=False).consumer(
            {**consumer_defaults(f"e2e-{random.randrange(1_000_000)}"), "enable.auto.commit": False}
        )
    except CliError as error:
        raise ToolError(str(error)) from None
    latencies = measure(producer, consumer, topic, count, size)
    consumer.close()
    p50, p99, p999 = latencies.percentiles((0.5, 0.99, 0.999))
    print(f"Avg latency: {latencies.average_ms:.4f} ms\n")
    print(f"Percentiles: 50th = {p50:.0f}, 99th = {p99:.0f}, 99.9th = {p999:.0f}")
    return EXIT_OK


def measure(
    producer: Any, consumer: Any, topic: str, count: int, size: int, report: bool = True
) -> Latencies:
    """Send a record and wait until it is received, `count` times. Raises ToolError when one gets lost."""
    from confluent_kafka import TopicPartition

    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, part), timeout=30)[1] for part in partitions]
    consumer.assign([TopicPartition(topic, part, end) for part, end in zip(partitions, ends, strict=True)])
    letters = random.Random(0)
    latencies = Latencies()
    for i in range(count):
        payload = "".join(letters.choices(string.ascii_uppercase, k=size)).encode()
        began = time.perf_counter()
        producer.produce(topic, payload)
        producer.flush()
        message = consumer.poll(POLL_SECONDS)
        if message is None or message.error() is not None:
            raise ToolError(
                f"poll() timed out before finding a result (timeout: [{POLL_SECONDS * 1000:.0f}])"
            )
        latency_ms = (time.perf_counter() - began) * 1000
        if message.value() != payload:
            raise ToolError(
                "The message read is not the one that was sent: does somebody else produce to the topic?"
            )
        latencies.add(latency_ms)
        if report and i % REPORT_EVERY == 0:
            print(f"{i}\t{latency_ms}")
    return latencies
