"""What counts as unread in raw batches, when a lag will be gone, and by what it is counted."""

from __future__ import annotations

import pytest

from barnabas.monitor.lag.by import NONE, By, Counts, readable
from barnabas.monitor.lag.forecast import caught_up_ms
from barnabas.monitor.lag.unread import Unread, first_unread, newest_timestamp
from barnabas.records.batch import Record, build_batch, build_batch_at, empty_batch, read_header
from barnabas.records.control import build_marker

PRODUCER = 7


def plain(offset: int, *stamps: int) -> bytes:
    return build_batch([Record(offset, stamp, None, b"x") for stamp in stamps], base_offset=offset)


def in_transaction(offset: int, stamp: int, producer: int = PRODUCER) -> bytes:
    return build_batch(
        [Record(offset, stamp, None, b"x")],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def marker(offset: int, stamp: int, *, commit: bool, producer: int = PRODUCER) -> bytes:
    return build_marker(
        commit=commit,
        coordinator_epoch=0,
        producer_id=producer,
        producer_epoch=0,
        timestamp=stamp,
        base_offset=offset,
    )


def test_the_record_at_the_offset_counts_not_its_batch() -> None:
    assert first_unread(plain(10, 100, 200, 300), 11, ()) == Unread(11, 200)
    assert first_unread(plain(10, 100, 200, 300), 13, ()) is None


def test_gaps_and_empty_batches_of_compaction_are_passed_over() -> None:
    kept = build_batch_at([Record(10, 100, b"k", b"x"), Record(14, 500, b"l", b"x")], last_offset=15)
    gone = empty_batch(read_header(plain(16, 600)))
    assert first_unread(kept, 11, ()) == Unread(14, 500)
    assert first_unread(kept + gone, 15, ()) is None
    assert first_unread(kept + gone + plain(17, 700), 15, ()) == Unread(17, 700)


def test_markers_and_aborted_records_are_passed_over_and_later_ones_of_the_same_producer_are_not() -> None:
    log = in_transaction(0, 100) + marker(1, 110, commit=False)
    log += in_transaction(2, 200) + marker(3, 210, commit=True)
    aborted = [(PRODUCER, 0)]
    assert first_unread(log, 0, aborted) == Unread(2, 200)
    assert first_unread(log, 3, aborted) is None
    assert first_unread(log, 0, ()) == Unread(0, 100)
    assert [record.offset for record in readable(log, 0, 4, aborted)] == [2]


def test_a_record_without_a_timestamp_is_a_record() -> None:
    assert first_unread(plain(0, -1), 0, ()) == Unread(0, None)
    assert newest_timestamp(plain(0, -1)) is None
    assert newest_timestamp(plain(0, 5, 9) + plain(2, 7)) == 9


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([], None),
        ([(1_000, 50)], None),
        ([(1_000, 0)], 1_000),
        ([(0, 100), (1_000, 80), (2_000, 60)], 5_000),
        ([(0, 100), (1_000, 100)], None),
        ([(0, 100), (1_000, 120)], None),
        ([(0, 100), (0, 90)], None),
    ],
)
def test_a_lag_goes_on_as_it_did(looks: list[tuple[int, int]], expected: int | None) -> None:
    assert caught_up_ms(looks) == expected


def test_records_are_counted_by_header_or_key() -> None:
    record = Record(0, 5, b"acme/eu/1", b"x", (("tenant", b"old"), ("tenant", b"acme"), ("key", b"k")))
    for text, value in (
        ("tenant", "acme"),
        ("other", NONE),
        ("key", "acme/eu/1"),
        ("key:/", "acme"),
        ("header:key", "k"),
    ):
        assert By.parse(text).value_of(record) == value
    assert By.parse("key").value_of(Record(0, 5, None, b"x")) == NONE
    counts = Counts()
    for stamp in (30, 10, -1):
        counts.add("acme", stamp)
    assert (counts.records, counts.oldest_ms) == ({"acme": 3}, {"acme": 10})
