"""Stores of user code, kept where they can be looked up: by the query that writes the output's topics, in the same
micro-batches, so that they cost no second query.

The driver applies the changes of a micro-batch to a file for each store (views/stores.py), in one transaction, once its
records are written. A store that has no file, because it was named later, or whose file is lost or too old, is read from
the state in Spark's checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.kinds.targets.base import checkpoint_identity
from barnabas.pipelines.kinds.targets.view import same_batch, source_offsets
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.outputs import Output, Stores
from barnabas.pipelines.plan.pipeline import PipelineSpec
from barnabas.pipelines.processing.packed import ABOUT, names_in
from barnabas.pipelines.spark.folders import Folder, local_path
from barnabas.pipelines.spark.frame import quoted
from barnabas.pipelines.views.store import Note, ViewDamaged, ViewFile, put_aside
from barnabas.pipelines.views.stores import Change, apply_changes, store_file, store_shape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORED: Final = "_kept"
"""The sink's column with the change of a store; null in rows that are records."""
BUCKETS_AT_ONCE: Final = 256


def is_change(output: Output) -> Column:
    """Whether a row is the change of a store."""
    if output.stores is None:
        return F.lit(False)
    return F.coalesce(F.expr(output.stores.about.text), F.lit(False)) & F.col("_error").isNull()


def changes_column(output: Output) -> list[Column]:
    """The sink's column of changes, if the output has stores."""
    stores = output.stores
    if stores is None:
        return []
    named = {
        "store": stores.store,
        "key": stores.key,
        "kept": stores.kept,
        "version": stores.version,
    }
    row = F.struct(*[F.col(quoted(field)).alias(name) for name, field in named.items()])
    return [F.when(is_change(output), row).alias(STORED)]


@dataclass(frozen=True)
class Keeper:
    """Writes the micro-batches of an output with stores. write: writes its records. place: the query's checkpoint."""

    spec: PipelineSpec
    output: Output
    place: str
    write: Callable[[DataFrame, int], None]

    @property
    def folder(self) -> Path | None:
        """The checkpoint on this machine; None if it is elsewhere, where no files can be kept."""
        return local_path(self.place)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Writes a micro-batch, for `foreachBatch`."""
        if self.folder is None:
            self.write(rows.where(F.col(STORED).isNull()).drop(STORED), batch_id)
            return
        rows = rows.persist()
        try:
            self.write(rows.where(F.col(STORED).isNull()).drop(STORED), batch_id)
            table = rows.where(F.col(STORED).isNotNull()).select(f"{STORED}.*").toArrow()
        finally:
            rows.unpersist()
        spark = rows.sparkSession
        offsets = source_offsets(Folder(spark, self.place), batch_id)
        note = Note(batch_id, offsets, time.time_ns() // 1_000_000)
        identity = checkpoint_identity(spark, self.place)
        changes: dict[str, list[Change]] = {}
        for row in table.sort_by("version").to_pylist():
            changes.setdefault(row["store"], []).append((row["key"], row["kept"]))
        for store in self._stores.layouts:
            self._keep(spark, store, identity, note, changes.get(store, []))

    @property
    def _stores(self) -> Stores:
        assert self.output.stores is not None
        return self.output.stores

    def _keep(
        self, spark: SparkSession, store: str, identity: str, note: Note, changes: list[Change]
    ) -> None:
        assert self.folder is not None
        path = store_file(self.folder, store)
        try:
            self._apply(spark, path, store, identity, note, changes)
        except ViewDamaged:
            put_aside(path, note.at_ms)
            self._apply(spark, path, store, identity, note, changes)

    def _apply(
        self, spark: SparkSession, path: Path, store: str, identity: str, note: Note, changes: list[Change]
    ) -> None:
        layout = self._stores.layouts[store]
        shape = store_shape(f"{self.spec.name}/{store}", identity, layout, self._stores.ttls_ms.get(store))
        with ViewFile(path) as file:
            # A store that now is of another kind begins anew, too.
            of_other = file.shape is not None and file.shape != shape
            before = None if of_other else file.note
            if before is not None and before.batch >= note.batch and same_batch(before, note):
                return
            with file.transaction():
                if of_other:
                    file.clear()
                file.adopt(shape)
                if note.batch > 0 and (before is None or before.batch < note.batch - 1):
                    file.clear()
                    file.adopt(shape)
                    for piece in self._from_state(spark, store, note.batch - 1):
                        apply_changes(file, shape, layout, piece)
                apply_changes(file, shape, layout, changes)
                file.set_note(note)

    def _from_state(self, spark: SparkSession, store: str, batch: int) -> Iterator[list[Change]]:
        """All that a store kept after a micro-batch, from Spark's checkpoint, some keys at a time. Raises PipelineError."""
        stores = self._stores
        begin = f"{store}{stores.separator}"
        try:
            rows = (
                spark.read.format("statestore")
                .option("operatorId", stores.processes[store])
                .option("stateVarName", stores.state)
                .option("batchId", batch)
                .load(self.place)
                .select(F.col("user_map_key.k").alias("k"), F.col("user_map_value.v").alias("v"))
            )
            table = rows.where(F.col("k") != ABOUT).select("v").toArrow()
        except Exception as error:
            raise PipelineError(
                f"{self.spec.name}: the store {store} has to be read from the checkpoint {self.place}, which fails: {error}"
            ) from error
        for piece in table.to_batches(BUCKETS_AT_ONCE):
            buckets = [names_in(text) for text in piece["v"].to_pylist()]
            pairs = [pair for bucket in buckets for pair in bucket.items()]
            yield [(name[len(begin) :], kept) for name, kept in pairs if name.startswith(begin)]
