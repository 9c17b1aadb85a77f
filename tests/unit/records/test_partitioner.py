"""Keys go to the partitions that Java's producer would choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as theirs

from barnabas.records.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_javas_own_examples(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=40), st.integers(1, 500))
def test_same_as_kafka_python(key: bytes, partitions: int) -> None:
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF
    assert partition_for_key(key, partitions) == (theirs(key) & 0x7FFFFFFF) % partitions
