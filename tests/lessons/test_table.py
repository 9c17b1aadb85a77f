"""docs/lessons.md names every lab of examples/lessons/labs.toml, and everything that it names is there."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Final

import pytest

from tests.documents.sessions import ROOT

LESSONS: Final = ROOT / "examples" / "lessons"


def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lessons_table", LESSONS / "table.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


TABLE: Final = module()
LABS: Final = TABLE.read()["lab"]


def test_the_page_is_made_of_the_list() -> None:
    page = (ROOT / "docs" / "lessons.md").read_text("utf-8")
    assert page == TABLE.page(), "python examples/lessons/table.py > docs/lessons.md"


@pytest.mark.parametrize("document", TABLE.read()["documents"])
def test_what_is_named_is_there(document: str) -> None:
    labs = [lab for lab in LABS if lab["document"] == document]
    assert labs
    for lab in labs:
        assert lab["state"] in TABLE.STATES, lab
        assert lab["runs"] or lab["state"] == "open", lab
        assert not [path for path in lab["runs"] if not (ROOT / path).exists()], lab


def test_every_lesson_is_in_the_table() -> None:
    named = {path for lab in LABS for path in lab["runs"]}
    folders = {f"examples/lessons/{page.parent.name}" for page in LESSONS.glob("*/README.md")}
    assert folders
    assert folders <= named


def test_no_lab_is_named_twice() -> None:
    names = [(lab["document"], lab["place"], lab["title"]) for lab in LABS]
    assert len(names) == len(set(names))
