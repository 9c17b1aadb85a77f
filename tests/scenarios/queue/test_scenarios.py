"""Stories of a queue as text; `pytest tests/scenarios/queue --rewrite` writes what the core now does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.queue.stage import Stage

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, rewrite: bool) -> None:
    want = path.read_text()
    got = Stage().run(want)
    if rewrite:
        path.write_text(got)
    else:
        assert got == want
