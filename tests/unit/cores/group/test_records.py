"""The bytes of the offsets topic: what we write is Kafka's format, and what Kafka wrote we read."""

from __future__ import annotations

import struct

import pytest

from barnabas.cores.decision import CorruptRecord
from barnabas.cores.group import records
from barnabas.cores.group.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicState,
    read_subscription_topics,
)
from barnabas.cores.group.core import GroupCoordinatorCore


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def test_a_commit_is_key_1_and_value_3() -> None:
    key, value = records.offset_commit("g", ("topic", 3), 42, 7, "note", 1_000, -1).encode()
    assert key == b"\x00\x01" + text("g") + text("topic") + struct.pack(">i", 3)
    assert value == b"\x00\x03" + struct.pack(">qi", 42, 7) + text("note") + struct.pack(">q", 1_000)


def test_a_commit_with_a_retention_of_its_own_is_value_1() -> None:
    _, value = records.offset_commit("g", ("topic", 3), 42, 7, "", 1_000, 9_000).encode()
    assert value == b"\x00\x01" + struct.pack(">q", 42) + text("") + struct.pack(">qq", 1_000, 9_000)


def stable_group() -> ClassicGroup:
    group = ClassicGroup("g", ClassicState.STABLE, state_since_ms=5, protocol_name="range", generation_id=4)
    member = ClassicMember("m-1", "i-1", "m", "/h", 60_000, 10_000, (("range", b"sub"),), assignment=b"share")
    group.add(member, "consumer")
    return group


def test_a_generation_is_key_2_and_value_3() -> None:
    key, value = records.group_metadata(stable_group()).encode()
    assert key == b"\x00\x02" + text("g")
    member = text("m-1") + text("i-1") + text("m") + text("/h") + struct.pack(">ii", 60_000, 10_000)
    member += blob(b"sub") + blob(b"share")
    head = b"\x00\x03" + text("consumer") + struct.pack(">i", 4) + text("range") + text("m-1")
    assert value == head + struct.pack(">qi", 5, 1) + member


def test_the_oldest_versions_are_read() -> None:
    core = GroupCoordinatorCore()
    key = b"\x00\x02" + text("g")
    member = text("m-1") + text("m") + text("/h") + struct.pack(">i", 10_000) + blob(b"sub") + blob(b"share")
    value = b"\x00\x00" + text("consumer") + struct.pack(">i", 4) + text("range") + text("m-1")
    core.replay(key, value + struct.pack(">i", 1) + member)
    core.replay(
        b"\x00\x00" + text("g") + text("t") + struct.pack(">i", 0),
        b"\x00\x00" + struct.pack(">q", 9) + text("note") + struct.pack(">q", 1_000),
    )
    group = core.state.groups["g"]
    assert group.state is ClassicState.STABLE
    assert group.members["m-1"].rebalance_timeout_ms == 10_000  # version 0 has no rebalance timeout
    assert core.state.offsets_of("g")["t", 0][:4] == (9, -1, "note", 1_000)


def test_tombstones_forget() -> None:
    core = GroupCoordinatorCore()
    for entry in (
        records.group_metadata(stable_group()),
        records.offset_commit("g", ("t", 0), 1, -1, "", 1, -1),
        records.offset_tombstone("g", ("t", 0)),
        records.group_tombstone("g"),
    ):
        core.replay(*entry.encode())
    assert not core.state.groups
    assert not core.state.committed


def test_unknown_kinds_are_skipped_and_broken_records_named() -> None:
    core = GroupCoordinatorCore()
    core.replay(b"\x00\x7f whatever", b"more")
    with pytest.raises(CorruptRecord, match="offsets topic"):
        core.replay(b"\x00\x02" + text("g"), b"\x00\x03\x00")
    with pytest.raises(CorruptRecord):
        core.replay(b"\x00", b"")
    assert not core.state.groups


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (struct.pack(">hi", 0, 2) + text("a") + text("b") + struct.pack(">i", -1), {"a", "b"}),
        (struct.pack(">hi", 3, 0), set()),
        (b"", None),
        (struct.pack(">hi", 0, 1_000_000_000), None),
        (struct.pack(">hih", 0, 1, 99) + b"short", None),
        (struct.pack(">hih", 0, 1, 1) + b"\xff", None),
    ],
)
def test_subscribed_topics(metadata: bytes, topics: set[str] | None) -> None:
    assert read_subscription_topics(metadata) == topics


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        (["range,sticky"], "range"),
        (["range,sticky", "sticky,range", "sticky"], "sticky"),
        (["roundrobin,range", "range,roundrobin", "range,roundrobin"], "range"),
    ],
)
def test_the_vote_counts_first_choices_among_common_protocols(preferences: list[str], chosen: str) -> None:
    group = ClassicGroup("g")
    for index, names in enumerate(preferences):
        protocols = tuple((name, b"") for name in names.split(","))
        group.add(ClassicMember(f"m{index}", None, "c", "h", 1, 1, protocols), "consumer")
    assert group.select_protocol() == chosen
