"""Rules by tag: no way to write a schema lets a tagged value pass as it is; what cannot be looked through refuses."""

# ruff: noqa: E501  the tables read better in whole rows

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.schemas import expressions
from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.codecs.schemas import make_codec
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.formats.protobuf import read_protobuf
from barnabas.schemas.model import Reference

pytest.importorskip("celpy", reason="the extra `rules` is not installed")

PII = {"confluent:tags": ["PII"]}
SECRET = {"type": "string", **PII}
PLAIN = {"type": "string"}
REFUSED = object()


def contract(tags: dict[str, list[str]] | None = None) -> str:
    mask = {"name": "mask", "kind": "TRANSFORM", "type": "CEL_FIELD", "mode": "WRITE", "tags": ["PII"]}
    rules = [{**mask, "expr": "typeName == 'STRING' ; '***'"}, {**mask, "expr": "value", "tags": ["other"]}]
    return json.dumps({"ruleSet": {"domainRules": rules}, "metadata": {"tags": tags or {}}})


def masked(
    kind: str, text: str, value: Any, dependencies: list[Dependency] | None = None, *by_path: str
) -> Any:
    """by_path: what the metadata tags."""
    imported = dependencies or []
    try:
        payload = make_codec(kind, text, imported, contract({path: ["PII"] for path in by_path})).encode(
            value
        )
    except Mismatch:
        return REFUSED
    return make_codec(kind, text, imported).decode(payload)


def properties(**rows: Any) -> dict[str, Any]:
    return {"type": "object", "properties": rows}


def mapping(values: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, **more}


JSON_ROWS: dict[str, tuple[Any, Any, Any]] = {
    "beside a reference": (
        {**properties(a={"$ref": "#/definitions/t", **PII}), "definitions": {"t": PLAIN}},
        {"a": "x"}, {"a": "***"},
    ),
    "behind a reference": (
        {**properties(a={"$ref": "#/definitions/t"}), "definitions": {"t": SECRET}}, {"a": "x"}, {"a": "***"}
    ),
    "properties beside a reference": (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **properties(a={"$ref": "#/$defs/t", **properties(b=SECRET)}),
            "$defs": {"t": properties(c=SECRET)},
        },
        {"a": {"b": "x", "c": "y", "d": "z"}}, {"a": {"b": "***", "c": "***", "d": "z"}},
    ),
    "additional properties": (
        {**properties(a=PLAIN), "additionalProperties": SECRET}, {"a": "x", "b": "y"}, {"a": "x", "b": "***"}
    ),
    "properties by pattern": (
        {"type": "object", "patternProperties": {"^s_": SECRET}, "additionalProperties": PLAIN},
        {"s_a": "x", "b": "y"}, {"s_a": "***", "b": "y"},
    ),
    "objects by pattern": (
        {"type": "object", "patternProperties": {"": properties(a=SECRET)}}, {"q": {"a": "x"}}, {"q": {"a": "***"}}
    ),
    "items": (properties(a={"type": "array", "items": SECRET}), {"a": ["x"]}, {"a": ["***"]}),
    "the array of items": (
        properties(a={"type": "array", "items": PLAIN, **PII}), {"a": ["x"]}, {"a": ["***"]}
    ),
    "first items": (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **properties(a={"prefixItems": [PLAIN, SECRET], "items": SECRET}),
        },
        {"a": ["x", "y", "z"]}, {"a": ["x", "***", "***"]},
    ),
    "first items, older": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **properties(a={"items": [PLAIN, SECRET], "additionalItems": SECRET}),
        },
        {"a": ["x", "y", "z"]}, {"a": ["x", "***", "***"]},
    ),
    "if, then": (
        {**properties(k=PLAIN, a=PLAIN), "if": properties(k={"const": "s"}), "then": properties(a=SECRET)},
        {"k": "s", "a": "x"}, {"k": "s", "a": "***"},
    ),
    "if, else": (
        {**properties(k=PLAIN, a=PLAIN), "if": properties(k={"const": "s"}), "else": properties(a=SECRET)},
        {"k": "t", "a": "x"}, {"k": "t", "a": "***"},
    ),
    "dependent schemas": (
        {**properties(a=PLAIN, b=PLAIN), "dependentSchemas": {"b": properties(a=SECRET)}},
        {"a": "x", "b": "y"}, {"a": "***", "b": "y"},
    ),
    "all of": ({"allOf": [properties(a=SECRET), properties(b=SECRET)]}, {"a": "x", "b": "y"}, {"a": "***", "b": "***"}),
    "all of, of a tagged value": (
        properties(a={**SECRET, "allOf": [{"minLength": 1}], "anyOf": [{"maxLength": 9}]}), {"a": "x"}, {"a": "***"}
    ),
    "one of": (properties(a={"oneOf": [{"type": "null"}, SECRET]}), {"a": "x"}, {"a": "***"}),
    "without a type": (properties(a=PII), {"a": "x"}, {"a": "***"}),
    "several types": (properties(a={"type": ["string", "null"], **PII}), {"a": "x"}, {"a": "***"}),
    "anything in a tagged object": (
        properties(a={"type": "object", **PII}), {"a": {"b": {"c": "x"}, "d": ["y"]}}, {"a": {"b": {"c": "***"}, "d": ["***"]}}
    ),
    "a tree": (
        {**properties(v=SECRET, kids={"type": "array", "items": {"$ref": "#"}})},
        {"v": "x", "kids": [{"v": "y", "kids": [{"v": "z"}]}]},
        {"v": "***", "kids": [{"v": "***", "kids": [{"v": "***"}]}]},
    ),
    "the whole value": (SECRET, "x", "***"),
    "a map": (properties(a=mapping(PLAIN, **PII)), {"a": {"k": "x"}}, {"a": {"k": "***"}}),
    "a map without properties": (properties(a=mapping(PLAIN, properties={}, **PII)), {"a": {"k": "x"}}, {"a": {"k": "***"}}),
    "a map of anything": (properties(a=mapping(True, **PII)), {"a": {"k": "x"}}, {"a": {"k": "***"}}),
    "a map by pattern": (
        properties(a={"type": "object", "patternProperties": {"^k": PLAIN}, **PII}), {"a": {"k": "x"}}, {"a": {"k": "***"}}
    ),
    "a list of maps": (
        properties(a={"type": "array", "items": mapping(PLAIN), **PII}), {"a": [{"k": "x"}]}, {"a": [{"k": "***"}]}
    ),
    "a map of maps": (mapping(mapping(mapping(PLAIN), **PII)), {"a": {"b": {"c": "x"}}}, {"a": {"b": {"c": "***"}}}),
    "a map in a branch": (
        properties(a={"anyOf": [mapping(PLAIN, **PII), {"type": "null"}]}), {"a": {"k": "x"}}, {"a": {"k": "***"}}
    ),
    "a map of objects": (mapping(properties(a=PLAIN), **PII), {"k": {"a": "x"}}, REFUSED),
    "the whole map": (mapping(PLAIN, **PII), {"k": "x"}, {"k": "***"}),
    "the whole list": ({"type": "array", "items": PLAIN, **PII}, ["x"], ["***"]),
    "the whole list of objects": ({"type": "array", "items": properties(a=PLAIN), **PII}, [{"a": "x"}], REFUSED),
    "the whole object": ({**properties(a=PLAIN), **PII}, {"a": "x"}, REFUSED),
    "properties of some values": (
        properties(a={"type": "object", "dependentSchemas": {"b": properties(b=PLAIN)}, **PII}), {"a": {"b": "x"}}, REFUSED
    ),
    "one tag in place of a list": (properties(a={**PLAIN, "confluent:tags": "PII"}), {"a": "x"}, {"a": "***"}),
    "an object with fields of its own": (properties(a={**properties(b=PLAIN), **PII}), {"a": {"b": "x"}}, REFUSED),
    "an enum": (properties(a={"enum": ["x", "y"], **PII}), {"a": "x"}, REFUSED),
    "not": (properties(a={"not": {"type": "integer", **PII}}), {"a": "x"}, REFUSED),
    "contains": (properties(a={"contains": SECRET}), {"a": ["x"]}, REFUSED),
    "unevaluated": (
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "unevaluatedProperties": SECRET}, {"a": "x"}, REFUSED
    ),
    "untagged": (
        {**properties(a={"contains": PLAIN}), "not": {"required": ["z"]}, "patternProperties": {"b": {}}},
        {"a": ["x"], "b": "y", "c": {"d": "e"}}, {"a": ["x"], "b": "y", "c": {"d": "e"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON_ROWS)
def test_json_schema(name: str) -> None:
    schema, value, wanted = JSON_ROWS[name]
    assert masked("JSON", json.dumps(schema), value) == wanted


BY_PATH: dict[str, tuple[str, Any, Any, Any]] = {
    "$.a": ("a map", properties(a=mapping(PLAIN)), {"a": {"k": "x"}}, {"a": {"k": "***"}}),
    "$.b": ("a map of maps", properties(b=mapping(mapping(PLAIN))), {"b": {"c": {"d": "x"}}}, {"b": {"c": {"d": "***"}}}),
    "$.c": ("anything", properties(c={"type": "object"}), {"c": {"d": "x"}}, {"c": {"d": "***"}}),
    "$.d": ("a map of objects", properties(d=mapping(properties(a=PLAIN))), {"d": {"k": {"a": "x"}}}, REFUSED),
    "$.?": ("a map", properties(a=mapping(PLAIN)), {"a": {"k": "x"}}, {"a": {"k": "***"}}),
    "$": ("an object", properties(a=PLAIN), {"a": "x"}, REFUSED),
    "*": ("a map", mapping(PLAIN), {"k": "x"}, {"k": "***"}),
    "**": ("the whole value", PLAIN, "x", "***"),
    "$.a.k": ("a value of a map", properties(a=mapping(PLAIN)), {"a": {"k": "x", "l": "y"}}, {"a": {"k": "***", "l": "y"}}),
    "$.**": ("what is in an object", properties(a=properties(b=PLAIN)), {"a": {"b": "x"}}, {"a": {"b": "***"}}),
}  # fmt: skip


@pytest.mark.parametrize("path", BY_PATH)
def test_json_schema_by_path(path: str) -> None:
    _, schema, value, wanted = BY_PATH[path]
    assert masked("JSON", json.dumps(schema), value, None, path) == wanted


def test_types_by_path() -> None:
    schema = json.dumps(record(field("r", {**INNER, "fields": [field("s", "string")]})))
    assert masked("AVRO", schema, {"r": {"s": "x"}}, None, "I.s") == {"r": {"s": "***"}}
    assert masked("AVRO", schema, {"r": {"s": "x"}}, None, "I") is REFUSED
    text = 'syntax = "proto3"; package p; message M { I i = 1; } message I { string s = 1; }'
    assert masked("PROTOBUF", text, {"i": {"s": "x"}}, None, "p.I.s") == {"i": {"s": "***"}}
    assert masked("PROTOBUF", text, {"i": {"s": "x"}}, None, "p.I") is REFUSED


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("**.r", REFUSED),
        ("*.r", REFUSED),
        ("**r", REFUSED),
        ("**", "***"),
        ("R.*", "x"),
        ("**.s", "***"),
        ("", "x"),
    ],
)
def test_wildcards_that_match_a_record(path: str, wanted: Any) -> None:
    """A path that ends in a name was meant for that very record, so its fields must not pass as they are."""
    inner = {"type": "record", "name": "I", "fields": [field("s", "string")]}
    hidden = masked("AVRO", json.dumps(record(field("r", inner))), {"r": {"s": "x"}}, None, path)
    assert hidden == (wanted if wanted is REFUSED else {"r": {"s": wanted}})


def test_rules_without_tags_look_at_what_the_schema_names() -> None:
    rule = {"name": "r", "kind": "TRANSFORM", "type": "CEL_FIELD", "mode": "WRITE", "expr": "value + '!'"}
    rules = json.dumps({"ruleSet": {"domainRules": [rule]}})
    for schema, value, wanted in (
        (properties(a=PLAIN), {"a": "x", "b": "y"}, {"a": "x!", "b": "y"}),
        (mapping(PLAIN, **PII), {"a": "x"}, {"a": "x!"}),
        (PLAIN, "x", "x"),
        (SECRET, "x", "x!"),
    ):
        codec = make_codec("JSON", json.dumps(schema), [], rules)
        assert codec.decode(codec.encode(value)) == wanted


def test_a_value_that_is_none_of_its_branches_is_not_read_as_it_is() -> None:
    schema = json.dumps(
        properties(a={"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 3, **PII}]})
    )
    rules = contract().replace('"WRITE"', '"READ"')
    codec = make_codec("JSON", schema, [], rules)
    assert codec.decode(b'{"a":"abc"}') == {"a": "***"}
    with pytest.raises(Mismatch, match="none of its oneOf"):
        codec.decode(b'{"a":"abcd"}')


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


INNER = {"type": "record", "name": "I", "fields": [field("s", "string", **PII)]}
AVRO_ROWS: dict[str, tuple[Any, Any, Any]] = {
    "map": (record(field("m", {"type": "map", "values": "string"}, **PII)), {"m": {"k": "x"}}, {"m": {"k": "***"}}),
    "map of records": (record(field("m", {"type": "map", "values": INNER})), {"m": {"k": {"s": "x"}}}, {"m": {"k": {"s": "***"}}}),
    "tags at a type": (record(field("a", SECRET)), {"a": "x"}, {"a": "***"}),
    "tags at the values of a map": (record(field("m", {"type": "map", "values": SECRET})), {"m": {"k": "x"}}, {"m": {"k": "***"}}),
    "union": (record(field("u", ["null", "int", "string"], **PII)), {"u": {"string": "x"}}, {"u": {"string": "***"}}),
    "tags in a union": (record(field("u", ["null", SECRET])), {"u": {"string": "x"}}, {"u": {"string": "***"}}),
    "union of records": (
        record(field("u", [INNER, {**INNER, "name": "J"}])), {"u": {"J": {"s": "x"}}}, {"u": {"J": {"s": "***"}}}
    ),
    "union of arrays and maps": (
        record(field("u", [{"type": "array", "items": INNER}, {"type": "map", "values": "I"}])),
        {"u": {"map": {"k": {"s": "x"}}}}, {"u": {"map": {"k": {"s": "***"}}}},
    ),
    "named type again": (record(field("a", INNER), field("b", "I")), {"a": {"s": "x"}, "b": {"s": "y"}}, {"a": {"s": "***"}, "b": {"s": "***"}}),
    "tree": (
        record(field("s", "string", **PII), field("next", ["null", "R"])),
        {"s": "x", "next": {"R": {"s": "y", "next": None}}}, {"s": "***", "next": {"R": {"s": "***", "next": None}}},
    ),
    "array": ({"type": "array", "items": INNER}, [{"s": "x"}], [{"s": "***"}]),
    "the whole value": (SECRET, "x", "***"),
    "enum": (record(field("e", {"type": "enum", "name": "E", "symbols": ["A"]}, **PII)), {"e": "A"}, REFUSED),
    "fixed": (record(field("f", {"type": "fixed", "name": "F", "size": 1}, **PII)), {"f": "x"}, REFUSED),
    "record": (record(field("r", INNER, **PII)), {"r": {"s": "x"}}, REFUSED),
    "record type": (record(field("r", {**INNER, **PII, "fields": [field("s", "string")]})), {"r": {"s": "x"}}, REFUSED),
    "record type again": (
        record(field("a", ["null", {**INNER, **PII, "fields": [field("s", "string")]}]), field("b", ["null", "I"])),
        {"a": None, "b": {"I": {"s": "x"}}}, REFUSED,
    ),
    "the whole record": (record(field("a", "string"), **PII), {"a": "x"}, REFUSED),
    "error": (
        record(field("e", {**INNER, "type": "error"}), field("u", ["null", "I"])),
        {"e": {"s": "x"}, "u": {"I": {"s": "y"}}}, {"e": {"s": "***"}, "u": {"I": {"s": "***"}}},
    ),
    "error type": (record(field("e", {**INNER, **PII, "type": "error"})), {"e": {"s": "x"}}, REFUSED),
    "one tag in place of a list": (record(field("a", "string", **{"confluent:tags": "PII"})), {"a": "x"}, {"a": "***"}),
}  # fmt: skip


@pytest.mark.parametrize("name", AVRO_ROWS)
def test_avro(name: str) -> None:
    schema, value, wanted = AVRO_ROWS[name]
    assert masked("AVRO", json.dumps(schema), value) == wanted


TAG = '[(confluent.field_meta) = { tags: ["PII"] }]'
PROTO_ROWS: dict[str, tuple[str, Any, Any]] = {
    "map": (f"message M {{ map<string, string> m = 1 {TAG}; }}", {"m": {"k": "x"}}, {"m": {"k": "***"}}),
    "map of messages": (
        f"message M {{ map<string, I> m = 1; }} message I {{ string s = 1 {TAG}; }}", {"m": {"k": {"s": "x"}}}, {"m": {"k": {"s": "***"}}}
    ),
    "oneof": (f"message M {{ oneof o {{ string a = 1 {TAG}; int32 b = 2; }} }}", {"a": "x"}, {"a": "***"}),
    "nested": (
        f"message M {{ message I {{ message J {{ repeated string s = 1 {TAG}; }} J j = 1; }} repeated I i = 1; }}",
        {"i": [{"j": {"s": ["x", "y"]}}]}, {"i": [{"j": {"s": ["***", "***"]}}]},
    ),
    "tree": (
        f"message M {{ string s = 1 {TAG}; M next = 2; }}", {"s": "x", "next": {"s": "y"}}, {"s": "***", "next": {"s": "***"}}
    ),
    "wrapped": (
        f'import "google/protobuf/wrappers.proto"; message M {{ google.protobuf.StringValue s = 1 {TAG}; }}', {"s": "x"}, {"s": "***"}
    ),
    "one tag of the option": ('message M { string s = 1 [(confluent.field_meta).tags = "PII"]; }', {"s": "x"}, {"s": "***"}),
    "text in pieces": ("message M { string s = 1 [(.confluent.field_meta) = { tags: ['P' \"\\x49I\"] }]; }", {"s": "x"}, {"s": "***"}),
    "any of a known message": (
        f'import "google/protobuf/any.proto"; message M {{ google.protobuf.Any a = 1; }} message I {{ string s = 1 {TAG}; }}',
        {"a": {"@type": "x/I", "s": "x"}}, REFUSED,
    ),
    "struct": (
        f'import "google/protobuf/struct.proto"; message M {{ google.protobuf.Struct s = 1 {TAG}; }}', {"s": {"a": "x"}}, REFUSED
    ),
    "enum": (f"enum E {{ Z = 0; A = 1; }} message M {{ E e = 1 {TAG}; }}", {"e": "A"}, REFUSED),
    "message type": (
        'message M { I i = 1; } message I { option (confluent.message_meta).tags = "PII"; string s = 1; }', {"i": {"s": "x"}}, REFUSED
    ),
    "the whole message": (
        'message M { option (confluent.message_meta) = { tags: ["PII"] }; string s = 1; }', {"s": "x"}, REFUSED
    ),
    "nested message type": (
        'message M { message I { option (confluent.message_meta).tags = "PII"; string s = 1; } repeated I i = 1; }',
        {"i": [{"s": "x"}]}, REFUSED,
    ),
    "enum type": (
        'enum E { option (confluent.enum_meta).tags = "PII"; Z = 0; A = 1; } message M { E e = 1; }', {"e": "A"}, REFUSED
    ),
    "map of an enum type": (
        'message M { enum E { option (confluent.enum_meta).tags = "PII"; Z = 0; A = 1; } map<string, E> m = 1; }', {"m": {"k": "A"}}, REFUSED
    ),
    "message": (f"message M {{ I i = 1 {TAG}; }} message I {{ string s = 1; }}", {"i": {"s": "x"}}, REFUSED),
}  # fmt: skip


@pytest.mark.parametrize("form", ["text", "descriptor"])
@pytest.mark.parametrize("name", PROTO_ROWS)
def test_protobuf(name: str, form: str) -> None:
    body, value, wanted = PROTO_ROWS[name]
    text = f'syntax = "proto3"; import "confluent/meta.proto"; {body}'
    if form == "descriptor":
        text = read_protobuf(text).formatted("serialized")
    assert masked("PROTOBUF", text, value) == wanted


def test_protobuf_imports() -> None:
    other = (
        f'syntax = "proto3"; package p; import "confluent/meta.proto"; message I {{ string s = 1 {TAG}; }}'
    )
    text = 'syntax = "proto3"; import "other.proto"; message M { p.I i = 1; }'
    for text_of_other in (other, read_protobuf(other).formatted("serialized")):
        dependencies = [Dependency("other.proto", Reference("other.proto", "other", 1), text_of_other)]
        assert masked("PROTOBUF", text, {"i": {"s": "x"}}, dependencies) == {"i": {"s": "***"}}


def test_protobuf_options_that_cannot_be_understood() -> None:
    from barnabas.schemas.errors import InvalidSchema

    text = 'syntax = "proto3"; message M { string s = 1 [(confluent.field_meta) = { tag: ["PII"] }]; }'
    with pytest.raises(InvalidSchema, match="may contain tags"):
        make_codec("PROTOBUF", text, [], contract())


def test_long_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "STEPS_MAX", 2_000)
    schema = json.dumps(record(field("l", {"type": "array", "items": "string"})))
    within = {"name": "all", "kind": "CONDITION", "type": "CEL", "mode": "WRITE"}
    for expr in ("message.l.all(x, x in message.l)", "message.l.all(x, message.l.exists(y, x + y == ''))"):
        rules = json.dumps({"ruleSet": {"domainRules": [{**within, "expr": expr}]}})
        codec = make_codec("AVRO", schema, [], rules)
        with pytest.raises(Mismatch, match="more than 2,000 steps"):
            codec.encode({"l": ["x"] * (10_000 if "in message" in expr else 60)})


def test_semicolons_in_literals() -> None:
    schema = json.dumps(record(field("a", "string")))
    for expr in ("name == 'a' ; value + ';'", "value + r\"\\;\"[1:] == '' ; 1", "value + ';' // ;"):
        rule = {"name": "r", "kind": "TRANSFORM", "type": "CEL_FIELD", "mode": "WRITE", "expr": expr}
        codec = make_codec("AVRO", schema, [], json.dumps({"ruleSet": {"domainRules": [rule]}}))
        if "[1:]" in expr:
            continue
        assert make_codec("AVRO", schema, []).decode(codec.encode({"a": "x"})) == {"a": "x;"}
