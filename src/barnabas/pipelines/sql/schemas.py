"""The schemas of keys and values, in a registry: columns that are made of them, and schemas that are made of columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from barnabas.client.registry import RegistryClient, RegistryError
from barnabas.pipelines.formats.base import VALUE, NoColumns
from barnabas.pipelines.formats.decoding import NOT_FOUND, decoding_of, reader_of
from barnabas.pipelines.formats.encoding import encoding_of, writer_of
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import (
    BARE,
    ROWKEY,
    WITH_SCHEMA,
    Column,
    Relation,
    declared,
    formats_of,
)
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.rows import check_key, is_plain_key
from barnabas.pipelines.fronts.sql.schemas import (
    KINDS,
    columns_of,
    declaration,
    in_capitals,
    plain_schema,
    schema_text,
    with_names,
)
from barnabas.schemas.framing import Schema, frame

ROLES: Final[Mapping[s.RelationKind, str]] = {"STREAM": "KEY", "TABLE": "PRIMARY KEY"}


class Schemas:
    """What the server asks a schema registry."""

    def __init__(self, address: Callable[[], str | None]) -> None:
        """address: of the registry; None if there is none."""
        self._address = address

    @property
    def url(self) -> str:
        """The address of the registry; empty without one."""
        return self._address() or ""

    def _registry(self, form: str) -> RegistryClient:
        if not self.url:
            raise SqlError(
                f"format {form} needs a schema registry: start the server with --registry http://HOST:8081"
            )
        return RegistryClient(self.url)

    def with_registry(self, relation: Relation) -> Relation:
        """The stream or table, with the address of the registry."""
        return replace(relation, formats=replace(relation.formats, registry=self.url))

    def newest(self, subject: str, form: str) -> Schema | None:
        """The newest schema of a subject; None if there is none. Raises SqlError."""
        try:
            return self._registry(form).newest(subject)
        except RegistryError as error:
            if error.code in NOT_FOUND:
                return None
            raise SqlError(f"the schema registry at {self.url}: {error}") from None

    def completed(self, statement: s.Create) -> s.Create:
        """The statement with the columns that the schemas of its topic have, of the key and of the value if it declares
        none, and with the names that they have there; its text declares them. Raises SqlError."""
        with_key = self._with_key(statement)
        completed = self._with_value(with_key)
        if completed is with_key and completed is not statement:
            return replace(completed, text=declaration(declared(completed), completed.properties))
        return completed

    def _with_key(self, statement: s.Create) -> s.Create:
        form, topic = formats_of(statement.properties).key, statement.properties.get("KAFKA_TOPIC")
        wanted = statement.properties.get("KEY_SCHEMA_ID")
        if form not in WITH_SCHEMA or topic is None:
            if wanted is not None:
                raise SqlError(f"KEY_SCHEMA_ID is for {', '.join(WITH_SCHEMA)}; the key's format is {form}")
            return statement
        subject, keys = f"{topic}-key", _keys(statement)
        if wanted is None:
            schema = self.newest(subject, form)
        else:
            schema = self._chosen("KEY", form, wanted, [column.name for column in keys])
        others = tuple(column for column in statement.columns if column not in keys)
        if schema is None:
            if not keys:
                raise SqlError(
                    f"the schema registry has no schema of {subject}: register one, or name the columns of the key"
                )
            named = tuple(replace(column, typed=column.name) for column in keys)
        else:
            named = _key_columns(statement.kind, form, keys, schema, subject)
        return replace(statement, columns=(*named, *others))

    def _with_value(self, statement: s.Create) -> s.Create:
        form = formats_of(statement.properties).value
        topic = statement.properties.get("KAFKA_TOPIC")
        wanted = statement.properties.get("VALUE_SCHEMA_ID")
        if form not in WITH_SCHEMA or topic is None:
            if wanted is not None:
                raise SqlError(f"VALUE_SCHEMA_ID is for {', '.join(WITH_SCHEMA)}; the format is {form}")
            return statement
        subject, keys = f"{topic}-value", [column for column in statement.columns if column.role]
        if wanted is None:
            schema = self.newest(subject, form)
        else:
            own = [column.name for column in statement.columns if not column.role]
            schema = self._chosen("VALUE", form, wanted, own)
        if schema is None:
            if len(keys) == len(statement.columns):
                raise SqlError(
                    f"the schema registry has no schema of {subject}: register one, or name the columns"
                )
            columns = tuple(
                c if c in keys else replace(c, typed=c.name, type=in_capitals(c.type))
                for c in statement.columns
            )
            statement = replace(statement, columns=columns)
            return replace(statement, text=declaration(declared(statement), statement.properties))
        _check_kind(schema, form, subject)
        fields = _fields(schema, subject)
        if len(keys) == len(statement.columns):
            new_columns = [
                s.ColumnDef(column.name, column.typed, column.type) for column in columns_of(fields)
            ]
            names = {column.name for column in keys}
            statement = replace(
                statement, columns=(*keys, *(column for column in new_columns if column.name not in names))
            )
        relation = declared(statement)
        relation = replace(relation, columns=with_names(relation.columns, fields, subject))
        roles = {column.name: column.role for column in statement.columns}
        columns = tuple(s.ColumnDef(c.name, c.typed, c.type, roles.get(c.name, "")) for c in relation.columns)
        return replace(statement, columns=columns, text=declaration(relation, statement.properties))

    def _chosen(self, part: str, form: str, schema_id: Any, own: list[str]) -> Schema:
        """The schema of an id, of which all columns of the key or value are made. Raises SqlError."""
        if own:
            raise SqlError(
                f"{part}_SCHEMA_ID gives the columns of the {part.lower()}, so they are not named, too: {', '.join(own)}"
            )
        if not str(schema_id).isdecimal():
            raise SqlError(f"{part}_SCHEMA_ID is {schema_id!r}; it is the id of a schema, a number")
        try:
            return self._registry(form).by_id(int(schema_id))
        except RegistryError as error:
            raise SqlError(f"the schema {schema_id} in the registry at {self.url}: {error}") from None

    def register(self, relation: Relation) -> None:
        """Registers schemas for what is written to a topic; a declared topic may have them already. Raises SqlError."""
        form = relation.formats.value
        if form in WITH_SCHEMA:
            self._register(
                relation, "value", form, lambda: schema_text(form, relation.values, relation.formats.record)
            )
        kind = relation.formats.key
        if kind in WITH_SCHEMA and relation.keys:
            check_key(relation)
            plain = is_plain_key(relation)
            self._register(
                relation,
                "key",
                kind,
                lambda: plain_schema(kind, relation.keys[0]) if plain else schema_text(kind, relation.keys),
            )

    def _register(self, relation: Relation, part: str, form: str, text: Callable[[], str]) -> None:
        subject = f"{relation.topic}-{part}"
        if relation.query is None and self.newest(subject, form) is not None:
            return
        try:
            self._registry(form).register(subject, KINDS[form], text())
        except RegistryError as error:
            raise SqlError(
                f"the schema of {relation.name} cannot be registered as {subject}: {error}"
            ) from None

    def encoded(self, relation: Relation, row: Mapping[str, Any]) -> bytes:
        """A row's value. Raises SqlError."""
        form = relation.formats.value
        if form == BARE:
            return _encoded_bare(relation.values, row)
        names = {column.typed or column.name: column.name for column in relation.values}
        if relation.query is not None:
            names = {column.name: column.name for column in relation.values}
        values = {name: row[of] for name, of in names.items()}
        return self._encoded(form, f"{relation.topic}-value", values)

    def encoded_key(self, relation: Relation, row: Mapping[str, Any]) -> bytes:
        """A row's key. Raises SqlError."""
        if relation.formats.key == BARE:
            return _encoded_bare(relation.keys, row)
        if is_plain_key(relation):
            values = {VALUE: row[relation.keys[0].name]}
        else:
            values = {column.typed or column.name: row[column.name] for column in relation.keys}
        return self._encoded(relation.formats.key, f"{relation.topic}-key", values)

    def _encoded(self, form: str, subject: str, values: Mapping[str, Any]) -> bytes:
        schema = self.newest(subject, form)
        if schema is None:
            raise SqlError(f"the schema registry has no schema of {subject}")
        return _written(schema, f"the schema of {subject}", values)

    def shown(self, raw: bytes) -> str | None:
        """The value of a record that names its schema, as JSON; None if it does not, or if it cannot be read."""
        if not self.url or not raw.startswith(b"\0"):
            return None
        try:
            schema = RegistryClient(self.url).by_id(int.from_bytes(raw[1:5], "big"))
            decoded = decoding_of(self.url, schema).decode(pa.array([raw], pa.binary()))[0].as_py()
        except (RegistryError, NoColumns, pa.ArrowException):
            return None
        if decoded["error"] is not None:
            return None
        shown = decoded["v"]
        if schema.kind != "PROTOBUF" and writer_of(schema).is_plain:
            shown = shown[VALUE]
        return json.dumps(shown, ensure_ascii=False, default=str)

    def has(self, subject: str | None, schema_id: int | None) -> bool:
        """Whether the registry has a subject, or a schema of an id, or both as one. Raises SqlError."""
        registry = self._registry("AVRO")
        try:
            if subject is not None:
                newest = registry.newest(subject)
                return schema_id is None or newest.id == schema_id
            assert schema_id is not None
            registry.by_id(schema_id)
        except RegistryError as error:
            if error.code in NOT_FOUND:
                return False
            raise SqlError(f"the schema registry at {self.url}: {error}") from None
        return True


def _encoded_bare(columns: tuple[Column, ...], row: Mapping[str, Any]) -> bytes:
    """A key or value in Protobuf without a registry. Raises SqlError."""
    schema = Schema(0, "PROTOBUF", schema_text("PROTOBUF", columns))
    encoded = _written(
        schema, "the schema of its columns", {column.name: row[column.name] for column in columns}
    )
    return encoded.removeprefix(frame(0, b"\0"))


def _written(schema: Schema, called: str, values: Mapping[str, Any]) -> bytes:
    try:
        kinds = _fields(schema, called)
        known = pa.struct([field for field in kinds if field.name in values])
        encoded = encoding_of(schema).encode(pa.array([values], known))[0].as_py()
    except (NoColumns, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SqlError(f"the row cannot be written with {called}: {error}") from None
    if encoded["error"] is not None:
        raise SqlError(f"the row cannot be written with {called}: {encoded['error']}")
    return bytes(encoded["v"])


def _fields(schema: Schema, subject: str) -> pa.StructType:
    try:
        return reader_of(schema).type
    except NoColumns as error:
        raise SqlError(f"{subject}: {error}") from None


def _keys(statement: s.Create) -> list[s.ColumnDef]:
    """The columns of the key."""
    return [column for column in statement.columns if column.role in ROLES.values()]


def _check_kind(schema: Schema, form: str, subject: str) -> None:
    if schema.kind != KINDS[form]:
        part = subject.rpartition("-")[2]
        raise SqlError(
            f"the schema of {subject} is {schema.kind}, not {KINDS[form]}: {part}_format is {form}"
        )


def _key_columns(
    kind: s.RelationKind, form: str, keys: list[s.ColumnDef], schema: Schema, subject: str
) -> tuple[s.ColumnDef, ...]:
    """The columns of a key that has this schema, with the names that they have there. Raises SqlError."""
    _check_kind(schema, form, subject)
    key_columns = columns_of(_fields(schema, subject))
    if form != "PROTOBUF" and writer_of(schema).is_plain:
        if len(keys) > 1:
            raise SqlError(f"{subject} is one value, but the key has {len(keys)} columns")
        return tuple(keys) or (s.ColumnDef(ROWKEY, ROWKEY, key_columns[0].type, ROLES[kind]),)
    if not keys:
        keys = [s.ColumnDef(column.name, column.typed, column.type, ROLES[kind]) for column in key_columns]
    if len(keys) == 1 and form != "PROTOBUF":
        raise SqlError(
            f"{subject} is a record; keys of one column are written without one in {form}: declare all columns of a key"
            " that has several, or use PROTOBUF"
        )
    theirs = {column.name: column for column in key_columns}
    for column in keys:
        if column.name not in theirs:
            raise SqlError(f"column {column.name}: {subject} has no such field; it has {', '.join(theirs)}")
    return tuple(replace(column, typed=theirs[column.name].typed) for column in keys)
