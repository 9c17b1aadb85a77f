"""To files on any file system that Spark reaches: local, HDFS, s3a://, ...

    files: {path: data/archive, format: parquet, partition_by: [day], merge: {files: 20, below_mb: 64}}

A micro-batch is written aside and then moved into place under names that carry query and batch number. What is
moved is noted first, so that a repeated batch replaces its own files. With `merge`, once a folder holds so many
files smaller than that, the older ones become one file; the newest batch is left alone, because it may be repeated.
Readers that skip names with an underscore in front (Spark, Hive, DuckDB by pattern) never see unfinished files.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from barnabas.pipelines.delivery.base import TargetKind
from barnabas.pipelines.document import Item
from barnabas.pipelines.folders import Folder
from barnabas.pipelines.steps.base import Frame, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES: Final = ("path", "format", "partition_by", "compression", "header", "merge", "rows_per_file")
FORMATS: Final = ("parquet", "json", "csv", "orc")
SUFFIXES: Final[dict[str, str]] = {"parquet": "parquet", "json": "json", "csv": "csv", "orc": "orc"}
NOTES: Final = "_barnabas"
NOTES_KEPT: Final = 50
BATCH_IN_NAME: Final = re.compile(r"part-(.+)-(\d{10})-(\d+)\.")


def _check(item: Item) -> Mapping[str, Any]:
    found = item.mapping(NAMES, required=("path",))
    options: dict[str, Any] = {
        "path": found["path"].text().rstrip("/") or "/",
        "format": found["format"].choice(FORMATS) if "format" in found else "parquet",
        "partition_by": list(found["partition_by"].texts()) if "partition_by" in found else [],
        "compression": found["compression"].text() if "compression" in found else None,
        "header": found["header"].flag() if "header" in found else True,
        "rows_per_file": found["rows_per_file"].number() if "rows_per_file" in found else 1_000_000,
        "merge": None,
    }
    if "merge" in found:
        merge = found["merge"].mapping(("files", "below_mb"))
        options["merge"] = {
            "files": merge["files"].number(2) if "files" in merge else 20,
            "below_bytes": (merge["below_mb"].number() if "below_mb" in merge else 64) << 20,
        }
    return options


def _reach(options: Mapping[str, Any]) -> None:
    """Spark makes the folder with the first batch."""


def _write(options: Mapping[str, Any], query: str, batch_id: int, frame: Frame) -> None:
    spark = frame.data.sparkSession
    folder = Folder(spark, options["path"])
    _finish_merges(folder, query)
    notes = f"{NOTES}/{query}/batches"
    note = f"{notes}/{batch_id:010d}.json"
    if folder.exists(note):  # this batch was delivered before, in part or whole
        for name in folder.read_note(note)["files"]:
            folder.delete(name)
    staging = f"{NOTES}/{query}/staging"
    rows = frame.data.select(*[quoted(name) for name in frame.fields])
    _write_rows(options, rows, f"{options['path']}/{staging}")
    moves = _names(options, folder, staging, f"part-{query}-{batch_id:010d}")
    folder.write_note(note, {"files": list(moves.values())})
    for source, target in moves.items():
        folder.move(source, target)
    folder.delete(staging)
    for old in folder.names(notes)[:-NOTES_KEPT]:
        folder.delete(f"{notes}/{old}")
    if options["merge"] is not None:
        _merge(options, spark, folder, query, batch_id)


def _write_rows(options: Mapping[str, Any], rows: DataFrame, path: str) -> None:
    """Few files: one per rows_per_file rows, or per value of the partitioning fields."""
    by = options["partition_by"]
    if by:
        rows = rows.repartition(*[quoted(name) for name in by])
    else:
        rows = rows.coalesce(max(rows.count() // options["rows_per_file"], 1))
    writer = rows.write.mode("overwrite").format(options["format"])
    if by:
        writer = writer.partitionBy(*by)
    if options["compression"] is not None:
        writer = writer.option("compression", options["compression"])
    if options["format"] == "csv":
        writer = writer.option("header", str(options["header"]).lower())
    if options["format"] == "json":
        writer = writer.option("ignoreNullFields", "false")
    writer.save(path)


def _names(options: Mapping[str, Any], folder: Folder, staging: str, stem: str) -> dict[str, str]:
    """Where each written file goes: the same folders, a name of ours, the ending that Spark gave it."""
    moves = {}
    for number, (name, _) in enumerate(sorted(folder.files(staging))):
        inner = name[len(staging) :].lstrip("/")
        spark_name = posixpath.basename(inner)
        ending = re.sub(r"^part-\d+-[0-9a-f-]+(?:\.c\d+|-c\d+)?", "", spark_name)
        moves[name] = posixpath.join(posixpath.dirname(inner), f"{stem}-{number}{ending}")
    return moves


def _merge(
    options: Mapping[str, Any], spark: SparkSession, folder: Folder, query: str, batch_id: int
) -> None:
    """Makes one file of many small ones in each folder that holds enough of them."""
    small: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, size in folder.files():
        found = BATCH_IN_NAME.match(posixpath.basename(name))
        if (
            found
            and found[1] == query
            and int(found[2]) < batch_id
            and size < options["merge"]["below_bytes"]
        ):
            small[posixpath.dirname(name)].append((int(found[2]), name))
    for place, files in sorted(small.items()):
        if len(files) >= options["merge"]["files"]:
            _merge_folder(options, spark, folder, query, place, sorted(files))


def _merge_folder(
    options: Mapping[str, Any],
    spark: SparkSession,
    folder: Folder,
    query: str,
    place: str,
    files: Sequence[tuple[int, str]],
) -> None:
    staging = f"{NOTES}/{query}/merging"
    paths = [f"{options['path']}/{name}" for _, name in files]
    reader = spark.read
    if options["format"] == "csv":
        reader = reader.option("header", str(options["header"]).lower())
    rows = reader.format(options["format"]).load(paths)
    _write_rows({**options, "partition_by": []}, rows.coalesce(1), f"{options['path']}/{staging}")
    # The name carries the newest batch inside; a number of its own keeps it apart from that batch's files.
    moves = _names(options, folder, staging, f"part-{query}-{files[-1][0]:010d}-{len(files)}")
    (source, name), *more = moves.items()
    assert not more, "one file was asked for"
    target = posixpath.join(place, posixpath.basename(name))
    note = f"{NOTES}/{query}/merges/{abs(hash(place)):016x}.json"
    folder.write_note(note, {"merged": target, "source": source, "replaces": [n for _, n in files]})
    _finish_merges(folder, query)
    folder.delete(staging)


def _finish_merges(folder: Folder, query: str) -> None:
    """Puts merged files in the place of those they were made of; goes on where an earlier run was cut off."""
    notes = f"{NOTES}/{query}/merges"
    for name in folder.names(notes):
        plan = folder.read_note(f"{notes}/{name}")
        if folder.exists(plan["source"]):
            folder.move(plan["source"], plan["merged"])
        if folder.exists(plan["merged"]):
            for old in plan["replaces"]:
                folder.delete(old)
        folder.delete(f"{notes}/{name}")


FILES: Final = TargetKind("files", "a repeated batch replaces its own files", _check, _reach, write=_write)
