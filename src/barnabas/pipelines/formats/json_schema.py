"""JSON Schema: converts an object's properties to Arrow types. A property without a single type becomes JSON text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from barnabas.pipelines.formats.base import VALUE, Convert, NoColumns, Unfit
from barnabas.schemas.framing import Schema

PLAIN: Final = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
NESTED_MAX: Final = 50


class JsonReader:
    """Reads JSON objects of any version into the properties of one version."""

    def __init__(self, schema: Schema) -> None:
        try:
            self._root = json.loads(schema.text)
            self._documents = {name: json.loads(text) for name, text in schema.dependencies}
        except ValueError as error:
            raise NoColumns(f"schema {schema.id} is not JSON: {error}") from error
        arrow_type, self._convert = self._type(self._root, self._root, 0)
        if is_plain(self._root):
            inner = self._convert
            assert inner is not None
            self._convert = lambda value: {VALUE: inner(value)}
            arrow_type = pa.struct([(VALUE, arrow_type)])
        if not pa.types.is_struct(arrow_type):
            raise NoColumns(f"schema {schema.id} declares no properties, so there are no fields")
        self.type = self.read_type = arrow_type

    def _type(self, node: Any, document: Any, depth: int) -> tuple[pa.DataType, Convert]:
        if depth > NESTED_MAX:
            raise NoColumns("the schema contains itself, which columns cannot")
        node, document = self._resolved(node, document)
        kinds = _kinds_of(node)
        if len(kinds) == 1 and (kind := kinds[0]) in PLAIN:
            return PLAIN[kind], _exactly(kind)
        if kinds == ["array"] and isinstance(node.get("items"), dict):
            inner, convert = self._type(node["items"], document, depth + 1)
            return pa.list_(inner), _list_converter(convert)
        if kinds == ["object"] and node.get("properties"):
            return self._object(node, document, depth)
        for name in ("oneOf", "anyOf"):
            options = [item for item in node.get(name, ()) if _kinds_of(item) != ["null"]] if node else []
            if len(options) == 1:
                return self._type(options[0], document, depth + 1)
        return pa.string(), _json_text

    def _object(self, node: Any, document: Any, depth: int) -> tuple[pa.DataType, Convert]:
        fields, converts = [], {}
        for name, inner in node["properties"].items():
            arrow_type, converts[name] = self._type(inner, document, depth + 1)
            fields.append(pa.field(name, arrow_type))

        def convert(value: Any) -> Any:
            if value is None:
                return None
            if not isinstance(value, dict):
                raise Unfit(f"{_shown(value)} is not an object")
            return {
                name: change(value[name]) if change is not None else value[name]
                for name, change in converts.items()
                if name in value
            }

        return pa.struct(fields), convert

    def _resolved(self, node: Any, document: Any) -> tuple[dict[str, Any], Any]:
        for _ in range(NESTED_MAX):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                break
            name, _hash, pointer = node["$ref"].partition("#")
            if name:
                document = self._documents.get(name)
            node = document
            for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
                part = part.replace("~1", "/").replace("~0", "~")
                node = node.get(part) if isinstance(node, dict) else None
        return (node if isinstance(node, dict) else {}), document

    def columns(self, records: pa.Array) -> pa.StructArray | None:
        """See formats.base.Reader."""
        return None

    def decoder(self, writer: Schema) -> Callable[[bytes], Any]:
        """See formats.base.Reader."""
        convert = self._convert
        assert convert is not None

        def decode(payload: bytes) -> Any:
            try:
                value = json.loads(payload)
            except (ValueError, RecursionError) as error:
                raise Unfit(f"the bytes are not JSON: {error}") from None
            if value is None:
                raise Unfit("null is not an object")
            return convert(value)

        return decode


def is_plain(node: Any) -> bool:
    """Whether a schema is that of one value that is neither an object nor an array, and perhaps null."""
    if not isinstance(node, dict):
        return False
    for name in ("oneOf", "anyOf"):
        options = [item for item in node.get(name, ()) if _kinds_of(item) != ["null"]]
        if len(options) == 1:
            node = options[0]
    kinds = _kinds_of(node)
    return len(kinds) == 1 and kinds[0] in PLAIN


def _kinds_of(node: Any) -> list[str]:
    names = node.get("type") if isinstance(node, dict) else None
    kinds = names if isinstance(names, list) else [names] if names is not None else []
    if not kinds and isinstance(node, dict) and "properties" in node:
        kinds = ["object"]
    return [kind for kind in kinds if kind != "null"] or kinds


def _list_converter(convert: Convert) -> Callable[[Any], Any]:
    def change(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise Unfit(f"{_shown(value)} is not an array")
        return value if convert is None else [convert(item) for item in value]

    return change


def _exactly(kind: str) -> Callable[[Any], Any]:
    """A function that checks a value's type; values of other types are not converted."""
    taken: tuple[type, ...] = {
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
    }[kind]

    def check(value: Any) -> Any:
        if value is None:
            return None
        if kind == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)
        if not isinstance(value, taken) or (isinstance(value, bool) and kind != "boolean"):
            raise Unfit(f"{_shown(value)} is not of type {kind}")
        return float(value) if isinstance(value, int) and kind == "number" else value

    return check


def _json_text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:80]
