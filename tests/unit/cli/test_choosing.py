"""`consume --filter`: which records pass, how many, and what counts as looked at."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.records.choosing import sieve_of
from barnabas.terminal.errors import UsageError


class Told:
    """A message as far as filters look at it."""

    def __init__(self, partition: int, offset: int, value: bytes | None) -> None:
        self._partition, self._offset, self._value = partition, offset, value

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> None:
        return None


MESSAGES: list[Any] = [Told(n % 2, n, b'{"n": %d}' % n) for n in range(9)]
ODD: list[Any] = [Told(0, 0, value) for value in (None, b"", b"\x00\x00\x00\x00\x07", b'{"n":', b"\xff")]


@pytest.mark.parametrize(
    ("text", "count", "offsets", "passed"),
    [
        ("n > 6", None, [7, 8], 9),
        ("n > 2", 2, [3, 4], 5),
        ("partition = 1 and offset < 4", None, [1, 3], 9),
        ("value is null", None, [], 9),
    ],
)
def test_what_fits_passes(text: str, count: int | None, offsets: list[int], passed: int) -> None:
    sieve = sieve_of(text, count)
    assert sieve is not None
    assert [message.offset() for message in sieve.chosen(MESSAGES)] == offsets
    assert sieve.passed == passed
    assert sieve.fitting == len(offsets)


def test_records_that_are_no_json_fit_nothing_and_stop_nothing() -> None:
    sieve = sieve_of("n + 1 > 0", None)
    assert sieve is not None
    assert sieve.chosen([*ODD, MESSAGES[3]]) == [MESSAGES[3]]


def test_a_wrong_expression_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be understood"):
        sieve_of("n >", None)
