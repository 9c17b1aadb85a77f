"""Each row of docs/works-with.md says which test tries it."""

from __future__ import annotations

import re
from typing import Final

from tests.documents.sessions import ROOT

PAGE: Final = (ROOT / "docs" / "works-with.md").read_text("utf-8")


def rows(title: str) -> list[list[str]]:
    """The cells of the rows of one part of the page."""
    part = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines[1:]]


def test_each_row_names_a_test_that_is_there() -> None:
    tried = rows("Frameworks") + rows("Consoles and tools")
    assert len(tried) > 20
    for what, _, how, *_ in tried:
        paths = re.findall(r"`(tests/[\w/.]+)`", how)
        assert paths, what
        assert not [path for path in paths if not (ROOT / path).exists()], what


def test_what_could_not_be_had_says_what_was_tried_and_what_is_tested_in_its_place() -> None:
    missing = rows("What could not be had")
    assert len(missing) > 10
    assert not [row[0] for row in missing if len(row) != 3 or not all(row)]
