"""Cast and TimestampConverter."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from barnabas.connect import schemas
from barnabas.connect.converters.simple import java_text
from barnabas.connect.errors import DataError, OptionError
from barnabas.connect.options import ConnectorOption, Importance, Type
from barnabas.connect.records import Record
from barnabas.connect.schemas import Field, Schema
from barnabas.connect.transforms.base import Transform
from barnabas.connect.transforms.javatime import JavaFormat
from barnabas.connect.transforms.shapes import Changed, require_map, require_struct, with_fields

CASTS: Final = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
BOTH: Final = ("key", "value")


def cast(value: Any, kind: str) -> Any:
    """A value as another type, as Java's casts do it. Raises DataError."""
    if value is None:
        return None
    if isinstance(value, dt.datetime):
        value = value.isoformat() if kind == "string" else schemas.timestamp_ms(value)
    elif isinstance(value, dt.date):
        value = value.isoformat() if kind == "string" else (value - schemas.EPOCH_DATE).days
    try:
        if kind == "string":
            return base64.b64encode(value).decode() if isinstance(value, bytes) else java_text(value)
        if kind == "boolean":
            if isinstance(value, str):
                return value.strip().lower() == "true"
            return bool(value)
        if kind in schemas.FLOATS:
            return float(value)
        number = int(Decimal(value.strip())) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, ArithmeticError):
        raise DataError(f"Value ({value}) was out of range for requested data type or is no {kind}") from None
    lo, hi = schemas.INTEGERS[kind]
    if isinstance(value, str) and not lo <= number <= hi:
        raise DataError(f"Value ({value}) was out of range for requested data type")
    bits = hi.bit_length() + 1
    return ((number - lo) % (1 << bits)) + lo


class Cast(Transform):
    """Fields, or the whole, as other types."""

    doc = "Cast fields or the entire key or value to a specific type."
    parts = BOTH
    options = (
        ConnectorOption(
            "spec",
            Type.LIST,
            importance=Importance.HIGH,
            doc="Fields and types: field1:type,field2:type, or one type for the whole.",
        ),
        ConnectorOption(
            "replace.null.with.default", Type.BOOLEAN, True, doc="Whether null becomes the default."
        ),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._kinds: dict[str, str] = {}
        self._whole = ""
        for text in self.config["spec"]:
            name, colon, kind = text.rpartition(":")
            if kind.lower() not in CASTS:
                raise OptionError(f"Invalid type in casting spec: {text}", "spec")
            if colon:
                self._kinds[name.strip()] = kind.lower()
            else:
                self._whole = kind.lower()
        if not self.config["spec"] or (self._whole and self._kinds):
            raise OptionError("spec must be field:type,... or one type", "spec")
        self._schema = Changed(self._changed)

    def _changed(self, schema: Schema) -> Schema:
        if self._whole:
            return Schema(self._whole, schema.optional)
        return with_fields(schema, [Field(f.name, self._cast_schema(f)) for f in schema.fields])

    def _cast_schema(self, field: Field) -> Schema:
        kind = self._kinds.get(field.name)
        if kind is None:
            return field.schema
        target = Schema(kind, field.schema.optional, doc=field.schema.doc)
        return (
            replace(target, default=cast(field.schema.default, kind)) if field.schema.has_default else target
        )

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = self.read(record)
        if value is None:
            return record
        if self._whole:
            return self.put(
                record, None if schema is None else self._schema(schema), cast(value, self._whole)
            )
        fields = require_map(value, "cast types") if schema is None else require_struct(value, "cast types")
        converted = {
            name: cast(inner, self._kinds[name]) if name in self._kinds else inner
            for name, inner in fields.items()
        }
        return self.put(record, None if schema is None else self._schema(schema), converted)


UNITS: Final = {"seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1, "nanoseconds": 0}
TARGETS: Final = ("string", "unix", "Date", "Time", "Timestamp")


class TimestampConverter(Transform):
    """Times between texts, numbers and Connect's types."""

    doc = "Convert timestamps between different formats such as Unix epoch, strings, and Connect Date/Timestamp types."
    parts = BOTH
    options = (
        ConnectorOption(
            "field",
            default="",
            importance=Importance.HIGH,
            doc="The field with the timestamp; the whole if it is empty.",
        ),
        ConnectorOption(
            "target.type",
            importance=Importance.HIGH,
            doc="string, unix, Date, Time, or Timestamp",
            choices=TARGETS,
        ),
        ConnectorOption("format", default="", doc="A pattern of Java's SimpleDateFormat, for texts."),
        ConnectorOption(
            "unix.precision",
            default="milliseconds",
            importance=Importance.LOW,
            doc="The unit of numbers.",
            choices=tuple(UNITS),
        ),
        ConnectorOption(
            "replace.null.with.default", Type.BOOLEAN, True, doc="Whether null becomes the default."
        ),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._target = next(t for t in TARGETS if t.lower() == self.config["target.type"].lower())
        text = self.config["format"]
        if self._target == "string" and not text:
            raise OptionError(
                "TimestampConverter requires format option to be specified when using string timestamps",
                "format",
            )
        self._format = JavaFormat(text) if text else None
        self._unit = self.config["unix.precision"].lower()
        self._schema = Changed(self._changed)

    def _target_schema(self, schema: Schema) -> Schema:
        target = {
            "string": schemas.STRING,
            "unix": schemas.INT64,
            "Date": schemas.DATE_SCHEMA,
            "Time": schemas.TIME_SCHEMA,
            "Timestamp": schemas.TIMESTAMP_SCHEMA,
        }[self._target]
        return target.as_optional() if schema.optional else target

    def _changed(self, schema: Schema) -> Schema:
        name = self.config["field"]
        if not name:
            return self._target_schema(schema)
        rows = [
            Field(f.name, self._target_schema(f.schema) if f.name == name else f.schema)
            for f in schema.fields
        ]
        return with_fields(schema, rows)

    def _time(self, value: Any) -> dt.datetime:
        if isinstance(value, dt.datetime):
            return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        if isinstance(value, dt.date):
            return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
        if isinstance(value, dt.time):
            return dt.datetime.combine(schemas.EPOCH_DATE, value, dt.UTC)
        if isinstance(value, str):
            if self._format is None:
                raise DataError(
                    "TimestampConverter requires format option to be specified when using string timestamps"
                )
            return self._format.parse(value)
        if isinstance(value, int) and not isinstance(value, bool):
            factor = UNITS[self._unit]
            us = value * factor if factor else value // 1000
            return schemas.EPOCH + dt.timedelta(microseconds=us)
        raise DataError(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")

    def _converted(self, value: Any) -> Any:
        if value is None:
            return None
        time = self._time(value)
        if self._target == "string":
            assert self._format is not None
            return self._format.format(time)
        if self._target == "unix":
            us = (time - schemas.EPOCH) // dt.timedelta(microseconds=1)
            factor = UNITS[self._unit]
            return us // factor if factor else us * 1000
        convert: Callable[[], Any] = {"Date": time.date, "Time": time.time, "Timestamp": lambda: time}[
            self._target
        ]
        return convert()

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = self.read(record)
        name = self.config["field"]
        if not name:
            return self.put(record, None if schema is None else self._schema(schema), self._converted(value))
        if value is None:
            return record
        fields = require_map(value, "converting timestamp formats")
        converted = {**fields, name: self._converted(fields.get(name))} if name in fields else fields
        return self.put(record, None if schema is None else self._schema(schema), converted)
