"""The language of `consume -o`."""

from __future__ import annotations

import pytest

from barnabas.terminal.errors import UsageError
from barnabas.terminal.offsets import (
    BEGINNING,
    END,
    STORED,
    Anchor,
    Bounds,
    Clock,
    Place,
    Range,
    parse_offsets,
    parse_range,
    resolve,
)

CLOCK = Clock(1_700_000_000_000)
DAY_MS = 86_400_000


def at(ms: int) -> Place:
    return Place(Anchor.TIME, ms)


def offset(number: int) -> Place:
    return Place(Anchor.OFFSET, number)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("beginning", Range(BEGINNING)),
        ("earliest", Range(BEGINNING)),
        ("end", Range(END)),
        ("stored", Range(STORED)),
        ("0", Range(offset(0))),
        ("-10", Range(Place(Anchor.BEFORE_END, 10))),
        ("10:20", Range(offset(10), offset(20))),
        (":20", Range(BEGINNING, offset(20))),
        ("10:", Range(offset(10))),
        ("-5:end", Range(Place(Anchor.BEFORE_END, 5), END)),
        ("@1000", Range(at(1000))),
        ("@1000:@2000", Range(at(1000), at(2000))),
        ("@1000:2000", Range(at(1000), at(2000))),
        ("@1970-01-02T00:00:00Z", Range(at(DAY_MS))),
        ("@1970-01-02T00:00:00Z:", Range(at(DAY_MS))),
        ("@1970-01-01T00:00:00+00:00:@1970-01-02T00:00:00.250Z", Range(at(0), at(DAY_MS + 250))),
        ("@1970-01-02T00:00:00Z:end", Range(at(DAY_MS), END)),
        ("@-90m", Range(at(CLOCK.now_ms - 90 * 60_000))),
        ("@-2d:@-1d", Range(at(CLOCK.now_ms - 2 * DAY_MS), at(CLOCK.now_ms - DAY_MS))),
        ("@now", Range(at(CLOCK.now_ms))),
    ],
)
def test_parse(text: str, want: Range) -> None:
    assert parse_range(text, CLOCK) == want


def test_bare_dates_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        assert parse_range("@1970-01-02:1970-01-03", CLOCK) == Range(
            at(DAY_MS - 7_200_000), at(2 * DAY_MS - 7_200_000)
        )
        # The clock stands at 2023-11-14 22:13:20 UTC, which is the 15th two hours further east.
        assert parse_range("@01:30", CLOCK) == Range(at(1_700_004_600_000))
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "x", "1:x", "@", "@yesterday", "1:stored", "1.5", "--1", "@12:3x", "٣"])
def test_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not an offset"):
        parse_range(text, CLOCK)


def test_kcat_begin_and_end() -> None:
    assert parse_offsets(["s@1000", "e@2000"], CLOCK) == Range(at(1000), at(2000))
    assert parse_offsets(["e@2000"], CLOCK) == Range(BEGINNING, at(2000))
    assert parse_offsets([], CLOCK) is None
    with pytest.raises(UsageError, match="is not a time"):
        parse_offsets(["s@x"], CLOCK)


@pytest.mark.parametrize(
    ("place", "want"),
    [
        (BEGINNING, 5),
        (END, 50),
        (STORED, 30),
        (offset(7), 7),
        (offset(1), 5),
        (offset(99), 50),
        (Place(Anchor.BEFORE_END, 10), 40),
        (Place(Anchor.BEFORE_END, 100), 5),
        (at(1000), 12),
        (at(9999), 50),
    ],
)
def test_resolve(place: Place, want: int) -> None:
    times = {1000: 12}
    assert resolve(place, Bounds(5, 50, 30), lambda ms: times.get(ms, -1)) == want


def test_stored_without_offset_begins_at_the_beginning() -> None:
    assert resolve(STORED, Bounds(5, 50), lambda _ms: -1) == 5
