"""Confluent's converters, with the schema registry: Avro, JSON Schema, Protobuf. The bytes are Confluent's: zero, the
schema's id, the payload. Source: Confluent's AvroConverter, JsonSchemaConverter, ProtobufConverter."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from barnabas.client.registry import NoRegistry, RegistryClient, RegistryError
from barnabas.connect.converters.avro_schemas import FromAvro, ToAvro, from_avro, to_avro
from barnabas.connect.converters.base import Converter, Headers
from barnabas.connect.converters.json import to_json
from barnabas.connect.converters.json_schemas import schema_of_json_schema, to_json_schema
from barnabas.connect.errors import DataError, OptionError, RetriableError
from barnabas.connect.options import ConnectorOption, Importance, Type
from barnabas.connect.schemas import Schema
from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.codecs.schemas import make_codec
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency
from barnabas.schemas.framing import NotFramed, frame, named_schema
from barnabas.schemas.framing import Schema as Registered
from barnabas.schemas.model import Reference

STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
SCHEMAS_MAX: Final = 1_000
OPTIONS: Final[tuple[ConnectorOption, ...]] = (
    ConnectorOption(
        "schema.registry.url",
        importance=Importance.HIGH,
        doc="The registry; of several, separated by commas, the first.",
    ),
    ConnectorOption("basic.auth.credentials.source", default="URL", doc="URL or USER_INFO"),
    ConnectorOption("basic.auth.user.info", Type.PASSWORD, None, doc="USER:PASSWORD, with USER_INFO"),
    ConnectorOption("auto.register.schemas", Type.BOOLEAN, True, doc="Whether new schemas are registered."),
    ConnectorOption(
        "use.latest.version", Type.BOOLEAN, False, doc="Whether the newest version of the subject is written."
    ),
    ConnectorOption(
        "key.subject.name.strategy",
        default=STRATEGIES[0],
        doc="TopicNameStrategy, RecordNameStrategy or TopicRecordNameStrategy",
    ),
    ConnectorOption(
        "value.subject.name.strategy",
        default=STRATEGIES[0],
        doc="TopicNameStrategy, RecordNameStrategy or TopicRecordNameStrategy",
    ),
)


class RegistryConverter(Converter):
    """What the three share. language: the registry's name of the schemas."""

    options = OPTIONS
    language: ClassVar[str]

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """See Converter."""
        super().configure(config, is_key)
        url = self.config["schema.registry.url"].split(",")[0].strip()
        login = self.config["basic.auth.user.info"]
        if login and self.config["basic.auth.credentials.source"].upper() == "USER_INFO" and "@" not in url:
            scheme, _, rest = url.partition("://")
            url = f"{scheme}://{login}@{rest}"
        self._registry = RegistryClient(url)
        self._part = "key" if is_key else "value"
        self._strategy = self.config[f"{self._part}.subject.name.strategy"].rpartition(".")[2]
        if self._strategy not in STRATEGIES:
            raise OptionError(
                f"{self._strategy} must be one of {', '.join(STRATEGIES)}",
                f"{self._part}.subject.name.strategy",
            )
        self._ids: dict[tuple[str, Schema | None], tuple[int, Any]] = {}
        self._readers: dict[int | str, Any] = {}

    def _subject(self, topic: str, name: str | None) -> str:
        if self._strategy == STRATEGIES[0]:
            return f"{topic}-{self._part}"
        return str(name) if self._strategy == STRATEGIES[1] else f"{topic}-{name}"

    def _asked(self, work: Callable[[], Any]) -> Any:
        """Raises RetriableError if the registry does not answer, DataError if it refuses."""
        try:
            return work()
        except NoRegistry as error:
            raise RetriableError(str(error)) from error
        except RegistryError as error:
            raise DataError(f"the schema registry refuses: {error}") from error

    def _registered(self, subject: str, text: str) -> tuple[int, Registered | None]:
        """The id to write with; with use.latest.version, the schema as well."""
        if self.config["use.latest.version"] or not self.config["auto.register.schemas"]:
            newest = self._asked(lambda: self._registry.newest(subject))
            return newest.id, newest
        return int(self._asked(lambda: self._registry.register(subject, self.language, text))), None

    def _read(self, data: bytes, headers: Headers) -> tuple[Any, bytes]:
        try:
            name, payload = named_schema(data, headers, self._part)
        except NotFramed as error:
            raise DataError(f"{error}: is it written by another converter?") from None
        reader = self._readers.get(name)
        if reader is None:
            by = self._registry.by_id if isinstance(name, int) else self._registry.by_guid
            registered: Registered = self._asked(lambda: by(name))  # type: ignore[arg-type]
            if registered.kind != self.language:
                raise DataError(
                    f"schema {registered.called} is of type {registered.kind}, not {self.language}"
                )
            reader = self._readers[name] = self._reader(registered)
        return reader, payload

    def _reader(self, registered: Registered) -> Any:
        raise NotImplementedError

    def _codec(self, registered: Registered) -> Any:
        dependencies = [
            Dependency(name, Reference(name, name, 1), text) for name, text in registered.dependencies
        ]
        try:
            return make_codec(registered.kind, registered.text, dependencies, registered.contract)
        except InvalidSchema as error:
            raise DataError(f"schema {registered.called}: {error}") from error


class AvroConverter(RegistryConverter):
    """Avro."""

    doc = "Avro with Confluent's schema registry."
    language = "AVRO"
    options = (
        *OPTIONS,
        ConnectorOption("enhanced.avro.schema.support", Type.BOOLEAN, False, Importance.LOW, "Accepted."),
        ConnectorOption("connect.meta.data", Type.BOOLEAN, True, Importance.LOW, "Accepted."),
    )

    def encoder(self, topic: str) -> Callable[[Schema | None, Any, Headers], bytes | None]:
        """See Converter."""
        import fastavro

        def encode(schema: Schema | None, value: Any, headers: Headers) -> bytes | None:
            if value is None:
                return None
            schema_id, parsed, known = self._writer(topic, schema, value)
            out = io.BytesIO()
            try:
                fastavro.schemaless_writer(out, parsed, to_avro(known, value))
            except (ValueError, TypeError, OverflowError, KeyError, AttributeError) as error:
                raise DataError(f"the value does not suit its Avro schema: {error}") from error
            return frame(schema_id, out.getvalue())

        return encode

    def _writer(self, topic: str, schema: Schema | None, value: Any) -> tuple[int, Any, Schema]:
        import fastavro

        from barnabas.connect.converters.guessing import guessed

        known = guessed(value) if schema is None else schema
        writer_of_schema = self._ids.get((topic, known))
        if writer_of_schema is None:
            about = ToAvro().schema(known)
            name = about.get("connect.name") or about.get("name") if isinstance(about, dict) else None
            schema_id, newest = self._registered(self._subject(topic, name), json.dumps(about))
            parsed = fastavro.parse_schema(
                plain_logical(about if newest is None else json.loads(newest.text))
            )
            if len(self._ids) >= SCHEMAS_MAX:
                self._ids.clear()
            writer_of_schema = self._ids[topic, known] = (schema_id, parsed)
        return *writer_of_schema, known

    def decoder(self, topic: str) -> Callable[[bytes | None, Headers], tuple[Schema | None, Any]]:
        """See Converter."""
        import fastavro

        def decode(data: bytes | None, headers: Headers) -> tuple[Schema | None, Any]:
            if not data:
                return None, None
            (schema, parsed), payload = self._read(data, headers)
            try:
                value = fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)
            except Exception as error:  # fastavro may raise anything
                raise DataError(f"the bytes do not suit their Avro schema: {error}") from error
            return schema, from_avro(schema, value)

        return decode

    def _reader(self, registered: Registered) -> tuple[Schema, Any]:
        import fastavro

        named: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for _, text in registered.dependencies:
            about = json.loads(text)
            fastavro.parse_schema(plain_logical(about), named_schemas=named)
            if isinstance(about, dict) and "name" in about:
                full = f"{about['namespace']}.{about['name']}" if about.get("namespace") else about["name"]
                others[full] = about
        about = json.loads(registered.text)
        parsed = fastavro.parse_schema(plain_logical(about), named_schemas=named)
        return FromAvro(others).schema(about), parsed


def plain_logical(about: Any) -> Any:
    """Without logical types, which are converted here."""
    if isinstance(about, list):
        return [plain_logical(one) for one in about]
    if isinstance(about, dict):
        kept = {
            name: plain_logical(one) for name, one in about.items() if name not in ("logicalType", "default")
        }
        return kept
    return about


class JsonSchemaConverter(RegistryConverter):
    """JSON with a JSON Schema in the registry."""

    doc = "JSON Schema with Confluent's schema registry."
    language = "JSON"
    options = (
        *OPTIONS,
        ConnectorOption(
            "json.fail.invalid.schema",
            Type.BOOLEAN,
            False,
            Importance.LOW,
            "Accepted: values are always checked.",
        ),
        ConnectorOption(
            "decimal.format", default="BASE64", doc="BASE64 or NUMERIC", choices=("BASE64", "NUMERIC")
        ),
    )

    def encoder(self, topic: str) -> Callable[[Schema | None, Any, Headers], bytes | None]:
        """See Converter."""
        from barnabas.connect.converters.guessing import guessed

        numeric = self.config["decimal.format"].upper() == "NUMERIC"

        def encode(schema: Schema | None, value: Any, headers: Headers) -> bytes | None:
            if value is None:
                return None
            known = guessed(value) if schema is None else schema
            cached = self._ids.get((topic, known))
            if cached is None:
                text = json.dumps(to_json_schema(known))
                cached = self._ids[topic, known] = self._registered(self._subject(topic, known.name), text)
            body = json.dumps(to_json(known, value, numeric, True), separators=(",", ":"), ensure_ascii=False)
            return frame(cached[0], body.encode("utf-8", "surrogatepass"))

        return encode

    def decoder(self, topic: str) -> Callable[[bytes | None, Headers], tuple[Schema | None, Any]]:
        """See Converter."""

        def decode(data: bytes | None, headers: Headers) -> tuple[Schema | None, Any]:
            if not data:
                return None, None
            (schema, codec), payload = self._read(data, headers)
            try:
                value = codec.decode(payload)
            except Mismatch as error:
                raise DataError(str(error)) from error
            from barnabas.connect.converters.json import from_json

            return schema, value if schema is None else from_json(schema, value, True)

        return decode

    def _reader(self, registered: Registered) -> tuple[Schema | None, Any]:
        return schema_of_json_schema(json.loads(registered.text)), self._codec(registered)


class ProtobufConverter(RegistryConverter):
    """Protobuf: the message that the subject's newest version has first is written; read values have no schema."""

    doc = "Protobuf with Confluent's schema registry."
    language = "PROTOBUF"

    def encoder(self, topic: str) -> Callable[[Schema | None, Any, Headers], bytes | None]:
        """See Converter."""

        def encode(schema: Schema | None, value: Any, headers: Headers) -> bytes | None:
            if value is None:
                return None
            cached = self._ids.get((topic, None))
            if cached is None:
                subject = self._subject(topic, None if schema is None else schema.name)
                newest = self._asked(lambda: self._registry.newest(subject))
                cached = self._ids[topic, None] = (newest.id, self._codec(newest))
            plain = to_json(schema, value, False, True)
            try:
                return frame(cached[0], cached[1].encode(_without_nulls(plain)))
            except Mismatch as error:
                raise DataError(str(error)) from error

        return encode

    def decoder(self, topic: str) -> Callable[[bytes | None, Headers], tuple[Schema | None, Any]]:
        """See Converter."""

        def decode(data: bytes | None, headers: Headers) -> tuple[Schema | None, Any]:
            if not data:
                return None, None
            codec, payload = self._read(data, headers)
            try:
                return None, codec.decode(payload)
            except Mismatch as error:
                raise DataError(str(error)) from error

        return decode

    def _reader(self, registered: Registered) -> Any:
        return self._codec(registered)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
