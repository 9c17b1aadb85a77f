"""kafka-replica-verification: whether the replicas of partitions hold the same batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from barnabas.admin import LATEST, TopicPartition
from barnabas.client.cluster import Cluster
from barnabas.kafka_tools.shared.common import connect, parse
from barnabas.kafka_tools.shared.matching import topic_pattern
from barnabas.kafka_tools.shared.parser import COMMON, Opt, Tool
from barnabas.terminal.errors import EXIT_OK
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

OFFSET_BYTES: Final = 8
CRC_AT: Final = 17
HEADER_BYTES: Final = 61
LAST_DELTA_AT: Final = 23
TOOL: Final = Tool(
    "Validate that all replicas for a set of topics have the same data.",
    (
        *COMMON,
        Opt("topics-include", "Topics by regular expression.", "String: Java regex",
            aliases=("topic-white-list", "topics-white-list")),
        Opt("fetch-size", "Bytes of each request.", "Integer: bytes"),
        Opt("max-wait-ms", "How long each request may wait.", "Integer: ms"),
        Opt("time", "Where to begin: a time in ms, -1 latest (default), -2 earliest.", "Long: timestamp"),
        Opt("report-interval-ms", "How often to report (default 30000).", "Long: ms"),
    ),
)  # fmt: skip


@dataclass(slots=True)
class Partition:
    """One partition: its replicas and the offset up to which they were compared."""

    key: TopicPartition
    replicas: list[int]
    offset: int = 0
    lag: int = 0


def main(arguments: Sequence[str]) -> int:
    """Compare until Ctrl-C; the exit code."""
    parsed = parse(TOOL, arguments)
    wanted = topic_pattern(parsed.text("topics-include", ".*"))
    admin = connect(parsed)
    partitions = [
        Partition(TopicPartition(topic.name, part.number), list(part.replicas))
        for topic in admin.topics.list().values()
        if wanted.fullmatch(topic.name)
        for part in topic.partitions
    ]
    starts = admin.records.offsets({part.key: parsed.number("time", LATEST) for part in partitions})
    for part in partitions:
        part.offset = int(starts[part.key].offset or 0)
    cluster = Cluster(admin.options)
    say("verification process is started.")
    interval_s = parsed.number("report-interval-ms", 30_000) / 1000
    report_at = time.monotonic() + interval_s
    while partitions:
        for part in partitions:
            compare(cluster, part, parsed.number("fetch-size", 1 << 20), parsed.number("max-wait-ms", 1000))
        if time.monotonic() >= report_at:
            report_at += interval_s
            worst = max(partitions, key=lambda part: part.lag)
            say(f"max lag is {worst.lag} for partition {worst.key[0]}-{worst.key[1]} at offset {worst.offset} "
                f"among {len(partitions)} partitions")  # fmt: skip
        time.sleep(min(0.2, interval_s))
    return EXIT_OK


def say(text: str) -> None:
    """One line with the time."""
    print(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S,%f}"[:-3] + f": {text}", flush=True)


def compare(cluster: Cluster, part: Partition, fetch_bytes: int, wait_ms: int) -> None:
    """Fetch the same offsets from each replica and compare the checksums of what all of them have."""
    batches: dict[int, list[tuple[int, int, int]]] = {}
    high = 0
    for node in part.replicas:
        row = fetch(cluster, node, part, fetch_bytes, min(wait_ms, 100))
        high = max(high, row.high_watermark)
        batches[node] = list(headers(memoryview(row.records or b"")))
    ends = [rows[-1][1] if rows else part.offset for rows in batches.values()]
    shared = min(ends)
    first, *others = part.replicas
    for base, end, checksum in batches[first]:
        for node in others:
            theirs = next((c for b, _, c in batches[node] if b == base), None)
            if end <= shared and theirs != checksum:
                say(
                    f"partition {part.key[0]}-{part.key[1]}: checksums differ at offset {base}: broker {first} has "
                    f"{checksum}, broker {node} {theirs}"
                )
    part.lag = max(high - shared, 0)
    part.offset = max(part.offset, shared)


def fetch(cluster: Cluster, node: int, part: Partition, fetch_bytes: int, wait_ms: int) -> Any:
    """What one broker has of a partition."""
    wanted = FetchPartition(partition=part.key[1], fetch_offset=part.offset, partition_max_bytes=fetch_bytes)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=fetch_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=part.key[0], partitions=[wanted])],
    )

    def ask() -> Any:
        if not cluster.brokers:
            cluster.refresh()
        return cluster.node(node).call(request, FetchResponse)

    return cluster.retry(ask).responses[0].partitions[0]


def headers(records: memoryview) -> Iterator[tuple[int, int, int]]:
    """Base offset, next offset and checksum of each whole batch."""
    at = 0
    while at + HEADER_BYTES <= len(records):
        base = int.from_bytes(records[at : at + OFFSET_BYTES], "big")
        size = int.from_bytes(records[at + OFFSET_BYTES : at + 12], "big") + 12
        if at + size > len(records):
            return
        delta = int.from_bytes(records[at + LAST_DELTA_AT : at + LAST_DELTA_AT + 4], "big")
        yield base, base + delta + 1, int.from_bytes(records[at + CRC_AT : at + CRC_AT + 4], "big")
        at += size
