"""The leader epoch cache, by the questions that followers ask."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.cores.epochs import EpochEnd, LeaderEpochs
from barnabas.cores.partition import PartitionCore
from barnabas.records.batch import Record, build_batch, read_header


def test_the_answers_to_an_epochs_end() -> None:
    epochs = LeaderEpochs([(2, 10), (4, 20), (7, 30)])
    assert epochs.end_of(7, 44) == EpochEnd(7, 44)
    assert epochs.end_of(4, 44) == EpochEnd(4, 30)
    assert epochs.end_of(5, 44) == EpochEnd(4, 30)
    assert epochs.end_of(1, 44) == EpochEnd(1, 10)
    assert epochs.end_of(8, 44) == EpochEnd(-1, -1)
    assert epochs.end_of(-1, 44) == EpochEnd(-1, -1)
    assert LeaderEpochs().end_of(0, 0) == EpochEnd(-1, -1)
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 7]


def test_a_new_entry_removes_what_contradicts_it() -> None:
    epochs = LeaderEpochs([(2, 10), (4, 20), (7, 30)])
    assert epochs.assign(5, 25)
    assert epochs.entries() == [(2, 10), (4, 20), (5, 25)]
    assert not epochs.assign(5, 27)
    assert epochs.assign(9, 15)
    assert epochs.entries() == [(2, 10), (9, 15)]


def test_truncation_from_both_ends() -> None:
    epochs = LeaderEpochs([(2, 10), (4, 20), (7, 30)])
    epochs.truncate_from_start(25)
    assert epochs.entries() == [(4, 25), (7, 30)]
    assert epochs.dirty
    epochs.truncate_from_end(30)
    assert (epochs.entries(), epochs.latest) == ([(4, 25)], 4)
    epochs.truncate_from_end(0)
    assert (epochs.entries(), epochs.latest) == ([], -1)


@given(st.lists(st.tuples(st.sampled_from("aes"), st.integers(0, 20), st.integers(0, 100)), max_size=40))
def test_entries_always_grow(steps: list[tuple[str, int, int]]) -> None:
    epochs = LeaderEpochs()
    for kind, epoch, offset in steps:
        if kind == "a":
            epochs.assign(epoch, offset)
        elif kind == "e":
            epochs.truncate_from_end(offset)
        else:
            epochs.truncate_from_start(offset)
        entries = epochs.entries()
        assert entries == sorted(entries)
        assert len({e for e, _ in entries}) == len({s for _, s in entries}) == len(entries)
        assert epochs.latest == (entries[-1][0] if entries else -1)


def test_batches_bring_their_epochs_along() -> None:
    core = PartitionCore()
    one = read_header(build_batch([Record(0, 1, None, b"v")]))
    for base, epoch in ((0, 0), (1, 0), (2, 3), (3, 3)):
        core.apply(one, base, epoch, 0)
    assert core.epochs.entries() == [(0, 0), (3, 2)]
    core.advance_high_watermark(99)
    assert core.high_watermark == 4
    core.advance_log_start(3)
    assert core.epochs.entries() == [(3, 3)]
    core.reset(3, 3)
    assert (core.epochs.entries(), core.log_end_offset, core.high_watermark) == ([], 3, 3)
    core.check()
