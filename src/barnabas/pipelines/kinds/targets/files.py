"""Writes files on any file system that Spark reaches (local, HDFS, s3a://, ...): a Delta Lake table, or plain files.

    files: {path: data/archive}                                                                     a Delta Lake table
    files: {path: data/archive, format: parquet, partition_by: [day], merge: {files: 20, below_mb: 64}}

See delta.py for tables. Plain files (parquet, orc, json, csv) of a micro-batch are written to a staging folder, noted,
and then moved to names that contain the checkpoint's query id and the batch number: a repeated batch replaces its own
files, and never those of another checkpoint. With `merge`, once a folder has `files` files smaller than `below_mb`,
they become one file; files of the newest batch do not, because it may be repeated. Readers that skip names that begin
with an underscore (Spark, Hive, DuckDB by pattern) never see unfinished files.

Without any step the record itself is archived: topic, partition, offset, timestamp, key, value, headers; keys and
values as bytes in Delta, Parquet and ORC, as text in JSON and CSV. Fields of open JSON are written unchanged to JSON
files; in Delta, Parquet and ORC each becomes a column of text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Choice, Flag, Group, Named, Number, Several, Text
from barnabas.pipelines.kinds.targets import delta
from barnabas.pipelines.kinds.targets.base import Delivery, DeliveryError, TargetKind
from barnabas.pipelines.kinds.targets.merging import NOTES, finish_merges, merge
from barnabas.pipelines.spark.exact_json import json_text
from barnabas.pipelines.spark.folders import Folder
from barnabas.pipelines.spark.frame import OPEN, Frame, quoted
from barnabas.pipelines.spark.outgoing import DOCUMENT

FORMATS: Final = ("delta", "parquet", "json", "csv", "orc")
BINARY_FORMATS: Final = ("delta", "parquet", "orc")
NOTES_KEPT: Final = 50
COLUMNS_MAX: Final = 1000
"""If open JSON has more names than this, they are data, not names of columns."""


SHAPE: Final = Group(
    {
        "path": Text("a folder, or a URL that Spark reaches"),
        "format": Choice(FORMATS, "default delta: a Delta Lake table"),
        "partition_by": Several(Text("a field"), "fields; a folder is made for each of their values"),
        "compression": Text("like snappy, zstd, gzip"),
        "header": Flag("whether CSV files begin with the names of the fields; default true"),
        "merge": Group(
            {
                "files": Number("how many small files are merged into one; default 20", 2),
                "below_mb": Number("the size in MiB below which files are small; default 64"),
            },
            "merge small files into larger ones",
        ),
        "rows_per_file": Number("about how many rows a file gets; default 1000000"),
        "storage": Named(Text(), "options of deltalake to reach the table's bucket", guarded=True),
    },
    "files, or a Delta Lake table",
    required=("path",),
)


def _check(item: Item) -> Mapping[str, Any]:
    entries = SHAPE.open(item)
    options: dict[str, Any] = {
        "path": entries["path"].text().rstrip("/") or "/",
        "format": entries["format"].choice(FORMATS) if "format" in entries else "delta",
        "partition_by": list(entries["partition_by"].texts()) if "partition_by" in entries else [],
        "compression": entries["compression"].text() if "compression" in entries else None,
        "header": entries["header"].flag() if "header" in entries else True,
        "rows_per_file": entries["rows_per_file"].number() if "rows_per_file" in entries else 1_000_000,
        "storage": entries["storage"].text_map() if "storage" in entries else {},
        "merge": None,
    }
    if options["storage"] and options["format"] != "delta":
        entries["storage"].fail(
            "storage is only for format: delta; it tells deltalake how to reach the table's bucket"
        )
    if options["format"] == "delta":
        options["merge"] = {"files": 20, "below_bytes": 64 << 20}
    if "merge" in entries:
        merge_entries = entries["merge"].mapping()
        options["merge"] = {
            "files": merge_entries["files"].number(2) if "files" in merge_entries else 20,
            "below_bytes": (merge_entries["below_mb"].number() if "below_mb" in merge_entries else 64) << 20,
        }
    return options


def _reach(options: Mapping[str, Any]) -> None:
    """There is nothing to check: Spark creates the folder with the first batch."""


def _write(options: Mapping[str, Any], delivery: Delivery, frame: Frame) -> None:
    spark = frame.data.sparkSession
    folder = Folder(spark, options["path"])
    rows = _rows(options, frame)
    if options["format"] == "delta":
        _write_delta(options, delivery, rows, folder)
        return
    finish_merges(folder, delivery.identity)
    notes = f"{NOTES}/{delivery.identity}/batches"
    note = f"{notes}/{delivery.batch_id:010d}.json"
    if folder.exists(note):  # this batch was delivered before, in part or whole
        for name in folder.read_note(note)["files"]:
            folder.delete(name)
    staging = f"{NOTES}/{delivery.identity}/staging"
    moves = _staged(options, delivery, rows, folder, staging)
    folder.write_note(note, {"files": list(moves.values())})
    for source, target in moves.items():
        folder.move(source, target)
    folder.delete(staging)
    for old in folder.names(notes)[:-NOTES_KEPT]:
        folder.delete(f"{notes}/{old}")
    if options["merge"] is not None:
        merge(options, spark, folder, delivery)


def _write_delta(options: Mapping[str, Any], delivery: Delivery, rows: DataFrame, folder: Folder) -> None:
    table = delta.open_table(options)
    if delta.already_in(table, delivery):
        return
    schema = delta.delta_schema(rows)
    table = delta.prepared(options, table, schema)
    staging = f"{NOTES}/{delivery.identity}/staging"
    moves = _staged(options, delivery, rows, folder, staging)
    sizes = dict(folder.files(staging))
    counts = delta.row_counts(rows.sparkSession, options, folder, list(moves))
    for source, target in moves.items():
        folder.move(source, target)
    folder.delete(staging)
    if moves:
        files = {target: (sizes[source], counts[source]) for source, target in moves.items()}
        delta.commit(options, table, delivery, files)
        delta.compact(options, table, delivery.batch_id)


def _rows(options: Mapping[str, Any], frame: Frame) -> DataFrame:
    """The rows with the columns that are written."""
    columns = {name: _column(options, frame, name) for name in frame.fields}
    if not frame.open:
        return frame.data.select(*[column.alias(name) for name, column in columns.items()])
    if options["format"] == "json":
        by = [columns[name].alias(name) for name in options["partition_by"]]
        return frame.data.select(DOCUMENT, *by)
    names = frame.data.select(F.explode(F.map_keys(OPEN)).alias("name")).distinct().limit(COLUMNS_MAX + 1)
    names_present = sorted(row.name for row in names.collect())
    if len(names_present) > COLUMNS_MAX:
        raise DeliveryError(
            f"the records have more than {COLUMNS_MAX} different fields: name those to keep in a keep step, or use "
            "format: json"
        )
    columns |= {name: F.col(OPEN)[name].cast("string") for name in names_present}
    return frame.data.select(*[column.alias(name) for name, column in columns.items()])


def _column(options: Mapping[str, Any], frame: Frame, name: str) -> Column:
    """A field in a type that the format has: variants as text, in CSV objects and arrays as JSON."""
    kind = frame.data.schema[name].dataType.simpleString()
    column = F.col(quoted(name))
    if kind in ("variant", "void"):
        return column.cast("string")
    if options["format"] == "csv" and kind.startswith(("struct", "map", "array")):
        return json_text(frame.data, column)
    return column


def _staged(
    options: Mapping[str, Any], delivery: Delivery, rows: DataFrame, folder: Folder, staging: str
) -> dict[str, str]:
    """Writes rows to the staging folder, in few files: about one per rows_per_file rows, or one per value of the
    partitioning fields. Returns the final name of each file."""
    by = options["partition_by"]
    raw = DOCUMENT in rows.columns
    if by:
        rows = rows.repartition(*[quoted(name) for name in by])
    else:
        rows = rows.coalesce(max(rows.count() // options["rows_per_file"], 1))
    kind = {"delta": "parquet", "json": "text" if raw else "json"}.get(options["format"], options["format"])
    writer = rows.write.mode("overwrite").format(kind)
    if by:
        writer = writer.partitionBy(*by)
    if options["compression"] is not None:
        writer = writer.option("compression", options["compression"])
    if kind == "csv":
        # Blanks around values are kept, and a quote inside of quotes is written twice (RFC 4180).
        writer = writer.options(
            header=options["header"],
            escape='"',
            ignoreLeadingWhiteSpace=False,
            ignoreTrailingWhiteSpace=False,
        )
    if kind == "json":
        writer = writer.option("ignoreNullFields", "false")
    writer.save(f"{options['path']}/{staging}")
    return _names(options, delivery, folder, staging)


def _names(options: Mapping[str, Any], delivery: Delivery, folder: Folder, staging: str) -> dict[str, str]:
    """The final name of each written file: in the same subfolder, our own name with the ending that Spark chose."""
    moves = {}
    for number, (name, _) in enumerate(sorted(folder.files(staging))):
        inner = name[len(staging) :].lstrip("/")
        ending = "." + posixpath.basename(inner).partition(".")[2]
        ending = re.sub(r"^\.c\d+\.|^\.txt", lambda m: "." if m[0].startswith(".c") else ".json", ending)
        stem = f"part-{delivery.identity}-{delivery.batch_id:010d}-{number}"
        moves[name] = posixpath.join(posixpath.dirname(inner), stem + ending)
    return moves


FILES: Final = TargetKind(
    "files",
    "a Delta table skips a repeated batch; a repeated batch of plain files replaces its own files",
    SHAPE,
    _check,
    _reach,
    write=_write,
    takes_open=lambda options: options["format"] != "csv",
    takes_bytes=lambda options: options["format"] in BINARY_FORMATS,
)
