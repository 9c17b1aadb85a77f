"""`-s value=avro -r URL` of `produce` and `consume`: JSON on this side, records with the schemas of a registry on the other.

Avro is written as the JSON encoding of its specification (a value of a union stands as {"type": value}), Protobuf as its
JSON mapping. On the way in the newest version of the subject TOPIC-value or TOPIC-key is used, or a file that is
registered there first.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol

import typer

from barnabas.cli.errors import CliError, UsageError
from barnabas.client.json_schema import BadSchema, JsonSchema, Unsuited
from barnabas.client.registry import (
    BadAddress,
    NotFramed,
    Registry,
    RegistryError,
    Schema,
    frame,
    message_path,
    unframe,
)

if TYPE_CHECKING:
    from barnabas.cli.formatting import Writer

DEFAULT_URL: Final = "http://localhost:8081"
KINDS: Final = {"avro": "AVRO", "jsonschema": "JSON", "protobuf": "PROTOBUF"}
PARTS: Final = ("key", "value")
INSTALL: Final = "pip install 'barnabas[services]'"

Url = Annotated[
    str,
    typer.Option(
        "-r", "--registry", envvar="BARNABAS_REGISTRY", metavar="URL", help="The schema registry of -s."
    ),
]
ReadAs = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--schema",
        metavar="[PART=]TYPE",
        help="Decode to JSON: avro, jsonschema or protobuf; key=TYPE or value=TYPE alone.",
        show_default=False,
    ),
]
WriteAs = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--schema",
        metavar="[PART=]TYPE[@FILE]",
        help="Encode JSON as avro, jsonschema or protobuf by the newest version, or by FILE; key=TYPE or value=TYPE alone.",
        show_default=False,
    ),
]


class Mismatch(ValueError):
    """JSON or bytes that do not suit their schema; the message says why."""


class Undecodable(CliError):
    """A record cannot be decoded. before: what is to be written of the records before it."""

    def __init__(self, message: str, before: bytes) -> None:
        super().__init__(message)
        self.before = before


class Codec(Protocol):
    """One schema."""

    def encode(self, text: str) -> bytes:
        """The payload of a JSON text. Raises Mismatch."""
        ...

    def decode(self, payload: bytes) -> Any:
        """The JSON value of a payload. Raises Mismatch."""
        ...


class Wanted(NamedTuple):
    """What -s asks for. kind: AVRO, JSON or PROTOBUF. file: of the schema, where one is given."""

    kind: str
    file: str | None


def parse_wanted(items: Iterable[str]) -> dict[str, Wanted]:
    """Of "key" and "value", those that have a schema. Raises UsageError."""
    found: dict[str, Wanted] = {}
    for item in items:
        part, equals, rest = item.partition("=")
        if not equals:
            part, rest = "", item
        name, at, file = rest.partition("@")
        kind = KINDS.get(name.lower())
        if kind is None or (equals and part not in PARTS) or (at and not file):
            raise UsageError(
                f"-s {item!r} is not avro, jsonschema or protobuf, with key= or value= before it for one of both"
            )
        if file and not part:
            raise UsageError(f"-s {item!r} names a file for both keys and values: say key= or value=")
        for one in (part,) if part else PARTS:
            found[one] = Wanted(kind, file or None)
    return found


# --- the languages ------------------------------------------------------------------------------------


class AvroCodec:
    """Avro's JSON encoding, by fastavro."""

    def __init__(self, schema: Schema) -> None:
        import fastavro
        from fastavro.validation import validate

        self._avro, self._validate = fastavro, validate
        named: dict[str, Any] = {}
        try:
            for _, text in schema.dependencies:
                fastavro.parse_schema(json.loads(text), named_schemas=named)
            self._schema = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
        except Exception as error:  # fastavro raises whatever a bad schema leads to
            raise CliError(f"schema {schema.id} is not Avro: {_reason(error)}") from None

    def encode(self, text: str) -> bytes:
        """See Codec."""
        out = io.BytesIO()
        given = _json(text)
        if isinstance(given, dict) and isinstance(self._schema, dict) and self._schema["type"] == "record":
            for row in self._schema["fields"]:
                if row["name"] not in given and "default" not in row:
                    raise Mismatch(f"the field {row['name']} is missing, and has no default")
        try:
            # One JSON value is one line for fastavro.
            (value,) = self._avro.json_reader(io.StringIO(json.dumps(given)), self._schema)
            self._validate(value, self._schema)
            self._avro.schemaless_writer(out, self._schema, value)
        except Exception as error:  # fastavro raises whatever the value leads to
            raise Mismatch(f"the JSON does not suit the schema: {_reason(error)}") from None
        lost = _lost(given, self.decode(out.getvalue()), "")
        if lost:
            raise Mismatch(f"the schema has no field {lost}")
        return out.getvalue()

    def decode(self, payload: bytes) -> Any:
        """See Codec."""
        source, out = io.BytesIO(payload), io.StringIO()
        try:
            value = self._avro.schemaless_reader(source, self._schema, None)
            self._avro.json_writer(out, self._schema, [value])
        except Exception as error:  # fastavro raises whatever the bytes lead to
            raise Mismatch(f"the bytes do not suit the schema: {_reason(error)}") from None
        if source.tell() != len(payload):
            raise Mismatch(f"{len(payload) - source.tell()} bytes are left behind the value")
        return json.loads(out.getvalue())


class JsonCodec:
    """JSON that is checked by its schema where it is written."""

    def __init__(self, schema: Schema) -> None:
        try:
            self._schema = JsonSchema(schema.text, schema.dependencies)
        except BadSchema as error:
            raise CliError(f"schema {schema.id} is not JSON Schema: {_reason(error)}") from None

    def encode(self, text: str) -> bytes:
        """See Codec."""
        value = _json(text)
        try:
            self._schema.check(value)
        except Unsuited as error:
            raise Mismatch(str(error)) from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    def decode(self, payload: bytes) -> Any:
        """See Codec."""
        try:
            return json.loads(payload)
        except ValueError as error:
            raise Mismatch(f"the bytes are not JSON: {error}") from None


class ProtobufCodec:
    """Writes the file's first message; reads whichever one the bytes name."""

    def __init__(self, schema: Schema) -> None:
        from google.protobuf import json_format, message_factory
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        from barnabas.registry.errors import InvalidSchema
        from barnabas.registry.formats.base import Dependency
        from barnabas.registry.formats.protobuf import read_protobuf
        from barnabas.registry.model import Reference

        dependencies = [
            Dependency(name, Reference(name, name, 1), text) for name, text in schema.dependencies
        ]
        try:
            self._file = read_protobuf(schema.text, dependencies).descriptor
        except InvalidSchema as error:
            raise CliError(f"schema {schema.id} is not Protobuf: {error.message}") from None
        self._listed = FileDescriptorProto()
        self._file.CopyToProto(self._listed)
        if not self._listed.message_type:
            raise CliError(f"schema {schema.id} has no message")
        self._format, self._class_of = json_format, message_factory.GetMessageClass

    def encode(self, text: str) -> bytes:
        """See Codec."""
        message = self._new([0])
        try:
            self._format.Parse(text, message)
        except (self._format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Mismatch(f"the JSON does not suit the schema: {_reason(error)}") from None
        return b"\0" + bytes(message.SerializeToString())

    def decode(self, payload: bytes) -> Any:
        """See Codec."""
        from google.protobuf.message import DecodeError

        path, data = message_path(payload)
        message = self._new(path)
        try:
            message.ParseFromString(data)
            return self._format.MessageToDict(message, preserving_proto_field_name=True)
        except (DecodeError, ValueError, TypeError, RecursionError) as error:
            raise Mismatch(f"the bytes do not suit the schema: {_reason(error)}") from None

    def _new(self, path: list[int]) -> Any:
        try:
            listed = self._listed.message_type[path[0]]
            found = self._file.message_types_by_name[listed.name]
            for index in path[1:]:
                listed = listed.nested_type[index]
                found = found.nested_types_by_name[listed.name]
        except IndexError:
            raise Mismatch("the bytes name a message that the schema does not have") from None
        return self._class_of(found)()


MAKERS: Final[dict[str, Callable[[Schema], Codec]]] = {
    "AVRO": AvroCodec,
    "JSON": JsonCodec,
    "PROTOBUF": ProtobufCodec,
}


def make_codec(schema: Schema) -> Codec:
    """Raises CliError."""
    try:
        return MAKERS[schema.kind](schema)
    except ImportError as error:
        raise CliError(f"records with schemas need {error.name}: {INSTALL}") from None
    except KeyError:
        raise CliError(f"schema {schema.id} is of type {schema.kind}, which is not known here") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Mismatch(f"{text[:40]!r} is not JSON: {error}") from None


def _lost(given: Any, kept: Any, path: str) -> str:
    """A name that is in what was given and not in what was made of it; fastavro leaves such fields out."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            if name not in kept:
                return f"{path}{name}"
            if found := _lost(value, kept[name], f"{path}{name}."):
                return found
    elif isinstance(given, list) and isinstance(kept, list):
        for one, other in zip(given, kept, strict=False):
            if found := _lost(one, other, path):
                return found
    return ""


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return text or type(error).__name__


# --- a topic's records --------------------------------------------------------------------------------


@dataclass(slots=True)
class Codecs:
    """The schemas of one run. Nothing is asked of the registry before it is needed."""

    wanted: dict[str, Wanted]
    registry: Registry
    _by_id: dict[int, Codec] = field(default_factory=dict)
    _writing: dict[str, tuple[int, Codec]] = field(default_factory=dict)

    def prepare(self, topic: str) -> None:
        """Look up what records of a topic are written by. Raises CliError."""
        for part, wanted in self.wanted.items():
            schema = self._answer(partial(self._of_subject, f"{topic}-{part}", wanted))
            if schema.kind != wanted.kind:
                raise CliError(
                    f"the newest version of {topic}-{part} is of type {schema.kind}, not {wanted.kind}"
                )
            self._writing[part] = schema.id, make_codec(schema)

    def _of_subject(self, subject: str, wanted: Wanted) -> Schema:
        if wanted.file is None:
            return self.registry.newest(subject)
        try:
            text = Path(wanted.file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CliError(
                f"{wanted.file} cannot be read: {getattr(error, 'strerror', None) or error}"
            ) from None
        return self.registry.by_id(self.registry.register(subject, wanted.kind, text))

    def _answer(self, ask: Callable[[], Schema]) -> Schema:
        try:
            return ask()
        except BadAddress as error:
            raise UsageError(f"-r {error}") from None
        except RegistryError as error:
            raise CliError(f"{error} (-r {self.registry.url})" if error.code else str(error)) from None

    def encoded(self, part: str, text: bytes | None) -> bytes | None:
        """A key's or value's bytes; null stays null. Raises CliError."""
        writing = self._writing.get(part)
        if writing is None or text is None:
            return text
        try:
            return frame(writing[0], writing[1].encode(text.decode()))
        except UnicodeDecodeError:
            raise CliError(f"the {part} is not JSON: it is no text in UTF-8") from None
        except Mismatch as error:
            raise CliError(f"{part}: {error}") from None

    def decoded(self, message: Any) -> Decoded:
        """A record with JSON in place of its bytes. Raises CliError."""
        found = Decoded(message, message.key(), message.value())
        if "key" in self.wanted:
            found.key_bytes, found.json["key"] = self._decoded("key", message, found.key_bytes)
        if "value" in self.wanted:
            found.value_bytes, found.json["payload"] = self._decoded("value", message, found.value_bytes)
        return found

    def _decoded(self, part: str, message: Any, data: bytes | None) -> tuple[bytes | None, Any]:
        if data is None:
            return None, None
        try:
            schema_id, payload = unframe(data)
            value = self._codec(schema_id, self.wanted[part].kind).decode(payload)
        except (NotFramed, Mismatch, CliError) as error:
            where = f"{message.topic()} [{message.partition()}] offset {message.offset()}"
            raise CliError(f"{where}: {part}: {error}") from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "surrogatepass"
        ), value

    def _codec(self, schema_id: int, kind: str) -> Codec:
        found = self._by_id.get(schema_id)
        if found is None:
            schema = self._answer(lambda: self.registry.by_id(schema_id))
            if schema.kind != kind:
                raise CliError(f"schema {schema_id} is of type {schema.kind}, not {kind}")
            found = self._by_id[schema_id] = make_codec(schema)
        return found

    def writer(self, write: Writer) -> Writer:
        """A writer of records that are decoded first. It raises Undecodable."""

        def decode_and_write(messages: list[Any]) -> bytes:
            found: list[Any] = []
            try:
                for message in messages:
                    found.append(self.decoded(message))
            except CliError as error:
                raise Undecodable(str(error), write(found) if found else b"") from None
            return write(found)

        return decode_and_write


def codecs_of(items: Iterable[str], url: str) -> Codecs | None:
    """What -s and -r ask for; None without -s. Raises UsageError."""
    wanted = parse_wanted(items)
    return Codecs(wanted, Registry(url)) if wanted else None


@dataclass(slots=True)
class Decoded:
    """A confluent_kafka.Message whose key or value was decoded. json: the values, for envelopes."""

    message: Any
    key_bytes: bytes | None
    value_bytes: bytes | None
    json: dict[str, Any] = field(default_factory=dict)

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.value_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.message, name)
