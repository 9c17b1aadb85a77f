"""Every handler says what it answers."""

from __future__ import annotations

import ast
from pathlib import Path

import barnabas.broker.api.handlers as handlers


def test_every_handle_has_a_docstring() -> None:
    files = sorted(Path(handlers.__path__[0]).rglob("*.py"))
    handlers_with_docstring = [
        (path.stem, bool(ast.get_docstring(node)))
        for path in files
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "handle"
    ]
    assert len(handlers_with_docstring) > 60
    assert not [name for name, is_told in handlers_with_docstring if not is_told]
