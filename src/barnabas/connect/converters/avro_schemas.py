"""Connect's schemas as Avro's, and back. Source: Confluent's AvroData: connect.name, connect.version, connect.parameters,
connect.default, and the logical types decimal, date, time-millis and timestamp-millis. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from barnabas.connect import schemas
from barnabas.connect.errors import DataError
from barnabas.connect.schemas import Field, Schema

DEFAULT_NAME: Final = "ConnectDefault"
NAMESPACE: Final = "io.confluent.connect.avro"
PRIMITIVES: Final = {
    "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float", "float64": "double",
    "boolean": "boolean", "string": "string", "bytes": "bytes",
}  # fmt: skip
FROM_AVRO: Final = {
    "int": "int32", "long": "int64", "float": "float32", "double": "float64", "boolean": "boolean", "string": "string",
    "bytes": "bytes",
}  # fmt: skip
LOGICAL: Final = {schemas.DATE: "date", schemas.TIME: "time-millis", schemas.TIMESTAMP: "timestamp-millis"}
FROM_LOGICAL: Final = {
    ("int", "date"): schemas.DATE,
    ("int", "time-millis"): schemas.TIME,
    ("long", "timestamp-millis"): schemas.TIMESTAMP,
}
PRECISION: Final = "connect.decimal.precision"
DEFAULT_PRECISION: Final = 64


class ToAvro:
    """One Avro schema of a Connect schema; structs without a name are numbered."""

    def __init__(self) -> None:
        self._count = 0
        self._named: dict[str, Schema] = {}

    def schema(self, schema: Schema) -> Any:
        """Raises DataError."""
        avro_type = self._bare(schema)
        if not schema.optional:
            return avro_type
        return (
            [avro_type, "null"] if schema.has_default and schema.default is not None else ["null", avro_type]
        )

    def _bare(self, schema: Schema) -> Any:
        if schema.type == "struct":
            return self._record(schema)
        if schema.type == "array":
            assert schema.items is not None
            avro_type: dict[str, Any] = {"type": "array", "items": self.schema(schema.items)}
        elif schema.type == "map":
            avro_type = self._map(schema)
        else:
            avro_type = {"type": PRIMITIVES[schema.type]}
            if schema.type in ("int8", "int16"):
                avro_type["connect.type"] = schema.type
            if schema.name == schemas.DECIMAL:
                avro_type |= {
                    "scale": int(schema.parameter(schemas.SCALE) or 0),
                    "precision": int(schema.parameter(PRECISION) or DEFAULT_PRECISION),
                    "logicalType": "decimal",
                }
            elif schema.name in LOGICAL:
                avro_type["logicalType"] = LOGICAL[schema.name]
        return _simplified(avro_type | self._properties(schema))

    def _properties(self, schema: Schema) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        if schema.version is not None:
            properties["connect.version"] = schema.version
        if schema.parameters:
            properties["connect.parameters"] = dict(schema.parameters)
        if schema.name is not None and schema.type != "struct":
            properties["connect.name"] = schema.name
        if schema.doc is not None and schema.type != "struct":
            properties["connect.doc"] = schema.doc
        return properties

    def _map(self, schema: Schema) -> dict[str, Any]:
        assert schema.keys is not None
        assert schema.items is not None
        if schema.keys.type == "string" and not schema.keys.optional:
            return {"type": "map", "values": self.schema(schema.items)}
        self._count += 1
        entry = {
            "type": "record",
            "name": f"MapEntry{self._count if self._count > 1 else ''}",
            "namespace": NAMESPACE,
            "fields": [
                {"name": "key", "type": self.schema(schema.keys)},
                {"name": "value", "type": self.schema(schema.items)},
            ],
            "connect.internal.type": "MapEntry",
        }
        return {"type": "array", "items": entry}

    def _record(self, schema: Schema) -> Any:
        full = schema.name
        if full is None:
            self._count += 1
            full = f"{NAMESPACE}.{DEFAULT_NAME}{self._count if self._count > 1 else ''}"
        full = ".".join(_avro_name(part) for part in full.split("."))
        if self._named.get(full) == replace(schema, optional=False):
            return full
        self._named[full] = replace(schema, optional=False)
        namespace, _, name = full.rpartition(".")
        record: dict[str, Any] = {"type": "record", "name": name}
        if namespace:
            record["namespace"] = namespace
        if schema.doc is not None:
            record["doc"] = schema.doc
        record["fields"] = [self._field(field) for field in schema.fields]
        if schema.name is not None:
            record["connect.name"] = schema.name
        return record | self._properties(schema)

    def _field(self, field: Field) -> dict[str, Any]:
        avro_field: dict[str, Any] = {"name": _avro_name(field.name), "type": self.schema(field.schema)}
        if field.schema.has_default and field.schema.default is not None:
            default = to_avro(replace(field.schema, optional=False), field.schema.default)
            avro_field["default"] = default.decode("latin-1") if isinstance(default, bytes) else default
        elif field.schema.optional:
            avro_field["default"] = None
        return avro_field


def _avro_name(name: str) -> str:
    avro_name = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return avro_name if avro_name[:1].isalpha() or avro_name.startswith("_") else f"_{avro_name}"


def _simplified(avro_type: dict[str, Any]) -> Any:
    return avro_type["type"] if avro_type.keys() == {"type"} else avro_type


def to_avro(schema: Schema | None, value: Any) -> Any:
    """A value as fastavro takes it. Raises DataError."""
    if schema is None or value is None:
        if schema is not None and not schema.optional and schema.has_default:
            return to_avro(replace(schema, optional=True), schema.default)
        return value
    if schema.name in schemas.LOGICAL:
        return schemas.to_primitive(schema, value)
    if schema.type == "struct":
        if not isinstance(value, dict):
            raise DataError(f"{type(value).__name__} is not a struct")
        return {_avro_name(f.name): to_avro(f.schema, value.get(f.name)) for f in schema.fields}
    if schema.type == "array":
        return [to_avro(schema.items, item) for item in value]
    if schema.type == "map":
        assert schema.keys is not None
        if schema.keys.type == "string" and not schema.keys.optional:
            return {key: to_avro(schema.items, item) for key, item in value.items()}
        return [{"key": to_avro(schema.keys, k), "value": to_avro(schema.items, v)} for k, v in value.items()]
    return bytes(value) if schema.type == "bytes" else value


# --- the other way ----------------------------------------------------------------------------------------


class FromAvro:
    """Connect's schema of an Avro schema as JSON. others: the schemas that it refers to."""

    def __init__(self, others: Mapping[str, Any] | None = None) -> None:
        self._named: dict[str, Any] = dict(others or {})
        self._open: set[str] = set()

    def schema(self, about: Any, namespace: str = "") -> Schema:
        """Raises DataError."""
        if isinstance(about, list):
            return self._union(about, namespace)
        if isinstance(about, str):
            if about in FROM_AVRO:
                return Schema(FROM_AVRO[about])
            if about == "null":
                return schemas.OPTIONAL_STRING
            full = about if "." in about or not namespace else f"{namespace}.{about}"
            definition = self._named.get(full, self._named.get(about))
            if definition is None:
                raise DataError(f"the Avro schema names {about}, which it does not have")
            return self.schema(definition, namespace)
        return self._complex(about, namespace)

    def _complex(self, about: Mapping[str, Any], namespace: str) -> Schema:
        kind = about["type"]
        if isinstance(kind, (dict, list)):
            return self.schema(kind, namespace)
        if kind in ("record", "error"):
            return self._record(about, namespace)
        if kind in ("enum", "fixed"):
            self._named[_full(about, namespace)] = about
            schema = Schema("string" if kind == "enum" else "bytes", name=_full(about, namespace))
            return self._decimal(about) if about.get("logicalType") == "decimal" else schema
        if kind == "array":
            return self._with(about, schemas.array(self.schema(about["items"], namespace)))
        if kind == "map":
            return self._with(about, schemas.map_of(schemas.STRING, self.schema(about["values"], namespace)))
        if kind not in FROM_AVRO:
            return self.schema(kind, namespace)
        if about.get("logicalType") == "decimal":
            return self._decimal(about)
        logical = FROM_LOGICAL.get((kind, str(about.get("logicalType"))))
        if logical is not None:
            return Schema(FROM_AVRO[kind], name=logical, version=1)
        return self._with(about, Schema(str(about.get("connect.type") or FROM_AVRO[kind])))

    def _decimal(self, about: Mapping[str, Any]) -> Schema:
        schema = schemas.decimal(int(about.get("scale", 0)))
        precision = about.get("precision")
        if precision in (None, DEFAULT_PRECISION):
            return schema
        return replace(schema, parameters=(*schema.parameters, (PRECISION, str(precision))))

    def _with(self, about: Mapping[str, Any], schema: Schema) -> Schema:
        parameters = about.get("connect.parameters") or {}
        return replace(
            schema,
            name=about.get("connect.name", schema.name),
            version=about.get("connect.version", schema.version),
            doc=about.get("connect.doc", schema.doc),
            parameters=tuple(parameters.items()) or schema.parameters,
        )

    def _record(self, about: Mapping[str, Any], namespace: str) -> Schema:
        full = _full(about, namespace)
        if full in self._open:
            raise DataError(f"the Avro schema {full} contains itself, which Connect's schemas cannot")
        self._named[full] = about
        self._open.add(full)
        inner = full.rpartition(".")[0]
        fields = [Field(str(row["name"]), self._field(row, inner)) for row in about["fields"]]
        self._open.discard(full)
        name = about.get("connect.name") or (None if full.startswith(f"{NAMESPACE}.{DEFAULT_NAME}") else full)
        return self._with({**about, "connect.name": name}, schemas.struct(fields, name, doc=about.get("doc")))

    def _field(self, row: Mapping[str, Any], namespace: str) -> Schema:
        schema = self.schema(row["type"], namespace)
        if row.get("default") is None or schema.type in ("struct", "array", "map"):
            return schema
        default = row["default"]
        if schema.type == "bytes":
            default = str(default).encode("latin-1")
        return replace(schema, default=schemas.from_primitive(schema, default))

    def _union(self, about: list[Any], namespace: str) -> Schema:
        kinds = [one for one in about if one != "null"]
        if len(kinds) == 1:
            inner = self.schema(kinds[0], namespace)
            return inner.as_optional() if len(about) > 1 else inner
        fields = []
        for one in kinds:
            schema = self.schema(one, namespace)
            name = one if isinstance(one, str) else str(one.get("name") or one["type"])
            fields.append(Field(name.rpartition(".")[2], schema.as_optional()))
        return schemas.struct(fields, f"{NAMESPACE}.Union", optional="null" in about)


def _full(about: Mapping[str, Any], namespace: str) -> str:
    name, own = str(about["name"]), about.get("namespace", namespace)
    return name if "." in name or not own else f"{own}.{name}"


def from_avro(schema: Schema, value: Any) -> Any:
    """What fastavro has read, without logical types, as the schema's values. Raises DataError."""
    if value is None:
        return None
    if schema.name in schemas.LOGICAL:
        return schemas.from_primitive(schema, value)
    if schema.type == "struct":
        if schema.name == f"{NAMESPACE}.Union":
            return _branch(schema, value)
        return {field.name: from_avro(field.schema, value.get(field.name)) for field in schema.fields}
    if schema.type == "array":
        assert schema.items is not None
        return [from_avro(schema.items, item) for item in value]
    if schema.type == "map":
        assert schema.items is not None
        return {key: from_avro(schema.items, item) for key, item in value.items()}
    return value


def _branch(schema: Schema, value: Any) -> dict[str, Any]:
    """A value of a union of several types, as a struct with one field that is not null."""
    fields: dict[str, Any] = {field.name: None for field in schema.fields}
    for field in schema.fields:
        try:
            content = from_avro(field.schema, value)
            schemas.check(field.schema, content)
        except (DataError, AttributeError, TypeError):
            continue
        fields[field.name] = content
        return fields
    raise DataError("a value of a union has none of its types")
