"""Avro compatibility: a table of pairs by the specification, and what a real reader makes of what we allow."""

from __future__ import annotations

import contextlib
import io
import json
import re
from typing import Any

import fastavro
import pytest
from fastavro.utils import generate_many
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.avro import read_avro
from barnabas.schemas.formats.comparing import problems_reading
from tests.support.examples import examples

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
READS = {
    # reader: what else it reads, besides its own type
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}


def wrap(how: str, kind: Any) -> Any:
    match how:
        case "array":
            return {"type": "array", "items": kind}
        case "map":
            return {"type": "map", "values": kind}
        case "field":
            return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
        case "union":
            return [{"type": "fixed", "name": "F", "size": 2}, kind]
        case "deep":
            return {"type": "array", "items": {"type": "map", "values": wrap("field", kind)}}
    return kind


def problems(reader: Any, writer: Any) -> list[Any]:
    return list(problems_reading(read_avro(json.dumps(reader)), read_avro(json.dumps(writer))))


@pytest.mark.parametrize("how", ["plain", "array", "map", "field", "union", "deep"])
@pytest.mark.parametrize("reader", PRIMITIVES)
def test_primitives(reader: str, how: str) -> None:
    for writer in PRIMITIVES:
        expected = reader == writer or writer in READS.get(reader, ())
        assert (not problems(wrap(how, reader), wrap(how, writer))) == expected, (reader, writer)


def rec(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def fld(name: str, kind: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def decimal(precision: int, scale: int, kind: Any = "bytes") -> dict[str, Any]:
    schema = kind if isinstance(kind, dict) else {"type": kind}
    return {**schema, "logicalType": "decimal", "precision": precision, "scale": scale}


def logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


LIST = rec(fld("v"), fld("next", ["null", "R"], default=None))
PAIRS: list[tuple[str, Any, Any, str, str]] = [
    # name, reader, writer, the problem ("" for none), its path
    ("the same record", rec(fld("a")), rec(fld("a")), "", ""),
    ("field with default added", rec(fld("a"), fld("b", default=1)), rec(fld("a")), "", ""),
    ("field added", rec(fld("a"), fld("b")), rec(fld("a")), "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1"),
    ("field removed", rec(fld("a")), rec(fld("a"), fld("b")), "", ""),
    ("all fields removed", rec(), rec(fld("a")), "", ""),
    ("fields in another order", rec(fld("a"), fld("b", "string")), rec(fld("b", "string"), fld("a")), "", ""),
    ("field renamed", rec(fld("b")), rec(fld("a")), "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0"),
    ("field renamed with alias", rec(fld("b", aliases=["a"])), rec(fld("a")), "", ""),
    ("alias of another type", rec(fld("b", "string", aliases=["a"])), rec(fld("a")), "TYPE_MISMATCH", "/fields/0/type"),
    ("null as default", rec(fld("a", ["null", "int"], default=None)), rec(), "", ""),
    ("default of another branch", rec(fld("a", ["null", "int"], default=3)), rec(), "", ""),
    ("nested field added", rec(fld("a", rec(fld("x"), name="I"))), rec(fld("a", rec(name="I"))),
     "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0/type/fields/0"),
    ("record renamed", rec(fld("a")), rec(fld("a"), name="S"), "NAME_MISMATCH", "/name"),
    ("record renamed with alias", rec(fld("a"), aliases=["S"]), rec(fld("a"), name="S"), "", ""),
    ("alias with namespace", rec(aliases=["x.S"]), rec(name="S", namespace="x"), "", ""),
    ("alias of another namespace", rec(aliases=["y.S"]), rec(name="S", namespace="x"), "NAME_MISMATCH", "/name"),
    ("namespace changed", rec(namespace="x"), rec(namespace="y"), "", ""),
    ("namespace added", rec(namespace="x"), rec(), "", ""),
    ("recursive record", LIST, LIST, "", ""),
    ("recursive record grows", rec(*LIST["fields"], fld("w")), LIST, "READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/2"),
    ("recursive record promoted", rec(fld("v", "long"), fld("next", ["null", "R"])), LIST, "", ""),
    ("record for a map", rec(fld("a")), {"type": "map", "values": "int"}, "TYPE_MISMATCH", "/"),
    ("record for a primitive", rec(), "int", "TYPE_MISMATCH", "/"),
    ("enum the same", enum("A", "B"), enum("A", "B"), "", ""),
    ("enum symbol added", enum("A", "B"), enum("A"), "", ""),
    ("enum symbol removed", enum("A"), enum("A", "B"), "MISSING_ENUM_SYMBOLS", "/symbols"),
    ("enum symbol removed, with default", enum("A", default="A"), enum("A", "B"), "", ""),
    ("default of the writer does not help", enum("A"), enum("A", "B", default="A"), "MISSING_ENUM_SYMBOLS", "/symbols"),
    ("enum in another order", enum("B", "A"), enum("A", "B"), "", ""),
    ("enum renamed", enum("A", name="G"), enum("A"), "NAME_MISMATCH", "/name"),
    ("enum renamed with alias", enum("A", name="G", aliases=["E"]), enum("A"), "", ""),
    ("enum for a string", enum("A"), "string", "TYPE_MISMATCH", "/"),
    ("string for an enum", "string", enum("A"), "TYPE_MISMATCH", "/"),
    ("fixed the same", fixed(4), fixed(4), "", ""),
    ("fixed of another size", fixed(4), fixed(8), "FIXED_SIZE_MISMATCH", "/size"),
    ("fixed renamed", fixed(4, "G"), fixed(4), "NAME_MISMATCH", "/name"),
    ("fixed renamed with alias", fixed(4, "G", aliases=["F"]), fixed(4), "", ""),
    ("fixed for bytes", fixed(4), "bytes", "TYPE_MISMATCH", "/"),
    ("bytes for fixed", "bytes", fixed(4), "TYPE_MISMATCH", "/"),
    ("array for a map", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "TYPE_MISMATCH", "/"),
    ("items changed", {"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "TYPE_MISMATCH", "/items"),
    ("values changed", {"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "TYPE_MISMATCH", "/values"),
    ("union for its branch", ["null", "int"], "int", "", ""),
    ("union for a promoted branch", ["null", "long"], "int", "", ""),
    ("union without the branch", ["null", "string"], "int", "MISSING_UNION_BRANCH", "/"),
    ("branch for a union", "int", ["null", "int"], "MISSING_UNION_BRANCH", "/"),
    ("branch for a union of one", "int", ["int"], "", ""),
    ("branch for unions that it reads all", "double", ["int", "float"], "", ""),
    ("branch added", ["null", "int", "string"], ["null", "int"], "", ""),
    ("branch removed", ["null", "int"], ["null", "int", "boolean"], "MISSING_UNION_BRANCH", "/"),
    ("branches in another order", ["int", "null"], ["null", "int"], "", ""),
    ("branches promoted", ["null", "double"], ["null", "int", "long", "float"], "", ""),
    ("record in a union grows", ["null", rec(fld("a"), fld("b"))], ["null", rec(fld("a"))],
     "READER_FIELD_MISSING_DEFAULT_VALUE", "/1/fields/1"),
    ("record in a union grows well", ["null", rec(fld("a"), fld("b", default=0))], ["null", rec(fld("a"))], "", ""),
    ("one of two records suits", [rec(fld("a"), name="A"), rec(fld("a"), name="B")], rec(fld("a"), name="B"), "", ""),
    ("two enums in a union", [enum("A"), enum("X", name="G")], enum("X", name="G"), "", ""),
    ("empty-handed union of maps", [{"type": "map", "values": "long"}], {"type": "map", "values": "int"}, "", ""),
    ("decimal the same", decimal(9, 2), decimal(9, 2), "", ""),
    ("decimal of another scale", decimal(9, 3), decimal(9, 2), "DECIMAL_MISMATCH", "/"),
    ("decimal of another precision", decimal(10, 2), decimal(9, 2), "DECIMAL_MISMATCH", "/"),
    ("decimal without scale", decimal(9, 0), {"type": "bytes", "logicalType": "decimal", "precision": 9}, "", ""),
    ("decimal for bytes", decimal(9, 2), "bytes", "", ""),
    ("bytes for decimal", "bytes", decimal(9, 2), "", ""),
    ("decimal that is none is bytes", decimal(9, 20), decimal(9, 2), "", ""),
    ("fixed decimal of another scale", decimal(9, 3, fixed(8)), decimal(9, 2, fixed(8)), "DECIMAL_MISMATCH", "/"),
    ("decimal in an array", {"type": "array", "items": decimal(9, 3)}, {"type": "array", "items": decimal(9, 2)},
     "DECIMAL_MISMATCH", "/items"),
    ("date for int", logical("int", "date"), "int", "", ""),
    ("long for a timestamp", "long", logical("long", "timestamp-millis"), "", ""),
    ("micros for millis", logical("long", "timestamp-micros"), logical("long", "timestamp-millis"), "", ""),
    ("timestamp for a date", logical("long", "timestamp-millis"), logical("int", "date"), "", ""),
    ("date for a timestamp", logical("int", "date"), logical("long", "timestamp-millis"), "TYPE_MISMATCH", "/"),
    ("uuid for string", logical("string", "uuid"), "string", "", ""),
    ("unknown logical type", logical("int", "nonsense"), logical("int", "date"), "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "reader", "writer", "kind", "path"), PAIRS, ids=[row[0] for row in PAIRS])
def test_pairs(name: str, reader: Any, writer: Any, kind: str, path: str) -> None:
    problems_found = problems(reader, writer)
    assert [(p.kind, p.path) for p in problems_found] == ([(kind, path)] if kind else [])
    assert all(p.advice and "{new}" in p.message for p in problems_found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ('{"type": "record"}', "has no name"),
        ('{"type": "record", "name": "1a", "fields": []}', "not a valid name"),
        ('{"type": "record", "name": "A"}', "list of `fields`"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a"}]}', "has no type"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "B"}]}', "/0/type: type 'B' is unknown"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}', "twice"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int", "default": "x"}]}', "not of type int"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int", "default": 3e9}]}', "not of type int"),
        ('{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int", "order": "up"}]}', "ascending"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "twice"),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "not a symbol"),
        ('{"type": "enum", "name": "E", "symbols": ["a-b"]}', "not a valid name"),
        ('{"type": "fixed", "name": "F", "size": -1}', "number of bytes"),
        ('{"type": "array"}', "has no `items`"),
        ('["int", "int"]', "twice"),
        ('["int", ["null"]]', "contain another union"),
        ("[]", "no branches"),
        ("3", "not a type"),
        ('{"type": "record", "name": "A", "name": "B", "fields": []}', "twice"),
        ('{"type": "array", "items": ' * 5000 + '"int"' + "}" * 5000, "nested"),
    ],
    ids=lambda value: value[:60],
)  # fmt: skip
def test_bad_schemas_are_one_sentence(text: str, says: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        read_avro(text)
    assert says in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('"int"', '"int"'),
        ("int", '"int"'),
        ('{"type": "int"}', '"int"'),
        ('{"type": {"type": "string"}}', '"string"'),
        (
            '{"namespace": "x", "name": "A", "fields": [{"type": "x.A", "name": "a"}], "doc": "d", "type": "record"}',
            '{"type":"record","name":"A","namespace":"x","doc":"d","fields":[{"name":"a","type":"A"}]}',
        ),
        (
            '{"type":"record","name":"A","fields":[{"name":"b","type":{"type":"enum","name":"y.E","symbols":["S"]}}]}',
            '{"type":"record","name":"A","fields":[{"name":"b","type":{"type":"enum","name":"E","namespace":"y","symbols":["S"]}}]}',
        ),
        (
            '{"type":"string","avro.java.string":"String"}',
            '{"type":"string","avro.java.string":"String"}',
        ),
    ],
)
def test_canonical_form(text: str, canonical: str) -> None:
    assert read_avro(text).canonical == canonical
    assert read_avro(canonical).canonical == canonical


def test_normalized_forms_of_one_schema_are_equal() -> None:
    one = '{"type":"record","name":"x.A","fields":[{"name":"a","type":"int","q":1,"p":{"b":1,"a":2}}]}'
    other = (
        '{"name":"A","namespace":"x","type":"record",'
        '"fields":[{"p":{"a":2,"b":1},"q":1,"type":{"type":"int"},"name":"a"}]}'
    )
    assert read_avro(one).normalized() == read_avro(other).normalized()


# --- what we allow really reads -----------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.sampled_from([*PRIMITIVES, "fixed", "enum"])


@st.composite
def types(draw: Any, depth: int = 2, path: str = "T") -> Any:
    kind = draw(
        st.sampled_from(["leaf", "leaf", "array", "map", "union", "record"]) if depth else st.just("leaf")
    )
    if kind == "leaf":
        leaf = draw(LEAVES)
        if leaf == "fixed":
            return fixed(draw(st.sampled_from([2, 3])), f"F{path}")
        if leaf == "enum":
            symbols = draw(st.lists(st.sampled_from("ABC"), min_size=1, unique=True))
            more = {"default": symbols[0]} if draw(st.booleans()) else {}
            return enum(*symbols, name=f"E{path}", **more)
        return leaf
    if kind == "record":
        names = draw(st.lists(NAMES, max_size=3, unique=True))
        rows = []
        for name in names:
            type_ = draw(types(depth - 1, f"{path}{name}"))
            more = {"default": 1} if type_ in ("int", "long", "double") and draw(st.booleans()) else {}
            if isinstance(type_, list) and type_[0] == "null":
                more = {"default": None}
            aliases = draw(st.lists(NAMES.filter(lambda n, own=name: n != own), max_size=1))
            if aliases:
                more["aliases"] = aliases
            rows.append(fld(name, type_, **more))
        return rec(*rows, name=f"R{path}")
    if kind == "union":
        branches = draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True))
        return branches
    inner = draw(types(depth - 1, f"{path}i"))
    return {"type": "array", "items": inner} if kind == "array" else {"type": "map", "values": inner}


def _has_a_name_and_its_alias(writer: Any, reader: Any) -> bool:
    """Whether an alias of the reader, anywhere, is a name of the writer, anywhere: where the field's own name is there
    as well, libraries disagree about which of both it takes."""
    aliases = set(re.findall(r'"aliases": \["(\w+)"', json.dumps(reader)))
    return any(f'"name": "{alias}"' in json.dumps(writer) for alias in aliases)


@settings(
    max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(types(), types())
def test_what_is_called_compatible_reads(writer: Any, reader: Any) -> None:
    assume(not problems(reader, writer))
    assume(not _has_a_name_and_its_alias(writer, reader))
    ours, theirs = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    for value in generate_many(ours, 5):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, ours, value)
        out.seek(0)
        with contextlib.suppress(UnicodeDecodeError):  # bytes that are no UTF-8, read as a string
            fastavro.schemaless_reader(out, ours, theirs)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(types())
def test_a_schema_reads_itself_in_every_form(schema: Any) -> None:
    parsed = read_avro(json.dumps(schema))
    for text in (parsed.canonical, parsed.normalized()):
        again = read_avro(text)
        assert not problems_reading(again, parsed)
        assert not problems_reading(parsed, again)
        fastavro.parse_schema(json.loads(text))
    assert read_avro(parsed.normalized()).normalized() == parsed.normalized()
