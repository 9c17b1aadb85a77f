"""Classifies a JSON Schema by its keywords as one of a few kinds, so that two schemas can be compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.schemas.formats.json_schema import Resolver, Schema

ALL: Final = "allOf"
ANY: Final = "anyOf"
ONE: Final = "oneOf"
KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"maxLength", "minLength", "pattern"}),
    "number": frozenset({"maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"}),
    "object": frozenset(
        {
            "properties",
            "patternProperties",
            "additionalProperties",
            "required",
            "dependencies",
            "dependentRequired",
            "dependentSchemas",
            "propertyNames",
            "maxProperties",
            "minProperties",
        }
    ),
    "array": frozenset(
        {"items", "prefixItems", "additionalItems", "maxItems", "minItems", "uniqueItems", "contains"}
    ),
}
SIMPLE: Final = ("string", "number", "object", "array", "boolean", "null")


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """kind: a simple type, or true, false, enum, const, not, conditional, combined.

    schema: the keywords. criterion, parts: allOf, anyOf or oneOf with its schemas; parts: also the schema of `not`.
    integer: whether numbers must have no fraction.
    """

    kind: str
    schema: Mapping[str, Any]
    criterion: str = ""
    parts: tuple[Schema | View, ...] = ()
    integer: bool = False
    typed: bool = True
    """Whether other types are rejected; without `type`, keywords for objects do not apply to strings."""


TRUE: Final = View("true", {})
FALSE: Final = View("false", {})


def view_of(schema: Schema | View, resolver: Resolver, seen: tuple[int, ...] = ()) -> View:
    """The view of a schema, with `$ref` resolved. seen: ids of the nodes whose `$ref` is being resolved."""
    if isinstance(schema, View):
        return schema
    if schema is True:
        return TRUE
    if schema is False or not isinstance(schema, dict):
        return FALSE
    reference = schema.get("$ref")
    if isinstance(reference, str):
        target = None if id(schema) in seen else resolver.find(reference, resolver.base(schema))
        if target is None:
            return TRUE
        rest = {name: value for name, value in schema.items() if name not in ("$ref", "definitions", "$defs")}
        resolved = view_of(target, resolver, (*seen, id(schema)))
        own = _components(rest)
        return resolved if not own else View("combined", schema, ALL, (resolved, *own))
    views = _components(schema)
    if not views:
        return TRUE
    return views[0] if len(views) == 1 else View("combined", schema, ALL, tuple(views))


def _components(schema: Mapping[str, Any]) -> list[View]:
    """The views that a value must all match."""
    views = _typed(schema)
    if "enum" in schema:
        views.append(View("enum", schema))
    if "const" in schema:
        views.append(View("const", schema))
    if "not" in schema:
        views.append(View("not", schema, parts=(schema["not"],)))
    if "if" in schema:
        views.append(View("conditional", schema))
    for criterion in (ALL, ANY, ONE):
        subs = schema.get(criterion)
        if isinstance(subs, list) and subs:
            views.append(View("combined", schema, criterion, tuple(subs)))
    return views


def _typed(schema: Mapping[str, Any]) -> list[View]:
    type_names = schema.get("type")
    kinds = [type_names] if isinstance(type_names, str) else type_names
    if isinstance(kinds, list) and kinds:
        views = [_simple(kind, schema) for kind in kinds]
        # A type adds nothing to an enum whose values all have that type.
        if len(views) == 1:
            plain = not any(name in schema for name in KEYWORDS.get(views[0].kind, ()))
            return [] if plain and "enum" in schema and _all_of(schema["enum"], views[0]) else views
        return [View("combined", schema, ANY, tuple(views))]
    return [
        View(kind, schema, typed=False) for kind, names in KEYWORDS.items() if not names.isdisjoint(schema)
    ]


def _simple(kind: str, schema: Mapping[str, Any]) -> View:
    return View("number", schema, integer=True) if kind == "integer" else View(kind, schema)


def _all_of(values: Any, view: View) -> bool:
    return isinstance(values, list) and all(kind_of(value) == view.kind for value in values)


def kind_of(value: Any) -> str:
    """The simple type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
