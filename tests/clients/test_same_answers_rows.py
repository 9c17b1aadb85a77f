"""Odd requests, a row each, with the answer of Apache Kafka 4.3.1, and ours where docs/differences.md gives a reason.

`BARNABAS_TEST_BOOTSTRAP=localhost:9092 BARNABAS_TEST_KAFKA=1 pytest ...` asks an Apache Kafka and expects its own answers.
"""

from __future__ import annotations

import os
import struct
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from barnabas.records.batch import Record, build_batch
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.schema import Message
from tests.differential.peers import Peer, answer_of
from tests.support.admin import create_topic

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
IS_KAFKA = "BARNABAS_TEST_KAFKA" in os.environ
RECORDS = [Record(0, 1_600_000_000_000, b"k", b"v"), Record(1, 1_600_000_000_000, b"k", b"w")]


class Row(NamedTuple):
    """ours: where it is not the same."""

    name: str
    make: Callable[[str], Message]
    version: int
    kafka: Any
    ours: Any = None


def configs(kind: int, name: str | None, option: str, operation: int = 0, value: str = "1000") -> Any:
    change = AlterableConfig(name=option, config_operation=operation, value=value)
    return lambda topic: IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind, resource_name=topic if name is None else name, configs=[change]
            )
        ],
        validate_only=True,
    )


def created(**fields: Any) -> Any:
    filled = {"num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": [], **fields}
    return lambda topic: CreateTopicsRequest(
        topics=[CreatableTopic(name=f"{topic}-new", **filled)], timeout_ms=10_000
    )


def listed(timestamp: int, isolation: int = 0) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return lambda topic: ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )


def fetched(fetch_offset: int = 0, last_fetched_epoch: int = -1, **fields: Any) -> Any:
    asked = FetchPartition(
        partition=0,
        fetch_offset=fetch_offset,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=1 << 20,
    )
    return lambda topic: FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[asked])], **fields
    )


def produced(change: Callable[[bytearray], Any] = lambda batch: None, **options: Any) -> Any:
    batch = bytearray(build_batch(options.pop("records", RECORDS), **options))
    changed = change(batch)
    records = bytes(batch if changed is None else changed)
    data = [PartitionProduceData(index=0, records=records)]
    return lambda topic: ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )


def committed(*partitions: list[int]) -> Any:
    """The offsets that nobody has committed, of the same topic as often as there are lists of partitions."""

    def make(topic: str) -> OffsetFetchRequest:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=asked) for asked in partitions]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="nobody", topics=topics)])

    return make


def committed_before_groups(*partitions: list[int]) -> Any:
    """The same in versions for one group."""
    return lambda topic: OffsetFetchRequest(
        group_id="nobody",
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=asked) for asked in partitions],
    )


def with_base_offset(offset: int) -> Callable[[bytearray], None]:
    return lambda batch: struct.pack_into(">q", batch, 0, offset)


def with_magic_1(batch: bytearray) -> bytes:
    """A message of the format before 0.11."""
    body = struct.pack(">bbqi1si1s", 1, 0, 1_600_000_000_000, 1, b"k", 1, b"v")
    import zlib

    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def future() -> list[Record]:
    now_ms = int(time.time() * 1000)
    return [Record(0, now_ms, b"k", b"v"), Record(1, now_ms + 10 * 86_400_000, b"k", b"w")]


ROWS = [
    Row("options of a topic without a name", configs(TOPIC, "", "retention.ms"), 1, [42]),
    Row(
        "an operation on options that does not exist", configs(TOPIC, None, "retention.ms", 9), 1, [-1], [42]
    ),
    Row("options of client metrics without a name", configs(CLIENT_METRICS, "", "interval.ms"), 1, [42]),
    Row("an unknown option of client metrics", configs(CLIENT_METRICS, "m", "nonsense"), 1, [42]),
    Row("an unknown option of all brokers", configs(BROKER, "", "nonsense"), 1, [0]),
    Row("no cleaner threads", configs(BROKER, "", "log.cleaner.threads", value="0"), 1, [42]),
    Row(
        "a partition assigned twice",
        created(assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] * 2),
        7,
        [39],
    ),
    Row(
        "an option that Kafka 4 has no more",
        created(
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="message.downconversion.enable", value="false")],
        ),
        7,
        [40],
        [0],
    ),
    Row(
        "the coordinator of a share partition that is none",
        lambda topic: FindCoordinatorRequest(key_type=2, coordinator_keys=["group"]),
        4,
        [42],
    ),
    Row("offsets of a time that means nothing", listed(-6), 11, [(0, -1)]),
    Row(
        "offsets for an isolation level that does not exist", listed(-1, isolation=9), 8, [(-1, -1)], [(0, 2)]
    ),
    Row("a fetch beyond the end of its epoch", fetched(9, 0), 12, [(0, 2, 0, (0, 2))]),
    Row("a fetch below the log's start, of a known epoch", fetched(-1, 0), 12, [(1, -1, -1)]),
    Row("a fetch that has seen a later epoch", fetched(last_fetched_epoch=5), 12, [(1, -1, -1)]),
    Row("a fetch of a replica that is none", fetched(replica_id=1), 11, [(6, -1, -1)]),
    Row("a fetch of a broker that does not exist", fetched(replica_id=55), 11, [(6, -1, -1)]),
    Row("a fetch out of range", fetched(fetch_offset=99), 12, [(1, -1, -1)]),
    Row(
        "a fetch at an isolation level that does not exist",
        fetched(isolation_level=7),
        12,
        [(-1, -1, -1)],
        [(0, 2, 0)],
    ),
    Row("a fetch of less than nothing", fetched(max_bytes=-1), 12, [(-1, -1, -1)], [(0, 2, 0)]),
    Row("a batch with another base offset", produced(with_base_offset(77)), 9, [(87, -1)]),
    Row("a batch with bytes behind it", produced(lambda batch: bytes(batch) + b"\0" * 7), 9, [(0, 0)]),
    Row("a batch that is cut off", produced(lambda batch: bytes(batch[:-5])), 9, [(87, -1)]),
    Row("a batch of magic 1", produced(with_magic_1), 9, [(87, -1)]),
    Row(
        "a batch with the head of another",
        produced(lambda batch: bytes(batch + batch[:-3])),
        9,
        [(0, 0)],
        [(87, -1)],
    ),
    Row(
        "a batch with bytes behind it that are none",
        produced(lambda batch: bytes(batch) + b"\xff" * 20),
        9,
        [(2, -1)],
    ),
    Row("what is committed, a topic twice", committed([0], [0, 0]), 8, [[0], [0, 0]]),
    Row(
        "what is committed, a topic thrice, once without partitions",
        committed([1], [], [0]),
        9,
        [[1], [], [0]],
    ),
    Row("what one group has committed, a topic twice", committed_before_groups([0], [1]), 7, [[0], [1]]),
    Row("two batches", produced(lambda batch: bytes(batch * 2)), 9, [(87, -1)]),
    Row("a batch of a magic to come", produced(lambda batch: batch.__setitem__(16, 3)), 9, [(2, -1)]),
    Row(
        "a known producer without an epoch",
        produced(producer_id=5, producer_epoch=-1, base_sequence=2),
        9,
        [(47, -1)],
    ),
    Row(
        "a new producer without an epoch",
        produced(producer_id=6, producer_epoch=-1, base_sequence=0),
        9,
        [(0, 2)],
        [(87, -1)],
    ),
    Row("a record far in the future", lambda topic: produced(records=future())(topic), 9, [(32, -1, 1)]),
]


def seen(answer: Any) -> Any:
    """What of an answer the rows name."""
    if isinstance(answer, str):
        return answer
    for field in ("coordinators", "results"):
        if hasattr(answer, field):
            return [row.error_code for row in getattr(answer, field)]
    if isinstance(answer, OffsetFetchResponse):
        topics = answer.topics or [topic for group in answer.groups for topic in group.topics]
        return [[row.partition_index for row in topic.partitions] for topic in topics]
    if hasattr(answer, "topics"):
        rows = [row for topic in answer.topics for row in getattr(topic, "partitions", [topic])]
        return [(row.error_code, row.offset) if hasattr(row, "offset") else row.error_code for row in rows]
    facts_seen: list[Any] = []
    for response in answer.responses:
        if hasattr(response, "partition_responses"):
            for row in response.partition_responses:
                facts = (row.error_code, row.base_offset)
                facts_seen.append((*facts, len(row.record_errors)) if row.record_errors else facts)
        elif hasattr(response, "partitions"):
            for row in response.partitions:
                end = row.diverging_epoch
                ended = () if end is None else ((end.epoch, end.end_offset),)
                facts_seen.append((row.error_code, row.high_watermark, row.log_start_offset, *ended))
        else:
            facts_seen.append(response.error_code)
    return facts_seen


@pytest.fixture(scope="module")
def peer(bootstrap: str) -> Peer:
    return Peer(bootstrap)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row(peer: Peer, row: Row) -> None:
    topic = f"row-{uuid.uuid4().hex[:8]}"
    create_topic(peer.bootstrap, topic)
    if "fetch" in row.name or "offsets" in row.name:
        answer_of(peer, produced()(topic), 9)
    if "committed" in row.name:
        # Kafka makes its offsets topic when a coordinator is looked for.
        answer_of(peer, FindCoordinatorRequest(key_type=0, coordinator_keys=["nobody"]), 4)
    if "producer" in row.name:
        answer_of(peer, produced(producer_id=5, producer_epoch=0, base_sequence=0)(topic), 9)
    want = row.kafka if IS_KAFKA or row.ours is None else row.ours
    assert seen(answer_of(peer, row.make(topic), row.version)) == want
