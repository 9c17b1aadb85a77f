"""The wheel's rules for data files cover every template and static file, and what is vendored has its licence."""

from __future__ import annotations

import tomllib
from pathlib import Path

import barnabas.console

ROOT = Path(barnabas.console.__file__).parent
PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_every_file_that_is_no_module_is_packaged() -> None:
    patterns = tomllib.loads(PROJECT.read_text())["tool"]["setuptools"]["package-data"]["barnabas"]
    package = ROOT.parent
    packaged = {path for pattern in patterns for path in package.glob(pattern) if path.is_file()}
    needed = {path for path in ROOT.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert needed
    assert needed <= packaged


def test_what_is_vendored_has_its_licence_and_its_version() -> None:
    vendored = ROOT / "static" / "vendored"
    about = (vendored / "README.md").read_text()
    for folder in vendored.iterdir():
        if folder.is_dir():
            assert (folder / "LICENSE").is_file(), folder
            assert f"`{folder.name}`" in about
