"""Records of several partitions in the order of their times."""

from __future__ import annotations

from typing import Any

from barnabas.cli.records.merging import HELD_FEW, HELD_MAX, TimeMerge

A, B = ("a", 0), ("b", 0)


class Told:
    """A record as far as merging looks at it."""

    def __init__(self, key: tuple[str, int], time_ms: int) -> None:
        self.key, self.time_ms = key, time_ms

    def topic(self) -> str:
        return self.key[0]

    def partition(self) -> int:
        return self.key[1]

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time_ms


def records(key: tuple[str, int], *times: int) -> list[Any]:
    return [Told(key, time_ms) for time_ms in times]


def told(merged: list[Any]) -> list[tuple[str, int]]:
    return [(record.key[0], record.time_ms) for record in merged]


def test_a_record_waits_for_partitions_that_may_have_older_ones() -> None:
    merge = TimeMerge()
    merge.add(records(A, 1, 5))
    assert merge.ready({A, B}, 99) == []
    merge.add(records(B, 2, 3))
    assert told(merge.ready({A, B}, 99)) == [("a", 1), ("b", 2), ("b", 3)]
    merge.note_end(B)
    assert told(merge.ready({A, B}, 99)) == [("a", 5)]
    assert merge.is_empty


def test_a_partition_that_goes_on_after_its_end_is_waited_for_again() -> None:
    merge = TimeMerge()
    merge.note_end(A)
    merge.note_end(B)
    merge.add(records(B, 7))
    assert told(merge.ready({A, B}, 99)) == [("b", 7)]
    merge.add(records(A, 8))
    assert merge.ready({A, B}, 99) == []
    assert told(merge.ready({A}, 99)) == [("a", 8)], "the partition was closed"


def test_records_of_one_partition_keep_their_order_whatever_their_times() -> None:
    merge = TimeMerge()
    merge.add([*records(A, 5, 1), *records(B, 3)])
    assert told(merge.ready(set(), 2)) == [("b", 3), ("a", 5)]
    assert told(merge.ready(set(), 2)) == [("a", 1)]


def test_a_partition_far_ahead_is_read_no_further_until_few_are_held() -> None:
    merge = TimeMerge()
    merge.add(records(A, *range(HELD_MAX)))
    assert merge.full() == {A}
    assert merge.few({A}) == set()
    merge.ready(set(), HELD_MAX - HELD_FEW + 1)
    assert merge.few({A}) == {A}
