"""Binary search in an index, against Python's own."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.entries import count_up_to

NARROW = st.integers(-(1 << 31), (1 << 31) - 1)
WIDE = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(NARROW).map(sorted), WIDE, st.booleans())
def test_numbers_of_four_bytes(numbers: list[int], value: int, behind: bool) -> None:
    other = b"\xff" * 4
    rows = (number.to_bytes(4, "big", signed=True) for number in numbers)
    entries = bytearray(b"".join(other + row if behind else row + other for row in rows))
    assert count_up_to(entries, 8, 4 if behind else 0, 4, value) == bisect_right(numbers, value)


@given(st.lists(WIDE).map(sorted), WIDE)
def test_numbers_of_eight_bytes(numbers: list[int], value: int) -> None:
    entries = bytearray(
        b"".join(number.to_bytes(8, "big", signed=True) + b"\x80\0\0\0" for number in numbers)
    )
    assert count_up_to(entries, 12, 0, 8, value) == bisect_right(numbers, value)


@pytest.mark.parametrize(("entry_bytes", "at", "width"), [(0, 0, 4), (8, 5, 4), (8, -1, 4), (12, 0, 3)])
def test_what_is_not_there(entry_bytes: int, at: int, width: int) -> None:
    with pytest.raises(ValueError, match="no number of"):
        count_up_to(bytearray(24), entry_bytes, at, width, 0)
