"""Stories of groups and their commits; `pytest tests/scenarios/burrow --rewrite` writes what the rules now say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.burrow.stage import Stage

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, rewrite: bool) -> None:
    want = path.read_text()
    got = Stage().run(want)
    if rewrite:
        path.write_text(got)
    else:
        assert got == want


def test_twenty_groups_go_through_every_verdict() -> None:
    """The story of each verdict, told by twenty groups at the same time on one board."""
    stage, stories = Stage(), [path.read_text() for path in SCENARIOS if path.stem.startswith("verdict_")]
    for number in range(20):
        story = stories[number % len(stories)].replace("orders", f"orders{number}")
        got = Stage(stage.board, f"group{number}").run(story)
        assert got == story
    assert len(stage.board.groups) == 20
