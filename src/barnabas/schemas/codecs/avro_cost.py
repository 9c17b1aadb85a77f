"""Whether encoding a value, or a default, by an Avro schema may take long, however small the value is. Pure.

A union of several types, each of which may hold the union again, has as many ways to fit a nested value as two to the power
of its depth.
"""

from __future__ import annotations

from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


def may_take_long(tree: Any) -> bool:
    """Whether a schema uses a type by its name, and has a union with a choice between types that hold others."""
    names = choices = False
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            names = names or node not in PRIMITIVES
        elif isinstance(node, list):
            holding = [row for row in node if isinstance(row, dict) or row not in PRIMITIVES]
            choices = choices or len(holding) > 1
            waiting.extend(node)
        elif isinstance(node, dict):
            kind = node.get("type")
            if kind in ("record", "error"):
                waiting.extend(field.get("type") for field in node.get("fields", ()))
            elif kind in ("array", "map"):
                waiting.append(node.get("items", node.get("values")))
            elif kind not in ("enum", "fixed"):
                waiting.append(kind)
    return names and choices
