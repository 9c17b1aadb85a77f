"""The table of packages in docs/ARCHITECTURE.md names exactly the packages that each package imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "barnabas"
ROW: Final = re.compile(r"^\| `(\w+)(?:/|\.py)` \| .* \| ([^|]+) \|$", re.M)
CYTHON_IMPORT: Final = re.compile(r"^\s*(?:from|import|cimport)\s+barnabas\.(\w+)", re.M)
ALL_BUT: Final = "all but "


def table() -> dict[str, str]:
    """Package -> its last column, up to the semicolon that precedes other people's packages."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    section = page[page.index("## The packages") : page.index("## From a pipeline file")]
    return {name: column.partition(";")[0] for name, column in ROW.findall(section)}


def parts() -> set[str]:
    """The packages, and the modules that belong to none."""
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    return folders | {path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__")}


def imported_by(path: Path) -> Iterator[str]:
    """The first name after `barnabas.` of every import, wherever in the file it stands."""
    if path.suffix == ".pyx":
        yield from CYTHON_IMPORT.findall(path.read_text())
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "barnabas":
            modules = [f"barnabas.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        else:
            continue
        yield from (module.split(".")[1] for module in modules if module.startswith("barnabas."))


def test_every_package_has_a_row() -> None:
    assert set(table()) == parts()


@pytest.mark.parametrize("part", sorted(parts()))
def test_a_row_names_what_the_package_imports(part: str) -> None:
    column = table()[part]
    named = set(re.findall(r"`(\w+)`", column))
    if column.startswith(ALL_BUT):
        named = parts() - named - {part}
    folder = SOURCE / part
    files = [*folder.rglob("*.py"), *folder.rglob("*.pyx")] or [SOURCE / f"{part}.py"]
    assert {name for path in files for name in imported_by(path)} & parts() - {part} == named


def imports_of(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it, with the names that it takes from them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_one_place_uses_a_module() -> None:
    imported = {str(path.relative_to(SOURCE)): imports_of(path) for path in SOURCE.rglob("*.py")}

    def users(*modules: str) -> set[str]:
        return {file for file, names in imported.items() if names & set(modules)}

    # Requests go where the configuration says; one place knows how. The other reads rows for as long as a query runs.
    senders = users("http.client", "urllib.request", "urllib3", "requests", "httpx", "aiohttp")
    assert senders == {"http_client.py", "sql/client.py"}
    # librdkafka carries users' records only.
    assert users("confluent_kafka.admin") == set()
