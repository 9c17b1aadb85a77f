"""A start that takes long says how far it is."""

from __future__ import annotations

import logging

import pytest

from barnabas.storage.dirs.opening import Opening


def test_a_line_every_five_seconds(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    opening = Opening("/data", 100, lambda: now[0])
    with caplog.at_level(logging.INFO, "barnabas.storage"):
        for second in range(1, 11):
            now[0] = float(second)
            opening.opened(10)
    (line,) = caplog.records
    assert (line.message, line.open, line.of, line.seconds_left) == ("opening logs", 50, 100, 5)  # type: ignore[attr-defined]
