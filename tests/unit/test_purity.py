"""What import-linter cannot see: that wire, records and cores do no I/O and read neither clock nor chance, and that no
module imports itself through others."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grimp

SOURCE: Final = Path(__file__).parents[2] / "src" / "barnabas"
PURE: Final = ("wire", "records", "cores")
TOOLS: Final = {SOURCE / "wire" / "__main__.py"}
"""`python -m barnabas.wire` prints generated code."""
ONLY: Final = {"uuid": {"UUID"}, "urllib.parse": None}
"""Modules of which a part is pure, with the names that may be imported; None for all."""
IMPURE_CALLS: Final = {"open", "print", "input", "breakpoint"}
CYTHON: Final = re.compile(r"^\s*(?:from|import|cimport)\s+([\w.]+)", re.M)
CYTHON_MAY_USE: Final = re.compile(
    r"barnabas\.(wire|records|cores)\b|cpython\.(buffer|bytes|memoryview|object|ref|tuple)|libc\.(stdint|stdlib|string)|cython"
)


def sources(suffix: str) -> Iterator[Path]:
    for package in PURE:
        yield from (path for path in (SOURCE / package).rglob(f"*{suffix}") if path not in TOOLS)


def impurities(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        where = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (
                f"{where} imports {alias.name}"
                for alias in node.names
                if alias.name.split(".")[0] in {"uuid", "urllib"}
            )
        elif isinstance(node, ast.ImportFrom) and node.module in ONLY:
            allowed = ONLY[node.module]
            names = {alias.name for alias in node.names}
            if allowed is not None and names - allowed:
                yield f"{where} imports {sorted(names - allowed)} from {node.module}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "urllib":
            yield f"{where} imports {node.module}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield f"{where} calls {node.func.id}"


def test_ids_are_made_elsewhere_and_nothing_is_opened_or_printed() -> None:
    assert [impurity for path in sources(".py") for impurity in impurities(path)] == []


def test_compiled_modules_use_memory_only() -> None:
    used = {(path.name, name) for path in sources(".pyx") for name in CYTHON.findall(path.read_text())}
    assert used
    assert [use for use in sorted(used) if not CYTHON_MAY_USE.match(use[1])] == []


def test_no_module_imports_itself_through_others() -> None:
    """import-linter compares the packages within a package: there, modules of two may import each other."""
    imports = grimp.build_graph("barnabas", cache_dir=None)
    modules = {module: imports.find_modules_directly_imported_by(module) for module in imports.modules}
    graphlib.TopologicalSorter(modules).prepare()  # raises CycleError, which names the modules
