"""Whether validating by a JSON Schema may take long, however small the value is. Pure.

A validator follows each `$ref` as often as it meets one: when each definition refers to the next one twice, thirty of them
lead to the last one a billion times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas.schemas.codecs.json_references import NAMES, VALUES, NotFound, References

PARTS_MAX: Final = 5_000
"""A schema with as many parts, those counted several times that are referred to several times, takes milliseconds."""
DEPTH_MAX: Final = 200
DYNAMIC: Final = frozenset({"$dynamicRef", "$recursiveRef"})


class _Long(Exception):
    """It may take long."""


def may_take_long(tree: Any, documents: Mapping[str, Any]) -> bool:
    """Whether a schema has too many parts, or refers to itself. documents: those that it refers to, by name."""
    counted: dict[int, int] = {}
    try:
        references = References(tree, documents)
        return _parts(tree, references, counted, set(), 0) > PARTS_MAX
    except (_Long, NotFound):
        return True


def _parts(node: Any, references: References, counted: dict[int, int], above: set[int], depth: int) -> int:
    if not isinstance(node, dict):
        return 1
    place = id(node)
    known = counted.get(place)
    if known is not None:
        return known
    if place in above or depth > DEPTH_MAX:
        raise _Long
    above.add(place)
    total = 1
    for inner in _inner(node, references):
        total += _parts(inner, references, counted, above, depth + 1)
    above.discard(place)
    if total > PARTS_MAX:
        raise _Long
    counted[place] = total
    return total


def _inner(node: dict[str, Any], references: References) -> Iterator[Any]:
    """The schemas that a schema applies."""
    for key, value in node.items():
        if key == "$ref":
            yield references.resolved(value, node)
        elif key in DYNAMIC:
            raise _Long
        elif key in NAMES:
            if key not in ("$defs", "definitions"):  # these apply where something refers to them
                yield from value.values() if isinstance(value, dict) else ()
        elif key not in VALUES and isinstance(value, dict):
            yield value
        elif key not in VALUES and isinstance(value, list):
            yield from value
