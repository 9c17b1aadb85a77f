"""Projects of migrations: their files and settings. What a server notes about them is seen in docs/sql.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.sql.migrations import SETTINGS, Project, new_project
from barnabas.terminal.errors import CliError


@pytest.fixture
def project(tmp_path: Path) -> Project:
    new_project(tmp_path / "p", "http://localhost:8088")
    return Project.at(tmp_path / "p" / SETTINGS)


def test_migrations_are_numbered(project: Project) -> None:
    names = [
        project.create("add clicks", None).name,
        project.create("drop: all!", 5).name,
        project.create("x", None).name,
    ]
    assert names == ["V000001__add_clicks.sql", "V000005__drop_all.sql", "V000006__x.sql"]
    assert [(m.version, m.name) for m in project.migrations()] == [
        (1, "add clicks"),
        (5, "drop all"),
        (6, "x"),
    ]
    assert project.url == "http://localhost:8088"


def test_what_cannot_be_a_project_is_named(project: Project, tmp_path: Path) -> None:
    project.create("one", 1)
    with pytest.raises(CliError, match="version 1 already"):
        project.create("other", 1)
    with pytest.raises(CliError, match="letters or digits"):
        project.create("!!", None)
    (project.folder / "V000001__same.sql").write_text("")
    with pytest.raises(CliError, match="have the same version"):
        project.migrations()
    (project.folder / "V000001__same.sql").rename(project.folder / "first.sql")
    with pytest.raises(CliError, match=r"is called like V000001__add_clicks\.sql"):
        project.migrations()
    with pytest.raises(CliError, match="new-project DIR URL"):
        Project.at(tmp_path / "none.properties")
    (tmp_path / "empty.properties").write_text("# nothing\n")
    with pytest.raises(CliError, match="does not name the server"):
        Project.at(tmp_path / "empty.properties")
    with pytest.raises(CliError, match="is there already"):
        new_project(tmp_path / "p", "http://localhost:8088")
