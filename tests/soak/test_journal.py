"""The judge of the soak is judged: each fault is found, and what is excused is not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.soak import journal
from tests.soak.journal import Rules, Span

RULES = Rules(session_s=6, heartbeat_s=0.5, settle_s=2)


def ticks(begin: float, end: float) -> list[list[Any]]:
    return [["tick", "", begin + step * 0.5] for step in range(int((end - begin) * 2) + 1)]


def told(end: float, *journals: list[list[Any]]) -> journal.Story:
    return journal.tell([sorted(lines, key=lambda line: line[2]) for lines in journals], RULES, end=end)


def test_one_after_the_other_is_no_fault() -> None:
    story = told(
        40,
        [*ticks(0, 40), ["assign", "a", 1, [0]], ["revoke", "a", 20, [0]]],
        [*ticks(0, 40), ["assign", "b", 20.1, [0]]],
    )
    assert journal.owned_twice(story, RULES) == []
    free = journal.unowned(story, 1, Span(2, 40))
    assert [round(span.end - span.begin, 3) for span in free[0]] == [0.1]


def test_two_owners_at_once() -> None:
    story = told(
        40,
        [*ticks(0, 40), ["assign", "a", 1, [0, 1]], ["revoke", "a", 20, [0, 1]]],
        [*ticks(0, 40), ["assign", "b", 19.7, [0]]],
    )
    assert [fault.split(":")[0] for fault in journal.owned_twice(story, RULES)] == ["partition 0"]


def test_who_did_not_run_may_be_replaced_after_its_session_until_it_hears_of_it() -> None:
    stalled = [*ticks(0, 10), *ticks(30, 40), ["assign", "a", 1, [0]], ["revoke", "a", 30.4, [0]]]
    late = [*ticks(0, 40), ["assign", "b", 16, [0]]]
    assert journal.owned_twice(told(40, stalled, late), RULES) == []
    early = [*ticks(0, 40), ["assign", "b", 13, [0]]]
    assert len(journal.owned_twice(told(40, stalled, early), RULES)) == 1
    lasting = [line for line in stalled if line[0] != "revoke"] + [
        ["revoke", "a", 30.4, []],
        ["read", "a", 31, 0, 1, 2],
    ]
    assert len(journal.owned_twice(told(40, lasting, late), RULES)) == 1


def test_who_does_not_find_the_broker_again_is_fenced_after_a_session() -> None:
    lost = [*ticks(0, 60), ["assign", "a", 1, [0]], ["revoke", "a", 30, [0]]]
    other = [*ticks(0, 60), ["assign", "b", 28, [0]]]
    assert len(journal.owned_twice(told(60, lost, other), RULES)) == 1
    for back_at, faults in ((20, 0), (24, 1)):
        story = journal.tell([lost, other], RULES, end=60, broker_away=[Span(back_at - 2, back_at)])
        assert len(journal.owned_twice(story, RULES)) == faults


def test_the_dead_own_nothing() -> None:
    dead = [*ticks(0, 10), ["assign", "a", 1, [0]]]
    assert journal.owned_twice(told(40, dead, [*ticks(0, 40), ["assign", "b", 10.5, [0]]]), RULES) == []
    assert len(journal.owned_twice(told(40, dead, [*ticks(0, 40), ["assign", "b", 9, [0]]]), RULES)) == 1


@pytest.mark.parametrize(("taken_at", "faults"), [(17.5, 0), (19, 1)])
def test_nobodys_for_longer_than_session_and_rebalance(taken_at: float, faults: int) -> None:
    dead = [*ticks(0, 10), ["assign", "a", 1, [0]]]
    other = [*ticks(0, 40), ["assign", "b", 1, [1]], ["assign", "b", taken_at, [0]]]
    story = told(40, dead, other)
    faults_found = journal.nobodys(journal.unowned(story, 2, Span(4, 40)), journal.excuses(story, RULES, []))
    assert len(faults_found) == faults


def test_nobodys_without_a_reason() -> None:
    calm = [*ticks(0, 60), ["assign", "a", 1, [0]], ["revoke", "a", 20, [0]], ["assign", "a", 21, [0]]]
    story = told(60, [["assign", "b", 1, [1]], *ticks(0, 60)], calm)
    story.came_or_went = [time for time in story.came_or_went if time < 5]
    complaints = journal.nobodys(journal.unowned(story, 2, Span(4, 60)), journal.excuses(story, RULES, []))
    assert [fault[:35] for fault in complaints] == ["partition 0 was nobody's from 20.00"]
    excused = journal.excuses(story, RULES, [Span(19, 20)])
    assert journal.nobodys(journal.unowned(story, 2, Span(4, 60)), excused) == []


def test_nobodys_for_longer_than_anything_excuses() -> None:
    free = {0: [Span(10, 18)], 1: [Span(10, 18.5)], 2: []}
    complaints = journal.nobodys_for_long(free, RULES, [])
    assert [fault[:35] for fault in complaints] == ["partition 1 was nobody's for 8.5 s "]
    assert journal.nobodys_for_long(free, RULES, [Span(17, 18)]) == []
    assert len(journal.nobodys_for_long(free, RULES, [Span(8, 9.9)])) == 1


def test_records_that_nobody_read() -> None:
    story = told(
        9, [*ticks(0, 9), ["read", "a", 1, 0, 0, 4], ["read", "a", 2, 0, 7, 9]], [["read", "b", 3, 0, 3, 5]]
    )
    assert journal.not_read(story, {0: 10, 1: 0}) == ["partition 0: nobody read 6 to 6"]
    assert journal.not_read(story, {0: 12, 1: 1})[1:] == [
        "partition 0: nobody read 10 to 11",
        "partition 1: nobody read 0 to 0",
    ]


def test_commits_that_went_back() -> None:
    fine = told(9, [["commit", "a", 2.0, {"0": 5}, 1.0]], [["commit", "b", 2.5, {"0": 4}, 1.5]])
    assert journal.went_back(fine.commits) == []
    late = told(9, [["commit", "a", 2.0, {"0": 5}, 1.0]], [["commit", "b", 3.5, {"0": 4}, 2.5]])
    assert journal.went_back(late.commits) == ["partition 0: b committed 4 after a had committed 5"]
