"""What a link can tell of a copy before the records of a fetch are checked and written."""

from __future__ import annotations

from barnabas.broker.links.arriving import end_of, whole_batches
from barnabas.broker.links.session import Asked
from barnabas.records.batch import Record, build_batch_at
from barnabas.records.message_set import build_message_set

EPOCH = 4


def batch(first: int, last: int, epoch: int = EPOCH) -> bytes:
    """A compacted batch: it ends at `last`, whatever is left in it."""
    return build_batch_at([Record(first, 1, None, b"v")], last_offset=last, leader_epoch=epoch)


def test_the_end_is_that_of_the_last_whole_batch() -> None:
    one, two = batch(5, 9), batch(12, 20)
    for records in (one + two, one + two + batch(21, 22)[:-1], one + two + b"\0" * 5):
        assert end_of(memoryview(records), EPOCH) == Asked(21, EPOCH)
        assert whole_batches(memoryview(records), EPOCH).records == one + two
    assert end_of(memoryview(one + two[:-1]), EPOCH) == Asked(10, EPOCH)


def test_nothing_is_told_where_the_checks_decide() -> None:
    assert end_of(memoryview(b""), EPOCH) is None
    assert end_of(memoryview(batch(5, 9)[:-1]), EPOCH) is None
    assert end_of(memoryview(batch(5, 9) + batch(10, 10, EPOCH + 1)), EPOCH) is None
    for hostile in ((-5, 0), ((1 << 63) - 1, 5), (5, -9)):
        data = bytearray(batch(5, 9))
        data[0:8], data[23:27] = (
            hostile[0].to_bytes(8, "big", signed=True),
            hostile[1].to_bytes(4, "big", signed=True),
        )
        assert end_of(memoryview(data), EPOCH) is None
    old = build_message_set([Record(5, 1, None, b"v" * 99)], magic=1)
    assert end_of(memoryview(old), EPOCH) is None
    assert end_of(memoryview(batch(0, 4) + bytes(old)), EPOCH) is None
