"""Many small files made one, byte for byte where a format allows it: nothing is read as values that could change.

JSON lines and CSV are put one behind the other (of CSV with the same header, written once); Parquet and ORC of the same
schema go through Spark. Files of different headers or schemas stay apart, so that none loses columns. A merged file is
merged again while it is small. What is replaced is noted first: a run that dies in between is finished by the next.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.delivery.base import Delivery
from barnabas.pipelines.folders import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES: Final = "_barnabas"
HEADER_BYTES_MAX: Final = 1 << 20


def batch_in_name(identity: str) -> re.Pattern[str]:
    """Names of a delivery's files; the group is the newest micro-batch in it."""
    return re.compile(rf"(?:part|merged)-{re.escape(identity)}-(\d{{10}})-")


def merge(options: Mapping[str, Any], spark: SparkSession, folder: Folder, delivery: Delivery) -> None:
    """Merges in each folder that holds enough small files of earlier micro-batches; the newest may be repeated."""
    ours = batch_in_name(delivery.identity)
    small: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, size in folder.files():
        found = ours.match(posixpath.basename(name))
        if found and int(found[1]) < delivery.batch_id and size < options["merge"]["below_bytes"]:
            small[posixpath.dirname(name)].append((int(found[1]), name))
    for place, files in sorted(small.items()):
        if len(files) >= options["merge"]["files"]:
            for kind, same in _alike(options, spark, folder, sorted(files)).items():
                if len(same) >= 2:
                    _merge_files(options, spark, folder, delivery, place, same, kind)


def _alike(
    options: Mapping[str, Any], spark: SparkSession, folder: Folder, files: list[tuple[int, str]]
) -> dict[Any, list[tuple[int, str]]]:
    """The files by what they must have in common: the ending, and the header or the schema."""
    found: dict[Any, list[tuple[int, str]]] = defaultdict(list)
    for batch, name in files:
        common: Any = None
        if options["format"] == "csv" and options["header"]:
            common = folder.first_row(name, HEADER_BYTES_MAX)
            if common is None:
                continue  # no header that could be written once
        elif options["format"] in ("parquet", "orc"):
            common = spark.read.format(options["format"]).load(f"{options['path']}/{name}").schema.json()
        found[_ending(name), common].append((batch, name))
    return found


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
    """Puts merged files in the place of those they were made of; goes on where an earlier run was cut off."""
    notes = f"{NOTES}/{identity}/merges"
    for name in folder.names(notes):
        plan = folder.read_note(f"{notes}/{name}")
        if folder.exists(plan["source"]):
            folder.move(plan["source"], plan["merged"])
        if folder.exists(plan["merged"]):
            for old in plan["replaces"]:
                folder.delete(old)
        folder.delete(f"{notes}/{name}")
