"""`-s value=avro -r URL` of `produce` and `consume`: converts between JSON and records with schemas of a registry.

Avro is written in the JSON encoding of its specification (a value of a union is {"type": value}), Protobuf in its
JSON mapping. `produce` uses the newest version of the subject TOPIC-value or TOPIC-key, or a file that it registers
there first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from barnabas.client.registry import BadAddress, RegistryClient, RegistryError
from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.framing import NotFramed, Schema, frame, named_schema
from barnabas.terminal.errors import CliError, UsageError
from barnabas.terminal.files import read_text

if TYPE_CHECKING:
    from barnabas.cli.records.formatting import Writer
    from barnabas.schemas.codecs.schemas import Codec

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
        help="Decode to JSON: avro, jsonschema or protobuf; key=TYPE or value=TYPE alone; may be repeated.",
        show_default=False,
    ),
]
WriteAs = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--schema",
        metavar="[PART=]TYPE[@FILE]",
        help="Encode JSON as avro, jsonschema or protobuf by the newest version, or by FILE; key=TYPE or value=TYPE "
        "alone; may be repeated.",
        show_default=False,
    ),
]


class Undecodable(CliError):
    """A record cannot be decoded. before: the output for the records before it."""

    def __init__(self, message: str, before: bytes) -> None:
        super().__init__(message)
        self.before = before


class Refused(CliError):
    """A rule refuses a key or a value and names a topic for such records. headers: those that are added there."""

    def __init__(self, message: str, topic: str, headers: list[tuple[str, bytes | None]]) -> None:
        super().__init__(message)
        self.topic, self.headers = topic, headers
        self.key: bytes | None = None
        self.value: bytes | None = None


class Wanted(NamedTuple):
    """What -s asks for. kind: AVRO, JSON or PROTOBUF. file: of the schema, where one is given."""

    kind: str
    file: str | None


def parse_wanted(items: Iterable[str]) -> dict[str, Wanted]:
    """Those of "key" and "value" that have a schema. Raises UsageError."""
    wanted: dict[str, Wanted] = {}
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
        for chosen in (part,) if part else PARTS:
            wanted[chosen] = Wanted(kind, file or None)
    return wanted


def make_codec(schema: Schema) -> Codec:
    """Raises CliError."""
    try:
        from barnabas.schemas.codecs import schemas
        from barnabas.schemas.errors import InvalidSchema
        from barnabas.schemas.formats.base import Dependency
        from barnabas.schemas.model import Reference

        dependencies = [
            Dependency(name, Reference(name, name, 1), text) for name, text in schema.dependencies
        ]
        return schemas.make_codec(schema.kind, schema.text, dependencies, schema.contract)
    except ImportError as error:
        raise CliError(f"records with schemas need {error.name}: {INSTALL}") from None
    except InvalidSchema as error:
        raise CliError(f"schema {schema.id} is no {schema.kind} that can be used: {error.message}") from None


def json_of(text: str) -> Any:
    """The value of a line of JSON. Raises Mismatch."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Mismatch(f"{text[:40]!r} is not JSON: {error}") from None


# --- a topic's records --------------------------------------------------------------------------------


@dataclass(slots=True)
class Codecs:
    """The schemas of one run. The registry is asked only when a schema is needed."""

    wanted: dict[str, Wanted]
    registry: RegistryClient
    _by_name: dict[int | str, Codec] = field(default_factory=dict)
    _writing: dict[str, tuple[int, Codec]] = field(default_factory=dict)
    _topic: str = ""

    def prepare(self, topic: str) -> None:
        """Look up the schemas with which records of a topic are written. Raises CliError."""
        self._topic = topic
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
        return self.registry.by_id(self.registry.register(subject, wanted.kind, read_text(wanted.file)))

    def _answer(self, ask: Callable[[], Schema]) -> Schema:
        try:
            return ask()
        except BadAddress as error:
            raise UsageError(f"-r {error}") from None
        except RegistryError as error:
            raise CliError(f"{error} (-r {self.registry.url})" if error.code else str(error)) from None

    def encoded(self, part: str, text: bytes | None) -> bytes | None:
        """A key's or value's bytes; null stays null. Raises CliError; Refused if a rule names a topic for it."""
        writing = self._writing.get(part)
        if writing is None or text is None:
            return text
        try:
            return frame(writing[0], writing[1].encode(json_of(text.decode())))
        except UnicodeDecodeError:
            raise CliError(f"the {part} is not JSON: it is not UTF-8 text") from None
        except Mismatch as error:
            from barnabas.schemas.codecs.rules import RuleFailed

            if not isinstance(error, RuleFailed) or error.dead_letters is None:
                raise CliError(f"{part}: {error}") from None
            headers = error.headers(f"{self._topic}-{part}", self._topic)
            raise Refused(f"{part}: {error}", error.dead_letters, headers) from None

    def decoded(self, message: Any) -> Decoded:
        """A record with JSON in place of its bytes. Raises CliError."""
        decoded = Decoded(message, message.key(), message.value())
        if "key" in self.wanted:
            decoded.key_bytes, decoded.json["key"] = self._decoded("key", message, decoded.key_bytes)
        if "value" in self.wanted:
            decoded.value_bytes, decoded.json["payload"] = self._decoded(
                "value", message, decoded.value_bytes
            )
        return decoded

    def _decoded(self, part: str, message: Any, data: bytes | None) -> tuple[bytes | None, Any]:
        if data is None:
            return None, None
        try:
            name, payload = named_schema(data, message.headers() or (), part)
            value = self._codec(name, self.wanted[part].kind).decode(payload)
        except (NotFramed, Mismatch, CliError) as error:
            where = f"{message.topic()} [{message.partition()}] offset {message.offset()}"
            raise CliError(f"{where}: {part}: {error}") from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "surrogatepass"
        ), value

    def _codec(self, name: int | str, kind: str) -> Codec:
        codec = self._by_name.get(name)
        if codec is None:
            registry = self.registry
            schema = self._answer(
                lambda: registry.by_id(name) if isinstance(name, int) else registry.by_guid(name)
            )
            if schema.kind != kind:
                raise CliError(f"schema {name} is of type {schema.kind}, not {kind}")
            codec = self._by_name[name] = make_codec(schema)
        return codec

    def writer(self, write: Writer) -> Writer:
        """A writer of records that are decoded first. It raises Undecodable."""

        def decode_and_write(messages: list[Any]) -> bytes:
            decoded: list[Any] = []
            try:
                for message in messages:
                    decoded.append(self.decoded(message))
            except CliError as error:
                raise Undecodable(str(error), write(decoded) if decoded else b"") from None
            return write(decoded)

        return decode_and_write


def codecs_of(items: Iterable[str], url: str) -> Codecs | None:
    """The schemas that -s and -r ask for; None without -s. Raises UsageError."""
    wanted = parse_wanted(items)
    return Codecs(wanted, RegistryClient(url)) if wanted else None


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
