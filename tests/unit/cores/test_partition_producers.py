"""Sequences, epochs and transactions of one partition, event by event as Kafka answers them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.cores.partition import Origin, PartitionCore
from barnabas.cores.producers import SEQUENCE_MAX, Producers
from barnabas.records.batch import BatchHeader, Record, build_batch, read_header
from barnabas.records.control import EndTransactionMarker, build_marker
from barnabas.wire.errors import ApiError, ErrorCode


def header(
    count: int = 1, *, pid: int = 7, epoch: int = 0, seq: int = 0, txn: bool = False, at_ms: int = 1000
) -> BatchHeader:
    rows = [Record(i, at_ms, b"k", b"v") for i in range(count)]
    return read_header(
        build_batch(rows, producer_id=pid, producer_epoch=epoch, base_sequence=seq, transactional=txn)
    )


def marker(
    *, commit: bool, pid: int = 7, epoch: int = 0, coordinator: int = 0
) -> tuple[BatchHeader, EndTransactionMarker]:
    batch = build_marker(
        commit=commit, coordinator_epoch=coordinator, producer_id=pid, producer_epoch=epoch, timestamp=5
    )
    return read_header(batch), EndTransactionMarker(commit, coordinator)


class Leader:
    """A partition whose high watermark follows at once unless told otherwise."""

    def __init__(self, *, follow: bool = True) -> None:
        self.core = PartitionCore()
        self.follow = follow

    def produce(self, one: BatchHeader, origin: Origin = Origin.CLIENT, now_ms: int = 0) -> int:
        """The base offset, the earlier one for a duplicate."""
        seen = self.core.decide_append(one, origin)
        if seen is not None:
            return seen.first_offset
        base = self.core.log_end_offset
        self.core.apply(one, base, 0, now_ms)
        self._follow()
        return base

    def end(self, commit: bool, **names: int):  # type: ignore[no-untyped-def]
        one, mark = marker(commit=commit, **names)
        self.core.decide_marker(one, mark)
        completed = self.core.apply_marker(one, self.core.log_end_offset, 0, mark, 0)
        self._follow()
        return completed

    def _follow(self) -> None:
        if self.follow:
            self.core.advance_high_watermark(self.core.log_end_offset)
        self.core.check()


def refused(code: ErrorCode):  # type: ignore[no-untyped-def]
    return pytest.raises(ApiError, check=lambda error: error.code == code)


def test_a_repeated_batch_gets_its_first_answer() -> None:
    leader = Leader()
    bases = [leader.produce(header(3, seq=3 * i)) for i in range(7)]
    assert bases == [0, 3, 6, 9, 12, 15, 18]
    for i in range(2, 7):
        assert leader.produce(header(3, seq=3 * i)) == bases[i]
    # Only five are remembered: what is older is out of order, not a duplicate.
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        leader.produce(header(3, seq=3))
    # The same start with another length is no duplicate either.
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        leader.produce(header(2, seq=18))
    assert leader.core.log_end_offset == 21


def test_a_gap_is_out_of_order_and_changes_nothing() -> None:
    leader = Leader()
    leader.produce(header(2, seq=0))
    for seq in (1, 3, 100):
        with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            leader.produce(header(1, seq=seq))
    assert leader.produce(header(1, seq=2)) == 2


def test_a_duplicate_answers_with_the_timestamp_of_its_append() -> None:
    leader = Leader()
    leader.produce(header(2, seq=0, at_ms=777))
    seen = leader.core.decide_append(header(2, seq=0, at_ms=777))
    assert seen is not None
    assert (seen.first_offset, seen.last_offset, seen.timestamp) == (0, 1, 777)


def test_an_unknown_producer_may_start_anywhere() -> None:
    leader = Leader()
    assert leader.produce(header(1, seq=500)) == 0
    assert leader.produce(header(1, seq=501)) == 1
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        leader.core.decide_append(header(1, pid=8, seq=3), must_start_at_zero=True)


def test_epochs_only_grow_and_start_at_zero() -> None:
    leader = Leader()
    leader.produce(header(1, epoch=3, seq=10))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        leader.produce(header(1, epoch=2, seq=0))
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        leader.produce(header(1, epoch=4, seq=11))
    assert leader.produce(header(1, epoch=4, seq=0)) == 1
    assert leader.produce(header(1, epoch=4, seq=1)) == 2
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        leader.produce(header(1, epoch=3, seq=11))


def test_sequences_wrap() -> None:
    leader = Leader()
    leader.produce(header(3, seq=SEQUENCE_MAX - 1))
    producer = leader.core.producers.get(7)
    assert producer is not None
    assert producer.last_sequence == 0
    assert leader.produce(header(1, seq=1)) == 3
    other = Leader()
    other.produce(header(1, seq=SEQUENCE_MAX))
    assert other.produce(header(1, seq=0)) == 1


@pytest.mark.parametrize(
    "bad",
    [
        header()._replace(attributes=0x20),
        header()._replace(attributes=0x10, producer_id=-1),
        header()._replace(base_sequence=-1),
        header()._replace(producer_epoch=-1),
    ],
)
def test_what_no_client_may_send(bad: BatchHeader) -> None:
    with refused(ErrorCode.INVALID_RECORD):
        PartitionCore().decide_append(bad)


def test_coordinators_and_replicas_are_not_asked_for_sequences() -> None:
    leader = Leader()
    leader.produce(header(1, epoch=2, seq=0))
    assert leader.produce(header(1, epoch=2, seq=-1), Origin.COORDINATOR) == 1
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        leader.produce(header(1, epoch=1, seq=-1), Origin.COORDINATOR)


def test_silent_producers_expire_but_not_within_a_transaction() -> None:
    leader = Leader()
    leader.produce(header(pid=1), now_ms=1000)
    leader.produce(header(pid=2), now_ms=5000)
    leader.produce(header(pid=3, txn=True), now_ms=1000)
    assert leader.core.expired_producers(6000, 5000) == [1]
    leader.core.forget_producers([1])
    assert leader.core.producers.get(1) is None
    assert leader.produce(header(pid=1, seq=44)) == 3


def test_a_transaction_holds_the_stable_offset_down() -> None:
    leader = Leader()
    leader.produce(header(2, pid=1, seq=0))
    leader.produce(header(2, pid=2, seq=0, txn=True))
    leader.produce(header(2, pid=1, seq=2))
    assert (leader.core.high_watermark, leader.core.last_stable_offset) == (6, 2)
    with refused(ErrorCode.INVALID_TXN_STATE):
        leader.produce(header(1, pid=2, seq=2))
    completed = leader.end(True, pid=2)
    assert (completed.first_offset, completed.last_offset, completed.aborted) == (2, 6, False)
    assert leader.core.last_stable_offset == 7
    assert leader.end(True, pid=2) is None


def test_an_aborted_transaction_says_what_becomes_stable() -> None:
    leader = Leader()
    leader.produce(header(pid=1, txn=True))
    leader.produce(header(pid=2, txn=True))
    first = leader.end(False, pid=1)
    assert (first.first_offset, first.last_offset, first.last_stable_offset, first.aborted) == (0, 2, 1, True)
    second = leader.end(False, pid=2)
    assert (second.first_offset, second.last_offset, second.last_stable_offset) == (1, 3, 4)


def test_the_stable_offset_waits_for_the_markers_replication() -> None:
    leader = Leader(follow=False)
    leader.produce(header(pid=1, txn=True))
    leader.core.advance_high_watermark(1)
    assert leader.core.last_stable_offset == 0
    leader.end(True, pid=1)
    assert leader.core.last_stable_offset == 0
    leader.core.advance_high_watermark(2)
    assert leader.core.last_stable_offset == 2


def test_markers_of_old_epochs_and_coordinators_are_refused() -> None:
    leader = Leader()
    leader.produce(header(epoch=3, txn=True))
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        leader.end(True, epoch=2)
    leader.end(True, epoch=3, coordinator=5)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        leader.end(True, epoch=3, coordinator=4)


def test_markers_of_transactions_v2_must_raise_the_epoch() -> None:
    leader = Leader()
    leader.produce(header(epoch=3, txn=True))
    same, mark = marker(commit=True, epoch=3)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        leader.core.decide_marker(same, mark, transaction_version=2)
    leader.end(True, epoch=4)
    # A repetition of the marker after its transaction is over is harmless.
    leader.core.decide_marker(*marker(commit=True, epoch=4), transaction_version=2)
    # The bumped epoch starts anew at sequence 0.
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        leader.produce(header(epoch=4, seq=1, txn=True))
    assert leader.produce(header(epoch=4, seq=0, txn=True)) == 2


events = st.lists(
    st.tuples(
        st.integers(1, 3), st.integers(1, 3), st.booleans(), st.sampled_from(["data", "commit", "abort"])
    ),
    max_size=30,
)


@given(events)
@settings(max_examples=60, deadline=None)
def test_a_snapshot_holds_all_that_is_needed_to_go_on(steps: list[tuple[int, int, bool, str]]) -> None:
    leader = Leader()
    sequences: dict[int, int] = {}
    open_txn: set[int] = set()
    for pid, count, txn, kind in steps:
        if kind == "data":
            seq = sequences.get(pid, 0)
            leader.produce(header(count, pid=pid, seq=seq, txn=txn or pid in open_txn))
            sequences[pid] = seq + count
            if txn:
                open_txn.add(pid)
        else:
            leader.end(kind == "commit", pid=pid)
            open_txn.discard(pid)
    restored = Producers()
    restored.load(leader.core.producers.snapshot())
    assert restored.snapshot() == leader.core.producers.snapshot()
    assert list(restored.ongoing.items()) == list(leader.core.producers.ongoing.items())
    for pid, seq in sequences.items():
        restored.check(header(1, pid=pid, seq=seq, txn=True), Origin.CLIENT)
        with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            restored.check(header(1, pid=pid, seq=seq + 1, txn=True), Origin.CLIENT)


def test_every_batch_that_may_be_in_flight_is_known_again_after_a_restart() -> None:
    """Else a retry of the first of five is out of order, and its producer writes it again under a new epoch."""
    leader = Leader()
    batches = [header(2, seq=2 * index, at_ms=index) for index in range(7)]
    offsets = [leader.produce(batch, now_ms=1000 + index) for index, batch in enumerate(batches)]
    again = Leader()
    again.core.producers.load(leader.core.producers.snapshot())
    for batch, offset in list(zip(batches, offsets, strict=True))[-5:]:
        seen = again.core.decide_append(batch)
        assert seen is not None
        assert seen.first_offset == offset
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        again.core.decide_append(batches[1])


def test_a_snapshot_keeps_one_batch_of_producers_that_have_not_written_for_long() -> None:
    leader = Leader()
    for pid, now_ms in ((1, 0), (2, 3_600_000)):
        for seq in range(3):
            leader.produce(header(pid=pid, seq=seq), now_ms=now_ms)
    rows = leader.core.producers.snapshot()
    assert [row.producer_id for row in rows] == [1, 2, 2, 2]
    assert [row.last_sequence for row in rows] == [2, 0, 1, 2]
