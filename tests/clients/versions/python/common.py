"""What the steps of all clients share: the records that are written, and what must come back."""

import time
from collections.abc import Iterable

PARTITIONS = 2
COUNT = 100
FIRST_MS = 1_700_000_000_000
PATIENCE_S = 60

Row = tuple[bytes | None, bytes | None, int]


def record(number: int) -> Row:
    """(key, value, time) of the record with this number, which is written to partition number % PARTITIONS."""
    key = None if number % 7 == 0 else b"key-%d" % (number % 10)
    value = None if key and number % 11 == 0 else b"value %d" % number + b" " * (number % 50)
    return key, value, FIRST_MS + number


def numbers(codec_index: int) -> range:
    """Of the records that are written with this codec."""
    return range(codec_index * COUNT, (codec_index + 1) * COUNT)


def verify(rows: Iterable[tuple[int, int, Row]], total: int) -> None:
    """rows: (partition, offset, record) of all that was read."""
    by_number = {offset * PARTITIONS + partition: row for partition, offset, row in rows}
    assert sorted(by_number) == list(range(total)), f"{len(by_number)} of {total} records"
    for number, row in by_number.items():
        assert row == record(number), f"{row} instead of {record(number)}"


class Deadline:
    """A condition must hold within PATIENCE_S."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.end = time.monotonic() + PATIENCE_S

    def check(self, state: object = "") -> None:
        assert time.monotonic() < self.end, f"not within {PATIENCE_S} s: {self.what}: {state}"
