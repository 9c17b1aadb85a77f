"""What is done with each row of a relation, as plain data. kinds/steps/ says how a pipeline file writes an operator and
how Spark carries it out.

`kind` is the name of the step. `after` is the schema of the rows that an operator makes, as far as it is known without
Spark.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal

from barnabas.pipelines.plan.expressions import Expression, FieldName, FixedText
from barnabas.pipelines.plan.patterns import Pattern
from barnabas.pipelines.plan.places import ASIDE, Place
from barnabas.pipelines.plan.schema import Schema

DEPTH_MAX: Final = 10
"""How many levels of objects one flatten opens at most."""
ALL: Final = 1 << 30
"""More characters than a text has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator(Place):
    """An operation on each row. id: the same as long as the plan above it has the same names; see graph.py."""

    kind: ClassVar[str] = ""
    stateful: ClassVar[bool] = False
    id: str = field(default="", compare=False)

    @property
    def can_fail(self) -> bool:
        """Whether a record can fail in it."""
        return True

    def after(self, schema: Schema) -> Schema:
        """The fields of the rows that it makes."""
        return schema


@dataclass(frozen=True, slots=True)
class RegistryPlace:
    """A subject of a schema registry. text: a schema in Protobuf instead, whose first message all records are, without
    anything that names it; no registry is asked."""

    url: str = field(metadata=ASIDE)
    subject: str
    text: str = ""

    @classmethod
    def of_text(cls, text: str) -> RegistryPlace:
        """A schema in Protobuf that no registry has."""
        return cls("", "the schema", text)


def expression_type(expression: Expression, schema: Schema) -> str | None:
    """The type of an expression over such rows; None if only Spark knows it."""
    if isinstance(expression.form, FixedText):
        return "string"
    if isinstance(expression.form, FieldName):
        return schema.type_of(expression.form.name)
    return None if expression.form is None else "string"


# --- text to fields -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Parse(Operator):
    """Splits a field into fields. source: the field; None: the record's value."""

    kind: ClassVar[str] = "parse"
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsePattern(Parse):
    """By a regular expression whose groups become fields. called: how messages call it."""

    pattern: Pattern
    called: str

    def after(self, schema: Schema) -> Schema:
        return schema.put({name: "string" for _, name in self.pattern.groups})


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseJson(Parse):
    """Declared fields of a JSON object, with their types. unquotes: a number in quotes is a number, too."""

    fields: Mapping[str, str]
    prefix: str = ""
    unquotes: bool = False

    def after(self, schema: Schema) -> Schema:
        return schema.put({self.prefix + name: kind for name, kind in self.fields.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseAnyJson(Parse):
    """Every field of a JSON object, whatever its shape."""

    prefix: str = ""

    def after(self, schema: Schema) -> Schema:
        return replace(schema.without([self.source] if self.source else []), open=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseCsv(Parse):
    """The values of a line, with their types. empty_is_null: whether `""` is null."""

    fields: Mapping[str, str]
    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    empty_is_null: bool = False

    def after(self, schema: Schema) -> Schema:
        return schema.put(self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseKeyValues(Parse):
    """Pairs like `a=1 b=2`. fields: the keys to keep; None: all of them."""

    fields: tuple[str, ...] | None
    pairs: str = " "
    equals: str = "="
    prefix: str = ""
    drops_surplus: bool = False

    def after(self, schema: Schema) -> Schema:
        if self.fields is None:
            return replace(schema, open=True)
        return schema.put({self.prefix + name: "string" for name in self.fields})


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseRegistry(Operator):
    """Bytes that name their schema. of: which part of the record they are; trailing: how many bytes follow them there.
    may_lack: a record without this part has no fields of it, otherwise it is a dead letter."""

    kind: ClassVar[str] = "parse"
    place: RegistryPlace
    of: Literal["value", "key"] = "value"
    prefix: str = ""
    trailing: int = 0
    may_lack: bool = False

    def after(self, schema: Schema) -> Schema:
        return replace(schema, partial=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(Operator):
    """Splits a field at separators; into `_` discards a piece."""

    kind: ClassVar[str] = "split"
    source: str | None
    by: tuple[str, ...]
    into: tuple[str, ...]
    keeps_empty: bool = True
    drops_surplus: bool = False
    trims: bool = True

    def after(self, schema: Schema) -> Schema:
        return schema.put({name: "string" for name in self.into if name != "_"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract(Operator):
    """Values of a JSON text, by path."""

    kind: ClassVar[str] = "extract"
    source: str | None
    paths: Mapping[str, str]
    required: bool = False

    def after(self, schema: Schema) -> Schema:
        return schema.put(dict.fromkeys(self.paths, "string"))


# --- fields -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Convert(Operator):
    """Changes types."""

    kind: ClassVar[str] = "convert"
    types: Mapping[str, str]

    def after(self, schema: Schema) -> Schema:
        return schema.put(self.types)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTime(Operator):
    """Makes a timestamp of text, by the first of the formats that fits; without any, ISO 8601."""

    kind: ClassVar[str] = "time"
    field: str
    formats: tuple[str, ...]
    to: str
    zone: str | None = None

    def after(self, schema: Schema) -> Schema:
        return schema.put({self.to: "timestamp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTime(Operator):
    """Makes text of a time."""

    kind: ClassVar[str] = "format_time"
    field: str
    format: str
    to: str
    zone: str | None = None

    def after(self, schema: Schema) -> Schema:
        return schema.put({self.to: "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(Operator):
    """Sets fields to expressions, one after the other."""

    kind: ClassVar[str] = "set"
    fields: Mapping[str, Expression]

    def after(self, schema: Schema) -> Schema:
        for name, expression in self.fields.items():
            schema = schema.put({name: expression_type(expression, schema)})
        return schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Operator):
    """Sets fields to fixed values."""

    kind: ClassVar[str] = "constant"
    fields: Mapping[str, Any]

    @property
    def can_fail(self) -> bool:
        return False

    def after(self, schema: Schema) -> Schema:
        return schema.put({name: _type_of_value(value) for name, value in self.fields.items()})


def _type_of_value(value: object) -> str | None:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "int" if -(1 << 31) <= value < 1 << 31 else "bigint"
    known = {str: "string", float: "double", datetime.date: "date", datetime.datetime: "timestamp"}
    return known.get(type(value))


RECORD_TYPES: Final[Mapping[str, str]] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "key": "string",
    "value": "string",
    "headers": "map<string,string>",
    "processed": "timestamp",
}
"""The parts of a record that can become fields, and their types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowRecord(Operator):
    """Makes fields of parts of the record, see RECORD_TYPES."""

    kind: ClassVar[str] = "metadata"
    fields: Mapping[str, str]

    def after(self, schema: Schema) -> Schema:
        return schema.put({name: RECORD_TYPES[part] for name, part in self.fields.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class OfFields(Operator):
    """An operator on some fields."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop(OfFields):
    """Removes fields."""

    kind: ClassVar[str] = "drop"

    @property
    def can_fail(self) -> bool:
        return False

    def after(self, schema: Schema) -> Schema:
        return schema.without(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep(OfFields):
    """Removes all other fields."""

    kind: ClassVar[str] = "keep"

    @property
    def can_fail(self) -> bool:
        return False

    def after(self, schema: Schema) -> Schema:
        return schema.keep(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename(Operator):
    """names: old ones with new ones."""

    kind: ClassVar[str] = "rename"
    names: Mapping[str, str]

    @property
    def can_fail(self) -> bool:
        return False

    def after(self, schema: Schema) -> Schema:
        return schema.renamed(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers(Operator):
    """Changes the headers that a record is sent with. keep: None: all but those in `drop`."""

    kind: ClassVar[str] = "headers"
    set: Mapping[str, Expression]
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] | None = None


# --- rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Operator):
    """Keeps the rows for which an expression is true."""

    kind: ClassVar[str] = "filter"
    wanted: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate(OfFields):
    """Removes rows whose fields were seen before. within: how long they are remembered. null_fails: whether a row
    without one of the fields fails; if not, it is kept."""

    kind: ClassVar[str] = "deduplicate"
    stateful: ClassVar[bool] = True
    within: str
    null_fails: bool = False

    @property
    def can_fail(self) -> bool:
        return self.null_fails

    def after(self, schema: Schema) -> Schema:
        return schema.put({name: schema.type_of(name) for name in self.names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Explode(Operator):
    """Makes a row of each element of an array. index: a field for the element's number."""

    kind: ClassVar[str] = "explode"
    field: str
    to: str
    index: str | None = None

    def after(self, schema: Schema) -> Schema:
        kind = schema.type_of(self.field)
        inner: str | None = None
        if kind is not None and kind.startswith("array<"):
            inner = kind[len("array<") : -1]
        elif kind in ("string", "variant"):
            inner = "variant"
        without = schema if self.to == self.field else schema.without([self.field])
        return without.put({self.to: inner, **({} if self.index is None else {self.index: "int"})})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten(Operator):
    """Makes fields of the entries of objects. names: None: of all."""

    kind: ClassVar[str] = "flatten"
    names: tuple[str, ...] | None
    separator: str = "."
    depth: int = DEPTH_MAX
    prefix: bool = True

    def after(self, schema: Schema) -> Schema:
        plain = {name for name, kind in schema.fields.items() if kind is not None and _is_plain(kind)}
        chosen = schema.fields if self.names is None else self.names
        opened = [name for name in chosen if name not in plain and name in schema.fields]
        return replace(schema.without(opened), partial=True) if opened else schema


def _is_plain(kind: str) -> bool:
    """Whether a type has no entries that could become fields."""
    return kind != "variant" and not kind.startswith("struct")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unflatten(Operator):
    """Makes objects of fields whose names begin in the same way. names: of the objects; None: all."""

    kind: ClassVar[str] = "unflatten"
    separator: str = "."
    names: tuple[str, ...] | None = None

    def after(self, schema: Schema) -> Schema:
        fields: dict[str, str | None] = {}
        for name, kind in schema.fields.items():
            first, _, rest = name.partition(self.separator)
            joined = bool(rest) and (self.names is None or first in self.names)
            fields[first if joined else name] = None if joined else kind
        return replace(schema, fields=fields)


# --- text ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeText(OfFields):
    """Rewrites fields, which become text."""

    def after(self, schema: Schema) -> Schema:
        return schema.put(dict.fromkeys(self.names, "string"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trim(ChangeText):
    """Removes blanks at both ends."""

    kind: ClassVar[str] = "trim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upper(ChangeText):
    """Upper case."""

    kind: ClassVar[str] = "upper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lower(ChangeText):
    """Lower case."""

    kind: ClassVar[str] = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unescape(ChangeText):
    """Removes backslashes before quotes."""

    kind: ClassVar[str] = "unescape"


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlDecode(ChangeText):
    """Decodes %20 and +."""

    kind: ClassVar[str] = "url_decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace(Operator):
    """Replaces a text, or what a regular expression matches."""

    kind: ClassVar[str] = "replace"
    field: str
    find: str
    replacement: str
    by_regex: bool = False

    def after(self, schema: Schema) -> Schema:
        return schema.put({self.field: "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Substring(Operator):
    """start counts from 1, or from the end with -1."""

    kind: ClassVar[str] = "substring"
    field: str
    start: int
    to: str
    length: int = ALL

    def after(self, schema: Schema) -> Schema:
        return schema.put({self.to: "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask(ChangeText):
    """left, right: how many characters stay readable. character: what replaces each of the others."""

    kind: ClassVar[str] = "mask"
    left: int = 0
    right: int = 0
    character: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hash(ChangeText):
    """Replaces values by their hashes. salt: put before each value."""

    kind: ClassVar[str] = "hash"
    algorithm: str = "sha256"
    salt: str = field(default="", repr=False, metadata=ASIDE)
