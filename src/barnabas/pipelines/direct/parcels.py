"""Parcels: a thousand plain lines as one row on their way through Spark. See planning.py.

The reading side puts a column `parcel` into each batch: its first row is a parcel, with nothing else in it, and below it
come the lines that Spark's expressions take. The writing side makes the outputs' records of the lines in a parcel. The
records of an output then stand in the order of their lines' offsets, whichever way they came.

A parcel is a stream of Arrow's IPC format, compressed, with one batch: key, value, time and offset of each line. The program
that the lines are plain to goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipelines.columns import ARROW_TYPES, HEADER_TYPE
from barnabas.pipelines.direct.lines import Column, Maker, Template
from barnabas.pipelines.direct.program import Made, Program, Recipe
from barnabas.records.columnar import repeat

PARCEL: Final = "parcel"
PARCEL_ROWS: Final = "parcelRows"
"""How many lines are in it."""
PARCEL_DDL: Final = f"{PARCEL} binary, {PARCEL_ROWS} int"
PARCEL_FIELDS: Final = (pa.field(PARCEL, pa.binary()), pa.field(PARCEL_ROWS, pa.int32()))
ROWS_MAX: Final = 1024
BYTES_MAX: Final = 512 << 10
"""Of the lines of one parcel, unless a single line is larger."""
CARRIED: Final = ["key", "value", "timestamp", "offset"]
ASIDE_ROWS: Final = 4096
ASIDE_BYTES: Final = 4 << 20
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


# --- the reading side ---------------------------------------------------------------------------------


class Packer:
    """Makes parcels of what is read. program: as an option of the data source."""

    def __init__(self, program: str) -> None:
        self.program = program
        read = Program.read(program)
        self.judge = Maker(read.combined, list(read.fields), [])

    def packed(self, rows: pa.RecordBatch, topic: str, partition: int) -> Iterator[pa.RecordBatch]:
        """The rows with the columns of parcels, most of the rows in those."""
        step = max(min(ROWS_MAX, BYTES_MAX * rows.num_rows // (rows.column("value").nbytes + 1)), 1)
        for start in range(0, rows.num_rows, step):
            yield self._packed(rows.slice(start, step), topic, partition)

    def _packed(self, rows: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
        headers = rows.column("headers")
        # What a record's own headers become, Spark knows.
        wanted = headers.is_null().cast(pa.uint8()).to_numpy(zero_copy_only=False)
        certain, _ = _worked(self.judge, rows.column("value"), wanted)
        count = int(certain.sum())
        schema = _with_parcels(rows.schema)
        if not count:
            return _without_parcel(rows, schema)
        chosen = rows.select(CARRIED)
        if count < rows.num_rows:
            chosen = chosen.take(pa.array(np.flatnonzero(certain)))
        parcel = self._parcel(chosen, topic, partition)
        nothing = [pa.nulls(1, field.type) for field in rows.schema]
        ends = pa.py_buffer(np.array([0, parcel.size], np.int32))
        packed = pa.Array.from_buffers(pa.binary(), 1, [None, ends, parcel], null_count=0)
        first = pa.RecordBatch.from_arrays([*nothing, packed, pa.array([count], pa.int32())], schema=schema)
        if count == rows.num_rows:
            return first
        left = rows.take(pa.array(np.flatnonzero(certain == 0)))
        return pa.concat_batches([first, _without_parcel(left, schema)])

    def _parcel(self, lines: pa.RecordBatch, topic: str, partition: int) -> pa.Buffer:
        about = {"program": self.program, "topic": topic, "partition": str(partition)}
        batch = lines.replace_schema_metadata(about)
        out = pa.BufferOutputStream()
        # Spark copies what is in a row a dozen times from process to process.
        with pa.ipc.new_stream(
            out, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
        ) as stream:
            stream.write_batch(batch)
        return out.getvalue()


@lru_cache(maxsize=16)
def packer(program: str) -> Packer:
    """The same one for all tasks of a query."""
    return Packer(program)


def _worked(maker: Maker, values: pa.Array, wanted: Any) -> tuple[Any, list[Column]]:
    """Which values the maker is certain about, as 0 and 1, and the columns that it made of those."""
    _, offsets, data = values.buffers()
    certain, columns = maker.make(
        len(values),
        np.frombuffer(offsets, np.int32),
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8),
        values.offset,
        np.ascontiguousarray(wanted),
    )
    return np.frombuffer(certain, np.uint8), columns


@lru_cache(maxsize=16)
def _with_parcels(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *PARCEL_FIELDS])


def _without_parcel(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    nothing = [pa.nulls(rows.num_rows, field.type) for field in PARCEL_FIELDS]
    return pa.RecordBatch.from_arrays([*rows.columns, *nothing], schema=schema)


# --- the writing side ---------------------------------------------------------------------------------


class Opener:
    """Makes the records of the lines in parcels. places: the columns of each output's key, value and headers."""

    def __init__(self, program: str) -> None:
        read = Program.read(program)
        self.outputs = read.outputs
        self.places: list[tuple[int | None, int, int | None]] = []
        templates: list[tuple[int, Template]] = []
        number = 0
        for made in read.outputs:
            key = headers = None
            if made.key is not None:
                key, number = number, number + 1
                templates.append((key, _template(made.key)))
            value, number = number, number + 1
            templates.append((value, _template(made.value)))
            if made.headers:
                headers, number = number, number + 1
                templates += [(headers, _template(recipe)) for _, recipe in made.headers]
            self.places.append((key, value, headers))
        self.maker = Maker(read.combined, list(read.fields), templates)

    def opened(self, lines: pa.RecordBatch, topic: str, partition: int) -> list[pa.RecordBatch]:
        """The rows of each output, with the columns of SINK_SCHEMA."""
        rows = lines.num_rows
        certain, columns = _worked(self.maker, lines.column("value"), np.ones(rows, np.uint8))
        assert certain.all(), "only lines that are plain to the program are in a parcel"
        found = []
        for made, (key, value, headers) in zip(self.outputs, self.places, strict=True):
            origin = [_same(topic, rows), pa.repeat(pa.scalar(partition, pa.int32()), rows)]
            origin += [lines.column("offset"), _same(made.output, rows)]
            arrays = [
                _same(made.topic, rows),
                lines.column("key") if key is None else _array(columns[key]),
                _array(columns[value]),
                pa.nulls(rows, ARROW_TYPES["headers"])
                if headers is None
                else _headers(made, columns[headers], rows),
                lines.column("timestamp"),
                pa.StructArray.from_arrays(origin, fields=list(ORIGIN_TYPE)),
            ]
            found.append(pa.RecordBatch.from_arrays(arrays, schema=SINK_SCHEMA))
        return found


@lru_cache(maxsize=16)
def opener(program: str) -> Opener:
    """The same one for all parcels of a query."""
    return Opener(program)


def opened_parcel(parcel: pa.Buffer) -> list[pa.RecordBatch]:
    """The rows of each output that are made of a parcel's lines."""
    with pa.ipc.open_stream(parcel) as stream:
        lines = stream.read_next_batch()
    about = {name.decode(): value.decode() for name, value in lines.schema.metadata.items()}
    return opener(about["program"]).opened(lines, about["topic"], int(about["partition"]))


def _template(recipe: Recipe) -> Template:
    return Template(recipe.shape, list(recipe.fields), [text.encode() for text in recipe.texts])


def _array(column: Column) -> pa.Array:
    validity = column.validity
    buffers = [
        None if validity is None else pa.py_buffer(validity),
        pa.py_buffer(column.offsets),
        pa.py_buffer(column.data),
    ]
    return pa.Array.from_buffers(pa.binary(), column.rows, buffers, null_count=column.null_count)


def _headers(made: Made, values: Column, rows: int) -> pa.Array:
    """The same names in every row, with the values of a column that holds them row by row."""
    names = [name.encode() for name, _ in made.headers]
    ends = np.cumsum([0, *map(len, names)], dtype=np.int64)
    starts = (np.arange(rows, dtype=np.int64)[:, None] * ends[-1] + ends[:-1]).ravel()
    offsets = np.append(starts, rows * ends[-1]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(names) * rows)]
    keys = pa.Array.from_buffers(pa.string(), rows * len(names), buffers, null_count=0)
    pairs = pa.StructArray.from_arrays([keys, _array(values)], fields=list(HEADER_TYPE))
    lists = pa.py_buffer(np.arange(0, rows * len(names) + 1, len(names), dtype=np.int32))
    return pa.Array.from_buffers(ARROW_TYPES["headers"], rows, [None, lists], null_count=0, children=[pairs])


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows for the sink, with those of parcels in place of the parcels.

    Rows that went the long way come right behind the parcel of the lines that they lay among. Those for the same topics are
    put back into their places; others, dead letters as a rule, are gathered.
    """
    opened: list[pa.RecordBatch] = []
    behind: list[pa.RecordBatch] = []
    aside: list[pa.RecordBatch] = []
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
                behind.append(rows.slice(start, place - start))
            if place < rows.num_rows:
                yield from _in_order(opened, behind, aside)
                opened, behind, start = opened_parcel(parcels[place].as_buffer()), [], place + 1
        if not opened or sum(piece.num_rows for piece in behind) >= ROWS_MAX * len(opened):
            yield from _in_order(opened, behind, aside)
            opened, behind = [], []
        if (
            sum(piece.num_rows for piece in aside) >= ASIDE_ROWS
            or sum(piece.nbytes for piece in aside) >= ASIDE_BYTES
        ):
            yield from aside
            aside.clear()
    yield from _in_order(opened, behind, aside)
    yield from aside


def _in_order(
    opened: list[pa.RecordBatch], behind: list[pa.RecordBatch], aside: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A parcel's rows with those behind it, which go aside when they are for other topics."""
    if not opened:
        yield from behind
        return
    own = {piece.column("topic")[0].as_py() for piece in opened}
    among = [piece for piece in behind if own & set(pc.unique(piece.column("topic")).to_pylist())]
    aside += [piece for piece in behind if not any(piece is other for other in among)]
    if not among:
        yield from opened
        return
    whole = pa.concat_batches([*opened, *among])
    yield whole.take(pc.sort_indices(pc.struct_field(whole.column("origin"), "offset")))


def _same(text: str, rows: int) -> pa.Array:
    offsets, data = repeat(text.encode(), rows)
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
    )


def retyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same array where types differ in the names of lists' elements, and in what may be null."""
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
