"""Transforms of topics and headers, filters, and predicates."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from barnabas.client.patterns import PatternError, java_pattern
from barnabas.connect import schemas
from barnabas.connect.converters.headers import SimpleHeaderConverter
from barnabas.connect.errors import DataError, OptionError
from barnabas.connect.options import ConnectorOption, Importance, Type
from barnabas.connect.records import Header, Record
from barnabas.connect.transforms.base import Predicate, Transform
from barnabas.connect.transforms.javatime import JavaFormat
from barnabas.connect.transforms.shapes import Changed, require_map, with_fields


def pattern_of(text: str, option: str) -> Any:
    """A regular expression of Java's. Raises OptionError."""
    try:
        return java_pattern(text)
    except PatternError as error:
        raise OptionError(
            f"Invalid value {text} for configuration {option}: Invalid regex: {error}", option
        ) from None


class RegexRouter(Transform):
    """Another topic, by a regular expression."""

    doc = "Update the record topic using the configured regular expression and replacement string."
    options = (
        ConnectorOption("regex", importance=Importance.HIGH, doc="Regular expression to use for matching."),
        ConnectorOption(
            "replacement", importance=Importance.HIGH, doc="Replacement string, with $1 for groups."
        ),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._pattern = pattern_of(self.config["regex"], "regex")
        self._replacement = re.sub(
            r"\$\{?(\w+)\}?", r"\\g<\1>", self.config["replacement"].replace("\\", "\\\\")
        )

    def apply(self, record: Record) -> Record:
        """See Transform."""
        match = self._pattern.fullmatch(record.topic or "")
        if match is None:
            return record
        return replace(record, topic=match.expand(self._replacement))


class TimestampRouter(Transform):
    """Another topic, with the time of the record."""

    doc = (
        "Update the record's topic field as a function of the original topic value and the record timestamp."
    )
    options = (
        ConnectorOption(
            "topic.format",
            default="${topic}-${timestamp}",
            importance=Importance.HIGH,
            doc="Format string with ${topic} and ${timestamp}.",
        ),
        ConnectorOption(
            "timestamp.format",
            default="yyyyMMdd",
            importance=Importance.HIGH,
            doc="Format of the timestamp, for SimpleDateFormat.",
        ),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._format = JavaFormat(self.config["timestamp.format"])

    def apply(self, record: Record) -> Record:
        """See Transform."""
        if record.timestamp_ms is None:
            raise DataError(f"Timestamp missing on record of {record.topic}")
        time = self._format.format(schemas.EPOCH + dt.timedelta(milliseconds=record.timestamp_ms))
        text = (
            self.config["topic.format"].replace("${topic}", record.topic or "").replace("${timestamp}", time)
        )
        return replace(record, topic=text)


class DropHeaders(Transform):
    """Leaves headers out."""

    doc = "Removes one or more headers from each record."
    options = (
        ConnectorOption("headers", Type.LIST, importance=Importance.HIGH, doc="Names of headers to remove."),
    )

    def apply(self, record: Record) -> Record:
        """See Transform."""
        names = self.config["headers"]
        return replace(record, headers=tuple(header for header in record.headers if header.key not in names))


class InsertHeader(Transform):
    """Adds a header."""

    doc = "Add a header to each record."
    options = (
        ConnectorOption("header", importance=Importance.HIGH, doc="The name of the header."),
        ConnectorOption(
            "value.literal", importance=Importance.HIGH, doc="The value, whose type is found out."
        ),
    )

    def apply(self, record: Record) -> Record:
        """See Transform."""
        text: str = self.config["value.literal"]
        header = SimpleHeaderConverter().decode("", self.config["header"], text.encode())
        return replace(record, headers=(*record.headers, header))


class HeaderFrom(Transform):
    """Copies or moves fields to headers."""

    doc = "Moves or copies fields in the key or value of a record into that record's headers."
    parts = ("key", "value")
    options = (
        ConnectorOption("fields", Type.LIST, importance=Importance.HIGH, doc="Names of fields."),
        ConnectorOption(
            "headers", Type.LIST, importance=Importance.HIGH, doc="Names of headers, in the same order."
        ),
        ConnectorOption(
            "operation", importance=Importance.HIGH, doc="move or copy", choices=("move", "copy")
        ),
        ConnectorOption(
            "replace.null.with.default", Type.BOOLEAN, True, doc="Whether null becomes the default."
        ),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        fields, headers = self.config["fields"], self.config["headers"]
        if not fields or len(fields) != len(headers):
            raise OptionError(
                "fields config must have the same number of elements as headers config.", "fields"
            )
        self._pairs = list(zip(fields, headers, strict=True))
        self._moves = self.config["operation"].lower() == "move"
        self._schema = Changed(lambda s: with_fields(s, [f for f in s.fields if f.name not in fields]))

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = self.read(record)
        fields = require_map(value, "header from")
        more = []
        for field, name in self._pairs:
            if schema is not None and field not in schema.by_name:
                raise DataError(f"Unknown field: {field}")
            inner = fields.get(field)
            kind = schemas.inferred(inner) if schema is None else schema.by_name[field].schema
            more.append(Header(name, inner, kind))
        with_headers = replace(record, headers=(*record.headers, *more))
        if not self._moves:
            return with_headers
        kept = {name: inner for name, inner in fields.items() if name not in self.config["fields"]}
        return self.put(with_headers, None if schema is None else self._schema(schema), kept)


# --- predicates -------------------------------------------------------------------------------------------


class HasHeaderKey(Predicate):
    """A header of this name is there."""

    doc = "A predicate which is true for records with at least one header with the configured name."
    options = (ConnectorOption("name", doc="The header name."),)

    def holds(self, record: Record) -> bool:
        """See Predicate."""
        return any(header.key == self.config["name"] for header in record.headers)


class RecordIsTombstone(Predicate):
    """The value is null."""

    doc = "A predicate which is true for records which are tombstones (i.e. have null value)."

    def holds(self, record: Record) -> bool:
        """See Predicate."""
        return record.value is None


class TopicNameMatches(Predicate):
    """The topic's name matches."""

    doc = "A predicate which is true for records with a topic name that matches the configured regular expression."
    options = (
        ConnectorOption("pattern", doc="A Java regular expression for matching against the topic's name."),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Predicate."""
        super().configure(config)
        self._pattern = pattern_of(self.config["pattern"], "pattern")

    def holds(self, record: Record) -> bool:
        """See Predicate."""
        return self._pattern.fullmatch(record.topic or "") is not None
