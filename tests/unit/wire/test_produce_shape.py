"""What the shape of a producer's requests takes from a frame is what the general decoder finds in it."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.wire.header import decode_request_header, encode_request
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.primitives import WireError
from barnabas.wire.produce_shape import ProduceShape

PREFIX_AT = 8
FLEXIBLE_FROM = 9
VERSIONS = range(3, 14)
TOPIC_ID = UUID(int=7)


def frame_of(version: int, index: int, records: bytes) -> bytes:
    data = [PartitionProduceData(index=index, records=records)]
    topic = TopicProduceData(name="t" if version < 13 else "", topic_id=TOPIC_ID, partition_data=data)
    return encode_request(ProduceRequest(acks=1, timeout_ms=9, topic_data=[topic]), version, 5, "c")[4:]


def shape_of(version: int) -> ProduceShape:
    """Learned from a request whose records have the length 1."""
    behind = 4 + (2 + 3 if version >= FLEXIBLE_FROM else 4 + 1)
    prefix = frame_of(version, 1, b"r")[PREFIX_AT:-behind]
    return ProduceShape(version, prefix, version >= FLEXIBLE_FROM, b"\0" * 8 + b"before", b"after", True)


def general(frame: bytes, version: int) -> tuple[int, bytes]:
    _, position = decode_request_header(memoryview(frame))
    request = ProduceRequest.decode(memoryview(frame), version, position)
    data = request.topic_data[0].partition_data[0]
    assert data.records is not None
    return data.index, bytes(data.records)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2_100_000])
def test_requests_of_any_size(version: int, size: int) -> None:
    frame = frame_of(version, 77, b"r" * size)
    parts = shape_of(version).split(memoryview(frame))
    assert parts is not None
    assert (parts[0], bytes(parts[1])) == (77, b"r" * size) == general(frame, version)


@given(st.sampled_from(VERSIONS), st.binary(max_size=200), st.data())
def test_a_frame_that_was_changed_is_read_the_same_way_or_left_alone(
    version: int, records: bytes, data: st.DataObject
) -> None:
    frame = bytearray(frame_of(version, 3, records))
    # Not the API key in the first two bytes: whoever asks a shape has looked at it, and the header depends on it.
    for at in data.draw(st.lists(st.integers(2, len(frame) - 1), max_size=3)):
        frame[at] = data.draw(st.integers(0, 255))
    del frame[data.draw(st.integers(0, len(frame))) :]
    parts = shape_of(version).split(memoryview(frame))
    if parts is None:
        return
    assert int.from_bytes(frame[2:4], "big") == version
    try:
        assert (parts[0], bytes(parts[1])) == general(bytes(frame), version)
    except WireError as error:
        pytest.fail(f"the general decoder refuses it: {error}")


def test_the_answer() -> None:
    answer = shape_of(9).answer(-2, 3, 4, 5, 6, 7)
    numbers = b"".join(
        (
            (3).to_bytes(4, "big"),
            (4).to_bytes(2, "big"),
            *(number.to_bytes(8, "big") for number in (5, 6, 7)),
        )
    )
    assert answer[4:] == (-2).to_bytes(4, "big", signed=True) + b"before" + numbers + b"after"
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
