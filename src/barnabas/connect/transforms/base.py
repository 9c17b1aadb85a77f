"""What a transform and a predicate are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from barnabas.connect.options import ConfigDef, ConnectorOption
from barnabas.connect.records import Record
from barnabas.connect.schemas import Schema

R = TypeVar("R", bound=Record)


class Transform:
    """Changes records one by one. Raises DataError for one that it cannot change.

    part: `key` or `value`, for classes that Kafka has in two forms (`ExtractField$Key`).
    """

    options: ClassVar[tuple[ConnectorOption, ...]] = ()
    doc: ClassVar[str] = ""
    parts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, part: str = "") -> None:
        self.part = part

    def configure(self, config: Mapping[str, Any]) -> None:
        """config: the transform's own options, without the prefix. Raises OptionError."""
        self.config = ConfigDef(self.options).parse(config)

    def apply(self, record: Record) -> Record | None:
        """The changed record; None leaves it out."""
        raise NotImplementedError

    def read(self, record: Record) -> tuple[Schema | None, Any]:
        """The schema and value of the transform's part."""
        if self.part == "key":
            return record.key_schema, record.key
        return record.value_schema, record.value

    def put(self, record: Record, schema: Schema | None, value: Any) -> Record:
        """The record with another part."""
        if self.part == "key":
            return replace(record, key_schema=schema, key=value)
        return replace(record, value_schema=schema, value=value)


class Predicate:
    """Says whether a transform applies to a record."""

    options: ClassVar[tuple[ConnectorOption, ...]] = ()
    doc: ClassVar[str] = ""

    def configure(self, config: Mapping[str, Any]) -> None:
        """As of a transform."""
        self.config = ConfigDef(self.options).parse(config)

    def holds(self, record: Record) -> bool:
        """Whether it is true of a record."""
        raise NotImplementedError
