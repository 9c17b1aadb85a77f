"""One partition as a queue: locks, acknowledgements, counts, limits, and what is stored of it."""

from __future__ import annotations

import random

import pytest

from barnabas.cores.group.share.partition import (
    AckBatch,
    AcquireMode,
    Delivery,
    ShareChange,
    ShareLimits,
    SharePartitionCore,
    StateBatch,
)
from barnabas.cores.group.share.state import merge
from barnabas.wire.errors import ApiError, ErrorCode

ACCEPT, RELEASE, REJECT, RENEW = (1,), (2,), (3,), (4,)


def queue(**limits: int) -> SharePartitionCore:
    return SharePartitionCore(ShareLimits(**limits), 0)


def take(
    core: SharePartitionCore, member: str, last: int, now_ms: int = 0, first: int = 0
) -> list[tuple[int, ...]]:
    return [tuple(run) for run in core.acquire(now_ms, member, first, [(first, last)], 500).acquired]


def test_a_record_goes_to_one_member_and_is_done_when_accepted() -> None:
    core = queue()
    assert take(core, "a", 4) == [(0, 4, 1)]
    assert take(core, "b", 4) == []
    assert core.next_fetch_offset() == 5
    change = core.acknowledge(1, "a", [AckBatch(0, 4, (1, 1, 2, 1, 1))])
    assert change.writes == (
        StateBatch(0, 1, Delivery.ACKNOWLEDGED, 1),
        StateBatch(2, 2, Delivery.AVAILABLE, 1),
        StateBatch(3, 4, Delivery.ACKNOWLEDGED, 1),
    )
    assert change.start_offset == 2
    assert core.next_fetch_offset() == 2
    assert take(core, "b", 4, first=2) == [(2, 2, 2)]
    assert core.acknowledge(2, "b", [AckBatch(2, 2, ACCEPT)]).start_offset == 5


def test_the_mode_decides_whether_a_batch_may_be_split() -> None:
    whole = queue().acquire(0, "a", 0, [(0, 9), (10, 19)], 5)
    assert [tuple(run) for run in whole.acquired] == [(0, 9, 1)]
    exact = queue().acquire(0, "a", 0, [(0, 9), (10, 19)], 5, AcquireMode.RECORD_LIMIT)
    assert [tuple(run) for run in exact.acquired] == [(0, 4, 1)]


def test_a_record_that_fails_too_often_is_archived() -> None:
    core = queue(delivery_count_limit=2, record_lock_duration_ms=10)
    take(core, "a", 0)
    assert core.next_lock_end_ms() == 10
    assert not core.release_expired(9).must_store
    assert core.release_expired(10).writes == (StateBatch(0, 0, Delivery.AVAILABLE, 1),)
    take(core, "a", 0, 20)
    change = core.acknowledge(21, "a", [AckBatch(0, 0, RELEASE)])
    assert change.writes == (StateBatch(0, 0, Delivery.ARCHIVED, 2),)
    assert [(letter.offset, letter.delivery_count) for letter in change.dead_letters] == [(0, 2)]
    assert core.start == 1


def test_reject_renew_and_the_end_of_a_session() -> None:
    core = queue(record_lock_duration_ms=10)
    take(core, "a", 2)
    assert core.acknowledge(5, "a", [AckBatch(0, 0, REJECT)]).dead_letters[0].offset == 0
    renewed = core.acknowledge(8, "a", [AckBatch(1, 1, RENEW)])
    assert not renewed.must_store
    assert core.release_expired(10).writes == (StateBatch(2, 2, Delivery.AVAILABLE, 1),)
    assert core.release_member("a").writes == (StateBatch(1, 1, Delivery.AVAILABLE, 0),)
    assert take(core, "b", 2, first=1) == [(1, 1, 1), (2, 2, 2)]


@pytest.mark.parametrize(
    ("member", "acks", "code"),
    [
        ("b", [AckBatch(0, 0, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ("a", [AckBatch(0, 9, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ("a", [AckBatch(0, 0, (9,))], ErrorCode.INVALID_REQUEST),
        ("a", [AckBatch(1, 0, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ("a", [AckBatch(0, 2, (1, 1))], ErrorCode.INVALID_REQUEST),
        ("a", [AckBatch(1, 1, ACCEPT), AckBatch(0, 0, ACCEPT)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_refused_acknowledgement_changes_nothing(
    member: str, acks: list[AckBatch], code: ErrorCode
) -> None:
    core = queue()
    take(core, "a", 2)
    before = dict(core.records)
    with pytest.raises(ApiError) as refusal:
        core.acknowledge(1, member, acks)
    assert refusal.value.code is code
    assert core.records == before


def test_no_more_locks_than_allowed() -> None:
    core = queue(partition_max_record_locks=10)
    assert take(core, "a", 99) == [(0, 9, 1)]
    assert core.next_fetch_offset() is None
    core.acknowledge(1, "a", [AckBatch(0, 3, ACCEPT)])
    assert core.next_fetch_offset() == 10
    assert take(core, "b", 99, first=10) == [(10, 13, 1)]


def test_a_gap_in_the_log_needs_no_locks() -> None:
    """Compaction, or an aborted transaction, leaves gaps that are wider than the window may be."""
    core = queue(partition_max_record_locks=10)
    assert [tuple(run) for run in core.acquire(0, "a", 0, [(5_000, 5_019)], 500).acquired] == [
        (5_000, 5_009, 1)
    ]
    assert core.start == 5_000
    core.acknowledge(1, "a", [AckBatch(5_000, 5_009, ACCEPT)])
    assert take(core, "a", 5_012, first=5_010) == [(5_010, 5_012, 1)]
    assert (
        core.acquire(1, "b", 5_013, [(9_000, 9_001)], 500).acquired == ()
    )  # until the window before it is done
    assert core.next_fetch_offset() is None
    core.acknowledge(1, "a", [AckBatch(5_010, 5_012, ACCEPT)])
    assert core.next_fetch_offset() == 9_000
    assert take(core, "b", 9_001, first=9_000) == [(9_000, 9_001, 1)]


@pytest.mark.parametrize("locked", [(), (7,)])
def test_the_width_of_a_gap_costs_no_time(locked: tuple[int, ...]) -> None:
    core, width = queue(), 2**40
    for offset in locked:
        take(core, "a", offset, first=offset)
    core.acquire(0, "b", core.end, [], 500, read_to=width)
    core.release_member("a")
    assert core.next_fetch_offset() == (7 if locked else width)
    assert core.acquire(1, "b", core.start, [(7, 7)] if locked else [], 500, read_to=width).acquired == tuple(
        (offset, offset, 1) for offset in locked
    )
    if locked:
        assert core.next_fetch_offset() is None
        core.acknowledge(2, "b", [AckBatch(7, 7, ACCEPT)])
    assert (core.start, core.end, core.next_fetch_offset()) == (width, width, width)


def test_deleted_and_compacted_records_are_done_with() -> None:
    core = queue()
    take(core, "a", 9)
    assert core.log_start_moved(5).start_offset == 5
    core.acknowledge(1, "a", [AckBatch(0, 6, ACCEPT)])  # those before the start are forgotten silently
    core.release_member("a")
    change = core.acquire(2, "b", 7, [(9, 9)], 10)
    assert change.writes == (StateBatch(7, 8, Delivery.ARCHIVED, 0),)
    assert core.start == 9


def test_a_change_that_cannot_be_stored_is_taken_back() -> None:
    core = queue()
    take(core, "a", 3)
    change = core.acknowledge(1, "a", [AckBatch(0, 1, ACCEPT), AckBatch(2, 3, RELEASE)])
    take(core, "b", 3, first=2)
    core.abandon(change)
    assert core.start == 0
    assert core.acknowledge(2, "a", [AckBatch(0, 1, ACCEPT)]).start_offset == 2
    with pytest.raises(ApiError):  # those that were released went to b meanwhile, and stay there
        core.acknowledge(2, "a", [AckBatch(2, 3, ACCEPT)])


@pytest.mark.parametrize("seed", range(20))
def test_every_record_is_worked_off_whatever_happens(seed: int) -> None:
    """Members that take, finish, stall and go away, a store that fails, and leaders that change."""
    chance = random.Random(seed)
    limits = ShareLimits(record_lock_duration_ms=20, partition_max_record_locks=30, delivery_count_limit=5)
    core, now_ms, total = SharePartitionCore(limits, 0), 0, 200
    stored: tuple[StateBatch, ...] = ()
    start, locked = 0, {name: [] for name in "abc"}
    finished: set[int] = set()
    dead: set[int] = set()

    def keep(change: ShareChange) -> bool:
        nonlocal stored, start
        if change.must_store and chance.random() < 0.1:
            core.abandon(change)
            return False
        if change.must_store:
            start = max(start, change.start_offset)
            stored = merge(stored, change.writes, start)
        dead.update(letter.offset for letter in change.dead_letters)
        return True

    for _ in range(20_000):
        now_ms += chance.randint(0, 3)
        name, kind = chance.choice("abc"), chance.random()
        if kind < 0.3:
            offset = core.next_fetch_offset()
            if offset is not None and offset < total:
                change = core.acquire(now_ms, name, offset, [(offset, min(offset + 4, total - 1))], 5)
                keep(change)
                locked[name] += [o for first, last, _ in change.acquired for o in range(first, last + 1)]
        elif kind < 0.8 and locked[name]:
            offset = locked[name].pop(0)
            ack = chance.choice([1, 1, 1, 2, 3])
            try:
                change = core.acknowledge(now_ms, name, [AckBatch(offset, offset, (ack,))])
            except ApiError:
                continue  # its lock ran out
            if keep(change) and ack == 1 and change.steps:  # nothing is done for what is before the start
                assert offset not in finished, "a record was finished twice"
                finished.add(offset)
        elif kind < 0.9:
            keep(core.release_expired(now_ms))
        elif kind < 0.92:
            locked[name] = []
            keep(core.release_member(name))
        elif kind < 0.925:
            core = SharePartitionCore(limits, start, stored)
        if core.start == total:
            break
    assert core.start == total, f"seed {seed}: the queue is stuck at {core.start}"
    assert finished | dead == set(range(total))


def test_on_its_last_delivery_a_batch_comes_alone() -> None:
    """What consumers cannot read is given up without what lies beside it."""
    core = queue(delivery_count_limit=3, record_lock_duration_ms=10)
    batches = [(0, 2), (3, 3), (4, 6)]

    def take_all(now_ms: int, first: int) -> list[tuple[int, ...]]:
        rest = [batch for batch in batches if batch[1] >= first]
        return [tuple(run) for run in core.acquire(now_ms, "a", first, rest, 500).acquired]

    for now_ms in (0, 100):
        assert [run[:2] for run in take_all(now_ms, 0)] == [(0, 6)]
        core.release_expired(now_ms + 50)
    assert take_all(200, 0) == [(0, 2, 3)]
    assert take_all(200, 3) == [(3, 3, 3)]
    assert take_all(200, 4) == [(4, 6, 3)]
    core.acknowledge(201, "a", [AckBatch(0, 2, ACCEPT), AckBatch(4, 6, ACCEPT)])
    assert [letter.offset for letter in core.release_expired(300).dead_letters] == [3]


def test_fresh_records_do_not_come_with_a_last_delivery() -> None:
    core = queue(delivery_count_limit=2, record_lock_duration_ms=10)
    take(core, "a", 1)
    core.release_expired(50)
    assert [tuple(run) for run in core.acquire(60, "a", 0, [(0, 1), (2, 3)], 500).acquired] == [(0, 1, 2)]
    assert [tuple(run) for run in core.acquire(60, "b", 2, [(2, 3)], 500).acquired] == [(2, 3, 1)]
