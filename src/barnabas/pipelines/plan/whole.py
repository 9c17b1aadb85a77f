"""Operators on whole records, for fronts whose user code reads and makes records: keys, values and headers as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.schema import Schema

RECORD: Final = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "at": "bigint",
    "key": "binary",
    "value": "binary",
    "headers": "string",
    "task": "bigint",
}
"""What a record becomes, with types: `at` in milliseconds since 1970; `headers` a JSON list of pairs of a name and base64,
null without any; `task` the checksum of its key modulo the number of tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRecord(Operator):
    """Makes the fields of RECORD. tasks: how many tasks there are."""

    kind: ClassVar[str] = "whole_record"
    tasks: int

    def after(self, schema: Schema) -> Schema:
        return Schema().put(RECORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeaders(Operator):
    """Replaces the headers that a record is sent with by those in a field, written as in RECORD."""

    kind: ClassVar[str] = "send_headers"
    of: str
