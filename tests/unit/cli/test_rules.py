"""Data contracts beyond what the tests beside Confluent's serializers show: tags by path, named types, errors."""

from __future__ import annotations

import builtins
import json
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from barnabas.pipelines.formats.base import NoColumns
from barnabas.pipelines.formats.decoding import Decoding
from barnabas.pipelines.formats.encoding import Encoding
from barnabas.registry.listing import all_versions
from barnabas.registry.records import read_version, schema_entry
from barnabas.registry.requests import read_wanted
from barnabas.registry.state import State
from barnabas.schemas import expressions
from barnabas.schemas.codecs import Mismatch, rules
from barnabas.schemas.codecs.contracts import Contract
from barnabas.schemas.codecs.rules import RuleFailed
from barnabas.schemas.codecs.schemas import Codec, make_codec
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.framing import Schema, frame
from barnabas.schemas.model import Reference

pytest.importorskip("celpy", reason="the extra `rules` is not installed")

STREETS = {
    "type": "record", "name": "Way", "namespace": "x", "fields": [
        {"name": "from", "type": {"type": "record", "name": "Place", "fields": [
            {"name": "street", "type": "string", "confluent:tags": ["PII"]}]}},
        {"name": "to", "type": "Place"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "codes", "type": {"type": "map", "values": "int"}, "default": {}},
    ],
}  # fmt: skip
WAY = {"from": {"street": "Elm"}, "to": {"street": "Oak"}, "note": {"string": "n"}, "codes": {"a": 1}}
PROTO = """syntax = "proto3";
package x;
import "confluent/meta.proto";
message Order {
  string id = 1 [(confluent.field_meta).tags = "PII"];
  repeated string codes = 2 [(confluent.field_meta) = { tags: ["A", "CODE"] }];
  map<string, string> names = 3;
}
"""


def contract(*rules: dict[str, Any], **metadata: Any) -> str:
    rows = [
        {"name": f"r{number}", "kind": "TRANSFORM", "type": "CEL_FIELD", "mode": "WRITE", **rule}
        for number, rule in enumerate(rules)
    ]
    return json.dumps({"ruleSet": {"domainRules": rows}, "metadata": metadata})


def codec(kind: str, schema: Any, *rules: dict[str, Any], **metadata: Any) -> Codec:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return make_codec(kind, text, [], contract(*rules, **metadata))


def through(used: Codec, value: Any) -> Any:
    return used.decode(used.encode(value))


def test_a_type_that_is_named_twice_has_its_rules_twice() -> None:
    ruled = codec("AVRO", STREETS, {"expr": "'*'", "tags": ["PII"]})
    assert through(ruled, WAY) == {**WAY, "from": {"street": "*"}, "to": {"street": "*"}}


@pytest.mark.parametrize("path", ["x.Way.note", "**.note", "x.*.no?e", "x.**"])
def test_tags_by_path(path: str) -> None:
    rule = {"expr": "typeName == 'STRING' ; fullName", "tags": ["T"]}
    assert through(codec("AVRO", STREETS, rule, tags={path: ["T"]}), WAY)["note"] == {"string": "x.Way.note"}


@pytest.mark.parametrize("path", ["note", "*.note", "x.Wa", "x.Way.note.x", "x.Way.not?e"])
def test_paths_of_other_fields(path: str) -> None:
    rule = {"expr": "typeName == 'STRING' ; fullName", "tags": ["T"]}
    assert through(codec("AVRO", STREETS, rule, tags={path: ["T"]}), WAY) == WAY


def test_a_whole_record_and_null() -> None:
    rule = {
        "type": "CEL",
        "expr": "{'from': message.to, 'to': message.from, 'note': null, 'codes': message.codes}",
    }
    assert through(codec("AVRO", STREETS, rule), WAY) == {
        "from": WAY["to"], "to": WAY["from"], "note": None, "codes": {"a": 1},
    }  # fmt: skip


def test_tags_in_protobuf() -> None:
    order = {"id": "a", "codes": ["1", "2"], "names": {"k": "v"}}
    ruled = codec("PROTOBUF", PROTO, {"expr": "'*' + value", "tags": ["PII", "CODE"]})
    assert through(ruled, order) == {**order, "id": "*a", "codes": ["*1", "*2"]}
    with pytest.raises(RuleFailed, match="its result is no value of the field"):
        codec("PROTOBUF", PROTO, {"expr": "5", "tags": ["PII"]}).encode(order)


def test_every_item_has_to_hold() -> None:
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}}
    ruled = codec("JSON", schema, {"kind": "CONDITION", "expr": "value != ''"})
    assert through(ruled, {"l": ["a", "b"]}) == {"l": ["a", "b"]}
    with pytest.raises(RuleFailed, match=r"rule 'r0' refuses the value: value != ''$"):
        ruled.encode({"l": ["a", ""]})


def test_json_is_checked_behind_its_rules() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}}
    ruled = codec("JSON", schema, {"expr": "value > 9 ; 9"})
    assert through(ruled, {"n": 50}) == {"n": 9}
    with pytest.raises(Mismatch, match="10 is greater than the maximum of 9"):
        codec("JSON", schema, {"expr": "value > 9 ; 10"}).encode({"n": 50})


def test_what_a_rule_makes_has_to_suit_the_schema() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    with pytest.raises(Mismatch, match="what its rules made does not suit the schema"):
        codec("AVRO", schema, {"expr": "value * 1000000"}).encode({"n": 1_000_000})


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    import_as_before = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "celpy":
            raise ModuleNotFoundError("No module named 'celpy'", name="celpy")
        return import_as_before(name, *rest)

    expressions.cel.cache_clear()
    monkeypatch.setattr(builtins, "__import__", missing)
    try:
        with pytest.raises(
            InvalidSchema, match=r"its rules need the package celpy: pip install 'barnabas\[rules\]'"
        ):
            codec("AVRO", STREETS, {"expr": "value"})
        with pytest.raises(NoColumns, match="celpy"):
            Encoding(Schema(1, "AVRO", json.dumps(STREETS), (), 1, contract({"expr": "value"})))
        assert through(codec("AVRO", STREETS, {"expr": "value", "disabled": True}), WAY) == WAY
    finally:
        expressions.cel.cache_clear()


class One:
    def __init__(self, *schemas: Schema) -> None:
        self.schemas = {schema.id: schema for schema in schemas}

    def by_id(self, schema_id: int) -> Schema:
        return self.schemas[schema_id]


def test_columns_pass_the_rules() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}],
    }
    rules = contract(
        {"kind": "CONDITION", "type": "CEL", "expr": "message.n > 0", "mode": "WRITEREAD"},
        {"expr": "typeName == 'STRING' ; value + '!'"},
        {"expr": "typeName == 'STRING' ; value + '?'", "mode": "READ"},
    )
    writer = Schema(1, "AVRO", json.dumps(schema), (), 1, rules)
    old = Schema(2, "AVRO", json.dumps({**schema, "fields": schema["fields"][::-1]}))
    decoding = Decoding(One(writer, old), writer)  # type: ignore[arg-type]
    import pyarrow as pa

    rows = pa.array([{"n": 1, "s": "a"}, {"n": 0, "s": "b"}], decoding.type.field("v").type)
    encoded = Encoding(writer).encode(rows)
    assert encoded.field("error").to_pylist() == [
        None, "the fields do not suit schema 1: rule 'r0' refuses the value: message.n > 0",
    ]  # fmt: skip
    [record, _] = encoded.field("v").to_pylist()
    foreign = [frame(2, b"\x02a\x02"), frame(2, b"\x02a\x00"), frame(1, b"\x00\x02a"), record]
    decoded = decoding.decode(pa.array(foreign, pa.binary()))
    assert decoded.field("v").to_pylist() == [{"n": 1, "s": "a?"}, None, None, {"n": 1, "s": "a!?"}]
    assert decoded.field("error").to_pylist()[1:3] == ["rule 'r0' refuses the value: message.n > 0"] * 2


@pytest.mark.parametrize(
    ("where", "runs"), [("CLIENT", True), ("ALL", True), ("SERVER", False), (None, True)]
)
def test_rules_that_are_for_others(where: str | None, runs: bool) -> None:
    text = contract({"kind": "CONDITION", "type": "CEL", "expr": "false"})
    contract_now = json.loads(text)
    contract_now["ruleSet"]["enableAt"] = where
    ruled = make_codec("AVRO", json.dumps(STREETS), [], json.dumps(contract_now))
    if runs:
        with pytest.raises(RuleFailed):
            ruled.encode(WAY)
    else:
        assert through(ruled, WAY) == WAY


def test_a_schema_that_leads_in_a_circle() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}],
        "$defs": {
            "a": {"type": "object", "properties": {"n": {"$ref": "#/$defs/a"}, "s": {"type": "string"}}}
        },
    }
    ruled = codec("JSON", schema, {"expr": "value + '!'"})
    assert through(ruled, {"s": "a", "n": {"s": "b"}}) == {"s": "a!", "n": {"s": "b!"}}


def test_rules_of_another_registry_are_the_same_rules() -> None:
    """Else a schema that is registered once more behind a move with the topic would get another id."""
    rule = {
        "name": "r",
        "kind": "CONDITION",
        "mode": "WRITE",
        "type": "CEL",
        "expr": "true",
        "disabled": False,
    }
    asked = read_wanted(
        {"schema": '"string"', "ruleSet": {"domainRules": [{**rule, "tags": []}], "enableAt": "CLIENT"}}
    )
    theirs = {**rule, "doc": None, "params": None, "tags": None}
    rules = {"migrationRules": [], "encodingRules": None, "domainRules": [theirs], "enableAt": "CLIENT"}
    value = {
        "subject": "s",
        "version": 1,
        "id": 1,
        "schema": '"string"',
        "metadata": {"tags": {}},
        "ruleSet": rules,
    }
    read = read_version(value)
    assert read.content == asked.content
    state = State()
    state.replay(schema_entry(read))
    for kind, versions in (("CEL", [read]), ("CLIENT", []), ("OTHER", [])):
        assert all_versions(state, ":*:", deleted=False, latest_only=False, rule_type=kind) == versions


@pytest.mark.parametrize(
    "payload",
    [b'{"n":18446744073709551616}', b'{"n":1,"x":' + b"[" * 3000 + b"]" * 3000 + b"}"],
    ids=["beyond 64 bits", "deep"],
)
@pytest.mark.parametrize("kind", ["CEL", "CEL_FIELD"])
def test_a_value_that_is_nothing_to_an_expression_is_refused(kind: str, payload: bytes) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}, "x": {}}}
    rule = {"type": kind, "kind": "CONDITION", "mode": "READ", "expr": "true"}
    ruled = codec("JSON", schema, rule)
    with pytest.raises(Mismatch):
        ruled.decode(payload)
    assert ruled.decode(b'{"n":1}') == {"n": 1}


def test_a_time_beyond_all_calendars_is_refused() -> None:
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
        message M { google.protobuf.Timestamp t = 1; }"""
    ruled = codec(
        "PROTOBUF", text, {"type": "CEL", "kind": "CONDITION", "mode": "READ", "expr": "has(message.t)"}
    )
    late = Timestamp(seconds=10**15).SerializeToString()
    assert ruled.decode(bytes.fromhex("000a020801")) == {"t": "1970-01-01T00:00:01Z"}
    with pytest.raises(RuleFailed, match="the value cannot be converted to CEL"):
        ruled.decode(b"\0\x0a" + bytes([len(late)]) + late)


def test_tags_in_imported_files() -> None:
    person = """syntax = "proto3"; package p; import "confluent/meta.proto";
        message Person { string ssn = 1 [(confluent.field_meta).tags = "PII"]; string town = 2; }"""
    text = """syntax = "proto3"; package o; import "p.proto"; message Order { p.Person who = 1; }"""
    imported = [Dependency("p.proto", Reference("p.proto", "p", 1), person)]
    ruled = make_codec("PROTOBUF", text, imported, contract({"expr": "'*'", "tags": ["PII"]}))
    assert through(ruled, {"who": {"ssn": "1", "town": "Ulm"}}) == {"who": {"ssn": "*", "town": "Ulm"}}


def test_a_message_is_read_as_that_of_its_name() -> None:
    def version(number: int, text: str) -> Schema:
        return Schema(number, "PROTOBUF", f'syntax = "proto3"; package x; {text}', (), number, rule_contract)

    rule_contract = contract({"mode": "READ", "expr": "value + '!'"})
    first = version(1, "message Order { string id = 1; message In { string s = 1; } } message Gone {}")
    second = version(
        2, "message Meta { string src = 1; } message Order { string id = 1; message In { string s = 1; } }"
    )
    contracts = Contract(second)
    assert contracts.read(b"\0\x0a\x01a", first) == (b"\x02\x02\x0a\x02a!", second)
    assert contracts.read(b"\x04\0\0\x0a\x01a", first) == (b"\x04\x02\0\x0a\x02a!", second)
    assert contracts.read(b"\0\x0a\x01a", second) == (b"\0\x0a\x02a!", second)
    with pytest.raises(Mismatch, match=r"the record is a x\.Gone, which its reader's schema does not have"):
        contracts.read(b"\x02\x02", first)


NESTED = "[1].all(a, [1].all(b, [1].all(c, %s)))"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (NESTED % "[1].exists(d, true)", "more than 3 of"),
        ("['a'].map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a)", "more than 3 of"),
        ("[1, 2].reduce(r, i, 'a', r + r) == ''", "`reduce` is not part of CEL"),
        ("true" + " || true" * 1000, "may have up to 4000 characters"),
    ],
)
def test_expressions_without_bound_are_not_executed(text: str, reason: str) -> None:
    for kind in ("CEL", "CEL_FIELD"):
        with pytest.raises(expressions.BadExpression, match=reason):
            expressions.check(kind, text)
    expressions.check("CEL", NESTED % "true")
    with pytest.raises(RuleFailed, match=reason):
        codec("AVRO", STREETS, {"type": "CEL", "kind": "CONDITION", "expr": text}).encode(WAY)


@pytest.mark.parametrize(
    ("path", "holds"),
    [("**a" * 40 + "!", False), ("**" * 40 + "x", True), ("*.*.**x", True), ("*.*x", False), ("****", True)],
)
def test_paths_with_many_wildcards(path: str, holds: bool) -> None:
    """A regular expression takes for ever for the first."""
    name = ".".join(["a" * 30] * 4) + "x"
    assert rules.matches(rules.wildcard(path), name) is holds


PERSON = {"type": "object", "properties": {"ssn": {"type": "string", "confluent:tags": ["PII"]}}}
ROOTED = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "http://e.org/root.json",
    "$defs": {
        "P": PERSON, "L": {"anyOf": [PERSON]}, "A": {"$anchor": "person", **PERSON}, "a b": PERSON,
        "I": {"$id": "http://e.org/p.json", "$ref": "#/$defs/Q", "$defs": {"Q": PERSON}},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/P",
        "#/$defs/L/anyOf/0",
        "#person",
        "http://e.org/root.json#/$defs/P",
        "root.json#person",
        "p.json",
        "http://e.org/p.json#/$defs/Q",
        "#/%24defs/P",
        "#/$defs/a%20b",
        "#/$defs/I/$defs/Q",
    ],
)
def test_references_within_a_json_schema(reference: str) -> None:
    rule = {"expr": "'*'", "tags": ["PII"]}
    for who in ({"$ref": reference}, {"oneOf": [{"type": "string"}, {"$ref": reference}]}):
        ruled = codec("JSON", {**ROOTED, "type": "object", "properties": {"who": who}}, rule)
        assert through(ruled, {"who": {"ssn": "1"}}) == {"who": {"ssn": "*"}}


@pytest.mark.parametrize(
    "part", [{"$dynamicRef": "#person"}, {"$ref": "https://json-schema.org/draft/2020-12/schema"}]
)
def test_references_that_cannot_be_followed_refuse_the_value(part: dict[str, Any]) -> None:
    ruled = codec("JSON", {**ROOTED, "properties": {"who": part}}, {"expr": "'*'", "tags": ["PII"]})
    with pytest.raises(RuleFailed, match="rules for fields"):
        ruled.encode({"who": {}})


def test_parts_that_refer_to_anywhere_in_the_schema() -> None:
    other = {"type": "object", "required": ["z"], "properties": {"z": {"type": "string"}}}
    tagged = {**PERSON, "required": ["ssn"]}
    who = {"oneOf": [{"$ref": "#/properties/k"}, tagged]}
    ruled = codec("JSON", {"properties": {"k": other, "who": who}}, {"expr": "'*'", "tags": ["PII"]})
    assert through(ruled, {"who": {"ssn": "1"}}) == {"who": {"ssn": "*"}}
    beside = Dependency(
        "o.json", Reference("o.json", "o", 1), json.dumps({"$defs": {"k": other, "who": who}})
    )
    text = json.dumps({"properties": {"who": {"$ref": "o.json#/$defs/who"}}}).replace("#/prop", "#/$defs")
    beside = beside._replace(text=beside.text.replace("#/properties/k", "#/$defs/k"))
    ruled = make_codec("JSON", text, [beside], contract({"expr": "'*'", "tags": ["PII"]}))
    assert through(ruled, {"who": {"ssn": "1"}}) == {"who": {"ssn": "*"}}


def union(*branches: Any) -> dict[str, Any]:
    return {"type": "record", "name": "U", "fields": [
        {"name": "n", "type": "int"}, {"name": "u", "type": list(branches)}]}  # fmt: skip


def named(name: str, *more: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}, *more]}


ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
MAP = {"type": "map", "values": "int"}
BOTH = (named("Paid"), named("Refunded"))


@pytest.mark.parametrize(
    ("branches", "value"),
    [
        (BOTH, {"Refunded": {"x": 1}}),
        (("string", ENUM), {"E": "A"}),
        (("string", ENUM), {"string": "A"}),
        ((MAP, named("P")), {"P": {"x": 1}}),
        ((named("P"), MAP), {"map": {"x": 1}}),
        (
            ("null", {"type": "array", "items": list(BOTH)}),
            {"array": [{"Paid": {"x": 1}}, {"Refunded": {"x": 1}}]},
        ),
        (("float", "double"), {"double": 0.1}),
    ],
)
def test_a_union_keeps_its_branch_behind_a_transform(branches: tuple[Any, ...], value: Any) -> None:
    ruled = codec("AVRO", union(*branches), {"type": "CEL", "expr": "{'n': message.n + 1, 'u': message.u}"})
    plain = make_codec("AVRO", json.dumps(union(*branches)), [])
    assert ruled.encode({"n": 1, "u": value}) == plain.encode({"n": 2, "u": value})


def test_a_union_gets_the_only_branch_that_fits() -> None:
    schema = union("null", named("Paid"), named("Owed", {"name": "y", "type": "int"}))
    ruled = codec("AVRO", schema, {"type": "CEL", "expr": "{'n': 1, 'u': {'x': 5, 'y': 6}}"})
    assert through(ruled, {"n": 1, "u": {"Paid": {"x": 1}}})["u"] == {"Owed": {"x": 5, "y": 6}}
    ruled = codec("AVRO", union(*BOTH), {"type": "CEL", "expr": "{'n': 1, 'u': {'x': 5}}"})
    with pytest.raises(RuleFailed, match="its result may be any of Paid, Refunded"):
        ruled.encode({"n": 1, "u": {"Refunded": {"x": 1}}})
