"""Keys go to the partitions that Java's producer would choose."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as theirs

from barnabas.cores.group.share.state import ShareKey, coordinator_name, key_of
from barnabas.records.partitioner import java_hash, murmur2, partition_for_key, partition_for_name


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


def test_names_lie_where_kafkas_coordinators_keep_them() -> None:
    """Computed by `partitionFor` of Kafka 4.3.1's GroupCoordinatorService and ShareCoordinatorService, 50 partitions."""
    answers = json.loads((Path(__file__).parent / "data" / "kafka_partitions.json").read_text())
    for name, signed, absolute, partition in answers["groups"]:
        assert java_hash(name) == signed, name
        assert partition_for_name(name, 50) == partition == absolute % 50, name
    for group, topic_id, number, partition in answers["shares"]:
        key = ShareKey(group, UUID(topic_id), number)
        assert partition_for_name(coordinator_name(key), 50) == partition, key
        assert key_of(coordinator_name(key)) == key
