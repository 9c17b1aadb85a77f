"""Runs statements on records without Spark: each query is a plan, which the interpreter of plans carries out."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import Catalog, Formats, Relation, RunningQuery, declared
from barnabas.pipelines.fronts.sql.constants import check_writable, encoded, row_of
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.planning import Planned, Settings, check_columns, plan, properties_of
from barnabas.pipelines.fronts.yaml.spec import read_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.interpret.interpreter import Letter
from barnabas.pipelines.plan.interpret.processes import Record
from barnabas.pipelines.plan.interpret.writing import Writer

WITH_SCHEMA: Final = ("AVRO", "PROTOBUF", "PROTOBUF_NOSR", "JSON_SR")
"""Formats that a test writes and reads as JSON: there is no registry, and columns and values are the same."""


@dataclass(frozen=True, slots=True)
class Out:
    """A record that a query has written, or that was put in. window: the start and end of its key's
    window, in milliseconds."""

    topic: str
    key: Any
    value: Any
    at_ms: int
    window: tuple[int, int | None] | None = None


@dataclass
class Bench:
    """Topics, streams and tables, and the queries between them, in one process."""

    catalog: Catalog = field(default_factory=Catalog)
    records: list[Record] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    _writers: dict[str, Writer] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    # --- statements --------------------------------------------------------------------------------

    def run(self, statement: s.Statement) -> None:
        """Carries out a statement. Raises SqlError, also for one that a test has no use for."""
        if isinstance(statement, s.Create):
            self._free(statement.name, statement.or_replace)
            self.catalog.add(declared(replace(statement, properties=as_json(statement.properties))))
        elif isinstance(statement, s.CreateAs):
            self._free(statement.name, statement.or_replace)
            query = self.catalog.next_id("CSAS" if statement.kind == "STREAM" else "CTAS", statement.name)
            self._start(self._planned(statement, query), query, statement.name)
        elif isinstance(statement, s.InsertSelect):
            self._insert_select(statement)
        elif isinstance(statement, s.InsertValues):
            self._insert_values(statement)
        elif isinstance(statement, s.CreateType):
            self.catalog.types[statement.name] = statement.type
        elif isinstance(statement, s.DropType):
            self.catalog.types.pop(statement.name, None)
        elif isinstance(statement, s.AddColumns):
            self.catalog.add_columns(statement.name, statement.columns)
        elif isinstance(statement, s.Drop):
            self._drop(statement)
        elif not isinstance(statement, s.SetProperty | s.Define | s.Show | s.Describe):
            raise SqlError(f"{type(statement).__name__} is not for tests")

    def _free(self, name: str, or_replace: bool) -> None:
        relation = self.catalog.relations.get(name)
        if relation is not None and not or_replace:
            kind = relation.kind.lower()
            raise SqlError(f"Cannot add {kind} '{name}': A {kind} with the same name already exists")
        for query in self.catalog.writers_of(name):
            self._writers.pop(query, None)
            self.catalog.queries.pop(query)

    def _planned(self, statement: s.CreateAs, query: str) -> Planned:
        return plan(
            self.catalog, statement.select, query_id=query, name=statement.name, kind=statement.kind,
            properties=as_json(statement.properties), settings=Settings("earliest", 1), text=statement.text,
        )  # fmt: skip

    def _start(self, planned: Planned, query: str, name: str, *, adds: bool = True) -> None:
        try:
            spec = read_spec(item_of(planned.document), "statement")
        except PipelineError as error:
            raise SqlError(str(error)) from error
        if adds:
            self.catalog.add(planned.result)
        self.catalog.queries[query] = RunningQuery(
            query, "", name, planned.sources, planned.document, planned.view
        )
        self._writers[query] = Writer(spec.plan)
        for record in list(self.records):
            self._feed(query, record)

    def _insert_select(self, statement: s.InsertSelect) -> None:
        sink = self.catalog.find(statement.name)
        check_writable(sink)
        properties = properties_of(sink)
        query = f"INSERTQUERY_{self.catalog.numbers + 1}"
        self.catalog.numbers += 1
        planned = plan(
            self.catalog, statement.select, query_id=query, name=sink.name, kind="STREAM", properties=properties,
            settings=Settings("earliest", 1), text=statement.text,
        )  # fmt: skip
        check_columns(planned.result, sink)
        self._start(planned, query, sink.name, adds=False)

    def _insert_values(self, statement: s.InsertValues) -> None:
        relation = self.catalog.find(statement.name)
        row, at_ms = row_of(relation, statement)
        self.put(relation.topic, *encoded(relation, row), at_ms)

    def _drop(self, statement: s.Drop) -> None:
        if statement.name not in self.catalog.relations and statement.if_exists:
            return
        relation = self.catalog.find(statement.name)
        writers = self.catalog.writers_of(relation.name)
        readers = [query for query in self.catalog.readers_of(relation.name) if query not in writers]
        if readers:
            raise SqlError(f"Cannot drop {relation.name}: it is read by {', '.join(readers)}")
        for query in writers:
            self._writers.pop(query, None)
            self.catalog.queries.pop(query)
        del self.catalog.relations[relation.name]

    # --- records -----------------------------------------------------------------------------------

    def put(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        at_ms: int = 0,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        """Writes a record to a topic, and lets the queries that read it work."""
        offset = self._sizes[topic] = self._sizes.get(topic, 0) + 1
        record = Record(topic, key, value, at_ms * 1000, 0, offset - 1, headers)
        self.records.append(record)
        for query in list(self._writers):
            self._feed(query, record)

    def _feed(self, query: str, record: Record) -> None:
        writer = self._writers[query]
        if not writer.reads(record.topic):
            return
        sent, letters = writer.read(record)
        self.letters += letters
        for one in sent:
            self.put(one.topic, one.key, one.value, one.at_us // 1000)

    def put_json(self, record: Mapping[str, Any]) -> None:
        """Writes a record as a test file has it: topic, key, value, timestamp, headers, window. Raises SqlError."""
        topic = str(record["topic"])
        relation = next((r for r in self.catalog.relations.values() if r.topic == topic), None)
        formats = relation.formats if relation is not None else Formats()
        key = _encoded(record.get("key"), formats.key, relation, of_key=True)
        if (window := record.get("window")) is not None and key is not None:
            session = str(window.get("type", "")).lower() == "session"
            key += (int(window["end"]).to_bytes(8, "big") if session else b"") + int(
                window["start"]
            ).to_bytes(8, "big")
        value = _encoded(record.get("value"), formats.value, relation)
        headers = tuple((h["KEY"], _from_base64(h["VALUE"])) for h in record.get("headers") or [])
        self.put(topic, key, value, int(record.get("timestamp", 0)), headers)

    def written(self, topics: frozenset[str]) -> Iterator[Out]:
        """The records of these topics, decoded, in the order in which they were written."""
        relations = {relation.topic: relation for relation in self.catalog.relations.values()}
        for record in self.records:
            if record.topic in topics:
                yield decoded(record, relations.get(record.topic))


def item_of(value: Any, what: str = "the statement") -> Item:
    """A document of plain values, as if it were read from a file."""
    if isinstance(value, Mapping):
        return Item({str(n): item_of(v, f"{n}") for n, v in value.items()}, "statement", what)
    if isinstance(value, list | tuple):
        return Item([item_of(one, what) for one in value], "statement", what)
    return Item(value, "statement", what)


def as_json(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties with JSON in place of formats with schemas."""
    formats = ("FORMAT", "VALUE_FORMAT", "KEY_FORMAT")
    return {
        name: "JSON" if name in formats and str(value).upper() in WITH_SCHEMA else value
        for name, value in properties.items()
    }


# --- bytes --------------------------------------------------------------------------------------------


def _from_base64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _number(value: Any) -> float | str:
    """A decimal as a number of JSON, or as text if a number would not be exact."""
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def _encoded(value: Any, form: str, relation: Relation | None, *, of_key: bool = False) -> bytes | None:
    """A key or value of a test file as bytes."""
    if value is None or form == "NONE":
        return None
    if form == "JSON":
        return json.dumps(value, ensure_ascii=False, default=_number).encode()
    columns = () if relation is None else relation.keys if of_key else relation.values
    if form == "KAFKA" and len(columns) == 1:
        return kafka_bytes(value, columns[0].type.name)
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def kafka_bytes(value: Any, kind: str) -> bytes:
    """A value of Kafka's own serializers."""
    if kind in ("INTEGER", "BIGINT"):
        return int(value).to_bytes(4 if kind == "INTEGER" else 8, "big", signed=True)
    if kind == "DOUBLE":
        return struct.pack(">d", float(value))
    return value if isinstance(value, bytes) else str(value).encode()


def _of_kafka(raw: bytes, kind: str) -> Any:
    if kind in ("INTEGER", "BIGINT"):
        return int.from_bytes(raw, "big", signed=True)
    if kind == "DOUBLE":
        return struct.unpack(">d", raw)[0]
    return raw.decode(errors="replace")


def decoded(record: Record, relation: Relation | None) -> Out:
    """A record with its key and value as a test file has them."""
    key, window = record.key, None
    if relation is not None and relation.window is not None and key is not None:
        size = 16 if relation.window.kind == "SESSION" else 8
        bounds = [int.from_bytes(key[at : at + 8], "big") for at in range(len(key) - size, len(key), 8)]
        key, window = key[:-size], (bounds[-1], bounds[0] if size == 16 else None)
    formats = relation.formats if relation is not None else Formats()
    keys = () if relation is None else relation.keys
    values = () if relation is None else relation.values
    shown_key = _decoded(key, formats.key if keys else "TEXT", keys[0].type.name if len(keys) == 1 else "")
    shown = _decoded(record.value, formats.value, values[0].type.name if len(values) == 1 else "")
    return Out(record.topic, shown_key, shown, record.at_us // 1000, window)


def _decoded(raw: bytes | None, form: str, kind: str) -> Any:
    if raw is None:
        return None
    if form == "JSON":
        try:
            return json.loads(raw, parse_float=Decimal)
        except ValueError:
            return raw.decode(errors="replace")
    if form == "KAFKA":
        return _of_kafka(raw, kind)
    return raw.decode(errors="replace")
