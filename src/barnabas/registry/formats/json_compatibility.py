"""Whether one JSON Schema takes what another took: Confluent's published rules. Pure.

An object without `additionalProperties: false` is open: since it may hold anything already, a property that is added
later may meet another type there. That is why adding a property to an open object is refused and removing one is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import re2

from barnabas.registry.formats.base import Problem
from barnabas.registry.formats.json_schema import JsonSchema, Resolver, Schema
from barnabas.registry.formats.json_views import ALL, ANY, ONE, TRUE, View, view_of

STEPS_MAX: Final = 50_000

ADVICE: Final[Mapping[str, tuple[str, str]]] = {
    "TYPE_CHANGED": ("the type is another one", "keep the type, or allow both with anyOf"),
    "TYPE_NARROWED": ("numbers with a fraction are taken no more", "keep type number"),
    "SCHEMA_ADDED": ("a schema stands where there was none", "leave it out"),
    "MAX_LENGTH_ADDED": ("maxLength is new", "leave it out"),
    "MAX_LENGTH_DECREASED": ("maxLength is smaller", "keep it as large"),
    "MIN_LENGTH_ADDED": ("minLength is new", "leave it out"),
    "MIN_LENGTH_INCREASED": ("minLength is larger", "keep it as small"),
    "PATTERN_ADDED": ("pattern is new", "leave it out"),
    "PATTERN_CHANGED": ("pattern is another one", "keep it, or leave it out"),
    "MAXIMUM_ADDED": ("maximum is new", "leave it out"),
    "MAXIMUM_DECREASED": ("maximum is smaller", "keep it as large"),
    "MINIMUM_ADDED": ("minimum is new", "leave it out"),
    "MINIMUM_INCREASED": ("minimum is larger", "keep it as small"),
    "EXCLUSIVE_MAXIMUM_ADDED": ("exclusiveMaximum is new", "leave it out"),
    "EXCLUSIVE_MAXIMUM_DECREASED": ("exclusiveMaximum is smaller", "keep it as large"),
    "EXCLUSIVE_MINIMUM_ADDED": ("exclusiveMinimum is new", "leave it out"),
    "EXCLUSIVE_MINIMUM_INCREASED": ("exclusiveMinimum is larger", "keep it as small"),
    "MULTIPLE_OF_ADDED": ("multipleOf is new", "leave it out"),
    "MULTIPLE_OF_EXPANDED": (
        "multipleOf is a multiple of the earlier one",
        "keep it, or take a divisor of it",
    ),
    "MULTIPLE_OF_CHANGED": ("multipleOf is another one", "keep it, or take a divisor of it"),
    "REQUIRED_ATTRIBUTE_ADDED": ("the property is required now", "give it a default, or do not require it"),
    "DEPENDENCY_ARRAY_ADDED": ("the property needs others now", "leave the dependency out"),
    "DEPENDENCY_ARRAY_EXTENDED": ("the property needs more others now", "keep the dependency as it was"),
    "DEPENDENCY_ARRAY_CHANGED": ("the property needs others than before", "keep the dependency as it was"),
    "DEPENDENCY_SCHEMA_ADDED": ("the property has a schema to depend on now", "leave the dependency out"),
    "MAX_PROPERTIES_ADDED": ("maxProperties is new", "leave it out"),
    "MAX_PROPERTIES_DECREASED": ("maxProperties is smaller", "keep it as large"),
    "MIN_PROPERTIES_ADDED": ("minProperties is new", "leave it out"),
    "MIN_PROPERTIES_INCREASED": ("minProperties is larger", "keep it as small"),
    "PROPERTY_NAMES_CHANGED": ("propertyNames takes fewer names", "keep propertyNames as it was"),
    "ADDITIONAL_PROPERTIES_REMOVED": (
        "properties that are not named are refused now",
        "allow additionalProperties, or close the object from its first version on",
    ),
    "ADDITIONAL_PROPERTIES_NARROWED": (
        "properties that are not named have a schema now",
        "leave additionalProperties as it was",
    ),
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (
        "the property is new in an open object, which may have held anything under this name",
        "close the object with additionalProperties: false from its first version on, or give the property the schema {}",
    ),
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the property is new, and what was allowed under this name does not suit it",
        "give it the schema that additionalProperties or patternProperties had for it",
    ),
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        "the property is new and required",
        "give it a default, or do not require it",
    ),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "the property is gone, and the object takes no others",
        "keep the property, or allow additionalProperties",
    ),
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the property is gone, and what is allowed under its name does not suit it",
        "keep the property",
    ),
    "PATTERN_PROPERTIES_CHANGED": ("patternProperties takes less under this pattern", "keep it as it was"),
    "MAX_ITEMS_ADDED": ("maxItems is new", "leave it out"),
    "MAX_ITEMS_DECREASED": ("maxItems is smaller", "keep it as large"),
    "MIN_ITEMS_ADDED": ("minItems is new", "leave it out"),
    "MIN_ITEMS_INCREASED": ("minItems is larger", "keep it as small"),
    "UNIQUE_ITEMS_ADDED": ("items have to be unique now", "leave uniqueItems out"),
    "CONTAINS_CHANGED": ("contains is new or another one", "keep contains as it was"),
    "ADDITIONAL_ITEMS_REMOVED": ("more items are refused now", "allow additional items"),
    "ADDITIONAL_ITEMS_NARROWED": ("more items have a schema now", "leave additional items as they were"),
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": (
        "the item is new where anything was allowed",
        "close the array, or give the item the schema {}",
    ),
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the item is new, and what was allowed there does not suit it",
        "give it the schema that additional items had",
    ),
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "the item is gone, and the array takes no others",
        "keep it, or allow additional items",
    ),
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the item is gone, and what is allowed there does not suit it",
        "keep it",
    ),
    "ENUM_ARRAY_NARROWED": ("values are gone from the enum", "keep them"),
    "ENUM_ARRAY_CHANGED": ("values of the enum are others", "keep the earlier values"),
    "CONST_CHANGED": ("const is another value", "keep it, or make it an enum of both"),
    "COMBINED_TYPE_CHANGED": ("allOf, anyOf and oneOf have been exchanged", "keep the kind of combination"),
    "PRODUCT_TYPE_EXTENDED": ("allOf has more schemas", "leave the new ones out"),
    "SUM_TYPE_NARROWED": ("the alternatives are fewer", "keep all of them"),
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": (
        "an alternative takes less than before",
        "keep each, and add others beside",
    ),
    "NOT_TYPE_EXTENDED": ("`not` refuses more than before", "keep `not` as it was"),
    "CONDITIONAL_CHANGED": ("if, then or else are others", "keep them as they were"),
    "RESERVED_PROPERTY_REMOVED": ("a reserved property is reserved no more", "keep it in the metadata"),
    "NESTED_TOO_DEEPLY": ("the schemas are nested too deeply, or too large, to be compared", "split them"),
}
"""Changes that are refused: what is said of them, and what to do."""

_BOUNDS: Final = {
    "string": (
        ("maxLength", "MAX_LENGTH", "DECREASED", True),
        ("minLength", "MIN_LENGTH", "INCREASED", False),
    ),
    "object": (
        ("maxProperties", "MAX_PROPERTIES", "DECREASED", True),
        ("minProperties", "MIN_PROPERTIES", "INCREASED", False),
    ),
    "array": (("maxItems", "MAX_ITEMS", "DECREASED", True), ("minItems", "MIN_ITEMS", "INCREASED", False)),
    "number": (
        ("maximum", "MAXIMUM", "DECREASED", True),
        ("minimum", "MINIMUM", "INCREASED", False),
        ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", "DECREASED", True),
        ("exclusiveMinimum", "EXCLUSIVE_MINIMUM", "INCREASED", False),
    ),
}
"""keyword, name of the change, its ending when it takes less, whether it is an upper bound."""


def problems(reader: JsonSchema, writer: JsonSchema) -> list[Problem]:
    """Why `reader` refuses what `writer` took."""
    try:
        found = _Comparison(writer.resolver, reader.resolver).compare(writer.tree, reader.tree, "#")
    except RecursionError:
        found = [("NESTED_TOO_DEEPLY", "#")]
    made = []
    for kind, path in dict.fromkeys(found):
        message, advice = ADVICE[kind]
        made.append(Problem(kind, path, f"{message} in {{new}}", advice))
    return made


Change = tuple[str, str]
"""The name of a change that is refused, and where."""


class _Comparison:
    """old: what was written with. new: what reads."""

    def __init__(self, old: Resolver, new: Resolver, steps: int = 0) -> None:
        self.old = old
        self.new = new
        self._under_way: set[tuple[int, int]] = set()
        self._steps = steps

    def compare(self, old: Schema | View | None, new: Schema | View | None, path: str) -> list[Change]:
        """Changes between two schemas that are refused; empty when `new` takes all that `old` took."""
        if new is None:
            return []
        if old is None:
            return [("SCHEMA_ADDED", path)]
        pair = (id(old), id(new))
        if pair in self._under_way:
            return []
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise RecursionError
        self._under_way.add(pair)
        try:
            return self._views(view_of(old, self.old), view_of(new, self.new), path)
        finally:
            self._under_way.discard(pair)

    def _views(self, old: View, new: View, path: str) -> list[Change]:
        if old.kind == "false" or new.kind == "true":
            return []
        if new.kind == "combined" and old.kind != "combined":
            found = self._into_combined(old, new, path)
            if found is not None:
                return found
        elif old.kind == "combined" and new.kind != "combined":
            found = self._from_combined(old, new, path)
            if found is not None:
                return found
        if old.kind == "const" and new.kind == "enum":
            values = new.schema["enum"]
            return [] if old.schema["const"] in values else [("ENUM_ARRAY_CHANGED", f"{path}/enum")]
        if old.kind != new.kind or (new.typed and not old.typed):
            return [("TYPE_CHANGED", path)]
        work = getattr(self, f"_{old.kind}", None)
        return [] if work is None else list(work(old, new, path))

    # --- combinations -------------------------------------------------------------------------------

    def _into_combined(self, old: View, new: View, path: str) -> list[Change] | None:
        """One schema became several; None where nothing in particular can be said."""
        if len(new.parts) == 1:
            return self.compare(old, new.parts[0], f"{path}/{new.criterion}/0")
        if new.criterion == ALL:
            return None
        for index, part in enumerate(new.parts):
            if not self.compare(old, part, f"{path}/{new.criterion}/{index}"):
                return []
        return None

    def _from_combined(self, old: View, new: View, path: str) -> list[Change] | None:
        """Several schemas became one."""
        if len(old.parts) == 1:
            return self.compare(old.parts[0], new, path)
        found = [self.compare(part, new, path) for part in old.parts]
        if old.criterion == ALL:
            return [] if any(not changes for changes in found) else None
        return [] if all(not changes for changes in found) else [("SUM_TYPE_NARROWED", path)]

    def _combined(self, old: View, new: View, path: str) -> Iterator[Change]:
        here = f"{path}/{new.criterion}"
        if old.criterion != new.criterion:
            single = len(old.parts) == 1
            if not (old.criterion == ONE and new.criterion == ANY) and not (single and new.criterion != ALL):
                yield ("COMBINED_TYPE_CHANGED", path)
                return
        if new.criterion == ALL:
            if len(new.parts) > len(old.parts):
                yield ("PRODUCT_TYPE_EXTENDED", here)
        elif len(new.parts) < len(old.parts):
            yield ("SUM_TYPE_NARROWED", here)
        edges = [[not self.compare(a, b, f"{here}/{j}") for j, b in enumerate(new.parts)] for a in old.parts]
        if matching(edges) < min(len(old.parts), len(new.parts)):
            yield ("COMBINED_TYPE_SUBSCHEMAS_CHANGED", here)

    def _not(self, old: View, new: View, path: str) -> Iterator[Change]:
        reverse = _Comparison(self.new, self.old, self._steps + STEPS_MAX // 100)
        if reverse.compare(new.parts[0], old.parts[0], f"{path}/not"):
            yield ("NOT_TYPE_EXTENDED", f"{path}/not")

    def _conditional(self, old: View, new: View, path: str) -> Iterator[Change]:
        names = ("if", "then", "else")
        if any(old.schema.get(name) != new.schema.get(name) for name in names):
            yield ("CONDITIONAL_CHANGED", f"{path}/if")

    # --- simple types -------------------------------------------------------------------------------

    def _enum(self, old: View, new: View, path: str) -> Iterator[Change]:
        before, after = old.schema["enum"], new.schema["enum"]
        if not all(_in(value, after) for value in before):
            kind = "NARROWED" if all(_in(value, before) for value in after) else "CHANGED"
            yield (f"ENUM_ARRAY_{kind}", f"{path}/enum")

    def _const(self, old: View, new: View, path: str) -> Iterator[Change]:
        if not _in(old.schema["const"], [new.schema["const"]]):
            yield ("CONST_CHANGED", f"{path}/const")

    def _string(self, old: View, new: View, path: str) -> Iterator[Change]:
        yield from _bounds("string", old.schema, new.schema, path)
        before, after = old.schema.get("pattern"), new.schema.get("pattern")
        if after is not None and before != after:
            yield ("PATTERN_ADDED" if before is None else "PATTERN_CHANGED", f"{path}/pattern")

    def _number(self, old: View, new: View, path: str) -> Iterator[Change]:
        if new.integer and not old.integer:
            yield ("TYPE_NARROWED", path)
        yield from _bounds("number", old.schema, new.schema, path)
        before, after = old.schema.get("multipleOf"), new.schema.get("multipleOf")
        if after is not None and before != after:
            yield from _multiples(before, after, f"{path}/multipleOf")

    def _object(self, old: View, new: View, path: str) -> Iterator[Change]:
        yield from _bounds("object", old.schema, new.schema, path)
        yield from self._required(old.schema, new.schema, path)
        yield from self._properties(old.schema, new.schema, f"{path}/properties")
        yield from self._dependencies(old.schema, new.schema, path)
        yield from self._rest(old.schema, new.schema, path, "additionalProperties", "ADDITIONAL_PROPERTIES")
        for pattern, schema in _mapping(new.schema, "patternProperties").items():
            before = _mapping(old.schema, "patternProperties").get(pattern)
            if before is not None and self.compare(before, schema, f"{path}/patternProperties/{pattern}"):
                yield ("PATTERN_PROPERTIES_CHANGED", f"{path}/patternProperties/{pattern}")
        if "propertyNames" in new.schema:
            names = old.schema.get("propertyNames", True)
            if self.compare(names, new.schema["propertyNames"], f"{path}/propertyNames"):
                yield ("PROPERTY_NAMES_CHANGED", f"{path}/propertyNames")

    def _required(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
        before, after = set(old.get("required") or ()), new.get("required") or ()
        known, there = _mapping(old, "properties"), _mapping(new, "properties")
        for name in after if isinstance(after, list) else ():
            added = name in there and name not in known  # judged with the property itself
            if name not in before and not added and not _has_default(there.get(name)):
                yield ("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}")

    def _properties(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
        before, after = _mapping(old, "properties"), _mapping(new, "properties")
        for name in dict.fromkeys([*before, *after]):
            here = f"{path}/{name}"
            if name not in after:
                yield from self._removed(before[name], new, name, here)
            elif name not in before:
                yield from self._added(old, new, name, here)
            else:
                yield from self.compare(before[name], after[name], here)

    def _removed(self, schema: Schema, new: Mapping[str, Any], name: str, path: str) -> Iterator[Change]:
        if _is_open(new):
            return
        left = _schema_for(new, name)
        if left is not None:
            if self.compare(schema, left, path):
                yield ("PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        elif schema is not False:
            yield ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)

    def _added(
        self, old: Mapping[str, Any], new: Mapping[str, Any], name: str, path: str
    ) -> Iterator[Change]:
        schema = _mapping(new, "properties")[name]
        required = name in (new.get("required") or ()) and name not in (old.get("required") or ())
        if _is_open(old):
            if view_of(schema, self.new) is not TRUE:
                yield ("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", path)
            elif required and not _has_default(schema):
                yield ("REQUIRED_ATTRIBUTE_ADDED", path)
            return
        left = _schema_for(old, name)
        if left is not None and self.compare(left, schema, path):
            yield ("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        if required and not _has_default(schema):
            yield ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path)

    def _dependencies(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
        before, after = _dependencies(old), _dependencies(new)
        for name, wanted in after.items():
            here, held = f"{path}/dependencies/{name}", before.get(name)
            if not isinstance(wanted, list):
                if held is None or isinstance(held, list):
                    yield ("DEPENDENCY_SCHEMA_ADDED", here)
                else:
                    yield from self.compare(held, wanted, here)
            elif not isinstance(held, list):
                yield ("DEPENDENCY_ARRAY_ADDED", here)
            elif not set(wanted) <= set(held):
                yield ("DEPENDENCY_ARRAY_" + ("EXTENDED" if set(held) <= set(wanted) else "CHANGED"), here)

    def _rest(
        self, old: Mapping[str, Any], new: Mapping[str, Any], path: str, keyword: str, name: str
    ) -> Iterator[Change]:
        """What is not named: additional properties or items; absent means anything."""
        before, after = old.get(keyword, True), new.get(keyword, True)
        here = f"{path}/{keyword}"
        if before is False or after is True or after == {}:
            return
        if after is False:
            yield (f"{name}_REMOVED", here)
        elif before is True or before == {}:
            yield (f"{name}_NARROWED", here)
        else:
            yield from self.compare(before, after, here)

    def _array(self, old: View, new: View, path: str) -> Iterator[Change]:
        yield from _bounds("array", old.schema, new.schema, path)
        if new.schema.get("uniqueItems") is True and old.schema.get("uniqueItems") is not True:
            yield ("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems")
        if "contains" in new.schema and new.schema["contains"] != old.schema.get("contains"):
            yield ("CONTAINS_CHANGED", f"{path}/contains")
        before, rest_before = _items(old.schema)
        after, rest_after = _items(new.schema)
        yield from self._tuple(before, rest_before, after, rest_after, f"{path}/items")
        yield from self._rest(
            {"additionalItems": rest_before},
            {"additionalItems": rest_after},
            path,
            "additionalItems",
            "ADDITIONAL_ITEMS",
        )

    def _tuple(
        self,
        before: Sequence[Schema],
        rest_before: Schema,
        after: Sequence[Schema],
        rest_after: Schema,
        path: str,
    ) -> Iterator[Change]:
        """Items by position; `rest` is what later ones must be."""
        for index in range(max(len(before), len(after))):
            here = f"{path}/{index}"
            if index < len(before) and index < len(after):
                yield from self.compare(before[index], after[index], here)
            elif index < len(before):
                if rest_after is False and before[index] is not False:
                    yield ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", here)
                elif self.compare(before[index], rest_after, here):
                    yield ("ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", here)
            elif rest_before is True and view_of(after[index], self.new) is not TRUE:
                yield ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", here)
            elif rest_before is not False and self.compare(rest_before, after[index], here):
                yield ("ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", here)


def _bounds(kind: str, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
    for keyword, name, ending, upper in _BOUNDS[kind]:
        before, after = _bound(old, keyword), _bound(new, keyword)
        if after is None or before == after:
            continue
        if before is None:
            yield (f"{name}_ADDED", f"{path}/{keyword}")
        elif (after < before) == upper:
            yield (f"{name}_{ending}", f"{path}/{keyword}")


def _bound(schema: Mapping[str, Any], keyword: str) -> float | None:
    """A bound; in draft 4 `exclusiveMaximum: true` turns `maximum` into an exclusive one."""
    value = schema.get(keyword)
    if keyword.startswith("exclusive"):
        if value is True:
            value = schema.get("maximum" if keyword == "exclusiveMaximum" else "minimum")
        return None if value is False else value
    if keyword in ("maximum", "minimum") and schema.get(f"exclusive{keyword.capitalize()}") is True:
        return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _multiples(before: float | None, after: float, path: str) -> Iterator[Change]:
    if before is None:
        yield ("MULTIPLE_OF_ADDED", path)
    elif after == 0 or before % after == 0:
        return
    else:
        yield ("MULTIPLE_OF_EXPANDED" if after % before == 0 else "MULTIPLE_OF_CHANGED", path)


def _in(value: Any, values: Sequence[Any]) -> bool:
    """As JSON counts them equal: true is not 1."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values)


def _mapping(schema: Mapping[str, Any], keyword: str) -> dict[str, Schema]:
    held = schema.get(keyword)
    return held if isinstance(held, dict) else {}


def _has_default(schema: Schema | None) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _is_open(schema: Mapping[str, Any]) -> bool:
    return not schema.get("patternProperties") and schema.get("additionalProperties", True) in (True, {})


def _schema_for(schema: Mapping[str, Any], name: str) -> Schema | None:
    """What an object that is neither open nor closed allows under a name; None when nothing."""
    for pattern, held in _mapping(schema, "patternProperties").items():
        if _matches(pattern, name):
            return held
    rest = schema.get("additionalProperties", True)
    return None if rest is False else rest


def _matches(pattern: str, name: str) -> bool:
    """By a matcher of linear time: patterns come from anybody."""
    try:
        return re2.search(pattern, name) is not None
    except (re2.error, ValueError):
        return False


def _dependencies(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_mapping(schema, "dependencies"),
        **_mapping(schema, "dependentSchemas"),
        **_mapping(schema, "dependentRequired"),
    }


def _items(schema: Mapping[str, Any]) -> tuple[list[Schema], Schema]:
    """Items by position, and what all others must be; in both spellings of drafts."""
    prefix, items = schema.get("prefixItems"), schema.get("items", True)
    if isinstance(prefix, list):
        return prefix, items
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items


def matching(edges: Sequence[Sequence[bool]]) -> int:
    """How many rows can each have a column of its own among those that suit it. O(rows x edges)."""
    owner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, suits in enumerate(edges[row]):
            if suits and column not in tried:
                tried.add(column)
                if column not in owner or place(owner[column], tried):
                    owner[column] = row
                    return True
        return False

    return sum(place(row, set()) for row in range(len(edges)))
