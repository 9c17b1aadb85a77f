"""Deleting a group with many offsets: in pieces of bounded size, and clients see all of it or nothing."""

from __future__ import annotations

import itertools

from barnabas.cores.group import (
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    ListGroups,
    OffsetToCommit,
)
from barnabas.cores.group.sweeps import PIECE
from barnabas.sim.coordinators import group_view
from barnabas.wire.errors import ErrorCode
from tests.scenarios.group.driver import Driver

OFFSETS = 3 * PIECE + 7


def filled() -> Driver:
    driver = Driver()
    for begin in range(0, OFFSETS, PIECE):
        rows = tuple(OffsetToCommit("t", index, 5) for index in range(begin, min(begin + PIECE, OFFSETS)))
        driver.step(CommitOffsets(("commit", begin), driver.now_ms, "g", rows))
    driver.take_replies()
    return driver


def visible(driver: Driver, group_id: str = "g") -> int:
    driver.step(FetchOffsets("fetch", driver.now_ms, group_id, None))
    ((_, reply),) = driver.take_replies()
    return len(reply.offsets)


def test_no_event_forgets_more_than_a_piece() -> None:
    driver = filled()
    assert visible(driver) == OFFSETS
    begun = len(driver.log)
    driver.step(DeleteGroup("delete", driver.now_ms, "g"))
    written = [len(driver.log) - begun]
    while driver.timers:
        assert not driver.take_replies()
        assert visible(driver) == 0
        begun = len(driver.log)
        driver.fire_next(driver.now_ms)
        written.append(len(driver.log) - begun)
    assert driver.take_replies() == [("delete", DeleteGroup("", 0, "g").refused(ErrorCode.NONE))]
    assert written == [PIECE, PIECE, PIECE, 7 + 1]  # and the group itself
    assert group_view(driver.rebuilt())["groups"] == {}
    assert group_view(driver.rebuilt())["offsets"] == {}


def test_whoever_uses_the_group_meanwhile_tries_again() -> None:
    driver = filled()
    driver.step(DeleteGroup("delete", driver.now_ms, "g"))
    commit = CommitOffsets("commit", driver.now_ms, "g", (OffsetToCommit("t", 0, 9),))
    driver.step(commit)
    assert driver.take_replies() == [("commit", commit.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))]
    driver.step(DescribeGroup("describe", driver.now_ms, "g"))
    driver.step(ListGroups("list", driver.now_ms))
    assert len(driver.take_replies()) == 2
    driver.step(DeleteGroup("second", driver.now_ms, "g"))
    driver.advance(0)
    assert sorted(token for token, _ in driver.take_replies()) == ["delete", "second"]
    driver.step(commit)
    ((_, reply),) = driver.take_replies()
    assert reply.error is ErrorCode.NONE
    assert visible(driver) == 1


def test_a_crash_in_between_leaves_the_group_with_the_rest() -> None:
    driver = filled()
    driver.step(DeleteGroup("delete", driver.now_ms, "g"))
    driver.reload()
    assert [(token, reply.error) for token, reply in driver.take_replies()] == [
        ("delete", ErrorCode.NOT_COORDINATOR)
    ]
    assert visible(driver) == OFFSETS - PIECE
    driver.step(DeleteGroup("again", driver.now_ms, "g"))
    driver.advance(0)
    assert [reply.error for _, reply in driver.take_replies()] == [ErrorCode.NONE]
    assert group_view(driver.rebuilt())["offsets"] == {}


def test_a_failed_append_is_tried_again() -> None:
    driver = filled()
    driver.step(DeleteGroup("delete", driver.now_ms, "g"))
    driver.fail_next = ErrorCode.KAFKA_STORAGE_ERROR
    driver.fire_next(driver.now_ms)
    assert not driver.take_replies()
    assert visible(driver) == 0
    driver.advance(driver.limits.retry_after_failed_append_ms + 1)
    assert [reply.error for _, reply in driver.take_replies()] == [ErrorCode.NONE]


def test_offsets_of_open_transactions_go_as_well() -> None:
    from barnabas.cores.decision import Producer

    driver = filled()
    for producer_id, begin in itertools.product((7, 8), (0, OFFSETS)):
        rows = tuple(OffsetToCommit("t", index, 5) for index in range(begin, begin + PIECE))
        producer = Producer(producer_id, 0)
        driver.step(CommitOffsets(("txn", begin), driver.now_ms, "g", rows, producer=producer))
    driver.take_replies()
    driver.step(DeleteGroup("delete", driver.now_ms, "g"))
    driver.advance(0)
    assert [reply.error for _, reply in driver.take_replies()] == [ErrorCode.NONE]
    view = group_view(driver.core)
    assert (view["groups"], view["offsets"], view["held"]) == ({}, {}, {})
