"""The heaviest legal request of each API, as data: rows of `bench.turns`, in the order in which they are sent.

A row may use what rows above it have made: `--only` runs those too that it names in `needs`.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import crc32c

from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.wire.messages.describe_producers import DescribeProducersRequest
from barnabas.wire.messages.describe_producers import TopicRequest as ProducersTopic
from barnabas.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from barnabas.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.schema import Request
from bench.requests import filled_batch

PARTITIONS: Final = 100_000
WIDTH: Final = 10_000
"""Partitions of one topic; `PARTITIONS` are made of as many topics as that needs."""
OFFSETS: Final = 300_000
NAMES: Final = 10_000
PRODUCED: Final = 4_000
PRODUCED_BYTES: Final = 20_000
ZEROS: Final = 250_000_000
"""What one compressed batch unpacks to."""
TOPIC: Final = 2
LITERAL, ANY, READ, ALLOW = 3, 1, 3, 3
GROUP: Final = "wide-group"
PRODUCER: Final = "wide-transaction"


class Stage(Protocol):
    """What a request may depend on: how large everything is, and the producer of the transaction."""

    producer: tuple[int, int]

    def of(self, count: int) -> int:
        """So many, at the scale of this run; at least one."""


@dataclass(frozen=True)
class Heavy:
    """One row. make: the request. version: the highest, or this one. needs: rows that must have run before."""

    name: str
    make: Callable[[Stage], Request]
    needs: tuple[str, ...] = ()
    version: int | None = None
    follows: str = field(default="", kw_only=True)
    """Work that goes on after the answer: measured for a while longer."""


def topics(stage: Stage, count: int) -> dict[str, int]:
    """The wide topics whose partitions are `count` together, each with its number of partitions."""
    left, topics_made = stage.of(count), {}
    for number in range(stage.of(PARTITIONS) // stage.of(WIDTH)):
        taken = min(left, stage.of(WIDTH))
        if taken:
            topics_made[f"wide-{number}"] = taken
        left -= taken
    return topics_made


def names(stage: Stage) -> list[str]:
    return [f"name-{number}" for number in range(stage.of(NAMES))]


def list_offsets(stage: Stage, timestamp: int, count: int = PARTITIONS) -> Request:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=i, timestamp=timestamp) for i in range(width)
                ],
            )
            for name, width in topics(stage, count).items()
        ],
    )


def commit(stage: Stage, group: str, count: int) -> Request:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=i, committed_offset=0, committed_metadata="")
                    for i in range(width)
                ],
            )
            for name, width in topics(stage, count).items()
        ],
    )


def fetch_offsets(stage: Stage, count: int | None) -> Request:
    """Of so many partitions, those included that nobody has committed; None: of all."""
    if count is None:
        return OffsetFetchRequest(group_id=GROUP, topics=None)
    return OffsetFetchRequest(
        group_id=GROUP,
        topics=[
            OffsetFetchRequestTopic(name=f"wide-{number}", partition_indexes=list(range(stage.of(WIDTH))))
            for number in range(stage.of(count) // stage.of(WIDTH))
        ],
    )


def produce(stage: Stage) -> Request:
    batch, _ = filled_batch(1000, PRODUCED_BYTES)
    return ProduceRequest(
        acks=1,
        timeout_ms=60_000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index=i, records=batch) for i in range(width)],
            )
            for name, width in topics(stage, PRODUCED).items()
        ],
    )


def zeros_batch(size_bytes: int) -> bytes:
    """One batch with one record of zeros, compressed by gzip."""
    length = varint_of(size_bytes)
    body = b"\x00\x00\x00\x01" + length + bytes(size_bytes) + b"\x00"
    packed = gzip.compress(varint_of(len(body)) + body, 6)
    tail = struct.pack(">hiqqqhii", 1, 0, 1, 1, -1, -1, -1, 1) + packed
    checked = struct.pack(">ibI", -1, 2, crc32c.crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(checked)) + checked


def varint_of(value: int) -> bytes:
    """Zig-zag varint of a length."""
    raw, out = value << 1, bytearray()
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def packed(stage: Stage) -> Request:
    """A compressed batch in a topic that wants another codec: it is unpacked and packed again."""
    data = PartitionProduceData(index=0, records=zeros_batch(stage.of(ZEROS)))
    return ProduceRequest(
        acks=1, timeout_ms=60_000, topic_data=[TopicProduceData(name="packed", partition_data=[data])]
    )


def delete_records(stage: Stage) -> Request:
    return DeleteRecordsRequest(
        timeout_ms=60_000,
        topics=[
            DeleteRecordsTopic(
                name=name,
                partitions=[DeleteRecordsPartition(partition_index=i, offset=-1) for i in range(width)],
            )
            for name, width in topics(stage, NAMES).items()
        ],
    )


def create_topics(count: dict[str, int], **options: str) -> Request:
    return CreateTopicsRequest(
        timeout_ms=600_000,
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=width,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in options.items()],
            )
            for name, width in count.items()
        ],
    )


def delete_topics(of: list[str]) -> Request:
    return DeleteTopicsRequest(timeout_ms=600_000, topics=[DeleteTopicState(name=name) for name in of])


def alter_configs(stage: Stage) -> Request:
    change = AlterableConfig(name="retention.ms", config_operation=0, value="86400000")
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[change])
            for name in names(stage)
        ]
    )


def describe_configs(stage: Stage) -> Request:
    return DescribeConfigsRequest(
        include_synonyms=True,
        include_documentation=True,
        resources=[
            DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
            for name in names(stage)
        ],
    )


def create_acls(stage: Stage) -> Request:
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=TOPIC,
                resource_name=name,
                principal=f"User:{name}",
                host="*",
                operation=READ,
                permission_type=ALLOW,
            )
            for name in names(stage)
        ]
    )


def alter_quotas(stage: Stage) -> Request:
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type="user", entity_name=name)],
                ops=[OpData(key="consumer_byte_rate", value=1e9, remove=False)],
            )
            for name in names(stage)
        ]
    )


def add_to_transaction(stage: Stage) -> Request:
    producer_id, epoch = stage.producer
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=PRODUCER,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=list(range(width)))
            for name, width in topics(stage, NAMES).items()
        ],
    )


def commit_in_transaction(stage: Stage) -> Request:
    producer_id, epoch = stage.producer
    return TxnOffsetCommitRequest(
        transactional_id=PRODUCER,
        group_id="transactional-group",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=i, committed_offset=0, committed_metadata=""
                    )
                    for i in range(width)
                ],
            )
            for name, width in topics(stage, NAMES).items()
        ],
    )


def end_transaction(stage: Stage) -> Request:
    producer_id, epoch = stage.producer
    return EndTxnRequest(
        transactional_id=PRODUCER, producer_id=producer_id, producer_epoch=epoch, committed=True
    )


def fetch(stage: Stage) -> Request:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=50 << 20,
        session_id=0,
        session_epoch=0,
        topics=[
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1 << 20)
                    for i in range(width)
                ],
            )
            for name, width in topics(stage, PARTITIONS).items()
        ],
    )


def epochs(stage: Stage) -> Request:
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic=name,
                partitions=[OffsetForLeaderPartition(partition=i, leader_epoch=0) for i in range(width)],
            )
            for name, width in topics(stage, PARTITIONS).items()
        ],
    )


def share_offsets(stage: Stage) -> Request:
    return AlterShareGroupOffsetsRequest(
        group_id="share-group",
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=i, start_offset=0)
                    for i in range(width)
                ],
            )
            for name, width in topics(stage, NAMES).items()
        ],
    )


def forget(stage: Stage) -> Request:
    return OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in range(width)]
            )
            for name, width in topics(stage, PARTITIONS).items()
        ],
    )


def of_all_acls(message: Any) -> Any:
    return message(resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
                   principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY)  # fmt: skip


MADE: Final = "CreateTopics: 100,000 partitions"
CREATED: Final = "CreateTopics: 10,000 topics"
COMMITTED: Final = "OffsetCommit: 100,000 partitions"
ADDED: Final = "AddPartitionsToTxn: 10,000 partitions"
ACLS: Final = "CreateAcls: 10,000"
GONE: Final = "removing"

ROWS: Final = (
    Heavy(MADE, lambda stage: create_topics(topics(stage, PARTITIONS))),
    Heavy(CREATED, lambda stage: create_topics(dict.fromkeys(names(stage), 1))),
    Heavy("Metadata: everything", lambda _: MetadataRequest(topics=None), (MADE, CREATED)),
    Heavy(
        "DescribeTopicPartitions: everything",
        lambda stage: DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in (*topics(stage, PARTITIONS), *names(stage))],
            response_partition_limit=1 << 30,
        ),
        (MADE, CREATED),
    ),
    Heavy("ListOffsets: latest of 100,000", lambda stage: list_offsets(stage, -1), (MADE,)),
    Heavy("ListOffsets: greatest time of 100,000", lambda stage: list_offsets(stage, -3), (MADE,)),
    Heavy("ListOffsets: by time of 100,000", lambda stage: list_offsets(stage, 1), (MADE,)),
    Heavy("OffsetForLeaderEpoch: 100,000", epochs, (MADE,)),
    Heavy("OffsetCommit: 10,000 partitions", lambda stage: commit(stage, "group", NAMES), (MADE,)),
    Heavy(COMMITTED, lambda stage: commit(stage, GROUP, PARTITIONS), (MADE,)),
    Heavy("OffsetFetch: all", lambda stage: fetch_offsets(stage, None), (MADE, COMMITTED), version=7),
    Heavy("OffsetFetch: 300,000 by name", lambda stage: fetch_offsets(stage, OFFSETS), (MADE, COMMITTED), version=7),
    Heavy("OffsetDelete: 100,000", forget, (MADE, COMMITTED)),
    Heavy("Produce: 80 MB to 4,000 partitions", produce, (MADE,), version=12),
    Heavy("Fetch: 100,000 partitions", fetch, (MADE,), version=12),
    Heavy("ListOffsets: greatest time of 100,000, some with records", lambda stage: list_offsets(stage, -3), (MADE,)),
    Heavy("DeleteRecords: 10,000 partitions", delete_records, (MADE,)),
    Heavy("a topic with gzip", lambda _: create_topics({"packed": 1}, compression_type="lz4")),
    Heavy("Produce: 250 MB of zeros, packed", packed, ("a topic with gzip",), version=12),
    Heavy("DescribeConfigs: 10,000 topics", describe_configs, (CREATED,)),
    Heavy("IncrementalAlterConfigs: 10,000 topics", alter_configs, (CREATED,)),
    Heavy("DescribeGroups: 10,000", lambda stage: DescribeGroupsRequest(groups=names(stage))),
    Heavy("FindCoordinator: 10,000", lambda stage: FindCoordinatorRequest(key_type=0, coordinator_keys=names(stage))),
    Heavy("ListGroups", lambda _: ListGroupsRequest()),
    Heavy("DeleteGroups: 10,000", lambda stage: DeleteGroupsRequest(groups_names=names(stage))),
    Heavy("AlterShareGroupOffsets: 10,000", share_offsets, (MADE,)),
    Heavy(
        "DescribeShareGroupOffsets: all",
        lambda _: DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id="share-group", topics=None)]
        ),
        (MADE, "AlterShareGroupOffsets: 10,000"),
    ),
    Heavy(ADDED, add_to_transaction, (MADE,), version=3),
    Heavy("TxnOffsetCommit: 10,000 partitions", commit_in_transaction, (MADE,), version=3),
    Heavy("EndTxn: 10,000 partitions", end_transaction, (MADE, ADDED), version=3, follows="markers"),
    Heavy(
        "DescribeProducers: 100,000",
        lambda stage: DescribeProducersRequest(
            topics=[
                ProducersTopic(name=name, partition_indexes=list(range(width)))
                for name, width in topics(stage, PARTITIONS).items()
            ]
        ),
        (MADE,),
    ),
    Heavy("DescribeLogDirs: everything", lambda _: DescribeLogDirsRequest(topics=None), (MADE,)),
    Heavy("ElectLeaders: everything", lambda _: ElectLeadersRequest(topic_partitions=None), (MADE,)),
    Heavy(ACLS, create_acls),
    Heavy("DescribeAcls: all", lambda _: of_all_acls(DescribeAclsRequest), (ACLS,)),
    Heavy("DeleteAcls: all", lambda _: DeleteAclsRequest(filters=[of_all_acls(DeleteAclsFilter)]), (ACLS,)),
    Heavy("AlterClientQuotas: 10,000", alter_quotas),
    Heavy(
        "CreatePartitions: 10,000 topics",
        lambda stage: CreatePartitionsRequest(
            timeout_ms=600_000,
            validate_only=False,
            topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names(stage)],
        ),
        (CREATED,),
    ),
    Heavy("DeleteTopics: 10,000", lambda stage: delete_topics(names(stage)), (CREATED,), follows=GONE),
    Heavy(
        "DeleteTopics: 100,000 partitions",
        lambda stage: delete_topics(list(topics(stage, PARTITIONS))),
        (MADE,),
        follows=GONE,
    ),
)  # fmt: skip
