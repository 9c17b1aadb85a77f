"""The rules of the schema language: nulls, defaults, ignorable fields, tags, limits, splicing."""

from __future__ import annotations

import tracemalloc
from uuid import UUID

import pytest
from tests.support.wire_samples import all_data, all_messages

from barnabas.wire.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from barnabas.wire.messages.describe_topic_partitions import CursorResponse, DescribeTopicPartitionsResponse
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.wire.primitives import UnsupportedVersion, WireError, encode_uvarint
from barnabas.wire.schema import FIXED, Field, Request, Struct, array, in_range, int32, string


class Small(Request, key=12, versions=(0, 3), flexible=2):
    name: str = string("1+")
    note: str | None = string("1+", null="1+", default=None, ignorable=True)
    ids: list[int] = array(int32)
    extra: int = int32("2+", default=7, ignorable=True, tag=3)


def produce(records: object) -> ProduceRequest:
    partition = PartitionProduceData(index=1, records=records)
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def records_of(request: ProduceRequest) -> object:
    return request.topic_data[0].partition_data[0].records


def test_range_notation() -> None:
    assert in_range("3+", 3)
    assert not in_range("3+", 2)
    assert in_range("0-12", 12)
    assert not in_range("0-12", 13)
    assert in_range("5", 5)
    assert not in_range("5", 6)
    assert not in_range("", 0)


def test_constructor_defaults_and_equality() -> None:
    first, second = Small(), Small()
    assert (first.name, first.note, first.ids, first.extra) == ("", None, [], 7)
    assert first == second
    assert first.ids is not second.ids
    assert first.replace(extra=8) != first
    assert repr(first) == "Small(name='', note=None, ids=[], extra=7)"
    with pytest.raises(TypeError):
        Small(unknown=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        first.unknown = 1  # type: ignore[attr-defined]


def test_value_in_a_version_without_the_field() -> None:
    with pytest.raises(WireError, match=r"Small\.name is not in version 0"):
        Small(name="x").encode(0)
    # An ignorable field is dropped silently, as Kafka does.
    assert Small.decode(Small(note="x", extra=9).encode(0), 0) == Small()


def test_unsupported_versions() -> None:
    with pytest.raises(UnsupportedVersion, match="versions 0 to 3, not 4"):
        Small().encode(4)
    with pytest.raises(UnsupportedVersion):
        Small.decode(b"", -1)


def test_null_where_it_is_not_allowed() -> None:
    with pytest.raises(WireError, match="cannot be encoded"):
        Small(name=None).encode(1)  # type: ignore[arg-type]
    with pytest.raises(WireError, match=r"Small\.name is null"):
        Small.decode(bytes.fromhex("ffff ffff 00000000"), 1)
    with pytest.raises(WireError, match=r"Small\.ids is null"):
        Small.decode(bytes.fromhex("01 00 00 00"), 2)
    with pytest.raises(WireError, match=r"Small\.ids"):
        Small.decode(bytes.fromhex("ffffffff"), 0)


def test_metadata_null_and_empty_topics_differ() -> None:
    assert MetadataRequest.decode(MetadataRequest(topics=None).encode(1), 1).topics is None
    assert MetadataRequest.decode(MetadataRequest(topics=[]).encode(1), 1).topics == []
    with pytest.raises(WireError):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(WireError):
        MetadataRequest(topics=[MetadataRequestTopic(topic_id=UUID(int=1), name=None)]).encode(8)


def test_tagged_fields_are_sent_only_when_set() -> None:
    assert Small().encode(2) == bytes.fromhex("01 00 01 00")
    assert Small(extra=1).encode(2) == bytes.fromhex("01 00 01 01 03 04 00000001")
    assert Small.decode(bytes.fromhex("01 00 01 01 03 04 00000001"), 2).extra == 1


def test_unknown_tags_are_skipped() -> None:
    known = "03 04 00000001"
    data = bytes.fromhex(f"01 00 01 03 00 02 aabb {known} 8001 00")
    message, end = Small.decode_at(data + b"rest", 2)
    assert message == Small(extra=1)
    assert end == len(data)
    plain = HeartbeatRequest(group_id="g").encode(4)
    assert HeartbeatRequest.decode(plain[:-1] + bytes.fromhex("01 09 03 010203"), 4).group_id == "g"


@pytest.mark.parametrize(
    "section",
    ["01", "01 03", "01 03 05 00000001 00", "01 03 03 000000", "01 03 04 0000", "01 09 7f", "ffffffff0f"],
)
def test_bad_tagged_sections(section: str) -> None:
    with pytest.raises(WireError):
        Small.decode(bytes.fromhex("01 00 01" + section), 2)


def test_tagged_struct_is_none_when_absent() -> None:
    partition = PartitionProduceResponse(index=0)
    response = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    plain = response.encode(10)
    assert ProduceResponse.decode(plain, 10).responses[0].partition_responses[0].current_leader is None
    partition.current_leader = LeaderIdAndEpoch()
    assert response.encode(10) == plain
    partition.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
    assert ProduceResponse.decode(response.encode(10), 10) == response


def test_nullable_struct_in_place() -> None:
    page = DescribeTopicPartitionsResponse(next_cursor=None)
    assert DescribeTopicPartitionsResponse.decode(page.encode(0), 0) == page
    page.next_cursor = CursorResponse(topic_name="t", partition_index=4)
    assert DescribeTopicPartitionsResponse.decode(page.encode(0), 0) == page
    # A present but empty assignment is not the same as none.
    beat = ConsumerGroupHeartbeatResponse(assignment=Assignment())
    assert ConsumerGroupHeartbeatResponse.decode(beat.encode(0), 0).assignment == Assignment()


def test_records_are_views_into_the_request() -> None:
    for version in ProduceRequest.VERSIONS:
        request = produce(b"batch" * 10)
        if version > 12:
            request.topic_data[0].name = ""
        buffer = bytearray(request.encode(version))
        view = records_of(ProduceRequest.decode(buffer, version))
        assert isinstance(view, memoryview)
        assert view == b"batch" * 10
        at = bytes(buffer).index(b"batch")
        buffer[at] = ord("B")
        assert view[0] == ord("B")


@pytest.mark.parametrize("version", [3, 9])
def test_null_and_empty_records(version: int) -> None:
    assert records_of(ProduceRequest.decode(produce(None).encode(version), version)) is None
    assert records_of(ProduceRequest.decode(produce(b"").encode(version), version)) == b""


def test_long_records_stay_a_part_of_their_own() -> None:
    long = memoryview(bytes(20_000))
    parts = produce(long).encode_parts(9)
    assert any(part is long for part in parts)
    assert b"".join(parts) == produce(long).encode(9)
    assert len(produce(b"short").encode_parts(9)) == 1


def test_records_that_are_not_bytes_need_encode_parts() -> None:
    class Range:
        size = 10

    with pytest.raises(WireError, match="encode_parts"):
        produce(Range()).encode(9)


@pytest.mark.parametrize("version", [1, 3])
def test_strings_are_limited_to_32767_bytes(version: int) -> None:
    at_limit = Small(name="x" * 32767)
    assert Small.decode(at_limit.encode(version), version) == at_limit
    with pytest.raises(WireError):
        Small(name="x" * 32768).encode(version)
    if version == 3:
        oversized = encode_uvarint(32769) + b"x" * 32768 + bytes.fromhex("00 01 00")
        with pytest.raises(WireError, match="limit is 32767"):
            Small.decode(oversized, 3)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(WireError):
        Small(ids=[1 << 31]).encode(0)
    with pytest.raises(WireError):
        Small(ids=["x"]).encode(0)  # type: ignore[list-item]
    with pytest.raises(WireError):
        Small(name="\ud800").encode(1)


def test_any_sequence_can_be_an_array() -> None:
    assert Small(ids=(1, 2)).encode(0) == Small(ids=[1, 2]).encode(0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cls", "version", "prefix"),
    [
        (Small, 0, ""),
        (JoinGroupRequest, 0, "0001 67 00000000 0000 0000"),
        (CreateTopicsRequest, 2, ""),
        (MetadataRequest, 1, ""),
    ],
)
def test_huge_counts_allocate_nothing(cls: type[Request], version: int, prefix: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            cls.decode(bytes.fromhex(prefix + "7fffffff") + bytes(40), version)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


def test_huge_compact_counts_are_refused() -> None:
    for count in ("ffffffff0f", "ffffffff7f", "8080808010"):
        with pytest.raises(WireError):
            LeaveGroupRequest.decode(bytes.fromhex("02 67" + count) + bytes(40), 4)
    with pytest.raises(WireError, match="longer than 5 bytes"):
        LeaveGroupRequest.decode(bytes.fromhex("02 67 808080808001") + bytes(40), 4)


def test_lengths_above_one_varint_byte() -> None:
    members = [MemberIdentity(member_id=f"member-{i}" * 20) for i in range(700)]
    request = LeaveGroupRequest(group_id="g" * 600, members=members)
    assert LeaveGroupRequest.decode(request.encode(5), 5) == request
    topics = [FetchTopic(topic=f"t{i}", partitions=[FetchPartition(partition=i)]) for i in range(600)]
    fetch = FetchRequest(topics=topics)
    assert FetchRequest.decode(fetch.encode(12), 12) == fetch


def test_bytes_fields_are_bytes() -> None:
    request = JoinGroupRequest(protocols=[JoinGroupRequestProtocol(name="range", metadata=b"meta")])
    decoded = JoinGroupRequest.decode(memoryview(bytearray(request.encode(6))), 6)
    assert type(decoded.protocols[0].metadata) is bytes
    assert type(decoded.protocols[0].name) is str


ANNOTATIONS = {"string": "str", "bytes": "bytes", "uuid": "UUID", "bool": "bool", "float64": "float"}


def structs_of(cls: type[Struct]) -> list[type[Struct]]:
    nested = [f.element for f in cls.FIELDS.values() if isinstance(f.element, type)]
    return [cls, *(inner for struct in nested for inner in structs_of(struct))]


def expected_annotation(field: Field) -> str:
    if field.kind == "records":
        return "Any"
    if field.kind == "struct":
        name = field.element.__name__
    elif field.kind == "array":
        element = field.element
        inner = element if isinstance(element, str) else element.__name__
        plain = ANNOTATIONS.get(inner, "int") if isinstance(element, str) else inner
        name = f"list[{plain}]"
    else:
        name = ANNOTATIONS.get(field.kind, "int")
    optional = field.null or field.default is None
    return f"{name} | None" if optional else name


@pytest.mark.parametrize("cls", [*all_messages(), *all_data()], ids=lambda cls: cls.__name__)
def test_annotations_say_what_the_fields_hold(cls: type[Struct]) -> None:
    for struct in structs_of(cls):
        for name, field in struct.FIELDS.items():
            assert struct.__annotations__[name] == expected_annotation(field), f"{struct.__name__}.{name}"
            assert field.kind in FIXED or field.kind in ("string", "bytes", "records", "array", "struct")
            if field.tag is not None:
                assert getattr(cls, "FLEXIBLE_FROM", None) is not None
