"""The pure part of tables over compacted topics: whatever is read in whatever pieces, the rows are the log's last values."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.tables.replay import Change, Replay, Rows
from tests.support.examples import examples

KEYS = st.sampled_from("abcd")
VALUES = st.none() | st.integers(0, 9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)),
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("wait"), st.integers(0, 6)),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("cut the end off"), st.integers(1, 5)),
        st.tuples(st.just("create anew"), st.none()),
    ),
    max_size=60,
)


@dataclass
class Log:
    """What a topic has, as its broker knows it: rows of (offset, key, value), and the next offset."""

    rows: list[tuple[int, str, int | None]] = field(default_factory=list)
    end: int = 0

    def append(self, rows: list[tuple[str, int | None]]) -> int:
        base = self.end
        self.rows += [(base + index, key, value) for index, (key, value) in enumerate(rows)]
        self.end += len(rows)
        return base

    def compact(self, read: int) -> None:
        """Only the last record of each key stays, and no tombstone that has been read (delete.retention.ms is the time that
        readers have)."""
        last = {key: offset for offset, key, _ in self.rows}
        self.rows = [
            row for row in self.rows if last[row[1]] == row[0] and (row[2] is not None or row[0] >= read)
        ]

    def table(self) -> dict[str, int]:
        values = {key: value for _, key, value in self.rows}
        return {key: value for key, value in values.items() if value is not None}


class Reader:
    """Reads a log in pieces and gives it to the replay, as a follower does."""

    def __init__(self) -> None:
        self.log = Log()
        self.rows: Rows[str, int] = Rows()
        self.replay: Replay[str, int, int] = Replay(self.rows)
        self.offset = 0
        self.waiting: dict[int, int] = {}
        """The offset that each waiter waits for."""
        self.waiters = 0
        self.shown_before: dict[str, int] | None = None
        """What has to be shown until all has been read again."""
        self.replay.begin(0, 0)

    def read(self, count: int) -> None:
        before = self.shown_before
        piece = [row for row in self.log.rows if row[0] >= self.offset][:count]
        # The reader passes offsets that compaction has emptied.
        after = piece[-1][0] + 1 if len(piece) == count else self.log.end
        self.settle(self.replay.take([Change(*row) for row in piece], after))
        self.offset = max(self.offset, after)
        if self.replay.is_whole:
            self.shown_before = None
        elif before is not None:
            assert self.rows.shown == before

    def wait(self, ahead: int) -> None:
        self.waiters += 1
        offset = self.log.end - ahead
        if self.replay.must_wait(offset, self.waiters):
            self.waiting[self.waiters] = offset
        else:
            assert self.replay.is_whole
            assert self.replay.next_offset >= offset

    def settle(self, reached: list[int]) -> None:
        for waiter in reached:
            assert self.waiting.pop(waiter) <= self.replay.next_offset
        if self.replay.is_whole:
            assert all(offset > self.replay.next_offset for offset in self.waiting.values())

    def begin_again(self) -> None:
        shown = self.rows.shown
        in_vain = self.replay.begin_again(0, self.log.end)
        assert sorted(in_vain) == sorted(self.waiting)
        self.waiting.clear()
        self.offset = 0
        if self.log.end:
            self.shown_before = dict(shown)
            assert self.rows.shown == self.shown_before
        else:
            assert self.rows.shown == {}


@settings(max_examples=examples(300))
@given(STEPS)
def test_when_all_is_read_the_rows_are_the_last_values_and_nobody_waits(steps: list) -> None:
    reader = Reader()
    for step, value in steps:
        match step:
            case "append":
                reader.log.append(value)
            case "read":
                reader.read(value)
            case "wait":
                reader.wait(value)
            case "compact":
                reader.log.compact(reader.offset)
            case "cut the end off":
                end = max(reader.log.end - value, 0)
                reader.log = Log([row for row in reader.log.rows if row[0] < end], end)
                reader.begin_again()
            case _:
                reader.log = Log()
                reader.begin_again()
    reader.read(1_000)
    assert reader.replay.is_whole
    assert reader.replay.next_offset == reader.log.end
    assert reader.rows.shown == reader.log.table()
    assert not reader.waiting


def test_a_topic_without_records_is_whole_at_once() -> None:
    replay: Replay[str, int, int] = Replay(Rows())
    replay.begin(3, 3)
    assert replay.is_whole
    assert not replay.must_wait(3, 1)


class Picky(Rows[str, int]):
    """Refuses some records, and meets a bug in others."""

    def replay(self, change: Change[str, int]) -> None:
        if change.value == 1:
            raise ValueError("a value that has no meaning")
        if change.value == 2:
            raise KeyError("a bug")
        super().replay(change)


def test_a_record_that_cannot_be_replayed_costs_no_other() -> None:
    rows = Picky()
    replay: Replay[str, int, int] = Replay(rows)
    replay.begin(0, 4)
    assert replay.must_wait(4, 7)
    assert replay.take([Change(index, f"k{index}", index) for index in range(4)], 4) == [7]
    assert rows.shown == {"k0": 0, "k3": 3}
