"""The compiled walk over records says the same as the decoder, and no damage gets it out of its bounds."""

from __future__ import annotations

import random

import pytest

from barnabas.records import walk
from barnabas.records.batch import CorruptBatch, Record, build_batch, check_batch, records_block, records_of

T0_MS = 1_700_000_000_000


def made(rng: random.Random) -> list[Record]:
    return [
        Record(
            i,
            T0_MS + rng.randrange(-5000, 5000),
            rng.choice([None, b"", b"key"]),
            rng.choice([None, b"", rng.randbytes(rng.choice([3, 200]))]),
            rng.choice([(), (("name", b"value"),), (("a", None), ("", b""))]),
        )
        for i in range(rng.randrange(1, 30))
    ]


@pytest.mark.parametrize("seed", range(50))
def test_the_same_as_decoding(seed: int) -> None:
    rng = random.Random(seed)
    batch = build_batch(made(rng), base_offset=1000)
    header = check_batch(batch)
    records = list(records_of(batch, 0, header))
    block = records_block(batch, 0, header)
    count, first_ms = header.record_count, header.base_timestamp
    keyless, old, new = walk.faults([block], count, first_ms, True, T0_MS, T0_MS)
    assert keyless == [i for i, record in enumerate(records) if record.key is None]
    assert old == [i for i, record in enumerate(records) if record.timestamp < T0_MS]
    assert new == [i for i, record in enumerate(records) if record.timestamp > T0_MS]
    assert walk.faults([block], count, first_ms, False, -1, T0_MS + 5000) == ([], [], [])
    at_ms, offset = T0_MS + rng.randrange(-6000, 6000), 1000 + rng.randrange(count)
    wanted = next(
        ((r.timestamp, r.offset) for r in records if r.timestamp >= at_ms and r.offset >= offset), None
    )
    assert walk.first_at_or_after([block], count, first_ms, 1000, at_ms, offset) == wanted
    late = [record for record in records if record.offset >= offset]
    best = max(late, key=lambda record: (record.timestamp, -record.offset))
    assert walk.greatest([block], count, first_ms, 1000, offset) == (best.timestamp, best.offset)


@pytest.mark.parametrize("seed", range(200))
def test_damage_is_told_or_harmless(seed: int) -> None:
    rng = random.Random(seed)
    batch = build_batch(made(rng))
    header = check_batch(batch)
    block = bytearray(records_block(batch, 0, header))
    for _ in range(20):
        broken = bytearray(block)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.choice([0, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        del broken[len(broken) - rng.choice([0, 0, 1, 5]) :]
        try:
            walk.faults([broken], header.record_count, T0_MS, True, T0_MS, T0_MS)
        except CorruptBatch:
            continue
        walk.first_at_or_after([broken], header.record_count, T0_MS, 0, T0_MS, 0)
        walk.greatest([broken], header.record_count, T0_MS, 0, 0)


@pytest.mark.parametrize("cut", [1, 2, 10])
def test_what_is_cut_off_or_too_long_is_damage(cut: int) -> None:
    batch = build_batch([Record(0, T0_MS, b"k", b"value"), Record(1, T0_MS, b"k", b"value")])
    header = check_batch(batch)
    block = records_block(batch, 0, header)
    for wrong in (block[:-cut], block + bytes(cut), b""):
        with pytest.raises(CorruptBatch):
            walk.faults([wrong], 2, T0_MS, True, -1, T0_MS)


def test_of_very_many_records_only_the_first_are_named() -> None:
    batch = build_batch([Record(0, T0_MS, None, None)] * 3_000)
    block = records_block(batch, 0, check_batch(batch))
    first = list(range(walk.NAMED_MAX))
    assert walk.faults([block], 3_000, T0_MS, True, T0_MS + 1, T0_MS - 1) == (first, first, first)


GUID = bytes(range(16))


def block_of(
    *rows: tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]],
) -> tuple[bytes, int]:
    batch = build_batch(
        [Record(i, T0_MS, key, value, headers) for i, (key, value, headers) in enumerate(rows)]
    )
    return records_block(batch, 0, check_batch(batch)), len(rows)


def test_the_schemas_that_records_name() -> None:
    block, count = block_of(
        (b"key", b"\0\0\0\1\2payload", ()),
        (None, b"\0\xff\xff\xff\xff", ()),
        (b"\0\0\0\0\7", None, (("__value_schema_id", b"\1" + GUID),)),
        (b"", b"payload", (("a", None), ("__value_schema_id", b"\1" + GUID))),
        (b"", b"\0\0\0\0", (("__key_schema_id", b"\1" + GUID),)),
        (b"", b"", ()),
        (b"", b"\0\0\0\1\2x", (("__value_schema_id", b"\1short"),)),
        (b"", b"\1" + GUID + b"x", (("__value_schema_id_", b"\0\0\0\0\5"),)),
    )
    assert walk.schemas_named(block, count, False) == {258, 0xFFFFFFFF, GUID, None}
    assert walk.records_naming(block, count, False, {None}) == [4, 5, 6]
    assert walk.records_naming(block, count, False, {258, GUID}) == [0, 3, 7]
    assert walk.schemas_named(block, count, True) == {None, 7, GUID}
    assert walk.records_naming(block, count, True, {7, GUID}) == [2, 4]


@pytest.mark.parametrize("seed", range(100))
def test_damage_names_no_schema_out_of_bounds(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        (
            rng.choice([None, b"\0\0\0\0\1"]),
            rng.choice([b"", b"\0\0\0\0\1x"]),
            (("__value_schema_id", b"\1" + GUID),),
        )
        for _ in range(10)
    ]
    block, count = block_of(*rows)
    for _ in range(20):
        broken = bytearray(block)
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.choice([0, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        del broken[len(broken) - rng.choice([0, 0, 1, 5]) :]
        try:
            named = walk.schemas_named(broken, count, False)
        except CorruptBatch:
            continue
        numbers = walk.records_naming(broken, count, False, named)
        assert all(0 <= number < count for number in numbers)
