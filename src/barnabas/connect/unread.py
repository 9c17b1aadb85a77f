"""Results of PyMySQL that are given up before their end."""

from __future__ import annotations

from typing import Any


def leave(cursor: Any) -> None:
    """Without this, PyMySQL would read all the rest of a cursor's result, which may be large; its connection must be closed
    afterwards. Does nothing for other drivers' cursors."""
    result = getattr(cursor, "_result", None)
    if result is not None and getattr(result, "unbuffered_active", False):
        result.unbuffered_active = False
        result.connection = None
