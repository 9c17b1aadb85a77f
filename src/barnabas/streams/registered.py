"""Serdes with a schema registry: Avro, Protobuf and JSON Schema in Confluent's wire format.

    orders = builder.stream("orders", value=avro("http://localhost:8081", Order))
    orders.to("large-orders", value=avro("http://localhost:8081", Order, schema=LARGE_ORDER))

Records are read with the schema that each names. They are written with the newest schema of the topic's subject, or with
`schema`, which is registered there unless it is there already.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from typing import Any, Final

from barnabas.client.registry import RegistryClient
from barnabas.schemas.framing import Schema, frame, message_path, unframe_any
from barnabas.streams.errors import StreamsError
from barnabas.streams.serdes import Serde, made_of
from barnabas.streams.texts import is_model

AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
JSON: Final = "JSON"
NAMES: Final = {AVRO: "Avro", PROTOBUF: "Protobuf", JSON: "JSON with a schema"}


@functools.cache
def _registry(url: str) -> RegistryClient:
    return RegistryClient(url)


@functools.cache
def _codec(schema: Schema) -> Any:
    """What reads and writes payloads of a schema: encode(value), decode(bytes)."""
    if schema.kind == AVRO:
        return _Avro(schema)
    from barnabas.schemas.codecs.schemas import make_codec
    from barnabas.schemas.formats.base import Dependency
    from barnabas.schemas.model import Reference

    dependencies = [Dependency(name, Reference(name, name, 1), text) for name, text in schema.dependencies]
    return make_codec(schema.kind, schema.text, dependencies, schema.contract)


class _Avro:
    """Avro with Python's own values: None for null, datetimes, decimals, UUIDs."""

    def __init__(self, schema: Schema) -> None:
        from fastavro.schema import parse_schema

        named: dict[str, Any] = {}
        for _, text in schema.dependencies:
            parse_schema(json.loads(text), named)
        self._parsed = parse_schema(json.loads(schema.text), named)

    def encode(self, value: Any) -> bytes:
        from fastavro import schemaless_writer

        out = io.BytesIO()
        schemaless_writer(out, self._parsed, value)
        return out.getvalue()

    def decode(self, data: bytes) -> Any:
        from fastavro import schemaless_reader

        return schemaless_reader(io.BytesIO(data), self._parsed, None)


@dataclasses.dataclass(frozen=True)
class Registered:
    """Keys or values with a schema of a registry. of: what they become in Python: a dataclass, a pydantic model or a class
    that protoc made; None: dicts. subject: of the schema to write with; empty: that of the topic."""

    kind: str
    url: str
    of: Any = None
    schema: str | None = None
    subject: str = ""

    def for_topic(self, topic: str, part: str) -> Serde[Any]:
        """As a serde. topic: empty if functions choose topics. part: key or value. Raises StreamsError."""
        bound = (
            self if self.subject else dataclasses.replace(self, subject=f"{topic}-{part}" if topic else "")
        )
        return _serde(bound)

    @property
    def classes(self) -> tuple[type, ...]:
        """Those of its values."""
        return (self.of,) if isinstance(self.of, type) and not hasattr(self.of, "DESCRIPTOR") else ()

    def deserialize(self, data: bytes) -> Any:
        """Raises RegistryError, ValueError."""
        named, payload = unframe_any(data)
        registry = _registry(self.url)
        schema = registry.by_guid(named) if isinstance(named, str) else registry.by_id(named)
        if schema.kind != self.kind:
            raise ValueError(f"schema {schema.called} is {schema.kind}, not {self.kind}")
        if hasattr(self.of, "DESCRIPTOR"):
            return self.of.FromString(message_path(payload)[1])
        content = _codec(schema).decode(payload)
        if self.of is None:
            return content
        return self.of.model_validate(content) if is_model(self.of) else made_of(self.of, content)

    def serialize(self, value: Any) -> bytes:
        """Raises RegistryError, ValueError."""
        schema = self._written
        if hasattr(value, "SerializeToString"):
            from google.protobuf import json_format

            value = json_format.MessageToDict(value, preserving_proto_field_name=True)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        elif is_model(type(value)):
            value = value.model_dump(mode="python" if self.kind == AVRO else "json")
        return frame(schema.id, _codec(schema).encode(value))

    @property
    def _written(self) -> Schema:
        if not self.subject:
            raise StreamsError(
                "a function chooses the topic, so its schema has no subject: give one, like avro(url, subject='a-value')"
            )
        return _schema(self.url, self.subject, self.kind, self.schema)


@functools.cache
def _serde(bound: Registered) -> Serde[Any]:
    return Serde(NAMES[bound.kind], bound.serialize, bound.deserialize, bound.classes)


@functools.cache
def _schema(url: str, subject: str, kind: str, text: str | None) -> Schema:
    """The schema to write with; asked for once in a process."""
    registry = _registry(url)
    if text is None:
        return registry.newest(subject)
    return registry.by_id(registry.register(subject, kind, text))


def avro(url: str, of: Any = None, *, schema: str | None = None, subject: str = "") -> Registered:
    """Avro. url: of the registry. of, subject: see Registered. schema: the one to write with, as JSON text; None: the newest
    of the subject."""
    return Registered(AVRO, url, of, schema, subject)


def protobuf(url: str, of: Any = None, *, schema: str | None = None, subject: str = "") -> Registered:
    """Protobuf. of: also a class that protoc made. schema: the text of a .proto file, whose first message is written."""
    return Registered(PROTOBUF, url, of, schema, subject)


def json_schema(url: str, of: Any = None, *, schema: str | None = None, subject: str = "") -> Registered:
    """JSON with a schema that values must fit."""
    return Registered(JSON, url, of, schema, subject)
