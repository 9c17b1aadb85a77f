"""What the documents print for the command line works as it is printed; see walks.py."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.documents.sessions import masked, rewrite_page, steps_of
from tests.lessons.printed import document
from tests.lessons.walks import FOLDER, PAGES, TOOL, Step, machine, one_line, printed_commands

ELSEWHERE: Final[dict[str, Any]] = tomllib.loads((FOLDER / "elsewhere.toml").read_text("utf-8"))
DOCUMENTS: Final = ("guide", "platform", "exploring", "notes", "principle")


@pytest.mark.soak
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, rewrite: bool) -> None:
    different: dict[int, tuple[Step, list[str]]] = {}
    with machine(tmp_path / "home") as made:
        for step in steps_of(page):
            printed = made.run(step)
            wanted, got = masked(step.shown), masked(printed)
            if "console-consumer" in step.command:
                wanted, got = sorted(wanted), sorted(got)
            if wanted != got and not (step.shown[:1] == ["ready"] and step.shown[-1] == "..."):
                different[step.line] = (step, printed)
        different |= made.finish()
    if rewrite:
        rewrite_page(page, different)
        return
    assert not different, "\n\n".join(
        "\n".join([f"{step.name}: $ {step.command}", "the page says", *step.shown, "and it prints", *printed])
        for step, printed in different.values()
    )


def typed() -> set[str]:
    """Every command of every page, each on one line."""
    return {one_line(step.command).partition(" | ")[0] for page in PAGES for step in steps_of(page)}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_of_a_document_is_typed(name: str) -> None:
    """On a page, or where elsewhere.toml says."""
    commands = printed_commands(document(name))
    rows = ELSEWHERE[name]
    assert len(commands) > len(rows)
    missing = {command: line for command, line in commands.items() if command not in typed() | rows.keys()}
    assert not missing
    assert rows.keys() <= commands.keys()
    assert not rows.keys() & typed()


def test_the_pages_type_kafkas_tools() -> None:
    assert sum(TOOL.match(command) is not None for command in typed()) > 60
