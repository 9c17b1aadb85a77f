"""Parcels: the records that were made of up to a thousand source records, which pass through Spark as one row.

The reading side makes the records of the outputs (machine.pyx) and adds a column of parcels to each batch. If it is certain
about any source record, the first row has only a parcel; the other rows are the source records for Spark's expressions. The
writing side puts the records of each topic into the order of their source records' offsets, whichever way they came.

A parcel is a compressed stream in Arrow's IPC format, with one batch: the offset and timestamp of each source record, what
outputs keep of it, and the columns that were made for each output. The batch's metadata has the topic, the partition and
the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipelines.direct.machine import Machine, Part, Template, reader_of
from barnabas.pipelines.direct.program import ONE_TOPIC, PARCEL, PARCEL_ROWS, Program, Recipe, RecordRecipe
from barnabas.pipelines.formats.columns import ARROW_TYPES, HEADER_TYPE
from barnabas.records.columnar import BinaryColumn, repeat

PARCEL_DDL: Final = f"{PARCEL} binary, {PARCEL_ROWS} int"
PARCEL_FIELDS: Final = (pa.field(PARCEL, pa.binary()), pa.field(PARCEL_ROWS, pa.int32()))
ROWS_MAX: Final = 1024
BYTES_MAX: Final = 512 << 10
"""Limit of the keys and values of which one parcel is made, unless those of a single record are larger."""
MADE_BYTES_MAX: Final = 2 << 20
"""Limit of what one parcel holds, unless what is made of a single record is larger."""
HELD_ROWS: Final = 4096
HELD_BYTES: Final = 4 << 20
"""Limit of the rows that wait for others."""
ORIGIN_TYPE: Final = pa.struct(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("output", pa.string()),
    ]
)
SINK_SCHEMA: Final = pa.schema(
    [
        *[pa.field(name, ARROW_TYPES[name]) for name in ("topic", "key", "value", "headers", "timestamp")],
        pa.field("origin", ORIGIN_TYPE),
    ]
)
OPENED_SCHEMA: Final = SINK_SCHEMA.with_metadata({ONE_TOPIC: b""})


# --- the reading side ---------------------------------------------------------------------------------


class Layout:
    """Which columns a program makes: for each output, the number of each; None for what it keeps or has no need of."""

    def __init__(self, program: Program) -> None:
        self.templates: list[tuple[int, Template]] = []
        self.columns = 0
        self.outputs: list[tuple[RecordRecipe, dict[str, int]]] = []
        for output in program.outputs:
            places: dict[str, int] = {}
            for name in ("topic", "key", "value"):
                recipe = getattr(output, name)
                if isinstance(recipe, Recipe):
                    places[name] = self._column([recipe])
            if output.headers is not None:
                places["headers"] = self._column([recipe for _, recipe in output.headers])
            self.outputs.append((output, places))
        self.kept = [
            name
            for name in ("key", "value", "headers")
            if any(getattr(program_output, name) is None for program_output in program.outputs)
        ]

    def _column(self, recipes: list[Recipe]) -> int:
        """The number of a column in which the values of these recipes alternate."""
        number, self.columns = self.columns, self.columns + 1
        self.templates += [
            (number, Template(recipe.shape, list(recipe.slots), [text.encode() for text in recipe.texts]))
            for recipe in recipes
        ]
        return number


class Packer:
    """Makes parcels of the rows that are read. program: see `Program.text`."""

    def __init__(self, program: str) -> None:
        self.program = program
        read = Program.read(program)
        self.layout = Layout(read)
        self.with_headers = read.with_headers
        self.makes_headers = any(output.headers is not None for output in read.outputs)
        steps: list[tuple[int, int, Sequence[int], int]] = [
            (step.op, step.out, step.arguments, step.kind) for step in read.steps
        ]
        self.machine = Machine(
            reader_of(read.reader),
            read.base,
            list(read.kinds),
            dict(read.constants),
            list(read.parts),
            steps,
            self.layout.templates,
        )
        self.looked_at = {part for _, part in read.parts}
        self.sized = ["value", *(["key"] if "key" in self.layout.kept else [])]

    def packed(self, rows: pa.RecordBatch, topic: str, partition: int) -> Iterator[pa.RecordBatch]:
        """The rows with the columns of parcels; those of which records are made are moved into these."""
        if not rows.num_rows:
            return
        ends = sum(_ends(rows.column(name)) for name in self.sized)
        start = 0
        while start < rows.num_rows:
            fit = int(np.searchsorted(ends, ends[start] + BYTES_MAX, side="right")) - 1
            count = min(max(fit - start, 1), ROWS_MAX)
            yield from self._packed(rows.slice(start, count), topic, partition)
            start += count

    def _packed(self, rows: pa.RecordBatch, topic: str, partition: int) -> Iterator[pa.RecordBatch]:
        fates, columns = self._run_machine(rows, topic, partition)
        schema = _with_parcels(rows.schema)
        certain = fates == 1
        count = int(certain.sum())
        packed = self._batch(rows, certain, count, columns) if count else None
        if packed is not None and packed.nbytes > MADE_BYTES_MAX and rows.num_rows > 1:
            half = rows.num_rows // 2
            yield from self._packed(rows.slice(0, half), topic, partition)
            yield from self._packed(rows.slice(half), topic, partition)
            return
        pieces = [] if packed is None else [self._parcel_row(packed, rows.schema, topic, partition)]
        left = np.flatnonzero(fates == 0)
        if len(left):
            others = rows if len(left) == rows.num_rows else rows.take(pa.array(left))
            pieces.append(_without_parcel(others, schema))
        if pieces:
            yield pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _run_machine(
        self, rows: pa.RecordBatch, topic: str, partition: int
    ) -> tuple[Any, list[BinaryColumn]]:
        """What becomes of each row, see `Machine.run`, and the columns that were made."""
        headers = rows.column("headers")
        if self.makes_headers:  # added to those of the record by Spark
            wanted = np.ascontiguousarray(headers.is_null().cast(pa.uint8()).to_numpy(zero_copy_only=False))
        else:
            wanted = np.ones(rows.num_rows, np.uint8)
        parts: dict[int, Any] = {
            Part.KEY: _texts(rows.column("key")),
            Part.VALUE: _texts(rows.column("value")),
            Part.TOPIC: topic.encode(),
            Part.PARTITION: partition,
        }
        first = rows.column("value").offset
        for part, name in ((Part.OFFSET, "offset"), (Part.TIMESTAMP, "timestamp")):
            numbers = rows.column(name)
            assert numbers.offset == first, "all columns of a batch begin at the same row"
            parts[part] = np.frombuffer(numbers.buffers()[1], np.int64) if part in self.looked_at else None
        named = [_by_name(pairs) for pairs in headers.to_pylist()] if self.with_headers else []
        fates, columns = self.machine.run(rows.num_rows, parts, first, named, wanted)
        return np.frombuffer(fates, np.uint8), columns

    def _batch(
        self, rows: pa.RecordBatch, certain: Any, count: int, columns: list[BinaryColumn]
    ) -> pa.RecordBatch:
        """The contents of a parcel."""
        chosen = rows.select([*self.layout.kept, "timestamp", "offset"])
        if count < rows.num_rows:
            chosen = chosen.take(pa.array(np.flatnonzero(certain)))
        arrays, names = list(chosen.columns), list(chosen.schema.names)
        for number, column in enumerate(columns):
            array_ = _array(column)
            each = len(array_) // count
            arrays.append(array_ if each == 1 else pa.FixedSizeListArray.from_arrays(array_, each))
            names.append(str(number))
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _parcel_row(
        self, batch: pa.RecordBatch, schema: pa.Schema, topic: str, partition: int
    ) -> pa.RecordBatch:
        parcel = self._parcel(batch, topic, partition)
        nothing = [pa.nulls(1, field.type) for field in schema]
        ends = pa.py_buffer(np.array([0, parcel.size], np.int32))
        packed = pa.Array.from_buffers(pa.binary(), 1, [None, ends, parcel], null_count=0)
        counted = pa.array([batch.num_rows], pa.int32())
        return pa.RecordBatch.from_arrays([*nothing, packed, counted], schema=_with_parcels(schema))

    def _parcel(self, packed: pa.RecordBatch, topic: str, partition: int) -> pa.Buffer:
        about = {"program": self.program, "topic": topic, "partition": str(partition)}
        batch = packed.replace_schema_metadata(about)
        out = pa.BufferOutputStream()
        # Compressed, because Spark copies a row from process to process a dozen times.
        with pa.ipc.new_stream(
            out, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
        ) as stream:
            stream.write_batch(batch)
        return out.getvalue()


@lru_cache(maxsize=16)
def packer(program: str) -> Packer:
    """The packer for a program, which all tasks of a query in this process share."""
    return Packer(program)


def _ends(values: pa.Array) -> Any:
    """The position where each value begins, and where the last one ends."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return offsets.astype(np.int64)


def _texts(values: pa.Array) -> tuple[Any, Any, Any]:
    """Offsets, data and validity of a binary column."""
    valid, offsets, data = values.buffers()
    return (
        np.frombuffer(offsets, np.int32),
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8),
        None if valid is None else np.frombuffer(valid, np.uint8),
    )


def _by_name(headers: list[dict[str, Any]] | None) -> dict[bytes, bytes | None] | bool | None:
    """A record's headers by name, of those with one name the last; False if the value of one of them is not text, which
    fails in Spark."""
    if headers is None:
        return None
    try:
        for header in headers:
            if header["value"] is not None:
                header["value"].decode()
    except UnicodeDecodeError:
        return False
    return {header["key"].encode(): header["value"] for header in headers}


@lru_cache(maxsize=16)
def _with_parcels(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *PARCEL_FIELDS])


def _without_parcel(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    nothing = [pa.nulls(rows.num_rows, field.type) for field in PARCEL_FIELDS]
    return pa.RecordBatch.from_arrays([*rows.columns, *nothing], schema=schema)


# --- the writing side ---------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def layout_of(program: str) -> Layout:
    """The layout of a program, which all parcels of a query in this process share."""
    return Layout(Program.read(program))


def opened_parcel(parcel: pa.Buffer) -> list[pa.RecordBatch]:
    """The rows for each topic, with the columns of SINK_SCHEMA and the mark ONE_TOPIC."""
    with pa.ipc.open_stream(parcel) as stream:
        batch = stream.read_next_batch()
    about = {name.decode(): value.decode() for name, value in batch.schema.metadata.items()}
    opened: list[pa.RecordBatch] = []
    for output, places in layout_of(about["program"]).outputs:
        rows = _rows_of(output, places, batch, about["topic"], int(about["partition"]))
        if "topic" not in places:
            opened.append(rows)
            continue
        topics = rows.column("topic")
        opened += [rows.filter(pc.equal(topics, name)) for name in pc.unique(topics).to_pylist()]
    return opened


def _rows_of(
    output: RecordRecipe, places: Mapping[str, int], batch: pa.RecordBatch, topic: str, partition: int
) -> pa.RecordBatch:
    rows = batch.num_rows
    origin = [_same(topic, rows), pa.repeat(pa.scalar(partition, pa.int32()), rows)]
    origin += [batch.column("offset"), _same(output.output, rows)]
    columns = {name: batch.column(str(number)) for name, number in places.items()}
    headers = columns.get("headers")
    arrays = [
        _same(str(output.topic), rows) if "topic" not in columns else columns["topic"].cast(pa.string()),
        columns.get("key") if "key" in columns else batch.column("key"),
        columns.get("value") if "value" in columns else batch.column("value"),
        batch.column("headers") if headers is None else _headers(output, headers, rows),
        batch.column("timestamp"),
        pa.StructArray.from_arrays(origin, fields=list(ORIGIN_TYPE)),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=OPENED_SCHEMA)


def _array(column: BinaryColumn) -> pa.Array:
    validity = column.validity
    buffers = [
        None if validity is None else pa.py_buffer(validity),
        pa.py_buffer(column.offsets),
        pa.py_buffer(column.data),
    ]
    return pa.Array.from_buffers(
        pa.binary(), len(column.offsets) // 4 - 1, buffers, null_count=column.null_count
    )


def _headers(output: RecordRecipe, values: pa.Array, rows: int) -> pa.Array:
    """Headers with the same names in every row. values: of each row, or a list of them for each row."""
    assert output.headers is not None
    names = [name.encode() for name, _ in output.headers]
    flat = values.flatten() if pa.types.is_fixed_size_list(values.type) else values
    ends = np.cumsum([0, *map(len, names)], dtype=np.int64)
    starts = (np.arange(rows, dtype=np.int64)[:, None] * ends[-1] + ends[:-1]).ravel()
    offsets = np.append(starts, rows * ends[-1]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(names) * rows)]
    keys = pa.Array.from_buffers(pa.string(), rows * len(names), buffers, null_count=0)
    pairs = pa.StructArray.from_arrays([keys, flat], fields=list(HEADER_TYPE))
    lists = pa.py_buffer(np.arange(0, rows * len(names) + 1, len(names), dtype=np.int32))
    return pa.Array.from_buffers(ARROW_TYPES["headers"], rows, [None, lists], null_count=0, children=[pairs])


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows for the sink, with the rows of each parcel in place of the parcel.

    Rows that Spark's expressions made come directly after the parcel with the other lines of their batch. Rows for the
    same topics as the parcel's are sorted in among these; others, mostly dead letters, are collected and returned
    later. The order within each topic is kept.
    """
    sorter = _Sorter()
    for batch in batches:
        if PARCEL not in batch.schema.names:
            yield batch
            continue
        parcels = batch.column(PARCEL)
        rows = pa.RecordBatch.from_arrays(
            [retyped(batch.column(field.name), field.type) for field in SINK_SCHEMA], schema=SINK_SCHEMA
        )
        start = 0
        for place in [*pc.indices_nonzero(parcels.is_valid()).to_pylist(), rows.num_rows]:
            if place > start:
                yield from sorter.take(rows.slice(start, place - start))
            if place < rows.num_rows:
                yield from sorter.end()
                yield from sorter.open(opened_parcel(parcels[place].as_buffer()))
                start = place + 1
    yield from sorter.end()
    yield from sorter.aside.taken()


class _RowsKeptBack:
    """Rows that are held back."""

    def __init__(self) -> None:
        self.pieces: list[pa.RecordBatch] = []
        self.rows = self.bytes = 0

    def add(self, piece: pa.RecordBatch) -> None:
        if piece.num_rows:
            self.pieces.append(piece)
            self.rows += piece.num_rows
            self.bytes += piece.nbytes

    def is_full(self) -> bool:
        return self.rows >= HELD_ROWS or self.bytes >= HELD_BYTES

    def taken(self) -> list[pa.RecordBatch]:
        pieces, self.pieces = self.pieces, []
        self.rows = self.bytes = 0
        return pieces


class _Sorter:
    """Sorts rows in among those of a parcel. opened: the parcel's rows that were not returned yet, by topic. behind:
    rows that came after the parcel. aside: earlier rows for other topics, in order."""

    def __init__(self) -> None:
        self.opened: dict[str, pa.RecordBatch] = {}
        self.behind, self.aside = _RowsKeptBack(), _RowsKeptBack()

    def open(self, pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Begins with the rows of another parcel. Returns the rows that were put aside if any are for its topics: a route
        may not have chosen these topics in the parcel before."""
        self.opened = {piece.column("topic")[0].as_py(): piece for piece in pieces}
        waiting = {name for rows in self.aside.pieces for name in pc.unique(rows.column("topic")).to_pylist()}
        if not waiting.isdisjoint(self.opened):
            yield from self.aside.taken()

    def take(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Accepts rows that come after the parcel; holds them back until the last one, or until there are too many."""
        if not self.opened:
            yield rows
        elif rows.num_rows > 1 and rows.nbytes > HELD_BYTES:
            half = rows.num_rows // 2
            yield from self.take(rows.slice(0, half))
            yield from self.take(rows.slice(half))
        else:
            self.behind.add(rows)
            if self.behind.is_full():
                yield from self.end(max(pc.max(_offsets(piece)).as_py() for piece in self.behind.pieces))

    def end(self, last: int | None = None) -> Iterator[pa.RecordBatch]:
        """Returns the rows of the parcel and those behind it, in order. last: the offset up to which the parcel's rows
        are returned; None for all. Rows for other topics are put aside."""
        behind = self._own()
        for topic, piece in self.opened.items():
            cut = piece.num_rows
            if last is not None:
                cut = int(np.searchsorted(_offsets(piece).to_numpy(), last, side="right"))
            self.opened[topic], piece = piece.slice(cut), piece.slice(0, cut)
            among = [rows.filter(pc.equal(rows.column("topic"), topic)) for rows in behind]
            if any(rows.num_rows for rows in among):
                piece = pa.concat_batches([piece, *among])
                piece = piece.take(pc.sort_indices(_offsets(piece)))
            if piece.num_rows:
                yield piece
        if self.aside.is_full():
            yield from self.aside.taken()

    def _own(self) -> list[pa.RecordBatch]:
        """The batches behind the parcel with rows for its topics; rows for other topics are put aside."""
        own = []
        for rows in self.behind.taken():
            topics = rows.column("topic")
            names = set(pc.unique(topics).to_pylist())
            others = names - set(self.opened)
            if names != others:
                own.append(rows)
                rows = rows.filter(pc.is_in(topics, pa.array(others, pa.string())))
            self.aside.add(rows)
        return own


def _offsets(rows: pa.RecordBatch) -> pa.Array:
    return pc.struct_field(rows.column("origin"), "offset")


def _same(text: str, rows: int) -> pa.Array:
    offsets, data = repeat(text.encode(), rows)
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
    )


def retyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array with another type. Nothing is copied if only names of list elements, or what may be null, differ."""
    if array.type == kind:
        return array
    if array.offset or array.type.id != kind.id:
        return array.cast(kind)
    if pa.types.is_list(kind):
        children = [retyped(array.values, kind.value_type)]
        return pa.Array.from_buffers(
            kind, len(array), array.buffers()[:2], array.null_count, children=children
        )
    if pa.types.is_struct(kind):
        children = [retyped(array.field(i), field.type) for i, field in enumerate(kind)]
        return pa.Array.from_buffers(
            kind, len(array), array.buffers()[:1], array.null_count, children=children
        )
    return array.cast(kind)
