"""The rule of trucks.py, tested without Spark: `pytest examples/trucks`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from trucks import Dangerous

from barnabas.pipelines.processing.testing import ProcessorTest

NINE = datetime(2026, 1, 31, 9, tzinfo=UTC)


def after(minutes: float) -> datetime:
    return NINE + timedelta(minutes=minutes)


def test_three_events_within_ten_minutes():
    test = ProcessorTest(Dangerous, key="driver", time="event", of="at", late="1 minute")
    test.send({"driver": "Ada", "at": after(0)}, {"driver": "Blaise", "at": after(1)})
    test.send({"driver": "Ada", "at": after(8)})
    assert test.rows == []
    test.send({"driver": "Ada", "at": after(5)})  # out of order
    assert test.rows == [{"driver": "Ada", "alert": "dangerous", "events": 3, "at": after(8)}]


def test_calm_again():
    test = ProcessorTest(Dangerous, key="driver", time="event", of="at", late="1 minute")
    test.send(*({"driver": "Ada", "at": after(minute)} for minute in (0, 1, 2, 3)))
    assert len(test.rows) == 1  # one alert, however many events follow
    assert test.advance(after(12.9)) == []
    assert test.advance(after(13)) == [
        {"driver": "Ada", "alert": "calm again", "events": None, "at": after(13)}
    ]
