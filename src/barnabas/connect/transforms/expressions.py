"""Transforms by expressions, which have the language of pipelines as far as it is read without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.connect import schemas
from barnabas.connect.errors import DataError, OptionError
from barnabas.connect.options import ConnectorOption, Importance
from barnabas.connect.records import Record
from barnabas.connect.schemas import Field, Schema
from barnabas.connect.transforms.base import Transform
from barnabas.connect.transforms.shapes import require_map, with_fields
from barnabas.pipelines.plan.formulas import formula_of
from barnabas.pipelines.plan.interpret.expressions import Failed, NotInterpreted, evaluated

PLACE: Final = "_"


def checked(text: str, option: str) -> str:
    """An expression that can be evaluated. Raises OptionError."""
    if formula_of(text) is None:
        raise OptionError(
            f"{option} {text!r} cannot be evaluated here; it may have fields, texts, numbers, + - * / %, comparisons, "
            "and, or, not, in, between, like, is null, case, and functions like upper, trim, concat, coalesce",
            option,
        )
    return text


def value_of(text: str, record: Record, value: Mapping[str, Any]) -> Any:
    """An expression's value over the fields of a record; `_topic`, `_key` and `_timestamp` are fields as well. Raises
    DataError."""
    fields = {
        f"{PLACE}topic": record.topic,
        f"{PLACE}key": record.key,
        f"{PLACE}timestamp": record.timestamp_ms,
        **value,
    }
    try:
        return evaluated(text, fields)
    except (Failed, NotInterpreted, TypeError, ArithmeticError) as error:
        raise DataError(f"{text!r}: {error}") from error


class Filter(Transform):
    """Keeps the records of which a condition is true; without one, it leaves every record out (for a predicate)."""

    doc = "Keeps records of which a condition is true; without a condition drops all, as Kafka's."
    options = (
        ConnectorOption(
            "condition",
            default=None,
            importance=Importance.HIGH,
            doc="An expression, for example amount > 10.",
        ),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._condition = self.config["condition"]
        if self._condition is not None:
            checked(self._condition, "condition")

    def apply(self, record: Record) -> Record | None:
        """See Transform."""
        if self._condition is None:
            return None
        value = record.value if isinstance(record.value, dict) else {"value": record.value}
        return record if value_of(self._condition, record, value) is True else None


class Compute(Transform):
    """Fields computed by expressions."""

    doc = "Sets fields of the value by expressions."
    options = (
        ConnectorOption(
            "fields", importance=Importance.HIGH, doc="NAME = EXPRESSION, ...; later ones see earlier ones."
        ),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._computed: list[tuple[str, str]] = []
        for text in split_top(self.config["fields"]):
            name, equals, expression = text.partition("=")
            if not equals or not name.strip().isidentifier():
                raise OptionError(
                    f"fields has {text.strip()!r}, but must be NAME = EXPRESSION, ...", "fields"
                )
            self._computed.append((name.strip(), checked(expression.strip(), "fields")))

    def apply(self, record: Record) -> Record:
        """See Transform."""
        if record.value is None:
            return record
        value = dict(require_map(record.value, "computing fields"))
        for name, text in self._computed:
            value[name] = value_of(text, record, value)
        schema = record.value_schema
        return self.put(record, None if schema is None else self._schema(schema, value), value)

    def _schema(self, schema: Schema, value: Mapping[str, Any]) -> Schema:
        names = [name for name, _ in self._computed]
        kept = [field for field in schema.fields if field.name not in names]
        for name in dict.fromkeys(names):
            schema_of_value = schemas.inferred(value[name])
            before = schema.by_name.get(name)
            kind = schema_of_value or (before.schema if before is not None else schemas.STRING)
            kept.append(Field(name, kind.as_optional()))
        return with_fields(schema, kept)


def split_top(text: str) -> list[str]:
    """The parts between commas that are outside of quotes and parentheses."""
    parts, current, depth, quote = [], "", 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'`\"":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "," and not depth:
            parts.append(current)
            current = ""
            continue
        current += char
    return [part for part in (*parts, current) if part.strip()]
