"""Headers of requests and responses, whole frames of both, and the splitting of a stream."""

from __future__ import annotations

from importlib import import_module
from io import BytesIO

import pytest

from barnabas.wire.errors import ErrorCode
from barnabas.wire.frame import LENGTH_BYTES
from barnabas.wire.header import (
    RequestHeader,
    decode_api_versions,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
    encode_response_header,
)
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.primitives import WireError


class Slice:
    """Stands for a range of a file: known by its size only."""

    def __init__(self, size: int) -> None:
        self.size = size


def body_of(frame):
    """The bytes behind a frame's length, which must be right."""
    assert int.from_bytes(frame[:LENGTH_BYTES], "big") == len(frame) - LENGTH_BYTES
    return bytes(frame[LENGTH_BYTES:])


@pytest.mark.parametrize("client_id", [None, "", "my-client", "ключ"])
@pytest.mark.parametrize("version", [3, 4])
def test_request_round_trip(version: int, client_id: str | None) -> None:
    message = HeartbeatRequest(group_id="g", generation_id=4, member_id="m")
    frame = body_of(encode_request(message, version, 77, client_id))
    header, pos = decode_request_header(frame)
    assert header == RequestHeader(12, version, 77, client_id)
    assert HeartbeatRequest.decode(frame, version, pos) == message


def test_request_header_bytes() -> None:
    head = "000c 0003 0000004d 0001 63"
    frame = encode_request(HeartbeatRequest(), 3, 77, "c")
    assert frame[4:15] == bytes.fromhex(head)
    # The flexible header adds a tagged section, but the client id keeps its old form (KIP-511).
    assert encode_request(HeartbeatRequest(), 4, 77, "c")[4:16] == bytes.fromhex(
        "000c 0004 0000004d 0001 63 00"
    )


def test_request_header_equals_kio() -> None:
    serial = pytest.importorskip("kio.serial")
    for header_version, version in ((1, 3), (2, 4)):
        kio = import_module(f"kio.schema.request_header.v{header_version}.header").RequestHeader
        frame = encode_request(HeartbeatRequest(), version, 9, "client")[4:]
        entity, size = serial.entity_reader(kio)(frame, 0)
        assert decode_request_header(frame)[1] == size
        assert (entity.request_api_key, entity.correlation_id, entity.client_id) == (12, 9, "client")
        buffer = BytesIO()
        serial.entity_writer(kio)(buffer, entity)
        assert frame.startswith(buffer.getvalue())


def test_request_header_skips_unknown_tags() -> None:
    head = bytes.fromhex("000c 0004 00000001 ffff 02 05 03 aabbcc 8001 01 dd")
    header, pos = decode_request_header(head + b"body")
    assert header.client_id is None
    assert pos == len(head)


def test_request_header_of_an_unknown_api_is_still_named() -> None:
    header, _pos = decode_request_header(bytes.fromhex("03e7 0009 00000001 ffff"))
    assert header.request_api_key == 999


@pytest.mark.parametrize(
    "data",
    ["", "000c", "000c 0003 00000001 0005 61", "000c 0003 00000001 0001 ff", "000c 0004 00000001 ffff"],
)
def test_bad_request_headers(data: str) -> None:
    with pytest.raises(WireError):
        decode_request_header(bytes.fromhex(data))


def test_response_headers() -> None:
    assert encode_response_header(12, 3, 5) == bytes.fromhex("00000005")
    assert encode_response_header(12, 4, 5) == bytes.fromhex("00000005 00")
    # A client must be able to read this one before it knows the broker's versions.
    assert encode_response_header(18, 4, 5) == bytes.fromhex("00000005")
    for key, version in ((12, 3), (12, 4), (18, 4)):
        header = encode_response_header(key, version, 5)
        assert decode_response_header(header + b"body", key, version) == (5, len(header))
    with pytest.raises(WireError):
        decode_response_header(b"\0\0\0\5", 12, 4)


def test_encode_response_is_one_frame() -> None:
    message = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    for version in HeartbeatResponse.VERSIONS:
        (part,) = encode_response(message, version, 3)
        frame = body_of(part)
        correlation_id, pos = decode_response_header(frame, 12, version)
        assert correlation_id == 3
        assert HeartbeatResponse.decode(frame, version, pos) == message


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_encode_response_keeps_file_slices_as_parts(version: int) -> None:
    slices = [Slice(1000), Slice(70_000)]
    partitions = [PartitionData(partition_index=i, records=slices[i]) for i in range(2)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    parts = encode_response(response, version, 9)
    assert [part for part in parts if isinstance(part, Slice)] == slices
    sent = b"".join(bytes(part.size) if isinstance(part, Slice) else part for part in parts)
    frame = body_of(sent)
    _, pos = decode_response_header(frame, 1, version)
    decoded = FetchResponse.decode(frame, version, pos)
    assert [bytes(p.records) for p in decoded.responses[0].partitions] == [bytes(1000), bytes(70_000)]


def test_api_versions_fallback_to_version_0() -> None:
    refusal = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)],
    )
    body = refusal.encode(0)
    assert decode_api_versions(body, 5 - 1) == refusal
    accepted = ApiVersionsResponse(api_keys=refusal.api_keys, throttle_time_ms=1)
    assert decode_api_versions(b"xx" + accepted.encode(4), 4, 2) == accepted
    assert ApiVersionsRequest.VERSIONS[-1] == 4
