"""Records of lines, encoded without a Python object for each: byte for byte what the plain encoder writes."""

from __future__ import annotations

import random

import pytest

from barnabas.records.batch import Record, append_record
from barnabas.records.record_block import RecordBlock, Stamp, encode_headers

CHANCE = random.Random(5)
FILE = ("file", b"/var/log/app.log")
MORE = [("env", b"test"), ("empty", b""), ("größe", b"\0\xff")]
NOW = 1_790_000_000_000


def plain(records: list[Record]) -> bytes:
    """What the encoder of single records makes of them."""
    block = bytearray()
    for number, record in enumerate(records):
        append_record(block, number, record.timestamp - records[0].timestamp, record)
    return bytes(block)


def lines_of(count: int) -> list[bytes]:
    """Empty lines, lines with zero bytes, and some whose lengths need one, two and three bytes."""
    sizes = [0, 1, 63, 64, 65, 8191, 8192, 20_000]
    return [CHANCE.randbytes(CHANCE.choice(sizes)).replace(b"\n", b"\0") for _ in range(count)]


@pytest.mark.parametrize("key", [None, b"", b"a key"])
@pytest.mark.parametrize("with_position", [True, False])
@pytest.mark.parametrize("begin", [0, 7, 999_999_990, 1 << 40])
def test_lines_are_the_records_that_the_plain_encoder_writes(
    key: bytes | None, with_position: bool, begin: int
) -> None:
    lines, block = lines_of(200), RecordBlock()
    data = b"".join(line + b"\n" for line in lines)
    if with_position:
        stamp = Stamp(key, encode_headers([FILE]), encode_headers(MORE), 4, "position", b"0a1b2c3d:")
    else:
        stamp = Stamp(key, b"", encode_headers(MORE), 3)
    assert block.add_lines(data, 0, begin, stamp, NOW, 1 << 30) == (len(data), 200)
    expected, position = [], begin
    for number, line in enumerate(lines):
        place = [FILE, ("position", b"0a1b2c3d:%d" % position)] if with_position else []
        expected.append(Record(number, NOW, key, line, (*place, *MORE)))
        position += len(line) + 1
    assert block.encoded() == plain(expected)
    assert (block.records, block.size_bytes) == (200, len(block.encoded()))
    block.release()
    assert (block.records, block.encoded()) == (200, b"")


def test_a_block_takes_what_fits_and_goes_on_in_the_next_one() -> None:
    lines = [b"x" * 100] * 50 + [b"y" * 5000] + [b"z" * 100] * 50
    data = b"\n".join(lines)  # the last line has no newline
    stamp, at, blocks = Stamp(None, b"", b"", 0, "position", b"i:"), 0, []
    while at < len(data):
        block = RecordBlock()
        at, count = block.add_lines(data, at, at, stamp, NOW, 1000)
        assert count == block.records > 0
        assert block.size_bytes <= 1000 or count == 1  # the long line is alone
        blocks.append(block)
    assert sum(block.records for block in blocks) == len(lines)
    full = blocks[0].encoded()
    assert blocks[0].add_lines(data, 0, 0, stamp, NOW, 1000) == (0, 0)
    assert blocks[0].encoded() == full


def test_lines_and_single_records_share_a_block_although_the_clock_is_set_back() -> None:
    block, headers = RecordBlock(), [FILE, *MORE]
    assert block.add_lines(b"one\ntwo\n", 0, 0, Stamp(b"k", b"", b"", 0), NOW, 1000) == (8, 2)
    encoded = encode_headers(headers)
    assert block.add(b"three", None, encoded, 4, NOW - 3_600_000, 1000)
    assert block.add(b"", b"", b"", 0, NOW + 5, 1000)
    assert not block.add(b"x" * 1000, None, b"", 0, NOW, 1000)
    assert block.encoded() == plain(
        [
            Record(0, NOW, b"k", b"one", ()),
            Record(1, NOW, b"k", b"two", ()),
            Record(2, NOW - 3_600_000, None, b"three", tuple(headers)),
            Record(3, NOW + 5, b"", b"", ()),
        ]
    )
    assert (block.base_timestamp, block.max_timestamp) == (NOW, NOW + 5)


def test_single_records_get_the_stamp_of_their_file() -> None:
    block = RecordBlock()
    stamp = Stamp(None, encode_headers([FILE]), encode_headers(MORE), 4, "position", b"0a1b2c3d:")
    assert block.add_stamped(b"one", b"k", stamp, 0, -1, NOW, 1000)
    assert block.add_stamped(b"two", None, stamp, 1 << 40, (1 << 40) + 4, NOW, 1000)
    assert not block.add_stamped(b"x" * 1000, None, stamp, 9, -1, NOW, 1000)
    place = [("position", b"0a1b2c3d:0"), ("position", b"0a1b2c3d:%d" % (1 << 40))]
    end = ("end", b"%d" % ((1 << 40) + 4))
    assert block.encoded() == plain(
        [
            Record(0, NOW, b"k", b"one", (FILE, place[0], *MORE)),
            Record(1, NOW, None, b"two", (FILE, place[1], *MORE, end)),
        ]
    )


def test_nothing_is_added_from_nothing() -> None:
    block, stamp = RecordBlock(), Stamp(None, b"", b"", 0)
    assert block.add_lines(b"", 0, 0, stamp, NOW, 1000) == (0, 0)
    assert block.add_lines(b"a\n", 2, 0, stamp, NOW, 1000) == (2, 0)
    assert (block.records, block.encoded()) == (0, b"")
