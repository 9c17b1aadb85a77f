"""Whether one JSON Schema accepts all values that another accepts: Confluent's published rules. Pure.

An object without `additionalProperties: false` is open: it may already contain anything under a name that becomes a
property later. That is why adding a property to an open object is rejected, and removing one is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import re2

from barnabas.schemas.formats.base import Problem
from barnabas.schemas.formats.json_schema import JsonSchema, Resolver, Schema
from barnabas.schemas.formats.json_views import ALL, ANY, ONE, TRUE, View, view_of
from barnabas.schemas.formats.pairs import Pairs, Steps

REPEATED_MAX: Final = 20
"""How many changes are reported again at a second place that uses the same schema."""

ADVICE: Final[Mapping[str, tuple[str, str]]] = {
    "TYPE_CHANGED": ("the type has changed", "keep the type, or allow both with anyOf"),
    "TYPE_NARROWED": ("numbers with a fraction are no longer accepted", "keep type number"),
    "SCHEMA_ADDED": ("a schema has been added", "leave it out"),
    "MAX_LENGTH_ADDED": ("maxLength is new", "leave it out"),
    "MAX_LENGTH_DECREASED": ("maxLength is smaller", "do not decrease it"),
    "MIN_LENGTH_ADDED": ("minLength is new", "leave it out"),
    "MIN_LENGTH_INCREASED": ("minLength is larger", "do not increase it"),
    "PATTERN_ADDED": ("pattern is new", "leave it out"),
    "PATTERN_CHANGED": ("pattern has changed", "keep it, or leave it out"),
    "MAXIMUM_ADDED": ("maximum is new", "leave it out"),
    "MAXIMUM_DECREASED": ("maximum is smaller", "do not decrease it"),
    "MINIMUM_ADDED": ("minimum is new", "leave it out"),
    "MINIMUM_INCREASED": ("minimum is larger", "do not increase it"),
    "EXCLUSIVE_MAXIMUM_ADDED": ("exclusiveMaximum is new", "leave it out"),
    "EXCLUSIVE_MAXIMUM_DECREASED": ("exclusiveMaximum is smaller", "do not decrease it"),
    "EXCLUSIVE_MINIMUM_ADDED": ("exclusiveMinimum is new", "leave it out"),
    "EXCLUSIVE_MINIMUM_INCREASED": ("exclusiveMinimum is larger", "do not increase it"),
    "MULTIPLE_OF_ADDED": ("multipleOf is new", "leave it out"),
    "MULTIPLE_OF_EXPANDED": (
        "multipleOf is a multiple of the earlier one",
        "keep it, or use a divisor of it",
    ),
    "MULTIPLE_OF_CHANGED": ("multipleOf has changed", "keep it, or use a divisor of it"),
    "REQUIRED_ATTRIBUTE_ADDED": ("the property is required now", "give it a default, or do not require it"),
    "DEPENDENCY_ARRAY_ADDED": ("the property requires other properties", "leave the dependency out"),
    "DEPENDENCY_ARRAY_EXTENDED": ("the property requires more properties", "keep the dependency as it was"),
    "DEPENDENCY_ARRAY_CHANGED": (
        "the property requires different properties",
        "keep the dependency as it was",
    ),
    "DEPENDENCY_SCHEMA_ADDED": (
        "the property requires its object to match a schema",
        "leave the dependency out",
    ),
    "MAX_PROPERTIES_ADDED": ("maxProperties is new", "leave it out"),
    "MAX_PROPERTIES_DECREASED": ("maxProperties is smaller", "do not decrease it"),
    "MIN_PROPERTIES_ADDED": ("minProperties is new", "leave it out"),
    "MIN_PROPERTIES_INCREASED": ("minProperties is larger", "do not increase it"),
    "PROPERTY_NAMES_CHANGED": ("propertyNames accepts fewer names", "keep propertyNames as it was"),
    "ADDITIONAL_PROPERTIES_REMOVED": (
        "additional properties are no longer accepted",
        "allow additionalProperties, or close the object from its first version on",
    ),
    "ADDITIONAL_PROPERTIES_NARROWED": (
        "additional properties must match a schema",
        "leave additionalProperties as it was",
    ),
    "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": (
        "anything was accepted under this name before it became a property",
        "close the object with additionalProperties: false from its first version on, or give the property schema {}",
    ),
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "values that do not match its schema were accepted under this name before it became a property",
        "give it the schema that additionalProperties or patternProperties had for it",
    ),
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        "the property is new and required",
        "give it a default, or do not require it",
    ),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "the property was removed, and the object accepts no additional properties",
        "keep the property, or allow additionalProperties",
    ),
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the property was removed, and not all of its values are still accepted under its name",
        "keep the property",
    ),
    "PATTERN_PROPERTIES_CHANGED": (
        "fewer values are accepted under this pattern",
        "keep its schema as it was",
    ),
    "MAX_ITEMS_ADDED": ("maxItems is new", "leave it out"),
    "MAX_ITEMS_DECREASED": ("maxItems is smaller", "do not decrease it"),
    "MIN_ITEMS_ADDED": ("minItems is new", "leave it out"),
    "MIN_ITEMS_INCREASED": ("minItems is larger", "do not increase it"),
    "UNIQUE_ITEMS_ADDED": ("items must be unique", "leave uniqueItems out"),
    "CONTAINS_CHANGED": ("contains is new or has changed", "keep contains as it was"),
    "ADDITIONAL_ITEMS_REMOVED": ("additional items are no longer accepted", "allow additional items"),
    "ADDITIONAL_ITEMS_NARROWED": (
        "additional items must match a schema",
        "leave additional items as they were",
    ),
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": (
        "anything was accepted at this position before the item was added",
        "close the array, or give the item the schema {}",
    ),
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "values that do not match its schema were accepted at this position before the item was added",
        "give it the schema that additional items had",
    ),
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "the item was removed, and the array accepts no additional items",
        "keep it, or allow additional items",
    ),
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "the item was removed, and not all of its values are still accepted at its position",
        "keep it",
    ),
    "ENUM_ARRAY_NARROWED": ("values are missing from the enum", "keep them"),
    "ENUM_ARRAY_CHANGED": ("values of the enum have been replaced", "keep the earlier values"),
    "CONST_CHANGED": ("const has another value", "keep it, or make it an enum of both"),
    "COMBINED_TYPE_CHANGED": (
        "one of allOf, anyOf and oneOf has been replaced by another",
        "keep the kind of combination",
    ),
    "PRODUCT_TYPE_EXTENDED": ("allOf has more schemas", "leave the new ones out"),
    "SUM_TYPE_NARROWED": ("there are fewer alternatives", "keep all of them"),
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": (
        "an alternative accepts fewer values",
        "keep each as it was, and add new ones beside them",
    ),
    "NOT_TYPE_EXTENDED": ("`not` rejects more values", "keep `not` as it was"),
    "CONDITIONAL_CHANGED": ("if, then or else has changed", "keep them as they were"),
    "RESERVED_PROPERTY_REMOVED": ("a reserved property is no longer reserved", "keep it in the metadata"),
    "NESTED_TOO_DEEPLY": ("the schemas are nested too deeply, or too large, to be compared", "split them"),
}
"""The message (which `problems` completes) and the advice for each incompatible change."""

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
"""keyword, name of the change, its ending if the bound accepts less, whether it is an upper bound."""


def problems(reader: JsonSchema, writer: JsonSchema, steps: Steps) -> list[Problem]:
    """Why `reader` rejects values that `writer` accepts. Each pair of schemas takes one step. Raises OverBudget."""
    try:
        changes = _Comparison(writer.resolver, reader.resolver, steps).compare(writer.tree, reader.tree, "#")
    except RecursionError:
        changes = [("NESTED_TOO_DEEPLY", "#")]
    problem_rows = []
    for kind, path in dict.fromkeys(changes):
        message, advice = ADVICE[kind]
        problem_rows.append(Problem(kind, path, f"{message} in {{new}}", advice))
    return problem_rows


Change = tuple[str, str]
"""The name of an incompatible change, and its path."""


class _Comparison:
    """One comparison. old, new: resolve the references of the writer's and of the reader's schema."""

    def __init__(
        self, old: Resolver, new: Resolver, steps: Steps, reverse: _Comparison | None = None
    ) -> None:
        self.old = old
        self.new = new
        self._steps = steps
        self._is_reverse = reverse is not None
        self._pairs: Pairs[Change] = reverse._pairs if reverse else Pairs(steps)
        self._reverse = reverse
        self._seen: dict[tuple[bool, int], tuple[Schema | View, View]] = {}
        """Views by the identities of their schemas, which are kept alive by being here."""

    def compare(self, old: Schema | View | None, new: Schema | View | None, path: str) -> list[Change]:
        """The incompatible changes between two schemas; empty if `new` accepts all values that `old` accepts."""
        if new is None:
            return []
        if old is None:
            return [("SCHEMA_ADDED", path)]
        before, after = self._view(old, False), self._view(new, True)
        known = self._pairs.begin((self._is_reverse, id(old), id(new)), path)
        if known is not None:
            changes, place = known
            return [(kind, path + there.removeprefix(place)) for kind, there in changes[:REPEATED_MAX]]
        return self._pairs.end(self._views(before, after, path))

    def _view(self, schema: Schema | View, is_new: bool) -> View:
        key = (is_new, id(schema))
        entry = self._seen.get(key)
        if entry is None:
            view = view_of(schema, self.new if is_new else self.old)
            entry = self._seen[key] = (schema, view)
        return entry[1]

    def _views(self, old: View, new: View, path: str) -> list[Change]:
        if old.kind == "false" or new.kind == "true":
            return []
        if new.kind == "combined" and old.kind != "combined":
            changes = self._into_combined(old, new, path)
            if changes is not None:
                return changes
        elif old.kind == "combined" and new.kind != "combined":
            changes = self._from_combined(old, new, path)
            if changes is not None:
                return changes
        if old.kind == "const" and new.kind == "enum":
            is_in = comparable(old.schema["const"]) in self._values(new)
            return [] if is_in else [("ENUM_ARRAY_CHANGED", f"{path}/enum")]
        if old.kind != new.kind or (new.typed and not old.typed):
            return [("TYPE_CHANGED", path)]
        work = getattr(self, f"_{old.kind}", None)
        return [] if work is None else list(work(old, new, path))

    # --- combinations -------------------------------------------------------------------------------

    def _into_combined(self, old: View, new: View, path: str) -> list[Change] | None:
        """The changes if one schema became several; None if the general comparison has to find them."""
        if len(new.parts) == 1:
            return self.compare(old, new.parts[0], f"{path}/{new.criterion}/0")
        if new.criterion == ALL:
            return None
        for index, part in enumerate(new.parts):
            if not self.compare(old, part, f"{path}/{new.criterion}/{index}"):
                return []
        return None

    def _from_combined(self, old: View, new: View, path: str) -> list[Change] | None:
        """The changes if several schemas became one; None if the general comparison has to find them."""
        if len(old.parts) == 1:
            return self.compare(old.parts[0], new, path)
        changes_by_part = [self.compare(part, new, path) for part in old.parts]
        if old.criterion == ALL:
            return [] if any(not changes for changes in changes_by_part) else None
        return [] if all(not changes for changes in changes_by_part) else [("SUM_TYPE_NARROWED", path)]

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
        if self._reverse is None:
            self._reverse = _Comparison(self.new, self.old, self._steps, self)
        if self._reverse.compare(new.parts[0], old.parts[0], f"{path}/not"):
            yield ("NOT_TYPE_EXTENDED", f"{path}/not")

    def _conditional(self, old: View, new: View, path: str) -> Iterator[Change]:
        names = ("if", "then", "else")
        if any(old.schema.get(name) != new.schema.get(name) for name in names):
            yield ("CONDITIONAL_CHANGED", f"{path}/if")

    # --- simple types -------------------------------------------------------------------------------

    def _enum(self, old: View, new: View, path: str) -> Iterator[Change]:
        before, after = self._values(old), self._values(new)
        if not before <= after:
            kind = "NARROWED" if after <= before else "CHANGED"
            yield (f"ENUM_ARRAY_{kind}", f"{path}/enum")

    def _values(self, view: View) -> frozenset[Any]:
        values = view.schema["enum"]
        self._steps.spend(len(values) // 5)
        return frozenset(map(comparable, values))

    def _const(self, old: View, new: View, path: str) -> Iterator[Change]:
        if comparable(old.schema["const"]) != comparable(new.schema["const"]):
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
            added = name in there and name not in known  # reported with the property itself
            if name not in before and not added and not _has_default(there.get(name)):
                yield ("REQUIRED_ATTRIBUTE_ADDED", f"{path}/required/{name}")

    def _properties(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
        before, after = _mapping(old, "properties"), _mapping(new, "properties")
        self._steps.spend((len(before) + len(after)) // 10)
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
        left = self._schema_for(new, name)
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
        left = self._schema_for(old, name)
        if left is not None and self.compare(left, schema, path):
            yield ("PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", path)
        if required and not _has_default(schema):
            yield ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path)

    def _schema_for(self, schema: Mapping[str, Any], name: str) -> Schema | None:
        """The schema that a partially open object has for a name that is not in `properties`; None if it accepts none."""
        for pattern, allowed in _mapping(schema, "patternProperties").items():
            self._steps.spend(2 + len(pattern) // 50)
            if _matches(pattern, name):
                return allowed
        rest = schema.get("additionalProperties", True)
        return None if rest is False else rest

    def _dependencies(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
        before, after = _dependencies(old), _dependencies(new)
        for name, wanted in after.items():
            here, earlier = f"{path}/dependencies/{name}", before.get(name)
            if not isinstance(wanted, list):
                if earlier is None or isinstance(earlier, list):
                    yield ("DEPENDENCY_SCHEMA_ADDED", here)
                else:
                    yield from self.compare(earlier, wanted, here)
            elif not isinstance(earlier, list):
                yield ("DEPENDENCY_ARRAY_ADDED", here)
            elif not set(wanted) <= set(earlier):
                yield ("DEPENDENCY_ARRAY_" + ("EXTENDED" if set(earlier) <= set(wanted) else "CHANGED"), here)

    def _rest(
        self, old: Mapping[str, Any], new: Mapping[str, Any], path: str, keyword: str, name: str
    ) -> Iterator[Change]:
        """Compare additional properties or items; without the keyword, anything is accepted."""
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
        """Compare items by position. rest_before, rest_after: the schemas of all later items."""
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


def comparable(value: Any) -> Any:
    """A value that is hashable, and equal for equal JSON values; unlike in Python, true is not equal to 1."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("array", tuple(map(comparable, value)))
    if isinstance(value, dict):
        return ("object", frozenset((name, comparable(child)) for name, child in value.items()))
    return value


def _mapping(schema: Mapping[str, Any], keyword: str) -> dict[str, Schema]:
    members = schema.get(keyword)
    return members if isinstance(members, dict) else {}


def _has_default(schema: Schema | None) -> bool:
    return isinstance(schema, dict) and "default" in schema


def _is_open(schema: Mapping[str, Any]) -> bool:
    return not schema.get("patternProperties") and schema.get("additionalProperties", True) in (True, {})


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern matches, in linear time since anybody may send patterns. An invalid one does not match."""
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
    """The schemas of items by position, and of all others, in the syntax of any draft."""
    prefix, items = schema.get("prefixItems"), schema.get("items", True)
    if isinstance(prefix, list):
        return prefix, items
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items


def matching(edges: Sequence[Sequence[bool]]) -> int:
    """The size of a maximum matching: how many rows can have a column each, such that no two share one.

    edges: for each row, whether it may have each column. O(rows x edges).
    """
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
