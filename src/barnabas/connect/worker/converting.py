"""The converters and transforms of one task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.connect.converters.base import Converter, Headers
from barnabas.connect.converters.finding import make_converter, make_header_converter, prefixed
from barnabas.connect.converters.headers import HeaderConverter
from barnabas.connect.errors import ConnectError, OptionError
from barnabas.connect.records import Record, SinkRecord, SourceRecord
from barnabas.connect.schemas import Schema
from barnabas.connect.transforms.chain import Step, make_chain
from barnabas.connect.worker import failing
from barnabas.connect.worker.failing import Failing
from barnabas.connect.worker.settings import WorkerOptions

Encode = Callable[[Schema | None, Any, Headers], bytes | None]
Decode = Callable[[bytes | None, Headers], tuple[Schema | None, Any]]


@dataclass(slots=True)
class Written:
    """A record as bytes, see SourceRecord. partition, timestamp_ms: -1 if they are not given."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = -1
    timestamp_ms: int = -1


def chosen_converter(options: WorkerOptions, config: Mapping[str, Any], part: str) -> Converter:
    """The converter of keys or values (part: key.converter): the connector's own with its options, or the worker's.
    Raises OptionError."""
    name = config.get(part)
    texts = config if name else options.worker_texts
    own = prefixed(texts, f"{part}.")
    if options.registry is not None:
        own.setdefault("schema.registry.url", options.registry)
    try:
        return make_converter(str(name or options[part]), own, part == "key.converter")
    except OptionError as error:
        raise OptionError(str(error), part) from None


def chosen_headers(options: WorkerOptions, config: Mapping[str, Any]) -> HeaderConverter:
    """The converter of headers. Raises OptionError."""
    name = config.get("header.converter")
    texts = config if name else options.worker_texts
    return make_header_converter(
        str(name or options["header.converter"]), prefixed(texts, "header.converter.")
    )


class Converting:
    """Transforms and converts records; those that fail go to `failing`."""

    def __init__(self, options: WorkerOptions, config: Mapping[str, Any], rules: Failing) -> None:
        self._key = chosen_converter(options, config, "key.converter")
        self._value = chosen_converter(options, config, "value.converter")
        self._headers = chosen_headers(options, config)
        self._steps: list[Step] = make_chain(config)
        self._rules = rules
        self._encoders: dict[str, tuple[Encode, Encode]] = {}
        self._decoders: dict[str, tuple[Decode, Decode]] = {}

    def transformed(self, record: Record, subject: Any = None) -> Record | None:
        """The record after all transforms; None if one has left it out, or has failed and that is tolerated.

        subject: what a dead letter is made of, if not of the record. Raises ConnectError."""
        transformed: Record | None = record
        for step in self._steps:
            try:
                before = transformed
                assert before is not None
                transformed = self._rules.tried(lambda step=step, value=before: step(value))  # type: ignore[misc]
            except Exception as error:
                self._rules.note(subject or record, failing.STAGE_TRANSFORM, step.class_name, error)
                return None
            if transformed is None:
                return None
        return transformed

    def write(self, record: SourceRecord) -> Written | None:
        """A source's record, transformed, as bytes; None if it was left out. Raises ConnectError."""
        transformed = self.transformed(record) if self._steps else record
        if transformed is None:
            return None
        assert isinstance(transformed, SourceRecord)
        stage = failing.STAGE_HEADER
        try:
            topic = transformed.topic
            if not topic:
                raise ConnectError("a record of the connector has no topic")
            encoders = self._encoders.get(topic)
            if encoders is None:
                encoders = self._encoders[topic] = (self._key.encoder(topic), self._value.encoder(topic))
            headers = [(header.key, self._headers.encode(topic, header)) for header in transformed.headers]
            stage = failing.STAGE_KEY
            key = self._tried(encoders[0], transformed.key_schema, transformed.key, headers)
            stage = failing.STAGE_VALUE
            value = self._tried(encoders[1], transformed.value_schema, transformed.value, headers)
        except Exception as error:
            self._rules.note(record, stage, type(self._value).__name__, error)
            return None
        partition = -1 if transformed.partition is None else transformed.partition
        timestamp_ms = -1 if transformed.timestamp_ms is None else transformed.timestamp_ms
        return Written(topic, key, value, headers, partition, timestamp_ms)

    def _tried(self, encode: Encode, schema: Schema | None, value: Any, headers: Headers) -> bytes | None:
        if not self._rules.retry_ms:
            return encode(schema, value, headers)
        return self._rules.tried(lambda: encode(schema, value, headers))

    def read(self, message: Any) -> SinkRecord | None:
        """A message of a topic, converted and transformed; None if it was left out. Raises ConnectError."""
        topic: str = message.topic()
        decoders = self._decoders.get(topic)
        if decoders is None:
            decoders = self._decoders[topic] = (self._key.decoder(topic), self._value.decoder(topic))
        raw_headers: Headers = list(message.headers() or [])
        stage = failing.STAGE_KEY
        try:
            key_schema, key = self._rules.tried(lambda: decoders[0](message.key(), raw_headers))
            stage = failing.STAGE_VALUE
            value_schema, value = self._rules.tried(lambda: decoders[1](message.value(), raw_headers))
            stage = failing.STAGE_HEADER
            headers = tuple(self._headers.decode(topic, name, data) for name, data in raw_headers)
        except Exception as error:
            self._rules.note(message, stage, type(self._value).__name__, error)
            return None
        record = SinkRecord(
            topic,
            value,
            key,
            value_schema,
            key_schema,
            headers,
            message.timestamp()[1] if message.timestamp()[0] else None,
            message.partition(),
            message.offset(),
            topic,
            message.partition(),
            message.key(),
            message.value(),
        )
        if not self._steps:
            return record
        transformed = self.transformed(record, message)
        assert transformed is None or isinstance(transformed, SinkRecord)
        return transformed
