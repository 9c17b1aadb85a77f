"""Merges small files into one, byte for byte if the format allows it, so that no value is parsed and changed.

JSON lines and CSV files are concatenated (CSV files only with the same header, which is written once); Parquet and ORC
files of the same schema are merged by Spark. Files with different headers or schemas are not merged, so that none loses
columns. A merged file is merged again while it is small. The files to replace are noted first, so that the next run can
complete a merge that was interrupted.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.kinds.targets.base import Delivery
from barnabas.pipelines.spark.folders import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES: Final = "_barnabas"
HEADER_BYTES_MAX: Final = 1 << 20


def batch_in_name(identity: str) -> re.Pattern[str]:
    """Matches the names of a query's files; the group is the number of the newest micro-batch in the file."""
    return re.compile(rf"(?:part|merged)-{re.escape(identity)}-(\d{{10}})-")


def merge(options: Mapping[str, Any], spark: SparkSession, folder: Folder, delivery: Delivery) -> None:
    """Merges the small files of each folder with enough of them; not those of the newest batch: it may be repeated."""
    ours = batch_in_name(delivery.identity)
    small: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, size in folder.files():
        match = ours.match(posixpath.basename(name))
        if match and int(match[1]) < delivery.batch_id and size < options["merge"]["below_bytes"]:
            small[posixpath.dirname(name)].append((int(match[1]), name))
    for place, files in sorted(small.items()):
        if len(files) >= options["merge"]["files"]:
            for kind, same in _alike(options, spark, folder, sorted(files)).items():
                if len(same) >= 2:
                    _merge_files(options, spark, folder, delivery, place, same, kind)


def _alike(
    options: Mapping[str, Any], spark: SparkSession, folder: Folder, files: list[tuple[int, str]]
) -> dict[Any, list[tuple[int, str]]]:
    """Groups files by what they must have in common: the ending, and the header or the schema."""
    alike: dict[Any, list[tuple[int, str]]] = defaultdict(list)
    for batch, name in files:
        common: Any = None
        if options["format"] == "csv" and options["header"]:
            common = folder.first_row(name, HEADER_BYTES_MAX)
            if common is None:
                continue  # no complete header within HEADER_BYTES_MAX
        elif options["format"] in ("parquet", "orc"):
            common = spark.read.format(options["format"]).load(f"{options['path']}/{name}").schema.json()
        alike[_ending(name), common].append((batch, name))
    return alike


def _ending(name: str) -> str:
    return "." + posixpath.basename(name).partition(".")[2]


def _merge_files(
    options: Mapping[str, Any],
    spark: SparkSession,
    folder: Folder,
    delivery: Delivery,
    place: str,
    files: list[tuple[int, str]],
    kind: tuple[str, Any],
) -> None:
    ending, common = kind
    names = [name for _, name in files]
    digest = hashlib.sha256("\0".join(names).encode()).hexdigest()[:12]
    source = f"{NOTES}/{delivery.identity}/merging/{digest}{ending}"
    if options["format"] in ("parquet", "orc"):
        rows = spark.read.format(options["format"]).load([f"{options['path']}/{name}" for name in names])
        written = f"{NOTES}/{delivery.identity}/merging/spark"
        writer = rows.coalesce(1).write.mode("overwrite").format(options["format"])
        if options["compression"] is not None:
            writer = writer.option("compression", options["compression"])
        writer.save(f"{options['path']}/{written}")
        ((fresh, _),) = list(folder.files(written))
        folder.move(fresh, source)
    else:
        folder.concatenate(names, source, skip=common or b"")
    target = posixpath.join(place, f"merged-{delivery.identity}-{files[-1][0]:010d}-{digest}{ending}")
    note = f"{NOTES}/{delivery.identity}/merges/{digest}.json"
    folder.write_note(note, {"merged": target, "source": source, "replaces": names})
    finish_merges(folder, delivery.identity)
    folder.delete(f"{NOTES}/{delivery.identity}/merging")


def finish_merges(folder: Folder, identity: str) -> None:
    """Replaces files by the files that they were merged into, also for merges that an earlier run did not complete."""
    notes = f"{NOTES}/{identity}/merges"
    for name in folder.names(notes):
        plan = folder.read_note(f"{notes}/{name}")
        if folder.exists(plan["source"]):
            folder.move(plan["source"], plan["merged"])
        if folder.exists(plan["merged"]):
            for old in plan["replaces"]:
                folder.delete(old)
        folder.delete(f"{notes}/{name}")
