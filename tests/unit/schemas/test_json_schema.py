"""JSON Schema: Confluent's rules on pairs; references; bad schemas."""

# ruff: noqa: E501  the tables read better in whole rows

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.formats.comparing import problems_reading
from barnabas.schemas.formats.json_schema import read_json_schema
from barnabas.schemas.model import Reference
from tests.support.examples import examples


def kinds(reader: Any, writer: Any) -> list[tuple[str, str]]:
    new, old = (read_json_schema(json.dumps(schema)) for schema in (reader, writer))
    return [(p.kind, p.path) for p in problems_reading(new, old)]


def obj(closed: bool = False, /, required: Any = (), **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if closed:
        schema["additionalProperties"] = False
    if required:
        schema["required"] = list(required)
    return schema


S, I, N = {"type": "string"}, {"type": "integer"}, {"type": "number"}  # noqa: E741
TYPES = ("string", "integer", "number", "boolean", "object", "array", "null")


@pytest.mark.parametrize("reader", TYPES)
def test_types(reader: str) -> None:
    for writer in TYPES:
        expected = reader == writer or (reader, writer) == ("number", "integer")
        assert (not kinds({"type": reader}, {"type": writer})) == expected, (reader, writer)
        assert (not kinds({"type": [reader]}, {"type": writer})) == expected
        assert (not kinds(obj(True, a={"type": reader}), obj(True, a={"type": writer}))) == expected
        assert (
            not kinds(
                {"type": "array", "items": {"type": reader}}, {"type": "array", "items": {"type": writer}}
            )
        ) == expected
        assert (not kinds({"anyOf": [{"type": reader}, {"enum": [5]}]}, {"type": writer})) == expected


def bound(kind: str, name: str, value: Any) -> dict[str, Any]:
    return {"type": kind, name: value}


BOUNDS = [
    ("string", "maxLength", "MAX_LENGTH", True),
    ("string", "minLength", "MIN_LENGTH", False),
    ("number", "maximum", "MAXIMUM", True),
    ("number", "minimum", "MINIMUM", False),
    ("number", "exclusiveMaximum", "EXCLUSIVE_MAXIMUM", True),
    ("number", "exclusiveMinimum", "EXCLUSIVE_MINIMUM", False),
    ("object", "maxProperties", "MAX_PROPERTIES", True),
    ("object", "minProperties", "MIN_PROPERTIES", False),
    ("array", "maxItems", "MAX_ITEMS", True),
    ("array", "minItems", "MIN_ITEMS", False),
]


@pytest.mark.parametrize(("kind", "keyword", "name", "upper"), BOUNDS)
def test_bounds(kind: str, keyword: str, name: str, upper: bool) -> None:
    small, large, none = bound(kind, keyword, 3), bound(kind, keyword, 8), {"type": kind}
    path = f"#/{keyword}"
    narrower, wider = (small, large) if upper else (large, small)
    assert kinds(wider, narrower) == []
    assert kinds(narrower, wider) == [(f"{name}_{'DECREASED' if upper else 'INCREASED'}", path)]
    assert kinds(none, small) == []
    assert kinds(small, none) == [(f"{name}_ADDED", path)]
    assert kinds(small, small) == []


PAIRS: list[tuple[str, Any, Any, str, str]] = [
    ("open: property added", obj(a=S, b=I), obj(a=S), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "#/properties/b"),
    ("open: anything added", obj(a=S, b={}), obj(a=S), "", ""),
    ("open: true added", obj(a=S, b=True), obj(a=S), "", ""),
    ("open: property removed", obj(a=S), obj(a=S, b=I), "", ""),
    ("closed: property added", obj(True, a=S, b=I), obj(True, a=S), "", ""),
    ("closed: property removed", obj(True, a=S), obj(True, a=S, b=I), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "#/properties/b"),
    ("closed: false removed", obj(True, a=S), obj(True, a=S, b=False), "", ""),
    ("closed: required added", obj(True, ["b"], b=I), obj(True), "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", "#/properties/b"),
    ("closed: required added with default", obj(True, ["b"], b={**I, "default": 1}), obj(True), "", ""),
    ("object opened", obj(a=S), obj(True, a=S), "", ""),
    ("object closed", obj(True, a=S), obj(a=S), "ADDITIONAL_PROPERTIES_REMOVED", "#/additionalProperties"),
    ("additional narrowed", {**obj(a=S), "additionalProperties": S}, obj(a=S), "ADDITIONAL_PROPERTIES_NARROWED", "#/additionalProperties"),
    ("additional extended", obj(a=S), {**obj(a=S), "additionalProperties": S}, "", ""),
    ("additional widened", {"type": "object", "additionalProperties": N}, {"type": "object", "additionalProperties": I}, "", ""),
    ("additional changed", {"type": "object", "additionalProperties": S}, {"type": "object", "additionalProperties": I}, "TYPE_CHANGED", "#/additionalProperties"),
    ("added where covered", {**obj(a=N), "additionalProperties": I}, {"type": "object", "additionalProperties": I}, "", ""),
    ("added where not covered", {**obj(a=S), "additionalProperties": I}, {"type": "object", "additionalProperties": I},
     "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "#/properties/a"),
    ("removed where covered", {"type": "object", "additionalProperties": N}, {**obj(a=I), "additionalProperties": N}, "", ""),
    ("removed where not covered", {"type": "object", "additionalProperties": I}, {**obj(a=S), "additionalProperties": I},
     "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "#/properties/a"),
    ("added below a pattern", {**obj(x_a=I), "patternProperties": {"^x_": I}}, {"type": "object", "patternProperties": {"^x_": I}}, "", ""),
    ("required added", obj(False, ["a"], a=S), obj(a=S), "REQUIRED_ATTRIBUTE_ADDED", "#/required/a"),
    ("required removed", obj(a=S), obj(False, ["a"], a=S), "", ""),
    ("required with default", obj(False, ["a"], a={**S, "default": ""}), obj(a={**S, "default": ""}), "", ""),
    ("required without property", {"type": "object", "required": ["z"]}, {"type": "object"}, "REQUIRED_ATTRIBUTE_ADDED", "#/required/z"),
    ("dependency added", {**obj(a=S), "dependencies": {"a": ["b"]}}, obj(a=S), "DEPENDENCY_ARRAY_ADDED", "#/dependencies/a"),
    ("dependency removed", obj(a=S), {**obj(a=S), "dependencies": {"a": ["b"]}}, "", ""),
    ("dependency extended", {"type": "object", "dependencies": {"a": ["b", "c"]}}, {"type": "object", "dependencies": {"a": ["b"]}},
     "DEPENDENCY_ARRAY_EXTENDED", "#/dependencies/a"),
    ("dependency narrowed", {"type": "object", "dependentRequired": {"a": ["b"]}}, {"type": "object", "dependentRequired": {"a": ["b", "c"]}}, "", ""),
    ("pattern added", {**S, "pattern": "a"}, S, "PATTERN_ADDED", "#/pattern"),
    ("pattern removed", S, {**S, "pattern": "a"}, "", ""),
    ("pattern changed", {**S, "pattern": "a"}, {**S, "pattern": "b"}, "PATTERN_CHANGED", "#/pattern"),
    ("multiple added", {**I, "multipleOf": 2}, I, "MULTIPLE_OF_ADDED", "#/multipleOf"),
    ("multiple reduced", {**I, "multipleOf": 2}, {**I, "multipleOf": 4}, "", ""),
    ("multiple expanded", {**I, "multipleOf": 4}, {**I, "multipleOf": 2}, "MULTIPLE_OF_EXPANDED", "#/multipleOf"),
    ("multiple changed", {**I, "multipleOf": 3}, {**I, "multipleOf": 2}, "MULTIPLE_OF_CHANGED", "#/multipleOf"),
    ("enum extended", {"enum": [1, 2]}, {"enum": [1]}, "", ""),
    ("enum narrowed", {"enum": [1]}, {"enum": [1, 2]}, "ENUM_ARRAY_NARROWED", "#/enum"),
    ("enum changed", {"enum": [1, 3]}, {"enum": [1, 2]}, "ENUM_ARRAY_CHANGED", "#/enum"),
    ("true is not one", {"enum": [True]}, {"enum": [1]}, "ENUM_ARRAY_CHANGED", "#/enum"),
    ("const kept", {"const": "a"}, {"const": "a"}, "", ""),
    ("const changed", {"const": "a"}, {"const": "b"}, "CONST_CHANGED", "#/const"),
    ("const into an enum", {"enum": ["a", "b"]}, {"const": "a"}, "", ""),
    ("const into an enum of other types", {"enum": [1, "b"]}, {"const": True}, "ENUM_ARRAY_CHANGED", "#/enum"),
    ("const with an item of another type", {"const": [{"a": 1}]}, {"const": [{"a": True}]}, "CONST_CHANGED", "#/const"),
    ("union extended", {"oneOf": [S, I, {"type": "null"}]}, {"oneOf": [S, I]}, "", ""),
    ("union narrowed", {"oneOf": [S, I]}, {"oneOf": [S, I, {"type": "null"}]}, "SUM_TYPE_NARROWED", "#/oneOf"),
    ("one became any", {"anyOf": [S, I]}, {"oneOf": [S, I]}, "", ""),
    ("any became one", {"oneOf": [S, I]}, {"anyOf": [S, I]}, "COMBINED_TYPE_CHANGED", "#"),
    ("all became any", {"anyOf": [S, I]}, {"allOf": [S, I]}, "COMBINED_TYPE_CHANGED", "#"),
    ("all extended", {"allOf": [S, {"maxLength": 3}, {"minLength": 1}]}, {"allOf": [S, {"maxLength": 3}]}, "PRODUCT_TYPE_EXTENDED", "#/allOf"),
    ("all narrowed", {"allOf": [S]}, {"allOf": [S, {"maxLength": 3}]}, "", ""),
    ("nullable", {"type": ["string", "null"]}, S, "", ""),
    ("no longer nullable", S, {"type": ["string", "null"]}, "SUM_TYPE_NARROWED", "#"),
    ("alternative changed", {"oneOf": [{"type": "boolean"}, I]}, {"oneOf": [S, I]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED", "#/oneOf"),
    ("not kept", {"not": S}, {"not": S}, "", ""),
    ("not refuses more", {"not": N}, {"not": I}, "NOT_TYPE_EXTENDED", "#/not"),
    ("not refuses less", {"not": I}, {"not": N}, "", ""),
    ("anything", {}, obj(a=S), "", ""),
    ("anything became something", S, {}, "TYPE_CHANGED", "#"),
    ("from nothing", S, False, "", ""),
    ("type given", obj(a=S), {"properties": {"a": S}}, "TYPE_CHANGED", "#"),
    ("conditional added to", {"if": S, "then": {"maxLength": 1}}, {"if": S, "then": {"maxLength": 2}}, "CONDITIONAL_CHANGED", "#/if"),
    ("items unique", {"type": "array", "uniqueItems": True}, {"type": "array"}, "UNIQUE_ITEMS_ADDED", "#/uniqueItems"),
    ("items unique no more", {"type": "array"}, {"type": "array", "uniqueItems": True}, "", ""),
    ("tuple grows in a closed array", {"type": "array", "items": [S, I], "additionalItems": False}, {"type": "array", "items": [S], "additionalItems": False}, "", ""),
    ("tuple grows in an open array", {"type": "array", "items": [S, I]}, {"type": "array", "items": [S]}, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL", "#/items/1"),
    ("tuple shrinks in a closed array", {"type": "array", "items": [S], "additionalItems": False}, {"type": "array", "items": [S, I], "additionalItems": False},
     "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", "#/items/1"),
    ("tuple shrinks in an open array", {"type": "array", "items": [S]}, {"type": "array", "items": [S, I]}, "", ""),
    ("array closed", {"type": "array", "items": [S], "additionalItems": False}, {"type": "array", "items": [S]}, "ADDITIONAL_ITEMS_REMOVED", "#/additionalItems"),
    ("title, description, default", {**S, "title": "t", "description": "d", "default": "x"}, S, "", ""),
    ("draft 4 exclusive", {**N, "maximum": 5}, {**N, "maximum": 5, "exclusiveMaximum": True, "$schema": "http://json-schema.org/draft-04/schema#"}, "MAXIMUM_ADDED", "#/maximum"),
    ("nested", obj(a=obj(b=I)), obj(a=obj(b=S)), "TYPE_CHANGED", "#/properties/a/properties/b"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reader", "writer", "kind", "path"), PAIRS, ids=[row[0] for row in PAIRS])
def test_pairs(name: str, reader: Any, writer: Any, kind: str, path: str) -> None:
    assert kinds(reader, writer) == ([(kind, path)] if kind else [])


TREE = {
    "type": "object",
    "properties": {"v": {"$ref": "#/definitions/v"}, "next": {"$ref": "#"}},
    "definitions": {"v": I},
}


def test_references_inside() -> None:
    wider = json.loads(json.dumps(TREE))
    wider["definitions"]["v"] = N
    assert kinds(wider, TREE) == []
    assert ("TYPE_NARROWED", "#/properties/v") in kinds(TREE, wider)


def test_references_to_other_subjects() -> None:
    text = json.dumps(obj(True, a={"$ref": "http://x/item.json#/definitions/i"}))

    def read(schema: Any):  # type: ignore[no-untyped-def]
        item = json.dumps({"definitions": {"i": schema}})
        name = "http://x/item.json"
        return read_json_schema(text, [Dependency(name, Reference(name, "item", 1), item)])

    assert not problems_reading(read(N), read(I))
    assert [p.kind for p in problems_reading(read(I), read(S))] == ["TYPE_CHANGED"]
    with pytest.raises(InvalidSchema, match="cannot be resolved"):
        read_json_schema(text)


@pytest.mark.parametrize(
    "schema",
    [
        {"$id": "http://x/a.json", "$ref": "b.json", "$defs": {"b": {"$id": "b.json", "type": "string"}}},
        {"$ref": "#here", "$defs": {"b": {"$anchor": "here"}}},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}},
        {"$ref": "#/$defs/a%20b", "$defs": {"a b": {}}},
        {"properties": {"$ref": {"type": "string"}}},
        {"enum": [{"$ref": "#/nowhere"}]},
    ],
)
def test_references_that_are_found(schema: Any) -> None:
    read_json_schema(json.dumps(schema))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("3", "an object, true or false"),
        ('{"type": "objekt"}', "objekt"),
        ('{"minLength": -1}', "minLength"),
        ('{"$ref": "#/definitions/a"}', "cannot be resolved"),
        ('{"type": "string", "type": "object"}', "twice"),
        ('{"not": ' * 1000 + "{}" + "}" * 1000, "nested"),
    ],
)
def test_bad_schemas_are_one_sentence(text: str, says: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        read_json_schema(text)
    assert says in refused.value.message


def test_a_pattern_that_explodes_elsewhere_takes_no_time() -> None:
    pattern = "(a+)+$"
    old = {"type": "object", "patternProperties": {pattern: I}}
    new = {**old, "properties": {"a" * 5000 + "!": S}}
    begun = time.process_time()
    name = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
    assert [kind for kind, _ in kinds(new, old)] == [name]
    assert time.process_time() - begun < 5


def test_alternatives_within_alternatives_end() -> None:
    schema: Any = S
    for _ in range(6):
        schema = {"oneOf": [schema, {"type": "array", "items": schema}, obj(a=schema)]}
    begun = time.process_time()
    kinds({"oneOf": [schema, I]}, {"oneOf": [schema, N]})
    assert time.process_time() - begun < 60


# --- what we allow is taken by a real validator ---------------------------------------------------------

SIMPLE = st.one_of(
    st.sampled_from(
        [S, I, N, {"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]}, {"enum": ["a", 1]}]
    ),
    st.builds(lambda n: {**I, "maximum": n}, st.integers(0, 3)),
    st.builds(lambda n: {**S, "maxLength": n}, st.integers(0, 2)),
)
PART = st.one_of(
    SIMPLE,
    st.builds(lambda item: {"type": "array", "items": item}, SIMPLE),
    st.builds(lambda a, b: {"anyOf": [a, b]}, SIMPLE, SIMPLE),
)
SCHEMAS = st.one_of(
    PART,
    st.builds(
        lambda properties, closed, required: obj(
            closed, [r for r in required if r in properties], **properties
        ),
        st.dictionaries(st.sampled_from(["a", "b"]), PART, max_size=2),
        st.booleans(),
        st.lists(st.sampled_from(["a", "b"]), unique=True),
    ),
)
LEAF = st.one_of(
    st.sampled_from(["", "a", "aa", "aaa"]), st.integers(-1, 5), st.just(1.5), st.booleans(), st.none()
)
VALUES = st.one_of(
    LEAF,
    st.lists(LEAF, max_size=2),
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]), st.one_of(LEAF, st.lists(LEAF, max_size=2)), max_size=3
    ),
)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=5, max_size=20))
def test_what_is_called_compatible_is_taken(writer: Any, reader: Any, values: list[Any]) -> None:
    if kinds(reader, writer):
        return
    old, new = jsonschema_rs.validator_for(writer), jsonschema_rs.validator_for(reader)
    for value in values:
        assert new.is_valid(value) or not old.is_valid(value)


ARRAY = {"type": "array"}
CLOSED_ARRAY = {**ARRAY, "additionalItems": False}


@pytest.mark.parametrize(
    ("writer", "reader", "kind"),
    [
        (True, S, "TYPE_CHANGED"), (S, True, ""), (False, S, ""), (S, False, "TYPE_CHANGED"),
        ({}, True, ""), (True, {}, ""), (True, False, "TYPE_CHANGED"), (False, True, ""),
        (ARRAY, {**ARRAY, "items": S}, "ADDITIONAL_ITEMS_NARROWED"), ({**ARRAY, "items": S}, ARRAY, ""),
        ({**ARRAY, "items": S}, {**ARRAY, "items": [S]}, ""),
        ({**ARRAY, "items": [S]}, {**ARRAY, "items": S}, "ADDITIONAL_ITEMS_NARROWED"),
        ({**CLOSED_ARRAY, "items": [S]}, {**CLOSED_ARRAY, "items": [S, S]}, ""),
        ({**CLOSED_ARRAY, "items": [S, S]}, {**CLOSED_ARRAY, "items": [S]}, "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        ({**ARRAY, "items": [S]}, {**ARRAY, "items": [S, S]}, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"),
        ({**ARRAY, "items": [S]}, {**ARRAY, "items": [S, {}]}, ""),
        ({**ARRAY, "items": [S, S]}, {**ARRAY, "items": [S]}, ""),
    ],
)  # fmt: skip
def test_booleans_arrays_and_tuples(writer: Any, reader: Any, kind: str) -> None:
    assert [change for change, _ in kinds(reader, writer)] == ([kind] if kind else [])
