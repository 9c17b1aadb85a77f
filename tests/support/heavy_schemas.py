"""Schemas that are small and take long to compare, or are large, each with what a registry may answer."""

from __future__ import annotations

import json
from typing import Any

Leaf = Any


def doubling_json(levels: int, leaf: Leaf) -> str:
    """Each definition refers to the next one twice: 2^levels paths lead to the leaf."""
    definitions: dict[str, Any] = {
        f"d{i}": {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: {"$ref": f"#/definitions/d{i + 1}"} for name in "ab"},
        }
        for i in range(levels)
    }
    return json.dumps({"$ref": "#/definitions/d0", "definitions": {**definitions, f"d{levels}": leaf}})


def doubling_not(levels: int, leaf: Leaf) -> str:
    """Like `doubling_json`, through `not`, which compares in the other direction."""
    definitions: dict[str, Any] = {
        f"d{i}": {"allOf": [{"not": {"$ref": f"#/definitions/d{i + 1}"}, "maxLength": n} for n in (1, 2)]}
        for i in range(levels)
    }
    return json.dumps({"$ref": "#/definitions/d0", "definitions": {**definitions, f"d{levels}": leaf}})


def doubling_avro(levels: int, leaf: Leaf) -> str:
    """Each record holds the next one twice."""
    schema = leaf
    for i in range(levels):
        second = f"R{i - 1}" if i else leaf
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": second}]
        schema = {"type": "record", "name": f"R{i}", "fields": fields}
    return json.dumps(schema)


def circle_avro(records: int, leaf: Leaf) -> str:
    """Each record may hold any of the others."""
    names: list[Any] = ["null"]
    for i in range(records):
        names.append({"type": "record", "name": f"R{i}", "fields": []})
    first = {
        "type": "record",
        "name": "Top",
        "fields": [{"name": "x", "type": names}, {"name": "y", "type": leaf}],
    }
    return json.dumps(first)


def union_avro(records: int, leaf: Leaf) -> str:
    """A union of many records."""
    fields = [{"name": "f", "type": leaf}]
    return json.dumps([{"type": "record", "name": f"R{i}", "fields": fields} for i in range(records)])


def alternatives_json(count: int, leaf: Leaf) -> str:
    """Many alternatives, each of which has to be compared with each."""
    return json.dumps({"oneOf": [{"type": "object", "properties": {f"p{i}": leaf}} for i in range(count)]})


def defaults_avro(levels: int, leaf: Leaf) -> str:
    """A nested default of a union of two records that contain the union: 2^levels ways to fit."""
    value: Any = {"x": 5}
    for _ in range(levels):
        value = {"x": value}
    inner = {"type": "record", "name": "B", "fields": [{"name": "x", "type": ["null", "A", "B", leaf]}]}
    outer = {"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "A", inner]}]}
    return json.dumps(
        {"type": "record", "name": "T", "fields": [{"name": "r", "type": [outer, "B"], "default": value}]}
    )


def fields_avro(count: int, leaf: Leaf) -> str:
    """A record of many fields."""
    fields = [{"name": f"f{i}", "type": leaf} for i in range(count)]
    return json.dumps({"type": "record", "name": "Wide", "fields": fields})


def messages_protobuf(count: int, leaf: str) -> str:
    """A file of many messages, each of which holds the one before."""
    messages = [f"message M{i} {{ {leaf if not i else f'M{i - 1}'} f = 1; }}" for i in range(count)]
    return "\n".join(['syntax = "proto3";', *messages]).replace("int f", "int32 f")


def fields_protobuf(count: int, leaf: str) -> str:
    """One message of many fields."""
    kind = "int32" if leaf == "int" else leaf
    fields = "".join(f" {kind} f{i} = {i + 1 if i < 18_999 else i + 1_001};" for i in range(count))
    return f'syntax = "proto3"; message Wide {{{fields} }}'
