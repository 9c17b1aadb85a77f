"""A column of records to a column of rows, a batch at a time; what cannot be decoded gets the reason beside it.

Rows are made for each schema id by one decoder and become Arrow columns together. Runs on the executors: what they know
of a registry stays with them from batch to batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from barnabas.client.registry import NotFramed, Registry, RegistryError, Schema, unframe
from barnabas.codecs import Mismatch
from barnabas.codecs.contracts import has_migrations
from barnabas.pipelines.formats.base import NoColumns, Reader, Unfit
from barnabas.pipelines.formats.encoding import contract_for

NOT_FOUND: Final = frozenset({404, 40401, 40402, 40403})
FORGET_S: Final = 30.0
"""How long an id that the registry does not know is not asked for again."""

Decoder = Callable[[bytes], Any]


def reader_of(schema: Schema) -> Reader:
    """Raises NoColumns."""
    if schema.kind == "AVRO":
        from barnabas.pipelines.formats.avro import AvroReader

        return AvroReader(schema)
    if schema.kind == "JSON":
        from barnabas.pipelines.formats.json_schema import JsonReader

        return JsonReader(schema)
    if schema.kind == "PROTOBUF":
        from barnabas.pipelines.formats.protobuf import ProtobufReader

        return ProtobufReader(schema)
    raise NoColumns(f"schemas of type {schema.kind} are not known here")


class Decoding:
    """Decodes batches into the fields of one schema. Raises RegistryError while the registry does not answer."""

    def __init__(
        self, registry: Registry, schema: Schema, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.reader = reader_of(schema)
        self.type = pa.struct([("v", self.reader.type), ("error", pa.string())])
        self._registry = registry
        self._schema = schema
        self._contract = contract_for(schema)
        if self._contract is not None and not self._contract.reads:
            self._contract = None
        self._clock = clock
        self._decoders: dict[int, Decoder] = {}
        self._refused: dict[int, tuple[str, float]] = {}

    def decode(self, records: pa.Array) -> pa.StructArray:
        """records: binary. A struct of `v`, the rows, and `error`, which is null where there is a row."""
        whole = self.reader.columns(records) if self._contract is None else None
        if whole is not None:
            return self._with_errors(whole, pa.nulls(len(whole), pa.string()))
        rows: list[Any] = []
        errors: list[str | None] = []
        decoders = self._decoders
        for record in records.to_pylist():
            try:
                if record is None:
                    raise Unfit("there are no bytes to decode")
                schema_id, payload = unframe(record)
                decode = decoders.get(schema_id) or self._decoder(schema_id)
                rows.append(decode(payload))
                errors.append(None)
            except (Unfit, NotFramed, Mismatch) as error:
                rows.append(None)
                errors.append(str(error))
        return self._assembled(rows, errors)

    def _assembled(self, rows: list[Any], errors: list[str | None]) -> pa.StructArray:
        try:
            values = self._columns(rows)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            # A value that Arrow does not take: find whose it is.
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

    def _decoder(self, schema_id: int) -> Decoder:
        """Raises Unfit, RegistryError."""
        refused = self._refused.get(schema_id)
        if refused is not None:
            if self._clock() < refused[1]:
                raise Unfit(refused[0])
            del self._refused[schema_id]
        try:
            writer = self._registry.by_id(schema_id)
            if writer.kind != self._schema.kind:
                raise Unfit(f"schema {schema_id} is of type {writer.kind}, not {self._schema.kind}")
            self._require_no_migration(writer)
            made = self._ruled(writer) or self.reader.decoder(writer)
        except Unfit as error:
            self._refused[schema_id] = str(error), self._clock() + FORGET_S
            raise
        except RegistryError as error:
            if error.code not in NOT_FOUND:
                raise
            why = f"the registry has no schema with id {schema_id}"
            self._refused[schema_id] = why, self._clock() + FORGET_S
            raise Unfit(why) from None
        self._decoders[schema_id] = made
        return made

    def _require_no_migration(self, writer: Schema) -> None:
        """Raises Unfit: what a rule for migrations makes of a value is not what reading it by another version gives."""
        ours = self._schema
        if writer.id != ours.id and (has_migrations(writer) or has_migrations(ours)):
            raise Unfit(
                f"it is of schema {writer.id} and read as schema {ours.id}, whose migration rules are not carried out here"
            )

    def _ruled(self, writer: Schema) -> Decoder | None:
        """What decodes behind the rules of the schema; None without rules. Raises Unfit."""
        contract = self._contract
        if contract is None:
            return None
        as_written, as_ours = self.reader.decoder(writer), self.reader.decoder(self._schema)

        def decode(payload: bytes) -> Any:
            payload, schema = contract.read(payload, writer)
            return as_written(payload) if schema is writer else as_ours(payload)

        return decode


_registries: dict[str, Registry] = {}
_decodings: dict[tuple[str, Schema], Decoding] = {}


def decoding_of(url: str, schema: Schema) -> Decoding:
    """The one that this process keeps."""
    found = _decodings.get((url, schema))
    if found is None:
        registry = _registries.setdefault(url, Registry(url))
        found = _decodings[url, schema] = Decoding(registry, schema)
    return found
