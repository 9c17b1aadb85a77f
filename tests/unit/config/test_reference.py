"""docs/configuration.md says what the declarations say."""

from __future__ import annotations

from pathlib import Path

from barnabas.config.reference import render

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == render(), "run: python -m barnabas.config.reference > docs/configuration.md"
