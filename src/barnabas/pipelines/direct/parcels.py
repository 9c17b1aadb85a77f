"""Parcels: up to a thousand plain lines that pass through Spark as one row, see planning.py.

The reading side adds a column of parcels to each batch. If any line is plain, the first row has only a parcel; the
other rows are lines for Spark's expressions. The writing side makes the outputs' records of the lines in a parcel. The
records of an output are then in the order of their lines' offsets, whichever way they came.

A parcel is a compressed stream in Arrow's IPC format, with one batch: value, timestamp and offset of each line, and the
key if an output keeps it. The batch's metadata has the topic, the partition and the program for the lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipelines.direct.lines import Column, Maker, Template
from barnabas.pipelines.direct.program import ONE_TOPIC, PARCEL, PARCEL_ROWS, Made, Program, Recipe
from barnabas.pipelines.formats.columns import ARROW_TYPES, HEADER_TYPE
from barnabas.records.columnar import repeat

PARCEL_DDL: Final = f"{PARCEL} binary, {PARCEL_ROWS} int"
PARCEL_FIELDS: Final = (pa.field(PARCEL, pa.binary()), pa.field(PARCEL_ROWS, pa.int32()))
ROWS_MAX: Final = 1024
BYTES_MAX: Final = 512 << 10
"""Limit of the keys and values in one parcel, unless those of a single line are larger."""
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


class Packer:
    """Puts the plain lines among the rows that are read into parcels. program: see `Program.text`."""

    def __init__(self, program: str) -> None:
        self.program = program
        read = Program.read(program)
        self.judge = Maker(read.combined, list(read.fields), [])
        self.sized = ["value"] if all(made.key is not None for made in read.outputs) else ["key", "value"]
        self.carried = [*self.sized, "timestamp", "offset"]

    def packed(self, rows: pa.RecordBatch, topic: str, partition: int) -> Iterator[pa.RecordBatch]:
        """The rows with the columns of parcels; the plain lines are moved into these."""
        if not rows.num_rows:
            return
        ends = sum(_ends(rows.column(name)) for name in self.sized)
        start = 0
        while start < rows.num_rows:
            fit = int(np.searchsorted(ends, ends[start] + BYTES_MAX, side="right")) - 1
            count = min(max(fit - start, 1), ROWS_MAX)
            yield self._packed(rows.slice(start, count), topic, partition)
            start += count

    def _packed(self, rows: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
        headers = rows.column("headers")
        # Records with headers are left to Spark.
        wanted = headers.is_null().cast(pa.uint8()).to_numpy(zero_copy_only=False)
        certain, _ = _worked(self.judge, rows.column("value"), wanted)
        count = int(certain.sum())
        schema = _with_parcels(rows.schema)
        if not count:
            return _without_parcel(rows, schema)
        chosen = rows.select(self.carried)
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


def _worked(maker: Maker, values: pa.Array, wanted: Any) -> tuple[Any, list[Column]]:
    """Which values the maker is certain about (1 or 0 for each), and the columns that it made of those."""
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
    """Makes the records of lines in parcels. places: the columns' indices for each output's key, value and headers."""

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
        """The rows of each output, with the columns of SINK_SCHEMA and the mark ONE_TOPIC."""
        rows = lines.num_rows
        certain, columns = _worked(self.maker, lines.column("value"), np.ones(rows, np.uint8))
        assert certain.all(), "a line in a parcel is not plain"
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
            found.append(pa.RecordBatch.from_arrays(arrays, schema=OPENED_SCHEMA))
        return found


@lru_cache(maxsize=16)
def opener(program: str) -> Opener:
    """The opener for a program, which all parcels of a query in this process share."""
    return Opener(program)


def opened_parcel(parcel: pa.Buffer) -> list[pa.RecordBatch]:
    """The rows of each output, made of a parcel's lines."""
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
    """Headers with the same names in every row. values: those of the first row, then those of the second, and so on."""
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
                sorter.open(opened_parcel(parcels[place].as_buffer()))
                start = place + 1
    yield from sorter.end()
    yield from sorter.aside.taken()


class _Held:
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
        self.behind, self.aside = _Held(), _Held()

    def open(self, pieces: Iterable[pa.RecordBatch]) -> None:
        self.opened = {piece.column("topic")[0].as_py(): piece for piece in pieces}

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
            found = set(pc.unique(topics).to_pylist())
            others = found - set(self.opened)
            if found != others:
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
