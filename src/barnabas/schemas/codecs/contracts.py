"""Applies the rules of a schema to the bytes of records: last when writing, first when reading. Pure.

Rules see the contents of Avro's generic records: a timestamp is a number, a decimal is bytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Protocol

from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.codecs.json_shape import JsonShape
from barnabas.schemas.codecs.protobuf import ProtobufCodec
from barnabas.schemas.codecs.rules import READ, WRITE, Rules, SchemaLanguage, rules_of
from barnabas.schemas.codecs.shapes import AvroShape, ProtobufShape, bare
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.expressions import cel
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.framing import Schema
from barnabas.schemas.json_validation import BadSchema, JsonSchema, Unsuited
from barnabas.schemas.model import Reference

KEPT_MAX: Final = 500


class Language(Protocol):
    """Converts between payloads of one schema and the values that rules work on."""

    @property
    def shape(self) -> SchemaLanguage:
        """Access to the fields of values."""
        ...

    def load(self, payload: bytes, writer: Schema) -> tuple[bytes, Any]:
        """(head, value): the bytes before the value, and a value of this schema, from a payload that may have another
        version.

        Raises Mismatch."""
        ...

    def dump(self, head: bytes, value: Any) -> bytes:
        """The payload for a value. Raises Mismatch."""
        ...


class Contract:
    """The rules of one schema. Raises InvalidSchema if it cannot be read, RulesMissing without the packages."""

    def __init__(self, schema: Schema) -> None:
        cel()
        make: dict[str, Callable[[Schema], Language]] = {
            "AVRO": AvroLanguage,
            "JSON": JsonLanguage,
            "PROTOBUF": ProtobufLanguage,
        }
        self._schema = schema
        self._language = make[schema.kind](schema)
        self._rules = Rules(schema.contract, self._language.shape)
        self.reads, self.writes = self._rules.has(READ), self._rules.has(WRITE)

    def written(self, payload: bytes) -> bytes:
        """The payload to be written for a given one. Raises RuleFailed, Mismatch."""
        if not self.writes:
            return payload
        head, value = self._language.load(payload, self._schema)
        value = self._rules.applied(WRITE, value)
        return self._language.dump(head, value) if self._rules.changes(WRITE) else payload

    def read(self, payload: bytes, writer: Schema) -> tuple[bytes, Schema]:
        """The payload to be read for a stored one, and the schema of the result. Raises RuleFailed, Mismatch."""
        if not self.reads:
            return payload, writer
        head, value = self._language.load(payload, writer)
        value = self._rules.applied(READ, value)
        if not self._rules.changes(READ):
            return payload, writer
        return self._language.dump(head, value), self._schema


def contract_of_schema(schema: Schema) -> Contract | None:
    """The contract of a schema; None if it has no rules to execute. Raises InvalidSchema, RulesMissing."""
    if not schema.contract or not rules_of(json.loads(schema.contract)):
        return None
    return Contract(schema)


def has_migrations(schema: Schema) -> bool:
    """Whether a schema has rules for reading records of one version as of another, which are not carried out here."""
    if not schema.contract:
        return False
    rows = (json.loads(schema.contract).get("ruleSet") or {}).get("migrationRules") or ()
    return any(not row.get("disabled") for row in rows)


class AvroLanguage:
    """Avro, with fastavro, without logical types."""

    def __init__(self, schema: Schema) -> None:
        from barnabas.schemas.codecs.avro import type_tags

        self._whole, named = _avro(schema)
        self._id = schema.id
        self.shape = AvroShape(self._whole, named, type_tags(json.loads(schema.text)))

    def load(self, payload: bytes, writer: Schema) -> tuple[bytes, Any]:
        """See Language."""
        import fastavro

        written, wanted = self._whole, None
        if writer.id != self._id:
            written, wanted = _avro(writer)[0], self._whole
        source = io.BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(source, written, wanted, return_named_type=True)
        except Exception as error:  # fastavro may raise anything
            raise Mismatch(f"the bytes do not suit the schema: {str(error)[:200]}") from error
        if source.tell() != len(payload):
            raise Mismatch(f"{len(payload) - source.tell()} bytes are left after the value")
        return b"", value

    def dump(self, head: bytes, value: Any) -> bytes:
        """See Language."""
        import fastavro

        out = io.BytesIO()
        try:
            fastavro.validate(bare(value), self._whole)  # it knows only the names of record branches
            fastavro.schemaless_writer(out, self._whole, value)
        except Exception as error:  # fastavro may raise anything
            reason = " ".join(str(error).split())[:300]
            raise Mismatch(f"what its rules made does not suit the schema: {reason}") from error
        return out.getvalue()


@lru_cache(KEPT_MAX)
def _avro(schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Raises InvalidSchema."""
    from barnabas.schemas.codecs.avro import AvroCodec

    try:
        codec = AvroCodec(schema.text, tuple(text for _, text in schema.dependencies))
    except Exception as error:  # fastavro may raise anything
        raise InvalidSchema(f"the schema is not valid: {str(error)[:200]}") from error
    return codec.parsed()


class JsonLanguage:
    """JSON values, which are validated when they are written."""

    def __init__(self, schema: Schema) -> None:
        try:
            self._schema = JsonSchema(schema.text, schema.dependencies)
        except BadSchema as error:
            raise InvalidSchema(f"the schema is not valid: {str(error)[:200]}") from error
        schema_read = self._schema
        self.shape = JsonShape(
            schema_read.tree, schema_read.documents, schema_read.allows, schema_read.matches
        )

    def load(self, payload: bytes, writer: Schema) -> tuple[bytes, Any]:
        """See Language."""
        try:
            return b"", json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise Mismatch(f"the record is not JSON: {error}") from None

    def dump(self, head: bytes, value: Any) -> bytes:
        """See Language."""
        try:
            self._schema.check(value)
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(
                "utf-8", "surrogatepass"
            )
        except (Unsuited, TypeError, ValueError, RecursionError) as error:
            raise Mismatch(f"what its rules made does not suit the schema: {error}") from None


class ProtobufLanguage:
    """Messages in the file of this version, whichever message a record names."""

    def __init__(self, schema: Schema) -> None:
        from barnabas.schemas.formats.protobuf import read_protobuf

        dependencies = _dependencies(schema)
        self._id = schema.id
        self._codec = ProtobufCodec(schema.text, dependencies)
        self.shape = ProtobufShape(read_protobuf(schema.text, dependencies).tags())

    def load(self, payload: bytes, writer: Schema) -> tuple[bytes, Any]:
        """See Language."""
        if writer.id == self._id:
            return self._codec.message(payload)
        try:
            written = _protobuf(writer)
        except InvalidSchema as error:
            raise Mismatch(f"the record's schema {writer.id} cannot be read: {error}") from error
        return self._codec.message(payload, written)

    def dump(self, head: bytes, value: Any) -> bytes:
        """See Language."""
        from google.protobuf.message import EncodeError

        try:
            return head + bytes(value.SerializeToString())
        except (EncodeError, ValueError, RecursionError) as error:
            raise Mismatch(f"what its rules made does not suit the schema: {str(error)[:300]}") from error


def _dependencies(schema: Schema) -> list[Dependency]:
    return [Dependency(name, Reference(name, name, 1), text) for name, text in schema.dependencies]


@lru_cache(KEPT_MAX)
def _protobuf(schema: Schema) -> ProtobufCodec:
    """Raises InvalidSchema."""
    return ProtobufCodec(schema.text, _dependencies(schema))
