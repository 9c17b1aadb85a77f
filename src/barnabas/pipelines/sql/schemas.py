"""The schemas of values, in a registry: columns that are made of them, and schemas that are made of columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from barnabas.client.registry import Registry, RegistryError
from barnabas.pipelines.formats.base import NoColumns
from barnabas.pipelines.formats.decoding import NOT_FOUND, decoding_of, reader_of
from barnabas.pipelines.formats.encoding import encoding_of
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import WITH_SCHEMA, Relation, declared, formats_of
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.schemas import (
    KINDS,
    columns_of,
    declaration,
    in_capitals,
    schema_text,
    subject_of,
    with_names,
)
from barnabas.schemas.framing import Schema


class Schemas:
    """What the server asks a schema registry."""

    def __init__(self, address: Callable[[], str | None]) -> None:
        """address: of the registry; None if there is none."""
        self._address = address

    @property
    def url(self) -> str:
        """The address of the registry; empty without one."""
        return self._address() or ""

    def _registry(self, form: str) -> Registry:
        if not self.url:
            raise SqlError(
                f"format {form} needs a schema registry: start the server with --registry http://HOST:8081"
            )
        return Registry(self.url)

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
        """The statement with the columns that the schema of its topic has, if it declares none of the value, and with the
        names that they have there; its text declares them. Raises SqlError."""
        form = formats_of(statement.properties).value
        topic = statement.properties.get("KAFKA_TOPIC")
        wanted = statement.properties.get("VALUE_SCHEMA_ID")
        if form not in WITH_SCHEMA or topic is None:
            if wanted is not None:
                raise SqlError(f"VALUE_SCHEMA_ID is for {', '.join(WITH_SCHEMA)}; the format is {form}")
            return statement
        subject = f"{topic}-value"
        schema = self.newest(subject, form) if wanted is None else self._chosen(statement, form, wanted)
        keys = [column for column in statement.columns if column.role]
        if schema is None:
            if len(keys) == len(statement.columns):
                raise SqlError(
                    f"the schema registry has no schema of {subject}: register one, or name the columns"
                )
            own = tuple(replace(c, typed=c.name, type=in_capitals(c.type)) for c in statement.columns)
            statement = replace(statement, columns=own)
            return replace(statement, text=declaration(declared(statement), statement.properties))
        if schema.kind != KINDS[form]:
            raise SqlError(
                f"the schema of {subject} is {schema.kind}, not {KINDS[form]}: value_format is {form}"
            )
        fields = _fields(schema, subject)
        if len(keys) == len(statement.columns):
            made = [s.ColumnDef(column.name, column.typed, column.type) for column in columns_of(fields)]
            names = {column.name for column in keys}
            statement = replace(
                statement, columns=(*keys, *(column for column in made if column.name not in names))
            )
        relation = declared(statement)
        relation = replace(relation, columns=with_names(relation.columns, fields, subject))
        roles = {column.name: column.role for column in statement.columns}
        columns = tuple(s.ColumnDef(c.name, c.typed, c.type, roles.get(c.name, "")) for c in relation.columns)
        return replace(statement, columns=columns, text=declaration(relation, statement.properties))

    def _chosen(self, statement: s.Create, form: str, schema_id: Any) -> Schema:
        """The schema of an id, of which all columns of the value are made. Raises SqlError."""
        own = [column.name for column in statement.columns if not column.role]
        if own:
            raise SqlError(
                f"VALUE_SCHEMA_ID gives the columns of the value, so they are not named, too: {', '.join(own)}"
            )
        if not str(schema_id).isdecimal():
            raise SqlError(f"VALUE_SCHEMA_ID is {schema_id!r}; it is the id of a schema, a number")
        try:
            return self._registry(form).by_id(int(schema_id))
        except RegistryError as error:
            raise SqlError(f"the schema {schema_id} in the registry at {self.url}: {error}") from None

    def register(self, relation: Relation) -> None:
        """Registers a schema for what is written to a topic; a declared topic may have one already. Raises SqlError."""
        form = relation.formats.value
        if form not in WITH_SCHEMA:
            return
        subject = subject_of(relation)
        found = self.newest(subject, form)
        if found is not None and relation.query is None:
            return
        try:
            self._registry(form).register(subject, KINDS[form], schema_text(relation, relation.values))
        except RegistryError as error:
            raise SqlError(
                f"the schema of {relation.name} cannot be registered as {subject}: {error}"
            ) from None

    def encoded(self, relation: Relation, row: Mapping[str, Any]) -> bytes:
        """A row's value. Raises SqlError."""
        form, subject = relation.formats.value, subject_of(relation)
        schema = self.newest(subject, form)
        if schema is None:
            raise SqlError(f"the schema registry has no schema of {subject}")
        values = {column.typed or column.name: row[column.name] for column in relation.values}
        if relation.query is not None:
            values = {column.name: row[column.name] for column in relation.values}
        try:
            kinds = _fields(schema, subject)
            known = pa.struct([field for field in kinds if field.name in values])
            made = encoding_of(schema).encode(pa.array([values], known))[0].as_py()
        except (NoColumns, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SqlError(f"the row cannot be written with the schema of {subject}: {error}") from None
        if made["error"] is not None:
            raise SqlError(f"the row cannot be written with the schema of {subject}: {made['error']}")
        return bytes(made["v"])

    def shown(self, raw: bytes) -> str | None:
        """The value of a record that names its schema, as JSON; None if it does not, or if it cannot be read."""
        if not self.url or not raw.startswith(b"\0"):
            return None
        try:
            schema = Registry(self.url).by_id(int.from_bytes(raw[1:5], "big"))
            made = decoding_of(self.url, schema).decode(pa.array([raw], pa.binary()))[0].as_py()
        except (RegistryError, NoColumns, pa.ArrowException):
            return None
        return None if made["error"] is not None else json.dumps(made["v"], ensure_ascii=False, default=str)

    def has(self, subject: str | None, schema_id: int | None) -> bool:
        """Whether the registry has a subject, or a schema of an id, or both as one. Raises SqlError."""
        registry = self._registry("AVRO")
        try:
            if subject is not None:
                found = registry.newest(subject)
                return schema_id is None or found.id == schema_id
            assert schema_id is not None
            registry.by_id(schema_id)
        except RegistryError as error:
            if error.code in NOT_FOUND:
                return False
            raise SqlError(f"the schema registry at {self.url}: {error}") from None
        return True


def _fields(schema: Schema, subject: str) -> pa.StructType:
    try:
        return reader_of(schema).type
    except NoColumns as error:
        raise SqlError(f"{subject}: {error}") from None
