"""Converts between the buffers of `records.columnar` and Arrow record batches with Spark's Kafka columns.

The columns are those of Spark's own Kafka source: key, value (binary), topic (string), partition (int32),
offset (int64), timestamp (microseconds, UTC), timestampType (int32: 0 create time, 1 log append time) and, on
request, headers (list of key and value; null for a record without headers).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from barnabas.records.columnar import BinaryColumn, Decoded, repeat
from barnabas.records.columnar_encoder import BatchEncoder

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),
}
DDL_TYPES: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
BASE_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    """The Arrow schema of these columns, equal to the one that Spark derives from `ddl_schema`."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in names])


def ddl_schema(names: tuple[str, ...]) -> str:
    """The schema of these columns as Spark DDL."""
    return ", ".join(f"{name} {DDL_TYPES[name]}" for name in names)


def _binary(column: BinaryColumn, rows: int, kind: pa.DataType) -> pa.Array:
    validity = column.validity
    buffers = [
        None if validity is None else pa.py_buffer(validity),
        pa.py_buffer(column.offsets),
        pa.py_buffer(column.data),
    ]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=column.null_count)


def _header_names(column: BinaryColumn, rows: int) -> pa.Array:
    """Header names as strings; bytes that are not UTF-8 become replacement characters, as in Java."""
    names = _binary(column, rows, pa.string())
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = _binary(column, rows, pa.binary()).to_pylist()
        return pa.array(
            [None if name is None else name.decode("utf-8", "replace") for name in raw], pa.string()
        )
    return names


def _headers(decoded: Decoded) -> pa.Array:
    assert decoded.headers is not None
    assert decoded.header_keys is not None
    assert decoded.header_values is not None
    entries = len(decoded.header_keys.offsets) // 4 - 1
    pairs = pa.StructArray.from_arrays(
        [_header_names(decoded.header_keys, entries), _binary(decoded.header_values, entries, pa.binary())],
        fields=list(HEADER_TYPE),
    )
    validity = decoded.headers.validity
    return pa.Array.from_buffers(
        ARROW_TYPES["headers"],
        decoded.rows,
        [None if validity is None else pa.py_buffer(validity), pa.py_buffer(decoded.headers.offsets)],
        null_count=decoded.headers.null_count,
        children=[pairs],
    )


def _column(name: str, decoded: Decoded, topic: str, partition: int) -> pa.Array:
    rows = decoded.rows
    if name == "key":
        return _binary(decoded.key, rows, pa.binary())
    if name == "value":
        return _binary(decoded.value, rows, pa.binary())
    if name == "topic":
        offsets, data = repeat(topic.encode(), rows)
        return pa.Array.from_buffers(
            pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)], null_count=0
        )
    if name == "partition":
        return pa.repeat(pa.scalar(partition, pa.int32()), rows)
    if name == "headers":
        return _headers(decoded)
    source = {
        "offset": decoded.offsets,
        "timestamp": decoded.timestamps_us,
        "timestampType": decoded.timestamp_types,
    }[name]
    return pa.Array.from_buffers(ARROW_TYPES[name], rows, [None, pa.py_buffer(source)], null_count=0)


def record_batches(
    decoded: Decoded, topic: str, partition: int, schema: pa.Schema, rows_max: int
) -> Iterator[pa.RecordBatch]:
    """The decoded records as batches of at most `rows_max` rows: slices of the same buffers, without copies."""
    if decoded.rows == 0:
        return
    arrays = [_column(name, decoded, topic, partition) for name in schema.names]
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for start in range(0, decoded.rows, rows_max):
        yield whole.slice(start, rows_max)


def _binary_buffers(array: pa.Array) -> Any:
    kind = array.type
    wide = 8 if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) else 4
    validity, offsets, data = array.buffers()
    return offsets, data, validity, array.offset, wide


def _as_binary(array: pa.Array, name: str) -> pa.Array:
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return array
    if pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        return array
    if pa.types.is_null(kind):
        return array.cast(pa.binary())
    raise TypeError(f"column {name} has type {kind}; a record's {name} is string or binary")


def _header_buffers(array: pa.Array) -> Any:
    if not pa.types.is_list(array.type) or not pa.types.is_struct(array.type.value_type):
        raise TypeError(f"column headers has type {array.type}, not array<struct<key:string,value:binary>>")
    validity, offsets = array.buffers()[:2]
    pairs = array.values
    names = [field.name for field in pairs.type]
    if names != ["key", "value"]:
        raise TypeError(f"the structs in column headers have fields {names}, not key and value")
    return (
        (offsets, None, validity, array.offset, 4),
        _binary_buffers(_as_binary(pairs.field(0), "headers.key")),
        _binary_buffers(_as_binary(pairs.field(1), "headers.value")),
    )


def _timestamp_buffers(array: pa.Array) -> Any:
    per_ms = {"ms": 1, "us": 1_000, "ns": 1_000_000}
    if pa.types.is_int64(array.type):
        units = 1
    elif pa.types.is_timestamp(array.type) and array.type.unit in per_ms:
        units = per_ms[array.type.unit]
    else:
        raise TypeError(f"column timestamp has type {array.type}, not timestamp or bigint (milliseconds)")
    validity, data = array.buffers()
    return data, validity, array.offset, units


def append_batch(encoder: BatchEncoder, batch: pa.RecordBatch, now_ms: int) -> None:
    """Adds each row as one record, from the column value and, if present, key, headers, timestamp and partition.

    now_ms: the time of records without a timestamp. Raises TypeError, which names the column, for a wrong type.
    """
    columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    value = _binary_buffers(_as_binary(columns["value"], "value"))
    key = _binary_buffers(_as_binary(columns["key"], "key")) if "key" in columns else None
    timestamp = _timestamp_buffers(columns["timestamp"]) if "timestamp" in columns else None
    headers = _header_buffers(columns["headers"]) if "headers" in columns else None
    partition = None
    if "partition" in columns:
        array = columns["partition"].cast(pa.int32())
        validity, data = array.buffers()
        partition = (data, validity, array.offset)
    encoder.append(
        batch.num_rows, value, key, now_ms=now_ms, timestamp=timestamp, partition=partition, headers=headers
    )
