"""A data directory in which an earlier version kept groups and share states in partitions that are not theirs.

`data/old_partitions.tar.xz` was written by that version: groups of both protocols, offsets without a group, share groups.
"""

from __future__ import annotations

import asyncio
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators import moving_home
from barnabas.broker.server import BrokerServer
from barnabas.config.loader import load
from barnabas.cores.decision import Decision, Event
from barnabas.cores.group import (
    CommitOffsets,
    FetchOffsets,
    FetchReply,
    GroupCoordinatorCore,
    ListGroups,
    OffsetToCommit,
)
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.records.partitioner import partition_for_name
from barnabas.wire.errors import ErrorCode

ARCHIVE = Path(__file__).parent / "data" / "old_partitions.tar.xz"
PARTITIONS = 5
SIMPLE = ["my-group", "zürich", "plain-3", "組", "a", "😀 groups"]
MEMBERS = [f"new-members-{number}" for number in range(6)]
CREWS = [f"crew-{number}" for number in range(6)]


@pytest.fixture
def old_data(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "olddata"


def server(data: Path) -> BrokerServer:
    texts = {
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "offsets.retention.minutes": str((1 << 31) - 1),
        "offsets.topic.num.partitions": str(PARTITIONS),
        "share.coordinator.state.topic.num.partitions": str(PARTITIONS),
    }
    return BrokerServer(load(None, texts))


async def check(data: Path) -> None:
    """A new broker finds everything, each group where Kafka looks for it, and nothing twice."""
    broker = server(data)
    await broker.start()
    try:
        groups, states = broker.services.groups, broker.services.shares.states
        for index, core in groups.runtime.cores():
            assert all(partition_for_name(name, PARTITIONS) == index for name in core.names())
        for index, core in states.runtime.cores():
            assert all(partition_for_name(name, PARTITIONS) == index for name in core.names())
        listed = [row.group_id for reply in await groups.ask_all(ListGroups) for row in reply.groups]
        assert sorted(listed) == sorted([*SIMPLE, *MEMBERS, *CREWS])
        wanted = tuple(("orders", number) for number in range(3))
        for number, group_id in enumerate([*SIMPLE, *MEMBERS]):
            reply: FetchReply = await groups.ask(
                lambda token, now_ms, name=group_id: FetchOffsets(token, now_ms, name, wanted), group_id
            )
            assert reply.error is ErrorCode.NONE
            base = 100 * number if group_id in SIMPLE else 7000
            assert [row.offset for row in reply.offsets] == [base, base + 1, base + 2], group_id
            assert reply.offsets[0].metadata.rstrip("\0") == (f"note {number}" if group_id in SIMPLE else "")
        for group_id in MEMBERS[3:]:  # static members that are away for a while
            core = groups.runtime.core_of(group_id)
            assert core is not None
            group = core.state.groups[group_id]
            assert isinstance(group, ConsumerGroup)
            assert list(group.static_ids) == [f"i-{group_id}"]
            assert sum(len(target) for target in group.target.values()) == 3
        states_by_group = {key.group_id: states.find(key) for key in states.keys()}  # noqa: SIM118
        assert sorted(states_by_group) == CREWS
        for number, group_id in enumerate(CREWS):
            state = states_by_group[group_id]
            assert state is not None
            assert (state.start_offset, state.delivery_complete_count) == (number + 3, 2)
    finally:
        await broker.stop()


def test_everything_is_found_after_the_upgrade(old_data: Path, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(check(old_data))
    moved = [record for record in caplog.records if "were moved" in record.message]
    assert len(moved) == 2  # one line for each topic
    caplog.clear()
    asyncio.run(check(old_data))
    assert not [record for record in caplog.records if "moved" in record.message]


def test_a_kill_at_any_point_of_the_move_loses_nothing(
    old_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data as it lies on disk before each step of the move is what a kill -9 there leaves behind."""
    copies: list[Path] = []
    write_move = moving_home._write

    def copying(stepping: Any, seat: Any, event: Any) -> None:
        write_move(stepping, seat, event)
        copy = tmp_path / f"copy-{len(copies)}"
        shutil.copytree(old_data, copy)
        copies.append(copy)

    monkeypatch.setattr(moving_home, "_write", copying)
    asyncio.run(check(old_data))
    monkeypatch.undo()
    names = [
        name for name in (*SIMPLE, *MEMBERS, *CREWS) if partition_for_name(name, PARTITIONS) != _old(name)
    ]
    assert len(copies) >= 2 * len(names) > 10
    for copy in copies:
        (copy / ".kafka_cleanshutdown").unlink(missing_ok=True)
        asyncio.run(check(copy))


def _old(name: str) -> int:
    """Where the earlier version kept a name."""
    value = 0
    units = name.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8) + low) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % PARTITIONS


def _step(core: GroupCoordinatorCore, event: Event[object]) -> Decision:
    decision = core.decide(event)
    core.apply(decision)
    return decision


def test_what_the_right_partition_has_wins() -> None:
    """Kafka served the directory in between: its newer offsets stay, and the older ones do not come over them."""
    home, wrong = GroupCoordinatorCore(), GroupCoordinatorCore()
    for core, offset, now_ms in ((wrong, 1, 10), (home, 2, 20)):
        _step(core, CommitOffsets("#", now_ms, "g", (OffsetToCommit("t", 0, offset),)))
    _step(wrong, CommitOffsets("#", 30, "g", (OffsetToCommit("t", 1, 7),)))
    for event in wrong.export("g", 40):
        assert len(_step(home, event).entries) == 1
    for event in wrong.export("g", 40):
        assert not _step(home, event).entries  # once more changes nothing
    for event in wrong.disown("g", 50):
        _step(wrong, event)
    assert not list(wrong.names())
    offsets = home.state.offsets_of("g")
    assert [offsets["t", number].offset for number in range(2)] == [2, 7]
