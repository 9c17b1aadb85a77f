"""Decodes a column of records into a column of rows, a batch at a time, with the reason for each that cannot be decoded.

If a header names a record's schema, `with_carried` has put the header's bytes in front of the record, which then begins
with an id or a GUID.

The rows of each schema are made by one decoder, and become Arrow columns together. Runs on the executors, which keep what
they have read from a registry from batch to batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.registry import RegistryClient, RegistryError
from barnabas.pipelines.formats.base import NoColumns, Reader, Unfit
from barnabas.pipelines.formats.encoding import contract_for
from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.codecs.contracts import has_migrations
from barnabas.schemas.framing import (
    GUID_BYTES,
    GUID_MAGIC,
    NotFramed,
    Schema,
    frame,
    schema_header,
    unframe_any,
)

NOT_FOUND: Final = frozenset({404, 40401, 40402, 40403})
FORGET_S: Final = 30.0
"""How long a schema that is unknown, or cannot be used, is not requested again."""

Decoder = Callable[[bytes], Any]


def reader_of(schema: Schema) -> Reader:
    """The reader for a schema. Raises NoColumns."""
    if schema.kind == "AVRO":
        from barnabas.pipelines.formats.avro import AvroReader

        return AvroReader(schema)
    if schema.kind == "JSON":
        from barnabas.pipelines.formats.json_schema import JsonReader

        return JsonReader(schema)
    if schema.kind == "PROTOBUF":
        from barnabas.pipelines.formats.protobuf import ProtobufReader

        return ProtobufReader(schema)
    raise NoColumns(f"schemas of type {schema.kind} are not supported")


class Decoding:
    """Decodes batches into the fields of one schema. Raises RegistryError while the registry does not answer."""

    def __init__(
        self, registry: RegistryClient, schema: Schema, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.reader = reader_of(schema)
        self.type = pa.struct([("v", self.reader.type), ("error", pa.string())])
        self._registry = registry
        self._schema = schema
        self._contract = contract_for(schema)
        if self._contract is not None and not self._contract.reads:
            self._contract = None
        self._clock = clock
        self._decoders: dict[int | str, Decoder] = {}
        self._refused: dict[int | str, tuple[str, float]] = {}
        self._guids: dict[str, Schema] = {}

    def decode(self, records: pa.Array) -> pa.StructArray:
        """Returns a struct of `v`, the rows, and `error`, which is null if there is a row. records: binary."""
        whole = self._whole(records) if self._contract is None else None
        if whole is not None:
            return self._with_errors(whole, pa.nulls(len(whole), pa.string()))
        rows: list[Any] = []
        errors: list[str | None] = []
        decoders = self._decoders
        for record in records.to_pylist():
            try:
                if record is None:
                    raise Unfit("there are no bytes to decode")
                name, payload = unframe_any(record)
                decode = decoders.get(name) or self._decoder(name)
                rows.append(decode(payload))
                errors.append(None)
            except (Unfit, NotFramed, Mismatch) as error:
                rows.append(None)
                errors.append(str(error))
        return self._assembled(rows, errors)

    def _whole(self, records: pa.Array) -> pa.StructArray | None:
        """The rows, if all records have our own schema and can be decoded at once; otherwise None."""
        whole = self.reader.columns(records)
        if whole is not None or records.null_count or not len(records):
            return whole
        # If all have the same GUID, and it is that of our own schema, they are read as if they had its id.
        head = records[0].as_py()[:GUID_BYTES]
        if (
            head[:1] != GUID_MAGIC
            or len(head) < GUID_BYTES
            or not pc.all(pc.starts_with(records, head)).as_py()
        ):
            return None
        try:
            name, _ = unframe_any(head)
            if name in self._refused or self._writer(name) is not self._schema:
                return None
        except RegistryError:
            return None  # reported for each record
        named = pc.binary_replace_slice(records, 0, GUID_BYTES, frame(self._schema.id, b""))
        return self.reader.columns(named)

    def _writer(self, name: int | str) -> Schema:
        """The schema with an id or a GUID, which may be our own. Raises RegistryError."""
        if name == self._schema.id == 0:
            return self._schema  # of no registry
        if isinstance(name, int):
            return self._registry.by_id(name)
        if name not in self._guids:
            schema = self._registry.by_guid(name)
            self._guids[name] = self._schema if schema.same_content(self._schema) else schema
        return self._guids[name]

    def _assembled(self, rows: list[Any], errors: list[str | None]) -> pa.StructArray:
        try:
            values = self._columns(rows)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            # Arrow does not accept some value: find its row.
            for number, row in enumerate(rows):
                if row is not None:
                    try:
                        self._columns([row])
                    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                        rows[number], errors[number] = None, f"a value does not fit its column: {error}"
            values = self._columns(rows)
        return self._with_errors(values, pa.array(errors, pa.string()))

    def _columns(self, rows: Sequence[Any]) -> pa.StructArray:
        values = pa.array(rows, self.reader.read_type)
        return values if values.type == self.reader.type else values.cast(self.reader.type)

    def _with_errors(self, values: pa.StructArray, errors: pa.Array) -> pa.StructArray:
        if values.type != self.reader.type:
            values = values.cast(self.reader.type)
        return pa.StructArray.from_arrays([values, errors], fields=list(self.type))

    def _decoder(self, name: int | str) -> Decoder:
        """The decoder for records of a schema. name: id or GUID. Raises Unfit, RegistryError."""
        refused = self._refused.get(name)
        if refused is not None:
            if self._clock() < refused[1]:
                raise Unfit(refused[0])
            del self._refused[name]
        try:
            writer = self._writer(name)
            if writer.kind != self._schema.kind:
                raise Unfit(f"schema {name} is of type {writer.kind}, not {self._schema.kind}")
            self._require_no_migration(writer)
            decoder = self._ruled(writer) or self.reader.decoder(writer)
        except Unfit as error:
            self._refused[name] = str(error), self._clock() + FORGET_S
            raise
        except RegistryError as error:
            if error.code not in NOT_FOUND:
                raise
            why = f"the registry has no schema with {'id' if isinstance(name, int) else 'GUID'} {name}"
            self._refused[name] = why, self._clock() + FORGET_S
            raise Unfit(why) from None
        self._decoders[name] = decoder
        return decoder

    def _require_no_migration(self, writer: Schema) -> None:
        """Raises Unfit if there are migration rules: their result is not that of reading the value with another version."""
        ours = self._schema
        if writer.id != ours.id and (has_migrations(writer) or has_migrations(ours)):
            raise Unfit(
                f"the record is of schema {writer.called} and read as schema {ours.id}, "
                "but there are migration rules, which are not applied here"
            )

    def _ruled(self, writer: Schema) -> Decoder | None:
        """A decoder that applies the rules of the schema; None without rules. Raises Unfit."""
        contract = self._contract
        if contract is None:
            return None
        as_written, as_ours = self.reader.decoder(writer), self.reader.decoder(self._schema)

        def decode(payload: bytes) -> Any:
            payload, schema = contract.read(payload, writer)
            return as_written(payload) if schema is writer else as_ours(payload)

        return decode


def with_carried(records: pa.Array, headers: pa.Array, part: str) -> pa.Array:
    """The records with the header that names their schema, if any, in front of their bytes. part: "key" or "value"."""
    if headers.null_count == len(headers):
        return records
    pairs, rows = headers.flatten(), pc.list_parent_indices(headers)
    is_carried = pc.and_(
        pc.equal(pairs.field("key"), schema_header(part)),
        pc.fill_null(pc.greater(pc.binary_length(pairs.field("value")), 0), False),
    )
    places = np.flatnonzero(is_carried.to_numpy(zero_copy_only=False))
    if not places.size:
        return records
    # If there are several, the first one counts.
    rows_carried, first = np.unique(rows.to_numpy(zero_copy_only=False)[places], return_index=True)
    at = np.zeros(len(records), np.int64)
    lacks = np.ones(len(records), bool)
    at[rows_carried], lacks[rows_carried] = places[first], False
    carried = pairs.field("value").take(pa.array(at, mask=lacks)).fill_null(b"")
    return pc.binary_join_element_wise(carried, records, b"")


_registries: dict[str, RegistryClient] = {}
_decodings: dict[tuple[str, Schema], Decoding] = {}


def decoding_of(url: str, schema: Schema) -> Decoding:
    """The decoding for a schema of a registry, one per process."""
    decoding = _decodings.get((url, schema))
    if decoding is None:
        registry = _registries.setdefault(url, RegistryClient(url))
        decoding = _decodings[url, schema] = Decoding(registry, schema)
    return decoding
