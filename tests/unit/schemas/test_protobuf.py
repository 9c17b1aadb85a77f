"""Protobuf: the form that is stored, and Confluent's rules on pairs."""

# ruff: noqa: E501  the tables read better in whole rows

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2

from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.formats.comparing import problems_reading
from barnabas.schemas.formats.protobuf import read_protobuf
from barnabas.schemas.model import Reference

GROUPS = (
    ("int32", "int64", "uint32", "uint64", "bool", "Kind"),
    ("sint32", "sint64"),
    ("string", "bytes"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("float",),
    ("double",),
)
GROUP_OF = {name: number for number, names in enumerate(GROUPS) for name in names}


def file(body: str, syntax: str = "proto3", package: str = "p") -> str:
    return f'syntax = "{syntax}"; package {package}; {body}'


def kinds(reader: str, writer: str) -> list[tuple[str, str]]:
    return [(p.kind, p.path) for p in problems_reading(read_protobuf(reader), read_protobuf(writer))]


@pytest.mark.parametrize(
    "where", ["{} f = 1;", "oneof o {{ {} f = 1; }}", "map<string, {}> f = 1;", "optional {} f = 1;"]
)
@pytest.mark.parametrize("reader", list(GROUP_OF))
def test_scalars(reader: str, where: str) -> None:
    for writer in GROUP_OF:
        texts = [
            file(f"enum Kind {{ Z = 0; }} message M {{ {where.format(kind)} }}") for kind in (reader, writer)
        ]
        changes = kinds(*texts)
        assert (not changes) == (GROUP_OF[reader] == GROUP_OF[writer]), (reader, writer)
        assert {kind for kind, _ in changes} <= {"FIELD_SCALAR_KIND_CHANGED"}


M = "message M {{ {} }}".format
INNER = "message M { I i = 1; message I { int32 a = 1; } }"
PAIRS = [
    ("field added", M("int32 a = 1; int32 b = 2;"), M("int32 a = 1;"), "", ""),
    ("field removed", M("int32 a = 1;"), M("int32 a = 1; int32 b = 2;"), "", ""),
    ("field renamed", M("int32 b = 1;"), M("int32 a = 1;"), "", ""),
    ("field renumbered", M("int32 a = 2;"), M("int32 a = 1;"), "", ""),
    ("message added", M("") + " message N {}", M(""), "", ""),
    ("message removed", M(""), M("") + " message N {}", "MESSAGE_REMOVED", "#/N"),
    ("messages in another order", "message N {} " + M(""), M("") + " message N {}", "", ""),
    ("nested message removed", M(""), M("message I {}"), "MESSAGE_REMOVED", "#/M/I"),
    ("map removed", M(""), M("map<string, int32> m = 1;"), "", ""),
    ("map became a message", M("I m = 1; message I {}"), M("map<string, int32> m = 1;"), "FIELD_KIND_CHANGED", "#/M/1"),
    ("scalar became a message", M("I i = 1; message I {}"), M("int32 i = 1;"), "FIELD_KIND_CHANGED", "#/M/1"),
    ("key of a map", M("map<sint32, int32> m = 1;"), M("map<int32, int32> m = 1;"), "FIELD_SCALAR_KIND_CHANGED", "#/M/1/key"),
    ("nested field changed", INNER.replace("int32", "string"), INNER, "FIELD_SCALAR_KIND_CHANGED", "#/M/I/1"),
    ("type of another name", M("J i = 1; message I {} message J {}"), M("I i = 1; message I {}"), "FIELD_NAMED_TYPE_CHANGED", "#/M/1"),
    ("enum added", M("") + " enum E { Z = 0; }", M(""), "", ""),
    ("enum removed", M(""), M("") + " enum E { Z = 0; }", "", ""),
    ("value added", M("") + " enum E { Z = 0; A = 1; }", M("") + " enum E { Z = 0; }", "", ""),
    ("single became repeated", M("repeated int32 a = 1;"), M("int32 a = 1;"), "FIELD_NUMERIC_LABEL_CHANGED", "#/M/1"),
    ("repeated became single", M("int32 a = 1;"), M("repeated int32 a = 1;"), "FIELD_NUMERIC_LABEL_CHANGED", "#/M/1"),
    ("string became repeated", M("repeated string a = 1;"), M("string a = 1;"), "", ""),
    ("optional added", M("optional int32 a = 1;"), M("int32 a = 1;"), "", ""),
    ("oneof added", M("oneof o { int32 a = 1; }"), M(""), "", ""),
    ("oneof removed", M(""), M("oneof o { int32 a = 1; }"), "", ""),
    ("field of a oneof added", M("oneof o { int32 a = 1; int32 b = 2; }"), M("oneof o { int32 a = 1; }"), "", ""),
    ("field of a oneof removed", M("oneof o { int32 a = 1; }"), M("oneof o { int32 a = 1; int32 b = 2; }"), "ONEOF_FIELD_REMOVED", "#/M/o/2"),
    ("one field moved into a oneof", M("oneof o { int32 a = 1; }"), M("int32 a = 1;"), "", ""),
    ("two fields moved into a oneof", M("oneof o { int32 a = 1; int32 b = 2; }"), M("int32 a = 1; int32 b = 2;"), "MULTIPLE_FIELDS_MOVED_TO_ONEOF", "#/M/o"),
    ("field moved into an old oneof", M("oneof o { int32 a = 1; int32 b = 2; }"), M("oneof o { int32 a = 1; } int32 b = 2;"), "FIELD_MOVED_TO_EXISTING_ONEOF", "#/M/o"),
    ("optional moved into a oneof", M("oneof o { int32 a = 1; int32 b = 2; }"), M("optional int32 a = 1; optional int32 b = 2;"), "MULTIPLE_FIELDS_MOVED_TO_ONEOF", "#/M/o"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reader", "writer", "kind", "path"), PAIRS, ids=[row[0] for row in PAIRS])
def test_pairs(name: str, reader: str, writer: str, kind: str, path: str) -> None:
    assert kinds(file(reader), file(writer)) == ([(kind, path)] if kind else [])


def test_required_fields_of_proto2() -> None:
    with_it = file("message M { required int32 a = 1; }", "proto2")
    without = file("message M { }", "proto2")
    assert kinds(with_it, without) == [("REQUIRED_FIELD_ADDED", "#/M/1")]
    assert kinds(without, with_it) == [("REQUIRED_FIELD_REMOVED", "#/M/1")]


def test_another_package() -> None:
    assert kinds(file(M("")), file(M(""), package="q")) == [("PACKAGE_CHANGED", "#/")]


def test_a_type_of_a_reference_is_compared() -> None:
    text = 'syntax = "proto3"; import "i.proto"; message M { q.I i = 1; }'

    def read(kind: str):  # type: ignore[no-untyped-def]
        imported = f'syntax = "proto3"; package q; message I {{ {kind} a = 1; }}'
        return read_protobuf(text, [Dependency("i.proto", Reference("i.proto", "i", 1), imported)])

    assert not problems_reading(read("int32"), read("int64"))
    (problem,) = problems_reading(read("int32"), read("string"))
    assert (problem.kind, problem.path) == ("FIELD_SCALAR_KIND_CHANGED", "#/M/1/I/1")


WHOLE = """
// everything at once
syntax = "proto2";
package shop.v1;
import public "google/protobuf/timestamp.proto"; import "confluent/meta.proto";
option java_package = "x"; option optimize_for = SPEED; option (confluent.file_meta).doc = 'it''s';
message Order /* inline */ {
  option (confluent.message_meta) = { doc: "an order" tags: ["A", "B"] };
  extensions 100 to 200, 1000 to max; reserved 9, 20 to 30; reserved "old", "older";
  required string id = 1 [default = "a\\"b", (confluent.field_meta).doc = "the id", deprecated = true];
  optional sint64 n = 0x2 [default = -5]; repeated Item items = 3 [packed = false]; map<string, .shop.v1.Order.Item> m = 4;
  oneof how { string card = 5; bool cash = 6; } optional google.protobuf.Timestamp at = 7 [json_name = "when"];
  message Item { optional double price = 1 [default = inf]; optional message message = 2; }
  message message { } enum Kind { option allow_alias = true; A = 0; B = 0; C = -1 [deprecated = true]; reserved 5 to max; }
  extend Order { optional int32 more = 100; }
}
service Shop { rpc Get (Order) returns (stream Order) { option deprecated = true; } }
"""


@pytest.mark.parametrize("text", [WHOLE, file(INNER), "message A {}"])
def test_the_stored_form_is_stable(text: str) -> None:
    once = read_protobuf(text)
    assert read_protobuf(once.canonical).canonical == once.canonical
    assert read_protobuf(once.normalized()).normalized() == once.normalized()
    for other in (read_protobuf(once.normalized()), read_protobuf(once.formatted("serialized"))):
        assert not problems_reading(other, once)
        assert not problems_reading(once, other)


def test_what_was_written_is_kept() -> None:
    stored = read_protobuf(WHOLE).canonical
    for piece in (
        'option (confluent.file_meta).doc = "its";',
        'required string id = 1 [default = "a\\"b", deprecated = true, (confluent.field_meta).doc = "the id"];',
        "map<string, .shop.v1.Order.Item> m = 4;",
        "extensions 1000 to max;",
        'google.protobuf.Timestamp at = 7 [json_name = "when"];',
        "optional message message = 2;",
        "reserved 5 to max;",
    ):
        assert piece in stored
    assert "confluent.file_meta" not in read_protobuf(WHOLE).formatted("ignore_extensions")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("message", "the name of the message"),
        (file("message M { string a = 1; string b = 1; }"), "duplicate field number"),
        (file("message M { Foo a = 1; }"), "'Foo"),
        (file('import "x.proto";'), "import 'x.proto' is unknown"),
        (file("message M { string a = 0; }"), "0 is not a number from 1"),
        (file("message M { required string a = 1; }"), "no required fields"),
        (file("message M { string a = 1; ", "proto2"), "optional, required or repeated"),
        (file("message M {"), "not closed"),
        (file("message M {" * 200), "nested more than"),
        (file("enum E { }"), "not a valid .proto file"),
        (file("message M { reserved 5 to 1; }"), "not a range"),
        ('syntax = "proto9";', "proto9"),
        ("\x00\x01", "cannot be read"),
        ("option a = {", "not closed"),
        ('{"type": "record"}', "not expected here"),
        (file("message M { optional group G = 1 {} }", "proto2"), "groups"),
    ],
    ids=lambda value: value[:50],
)
def test_bad_files_are_one_sentence(text: str, says: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        read_protobuf(text)
    assert says in refused.value.message
    assert "\n" not in refused.value.message


def test_custom_options_survive_as_descriptors() -> None:
    text = """syntax = "proto3"; package p; import "confluent/meta.proto"; import "google/protobuf/descriptor.proto";
    option (confluent.file_meta).doc = "whole";
    extend google.protobuf.FieldOptions { Deep deep = 50001; repeated int32 numbers = 50002; Kind kind = 50003; bytes raw = 50004; }
    message Deep { string a = 1; map<string, Deep> m = 2; repeated Deep more = 3; double d = 4; bool b = 5; }
    enum Kind { Z = 0; A = 1 [(confluent.enum_value_meta).doc = "x"]; }
    message M {
      option (confluent.message_meta).tags = "T";
      string id = 1 [(.confluent.field_meta) = { tags: "P" 'II' tags: "Q" params { key: "k" value: "v" } }, (numbers) = 1, (p.numbers) = -2];
      oneof o { string c = 2 [(deep) = { a: "x" m { key: "q" value { d: 1.5 b: true } } more { a: "1" } more { a: "2" } }]; }
      map<string, string> s = 3 [(confluent.field_meta) = { tags: ["PII"] }, (kind) = A, (unknown) = 5, (raw) = "b"];
    }"""
    written = read_protobuf(text)
    tags = {"p.M": {"T"}, "p.M.id": {"PII", "Q"}, "p.M.s": {"PII"}}
    assert {name: set(names) for name, names in written.tags().items()} == tags
    binary = written.formatted("serialized")
    read = read_protobuf(binary)
    assert read.tags() == written.tags()
    assert (
        '(confluent.field_meta) = { params { key : "k" value : "v" } tags : [ "PII" , "Q" ] }'
        in read.canonical
    )
    assert read_protobuf(read.canonical).formatted("serialized") == binary
    known = text.replace(", (unknown) = 5", "")
    assert read_protobuf(known).normalized() == read.normalized()
    assert "(unknown) = 5" in written.normalized()
    assert read_protobuf(written.normalized()).normalized() == written.normalized()


def test_descriptors_that_cannot_be_written_as_text() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="g.proto")
    file.message_type.add(name="M").field.add(name="g", number=1, type=10, label=1, type_name=".M")
    edition = descriptor_pb2.FileDescriptorProto(name="e.proto", syntax="editions")
    edition.message_type.add(name="M")
    for descriptor, says in ((file, "groups are not supported"), (edition, "syntax 'editions' is unknown")):
        with pytest.raises(InvalidSchema, match=says):
            read_protobuf(base64.b64encode(descriptor.SerializeToString()).decode())


def test_custom_options_survive_where_their_types_are_known() -> None:
    """Confluent's client makes them known to the whole process."""
    pytest.importorskip("confluent_kafka.schema_registry.confluent.meta_pb2")
    test_custom_options_survive_as_descriptors()
