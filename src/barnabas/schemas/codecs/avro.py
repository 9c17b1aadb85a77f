"""Avro's JSON encoding: converts JSON values to the input of fastavro, and back. Pure.

Source: the Avro specification, "JSON Encoding": bytes are a text with one character per byte; a value of a union is written
as {"type": value}, null just as null. A union value without a type is taken for the first type that matches.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import fastavro

from barnabas.schemas.codecs import TAGS, Mismatch, tags_at

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DEPTH_MAX: Final = 200


class AvroCodec:
    """One schema. Logical types are ignored: a timestamp is just a number."""

    def __init__(self, text: str, dependencies: tuple[str, ...] = ()) -> None:
        """dependencies: texts of the schemas whose types this one uses, innermost first."""
        named: dict[str, Any] = {}
        for dependency in dependencies:
            fastavro.parse_schema(_plain(json.loads(dependency)), named_schemas=named)
        self._named = named
        self._schema = fastavro.parse_schema(_plain(json.loads(text)), named_schemas=named)
        self.name = self._schema.get("name") if isinstance(self._schema, dict) else None

    def parsed(self) -> tuple[Any, dict[str, Any]]:
        """The schema as parsed by fastavro, and its named types."""
        return self._whole(), self._named

    def encode(self, value: Any) -> bytes:
        """A JSON value in Avro's binary encoding. Raises Mismatch."""
        datum = self._from_json(self._schema, value, "", 0)
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._whole(), datum)
        except (ValueError, TypeError, OverflowError, KeyError) as error:
            raise Mismatch(str(error)[:300]) from error
        return out.getvalue()

    def decode(self, data: bytes) -> Any:
        """The JSON value that `encode` encoded. Raises Mismatch if the bytes do not match the schema."""
        source = io.BytesIO(data)
        try:
            datum = fastavro.schemaless_reader(source, self._whole(), None, return_named_type=True)
        except Exception as error:  # fastavro may raise anything
            raise Mismatch(f"the bytes do not suit the schema: {str(error)[:200]}") from error
        if source.tell() != len(data):
            raise Mismatch(f"{len(data) - source.tell()} bytes are left after the value")
        return self._to_json(self._schema, datum)

    def _whole(self) -> Any:
        return self._schema if isinstance(self._schema, (dict, list)) else {"type": self._schema}

    # --- from JSON ------------------------------------------------------------------------------------

    def _from_json(self, schema: Any, value: Any, path: str, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise Mismatch(f"{path or '/'}: nested more than {DEPTH_MAX} levels deep")
        if isinstance(schema, list):
            return self._union_from_json(schema, value, path, depth)
        kind = _kind(schema)
        if kind in _PRIMITIVES:
            return _primitive(kind, value, path)
        if kind in self._named and not isinstance(schema, dict):
            return self._from_json(self._named[kind], value, path, depth + 1)
        return _COMPLEX[kind](self, schema, value, path, depth + 1)

    def _union_from_json(self, schema: list[Any], value: Any, path: str, depth: int) -> Any:
        if value is None:
            if "null" in map(_kind, schema):
                return None
            raise Mismatch(f"{path or '/'}: null is not one of the union's types")
        if isinstance(value, dict) and len(value) == 1:
            name, inner = next(iter(value.items()))
            for branch in schema:
                if name in (_label(branch), _short(_label(branch))) and name != "null":
                    return _label(branch), self._from_json(branch, inner, f"{path}/{name}", depth + 1)
        for branch in schema:
            try:
                return _label(branch), self._from_json(branch, value, path, depth + 1)
            except Mismatch:
                continue
        types = ", ".join(_label(branch) for branch in schema)
        raise Mismatch(f'{path or "/"}: {_shown(value)} is none of {types}; write it as {{"type": value}}')

    def _record_from_json(self, schema: Any, value: Any, path: str, depth: int) -> Any:
        if not isinstance(value, dict):
            raise Mismatch(f"{path or '/'}: {_shown(value)} is not an object")
        record = {}
        for field in schema["fields"]:
            name = field["name"]
            if name in value:
                record[name] = self._from_json(field["type"], value[name], f"{path}/{name}", depth)
            elif "default" in field:
                record[name] = self._default(field)
            else:
                raise Mismatch(f"{path}/{name}: the field is missing and has no default")
        unknown = value.keys() - record.keys()
        if unknown:
            raise Mismatch(f"{path}/{min(unknown)}: the schema has no such field")
        return record

    def _default(self, field: Any) -> Any:
        kind = field["type"]
        if isinstance(kind, list):  # a default belongs to the first type
            first = kind[0]
            inner = self._from_json(first, field["default"], f"/{field['name']}", 0)
            return None if _kind(first) == "null" else (_label(first), inner)
        return self._from_json(kind, field["default"], f"/{field['name']}", 0)

    def _array_from_json(self, schema: Any, value: Any, path: str, depth: int) -> Any:
        if not isinstance(value, list):
            raise Mismatch(f"{path or '/'}: {_shown(value)} is not an array")
        return [
            self._from_json(schema["items"], item, f"{path}/{index}", depth)
            for index, item in enumerate(value)
        ]

    def _map_from_json(self, schema: Any, value: Any, path: str, depth: int) -> Any:
        if not isinstance(value, dict):
            raise Mismatch(f"{path or '/'}: {_shown(value)} is not an object")
        return {
            name: self._from_json(schema["values"], item, f"{path}/{name}", depth)
            for name, item in value.items()
        }

    def _enum_from_json(self, schema: Any, value: Any, path: str, depth: int) -> Any:
        if value not in schema["symbols"]:
            symbols = ", ".join(schema["symbols"][:20])
            raise Mismatch(f"{path or '/'}: {_shown(value)} is none of the symbols {symbols}")
        return value

    def _fixed_from_json(self, schema: Any, value: Any, path: str, depth: int) -> Any:
        raw = _primitive("bytes", value, path)
        if len(raw) != schema["size"]:
            raise Mismatch(f"{path or '/'}: {len(raw)} bytes where {schema['size']} are fixed")
        return raw

    # --- to JSON --------------------------------------------------------------------------------------

    def _to_json(self, schema: Any, value: Any) -> Any:
        if isinstance(schema, list):
            return self._union_to_json(schema, value)
        kind = _kind(schema)
        if isinstance(value, bytes):
            return value.decode("latin-1")
        if kind in _PRIMITIVES or kind in ("enum", "fixed"):
            return _number_to_json(value)
        if not isinstance(schema, dict):
            return self._to_json(self._named[kind], value)
        if kind in ("record", "error"):
            return {f["name"]: self._to_json(f["type"], value[f["name"]]) for f in schema["fields"]}
        if kind == "array":
            return [self._to_json(schema["items"], item) for item in value]
        if kind == "map":
            return {name: self._to_json(schema["values"], item) for name, item in value.items()}
        return self._to_json(schema["type"], value)

    def _union_to_json(self, schema: list[Any], value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, tuple):  # (name, value) of a named type
            name, inner = value
            branch = next(branch for branch in schema if _label(branch) == name)
            return {name: self._to_json(branch, inner)}
        branch = next((b for b in schema if holds(_kind(b), value)), schema[0])
        return {_label(branch): self._to_json(branch, value)}


_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_COMPLEX: Final[Mapping[str, Callable[..., Any]]] = {
    "record": AvroCodec._record_from_json,
    "error": AvroCodec._record_from_json,
    "array": AvroCodec._array_from_json,
    "map": AvroCodec._map_from_json,
    "enum": AvroCodec._enum_from_json,
    "fixed": AvroCodec._fixed_from_json,
}


def _plain(schema: Any) -> Any:
    """The schema without logical types, and with {"type": "int"} as "int"."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if isinstance(kind, (dict, list)) or kind in _PRIMITIVES:
        return _plain(kind)
    plain = {name: value for name, value in schema.items() if name != "logicalType"}
    for name in ("items", "values"):
        if name in plain:
            plain[name] = _plain(plain[name])
    if isinstance(plain.get("fields"), list):
        plain["fields"] = [
            _plain_field(field) if isinstance(field, dict) and "type" in field else field
            for field in plain["fields"]
        ]
    return plain


def _plain_field(field: dict[str, Any]) -> dict[str, Any]:
    """Tags at a type without a name become those of its field."""
    field_plain = {**field, "type": _plain(field["type"])}
    tags = tags_at(field) | type_tags(field["type"])
    if tags:
        field_plain[TAGS] = sorted(tags)
    return field_plain


def type_tags(schema: Any) -> frozenset[str]:
    """The tags of a type, the types of its items, values and branches, but not of named types, which have their own."""
    if isinstance(schema, list):
        return frozenset(tag for branch in schema for tag in type_tags(branch))
    if not isinstance(schema, dict) or isinstance(schema.get("name"), str):
        return frozenset()
    inner = (type_tags(schema.get(name)) for name in ("type", "items", "values"))
    return tags_at(schema).union(*inner)


def _kind(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _label(schema: Any) -> str:
    """The name of this type in values of a union."""
    return str(schema.get("name") or schema["type"]) if isinstance(schema, dict) else str(schema)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def holds(kind: str, value: Any) -> bool:
    """Whether a decoded value has this unnamed type."""
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int):
        return kind == "long" or (kind == "int" and -INT_MAX - 1 <= value <= INT_MAX)
    if isinstance(value, float):
        return kind in ("float", "double")
    if isinstance(value, str):
        return kind == "string"
    if isinstance(value, bytes):
        return kind == "bytes"
    return kind == ("array" if isinstance(value, list) else "map")


def _primitive(kind: str, value: Any, path: str) -> Any:
    """The value in the form that fastavro takes. Raises Mismatch."""
    if kind == "null" and value is None:
        return None
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind in ("int", "long") and isinstance(value, int) and not isinstance(value, bool):
        limit = INT_MAX if kind == "int" else LONG_MAX
        if -limit - 1 <= value <= limit:
            return value
    if kind in ("float", "double"):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return _fitting_float(kind, value, path)
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
    if kind == "string" and isinstance(value, str):
        return value
    if kind == "bytes" and isinstance(value, str):
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            raise Mismatch(
                f"{path or '/'}: a text of bytes has characters up to \\u00ff only, one for each byte"
            ) from None
    raise Mismatch(f"{path or '/'}: {_shown(value)} is not of type {kind}")


_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _fitting_float(kind: str, value: float, path: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number) or (kind == "float" and abs(number) > 3.4028235677973366e38):
        raise Mismatch(f"{path or '/'}: {_shown(value)} is too large for a {kind}")
    return number


def _number_to_json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
