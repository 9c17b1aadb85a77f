"""Converts between JSON values and the bytes of records with one schema, without the head of the record. Pure.

Avro uses the JSON encoding of its specification, Protobuf its JSON mapping. Used by the REST proxy and the command line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.codecs.protobuf import ProtobufCodec
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.framing import Schema
from barnabas.schemas.json_text import BadJson, parse_json
from barnabas.schemas.json_validation import BadSchema, JsonSchema, Unsuited

if TYPE_CHECKING:
    from barnabas.schemas.codecs.contracts import Contract

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"


class Codec(Protocol):
    """name: of the schema's record, for subjects."""

    name: str | None

    def encode(self, value: Any) -> bytes:
        """The payload of a JSON value. Raises Mismatch."""
        ...

    def decode(self, data: bytes) -> Any:
        """The JSON value of a payload. Raises Mismatch."""
        ...


def make_codec(kind: str, text: str, dependencies: Sequence[Dependency], contract: str = "") -> Codec:
    """The codec for a schema. kind: AVRO, JSON or PROTOBUF. contract: the schema's rules and metadata as JSON text, see
    client.registry.Schema.

    Raises InvalidSchema, and ImportError if the package for the language is missing."""
    plain = _plain_codec(kind, text, dependencies)
    if not contract:
        return plain
    from barnabas.schemas.codecs.contracts import contract_of_schema

    schema = Schema(0, kind, text, tuple((d.name, d.text) for d in dependencies), 0, contract)
    rules = contract_of_schema(schema)
    return plain if rules is None else RuledCodec(plain, schema, rules)


def _plain_codec(kind: str, text: str, dependencies: Sequence[Dependency]) -> Codec:
    if kind == AVRO:
        from barnabas.schemas.codecs.avro import AvroCodec

        try:
            return AvroCodec(text, tuple(dependency.text for dependency in dependencies))
        except Exception as error:  # fastavro may raise anything
            raise InvalidSchema(f"the schema is not valid: {str(error)[:200]}") from error
    if kind == JSON:
        return JsonCodec(text, dependencies)
    if kind == PROTOBUF:
        return ProtobufCodec(text, dependencies)
    raise InvalidSchema(f"schemas of type {kind!r} are not known here")


def json_bytes(value: Any) -> bytes:
    """A JSON value in the form stored in records."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def json_value(data: bytes) -> Any:
    """The JSON value in a record. Raises Mismatch."""
    try:
        return parse_json(data)
    except BadJson as error:
        raise Mismatch(f"the record is not JSON: {error}") from None


def mapped_value(codec: Codec, data: bytes) -> Any:
    """The JSON value of a payload as Confluent's REST proxy writes it: Protobuf with the JSON names of its fields, and with
    those that have their default values. Raises Mismatch.
    """
    if isinstance(codec, RuledCodec):
        data = codec.read(data)
        codec = codec.plain
    return codec.mapped(data) if isinstance(codec, ProtobufCodec) else codec.decode(data)


class RuledCodec:
    """A codec that applies the rules of the schema to its records."""

    def __init__(self, plain: Codec, schema: Schema, rules: Contract) -> None:
        self.name = plain.name
        self.plain, self._schema, self._rules = plain, schema, rules

    def encode(self, value: Any) -> bytes:
        """See Codec. JSON is validated by its schema after the rules have been applied."""
        if self._rules.writes and isinstance(self.plain, JsonCodec):
            try:
                plain = json_bytes(value)
            except RecursionError:
                raise Mismatch("the value is nested too deeply") from None
            return self.plain.encode(json_value(self._rules.written(plain)))
        return self._rules.written(self.plain.encode(value))

    def decode(self, data: bytes) -> Any:
        """See Codec."""
        return self.plain.decode(self.read(data))

    def read(self, data: bytes) -> bytes:
        """A payload after the rules for readers. Raises Mismatch."""
        return self._rules.read(data, self._schema)[0]


class JsonCodec:
    """JSON that is validated by its schema when it is written."""

    def __init__(self, text: str, dependencies: Sequence[Dependency]) -> None:
        try:
            self._schema = JsonSchema(text, ((d.name, d.text) for d in dependencies))
        except BadSchema as error:
            raise InvalidSchema(f"the schema is not valid: {str(error)[:200]}") from error
        tree = self._schema.tree
        self.name = tree.get("title") if isinstance(tree, dict) else None

    def encode(self, value: Any) -> bytes:
        """See Codec."""
        try:
            self._schema.check(value)
        except Unsuited as error:
            raise Mismatch(str(error)) from None
        return json_bytes(value)

    def decode(self, data: bytes) -> Any:
        """See Codec."""
        return json_value(data)
