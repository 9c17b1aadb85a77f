"""`python -m bench.groups`: groups and large clusters, Barnabas and Apache Kafka side by side. See README.md."""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, Final

from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from bench.brokers import ALL, Broker, Unavailable
from bench.group_members import KINDS, VERSIONS, Link, Member, Table, until_stable
from bench.group_processes import ClientProcesses
from bench.groups_report import Results, show, write
from bench.requests import BenchError

RESULTS: Final = Path(__file__).parent / "results"
PARTITIONS: Final = 1_000
STABLE_TIMEOUT_S: Final = 120
TOPICS_PER_REQUEST: Final = 50
PARTITIONS_PER_TOPIC: Final = 10


async def create_topics(link: Link, names: list[str], partitions: int) -> list[uuid.UUID]:
    rows = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    answer: CreateTopicsResponse = await link.ask(CreateTopicsRequest(topics=rows), CreateTopicsResponse)
    for row in answer.topics:
        if row.error_code:
            raise BenchError(f"cannot create {row.name!r}: error {row.error_code} {row.error_message}")
    return [row.topic_id for row in answer.topics]


async def leaders(link: Link) -> int:
    """Partitions with a leader, of all topics."""
    answer: MetadataResponse = await link.ask(MetadataRequest(topics=None), MetadataResponse)
    return sum(partition.leader_id >= 0 for topic in answer.topics for partition in topic.partitions)


# --- time to stable


async def light_members(broker: Broker, results: Results, protocol: str, count: int) -> None:
    """All start; one more joins; one leaves."""
    link = await Link.to(broker.port)
    topic = f"t-{protocol}-{count}"
    (topic_id,) = await create_topics(link, [topic], PARTITIONS)
    await link.find_coordinator(topic)
    link.close()
    table = Table(PARTITIONS)

    def member() -> Member:
        member_made = KINDS[protocol](broker.port, topic, topic, topic_id, table)
        member_made.start()
        return member_made

    async def timed(what: str) -> None:
        seconds = await until_stable(table, members, STABLE_TIMEOUT_S)
        row = f"{protocol}, {count} members: {what}"
        results.add(row, "s", broker.name, seconds, cpu_s=broker.cpu_seconds() - cpu_s)

    cpu_s = broker.cpu_seconds()
    members = [member() for _ in range(count)]
    try:
        await timed("all start")
        cpu_s = broker.cpu_seconds()
        members.append(member())
        await timed("one more joins")
        cpu_s = broker.cpu_seconds()
        await members.pop(0).leave()
        await timed("one leaves")
    finally:
        for item in members:
            await item.stop()


async def real_members(broker: Broker, results: Results, protocol: str, count: int) -> None:
    link = await Link.to(broker.port)
    topic = f"r-{protocol}-{count}"
    await create_topics(link, [topic], PARTITIONS)
    await link.find_coordinator(topic)
    link.close()
    cpu_s = broker.cpu_seconds()
    clients = ClientProcesses(broker.port, topic, protocol, count)
    try:
        seconds = await asyncio.to_thread(clients.until_stable, PARTITIONS, STABLE_TIMEOUT_S)
        row = f"{protocol}, {count} librdkafka members: all start"
        results.add(row, "s", broker.name, seconds, cpu_s=broker.cpu_seconds() - cpu_s)
    finally:
        clients.stop()


# --- commits


def commit_frame(group: str, topic: str, partitions: int) -> bytes:
    rows = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=5, committed_metadata="")
        for number in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)]
    )
    return encode_request(request, VERSIONS[request.API_KEY], 1, "bench")


async def first_commit(link: Link, frame: bytes) -> bytes:
    """Commits until the broker knows topic and group, which Kafka may take a moment for -> the good answer."""
    deadline = time.monotonic() + 30
    while True:
        body = await link.ask_raw(frame)
        try:
            check_commit(body)
        except BenchError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
            continue
        return body


def check_commit(body: bytes) -> None:
    _, position = decode_response_header(body, OffsetCommitResponse.API_KEY, VERSIONS[8])
    answer = OffsetCommitResponse.decode(body, VERSIONS[8], position)
    errors = {partition.error_code for topic in answer.topics for partition in topic.partitions}
    if errors != {0}:
        raise BenchError(f"a commit was answered with errors {sorted(errors)}")


async def commits(broker: Broker, results: Results, connections: int, seconds: float) -> None:
    """Each connection commits one partition for a group of its own, one request after the other."""
    first = await Link.to(broker.port)
    topic = f"c-{connections}"
    await create_topics(first, [topic], 1)
    await first.find_coordinator("commit-0")
    first.close()

    links = [await Link.to(broker.port) for _ in range(connections)]
    frames = [commit_frame(f"commit-{number}", topic, 1) for number in range(connections)]
    good = await asyncio.gather(*map(first_commit, links, frames))

    async def commit(number: int, until_s: float) -> int:
        count = 0
        while time.monotonic() < until_s:
            if await links[number].ask_raw(frames[number]) != good[number]:
                raise BenchError("a commit was answered differently from the one before")
            count += 1
        return count

    for length_s in (seconds / 3, seconds):  # the first one is for warming up
        cpu_s, began = broker.cpu_seconds(), time.monotonic()
        counts = await asyncio.gather(*(commit(n, began + length_s) for n in range(connections)))
        rate = sum(counts) / (time.monotonic() - began)
    for link in links:
        link.close()
    row = f"commits, {connections} connection{'s' * (connections > 1)}"
    results.add(row, "commits/s", broker.name, rate, cpu_s=broker.cpu_seconds() - cpu_s)


# --- a large cluster on one broker


async def until_all_led(broker: Broker, partitions: int, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            link = await Link.to(broker.port)
            led = await leaders(link)
            link.close()
            if led >= partitions:
                return
        except (OSError, asyncio.IncompleteReadError):
            led = 0
        if time.monotonic() > deadline:
            raise BenchError(f"{led} of {partitions} partitions have a leader after {timeout_s:.0f} s")
        await asyncio.sleep(0.02)


async def metadata_cost(broker: Broker, results: Results, topic: str, full: int, one: int) -> None:
    link = await Link.to(broker.port)
    every, single = MetadataRequest(topics=None), MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    for text, unit, scale, request, count in (
        ("metadata of everything", "ms", 1e3, every, full),
        ("metadata of one topic", "us", 1e6, single, one),
    ):
        frame = encode_request(request, VERSIONS[3], 1, "bench")
        await link.ask_raw(frame)
        times = []
        for _ in range(count):
            began = time.perf_counter()
            await link.ask_raw(frame)
            times.append(time.perf_counter() - began)
        results.add(text, unit, broker.name, statistics.median(times) * scale)
    link.close()


async def restarts(broker: Broker, results: Results, partitions: int) -> None:
    for text, kill in (("start-up after a clean stop", False), ("start-up after kill -9", True)):
        broker.restart(kill=kill)
        began = time.monotonic()
        await until_all_led(broker, partitions)
        seconds = broker.start_seconds + time.monotonic() - began
        results.add(text, "s", broker.name, seconds, cpu_s=broker.cpu_seconds())


async def large(broker: Broker, results: Results, partitions: int, groups: int) -> None:
    link = await Link.to(broker.port)
    names = [f"large-{number:05}" for number in range(partitions // PARTITIONS_PER_TOPIC)]
    before_mb, cpu_s, began = broker.rss_mb(), broker.cpu_seconds(), time.monotonic()
    for begin in range(0, len(names), TOPICS_PER_REQUEST):
        await create_topics(link, names[begin : begin + TOPICS_PER_REQUEST], PARTITIONS_PER_TOPIC)
    await until_all_led(broker, partitions)
    results.add("creating the topics", "s", broker.name, time.monotonic() - began,
                cpu_s=broker.cpu_seconds() - cpu_s)  # fmt: skip
    await link.find_coordinator("group-0")
    began = time.monotonic()
    for number in range(groups):
        frame = commit_frame(f"group-{number}", names[number % len(names)], PARTITIONS_PER_TOPIC)
        await first_commit(link, frame)
    results.add("first commits of the groups", "s", broker.name, time.monotonic() - began)
    results.add("memory before", "MB", broker.name, before_mb)
    results.add("memory with all of it", "MB", broker.name, broker.rss_mb())
    await metadata_cost(broker, results, names[1], 15, 1_000)
    link.close()
    await restarts(broker, results, partitions)
    results.add("memory after the restart", "MB", broker.name, broker.rss_mb())


# --- the whole


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.groups", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="2,000 partitions, fewer members: under 2 minutes"
    )
    parser.add_argument("--only", choices=("stable", "commits", "large"), help="one part alone")
    parser.add_argument("--brokers", default="barnabas,kafka", metavar="NAMES")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="where groups.json, groups.md, groups.png go"
    )
    parser.add_argument(
        "--dir", type=Path, help="where the brokers keep their data (default: a temporary folder)"
    )
    return parser.parse_args()


async def measure(broker: Broker, results: Results, options: argparse.Namespace) -> None:
    """Everything, on one broker; a part that fails is noted and the others go on."""
    quick = options.quick
    counts = (10, 500) if quick else (10, 100, 500)
    parts: dict[str, list[tuple[Any, ...]]] = {"stable": [], "commits": [], "large": []}
    for protocol in KINDS:
        parts["stable"] += [(light_members, protocol, count) for count in counts]
        parts["stable"] += [(real_members, protocol, count) for count in ((10,) if quick else (10, 100))]
    parts["commits"] = [(commits, connections, 1.0 if quick else 3.0) for connections in (1, 50)]
    parts["large"] = [(large, results.partitions, results.groups)]
    for name, steps in parts.items():
        if options.only not in (None, name):
            continue
        broker.start()
        try:
            for step, *details in steps:
                try:
                    await step(broker, results, *details)
                except (BenchError, OSError, asyncio.IncompleteReadError) as error:
                    results.failures.append(f"{broker.name}: {step.__name__} {details}: {error}")
                    print(f"FAILED {results.failures[-1]}", flush=True)
        finally:
            broker.stop()


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the brokers are stopped then as well
    options = arguments()
    results = Results(partitions=2_000 if options.quick else 10_000, groups=200 if options.quick else 1_000)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as folder:
        for kind in ALL:
            if kind.name not in options.brokers.split(","):
                continue
            try:
                asyncio.run(measure(kind(Path(folder)), results, options))
            except Unavailable as why:
                results.skipped[kind.name] = str(why)
                print(f"skipped {kind.name}: {why}", flush=True)
    show(results)
    if options.only is None:
        write(results, options.out)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
