"""The versions that Kafka 4 dropped: bytes equal to aiokafka's, and written out by hand where it has none."""

from __future__ import annotations

import random
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from tests.support.wire_samples import sample

from barnabas.wire.messages import message_class
from barnabas.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

OLD = [
    ("ProduceRequest", "produce.ProduceRequest", (0, 1, 2, 3, 5, 8)),
    ("ProduceResponse", "produce.ProduceResponse", (0, 1, 2, 5, 8)),
    ("FetchRequest", "fetch.FetchRequest", (0, 1, 2, 3, 4, 7, 11)),
    ("FetchResponse", "fetch.FetchResponse", (0, 1, 2, 3, 4, 7, 11)),
    ("ListOffsetsRequest", "offset.OffsetRequest", (0, 1, 2)),
    ("ListOffsetsResponse", "offset.OffsetResponse", (0, 1, 2, 4)),
    ("OffsetCommitRequest", "commit.OffsetCommitRequest", (2, 3)),
    ("OffsetCommitResponse", "commit.OffsetCommitResponse", (2, 3)),
    ("OffsetFetchRequest", "commit.OffsetFetchRequest", (1, 2)),
    ("OffsetFetchResponse", "commit.OffsetFetchResponse", (1, 2)),
    ("CreateTopicsRequest", "admin.CreateTopicsRequest", (0, 1)),
    ("CreateTopicsResponse", "admin.CreateTopicsResponse", (0, 1)),
    ("DeleteTopicsRequest", "admin.DeleteTopicsRequest", (0,)),
    ("DeleteTopicsResponse", "admin.DeleteTopicsResponse", (0,)),
    ("DescribeAclsRequest", "admin.DescribeAclsRequest", (0, 1)),
    ("DescribeAclsResponse", "admin.DescribeAclsResponse", (0, 1)),
    ("CreateAclsRequest", "admin.CreateAclsRequest", (0, 1)),
    ("CreateAclsResponse", "admin.CreateAclsResponse", (0, 1)),
    ("DeleteAclsRequest", "admin.DeleteAclsRequest", (0, 1)),
    ("DeleteAclsResponse", "admin.DeleteAclsResponse", (0, 1)),
    ("DescribeConfigsRequest", "admin.DescribeConfigsRequest", (0, 1)),
    ("DescribeConfigsResponse", "admin.DescribeConfigsResponse", (0, 1)),
]


@pytest.mark.parametrize(("ours", "theirs", "versions"), OLD, ids=lambda value: str(value))
def test_bytes_equal_aiokafka(ours: str, theirs: str, versions: tuple[int, ...]) -> None:
    pytest.importorskip("aiokafka")
    cls = message_class(ours)
    module, name = theirs.split(".")
    loaded = import_module(f"aiokafka.protocol.{module}")
    for version in versions:
        other: Any = getattr(loaded, f"{name}_v{version}")
        for seed in range(5):
            message = sample(cls, version, random.Random(seed), seed)
            encoded = message.encode(version)
            stream = BytesIO(encoded)
            decoded = other.decode(stream)
            assert stream.read() == b"", f"version {version}: aiokafka read less"
            assert decoded.encode() == encoded, f"version {version}"


def test_list_offsets_0_has_a_list_of_offsets() -> None:
    partition = ListOffsetsPartitionResponse(partition_index=1, error_code=3, old_style_offsets=[9, 4])
    response = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])
    assert response.encode(0) == bytes.fromhex(
        "00000001 0001 74 00000001 00000001 0003 00000002 0000000000000009 0000000000000004"
    )


def test_offset_commit_0_and_1() -> None:
    partition = OffsetCommitRequestPartition(partition_index=2, committed_offset=5, committed_metadata="m")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id="g", member_id="ignored", topics=[topic])
    assert request.encode(0) == bytes.fromhex(
        "0001 67 00000001 0001 74 00000001 00000002 0000000000000005 0001 6d"
    )
    partition.commit_timestamp = 7
    request.generation_id_or_member_epoch = 3
    request.member_id = "a"
    assert request.encode(1) == bytes.fromhex(
        "0001 67 00000003 0001 61 00000001 0001 74 00000001 00000002 0000000000000005"
        " 0000000000000007 0001 6d"
    )


def test_offset_for_leader_epoch_0_has_no_epoch() -> None:
    end = EpochEndOffset(error_code=0, partition=1, leader_epoch=-1, end_offset=8)
    response = OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])])
    head = "00000001 0001 74 00000001 0000 00000001"
    assert response.encode(0) == bytes.fromhex(f"{head} 0000000000000008")
    assert response.encode(1) == bytes.fromhex(f"{head} ffffffff 0000000000000008")


def test_write_txn_markers_0() -> None:
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[1])
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=2, transaction_result=True, topics=[topic], coordinator_epoch=3
    )
    assert WriteTxnMarkersRequest(markers=[marker]).encode(0) == bytes.fromhex(
        "00000001 0000000000000001 0002 01 00000001 0001 74 00000001 00000001 00000003"
    )


def test_log_dirs_0_and_delegation_token_0() -> None:
    result = DescribeLogDirsResult(error_code=0, log_dir="/d", topics=[])
    assert DescribeLogDirsResponse(throttle_time_ms=1, results=[result]).encode(0) == bytes.fromhex(
        "00000001 00000001 0000 0002 2f64 00000000"
    )
    renewer = CreatableRenewers(principal_type="U", principal_name="n")
    request = CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1)
    assert request.encode(0) == bytes.fromhex("00000001 0001 55 0001 6e ffffffffffffffff")
