"""Micro-batches as commits of a Delta Lake table: Spark writes the files, `deltalake` the log.

Each commit has the checkpoint's query id and the number of the micro-batch (Delta's application id and version): a
repeated micro-batch is skipped, even if the run that committed it has failed. Fields that the table does not have are
added to it; a field whose type changed fails the query, with both types in the message. Delta's own compaction merges
small files; files that it replaced are kept for a week, for readers of older versions.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql import DataFrame

from barnabas.pipelines.kinds.targets.base import Delivery, DeliveryError
from barnabas.pipelines.spark.folders import Folder, local_path

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema
    from pyspark.sql import SparkSession

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
KEPT_HOURS: Final = 168


def table_uri(path: str) -> str:
    """The path or URL as deltalake expects it."""
    local = local_path(path)
    return str(local) if local is not None else path.replace("s3a://", "s3://", 1)


def open_table(options: Mapping[str, Any]) -> DeltaTable | None:
    """The table, or None if there is none. Raises DeliveryError if it cannot be opened."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(table_uri(options["path"]), storage_options=options["storage"] or None)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise DeliveryError(f"the Delta table {options['path']} cannot be opened: {error}") from error


def delta_schema(rows: DataFrame) -> Schema:
    """The table's schema for these rows; Delta writes schemas in the same format as Spark. Every field may be null,
    because fields come and go."""
    from deltalake import Schema
    from pyspark.sql.types import StructField, StructType

    fields = [StructField(field.name, field.dataType, True) for field in rows.schema.fields]
    return Schema.from_json(StructType(fields).json())


def prepared(options: Mapping[str, Any], table: DeltaTable | None, schema: Schema) -> DeltaTable:
    """The table, which is created, or gets new columns, for these fields.

    Raises DeliveryError if a field has another type in the table, or the table has other partitions.
    """
    from deltalake import DeltaTable

    if table is None:
        return DeltaTable.create(
            table_uri(options["path"]),
            schema,
            mode="ignore",
            partition_by=options["partition_by"] or None,
            storage_options=options["storage"] or None,
        )
    there = {field.name: field for field in table.schema().fields}
    for field in schema.fields:
        if field.name in there and there[field.name].type != field.type:
            raise DeliveryError(
                f"the Delta table {options['path']} has field {field.name} as {there[field.name].type}, not "
                f"{field.type}: convert it, rename it, or choose another path"
            )
    if table.metadata().partition_columns != options["partition_by"]:
        raise DeliveryError(
            f"the Delta table {options['path']} is partitioned by {table.metadata().partition_columns}, not by "
            f"{options['partition_by']}: change partition_by, or choose another path"
        )
    new = [field for field in schema.fields if field.name not in there]
    if new:
        table.alter.add_columns(new)
        table.update_incremental()
    return table


def already_in(table: DeltaTable | None, delivery: Delivery) -> bool:
    """Whether this micro-batch has been committed."""
    done = None if table is None else table.transaction_version(delivery.identity)
    return done is not None and done >= delivery.batch_id


def commit(
    options: Mapping[str, Any], table: DeltaTable, delivery: Delivery, files: Mapping[str, tuple[int, int]]
) -> None:
    """Adds files (name in the table's folder -> bytes, rows) in a commit for the batch. Raises DeliveryError."""
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, CommitProperties, Transaction

    now_ms = int(time.time() * 1000)
    actions: list[Any] = [
        AddAction(
            name, size, _values(options["partition_by"], name), now_ms, True, f'{{"numRecords":{rows}}}'
        )
        for name, (size, rows) in files.items()
    ]
    properties = CommitProperties(
        app_transactions=[Transaction(app_id=delivery.identity, version=delivery.batch_id)],
        custom_metadata={"query": delivery.query},
    )
    try:
        table.create_write_transaction(
            actions, "append", table.schema(), options["partition_by"] or None, commit_properties=properties
        )
    except DeltaError as error:
        raise DeliveryError(f"the Delta table {options['path']} refused the commit: {error}") from error


def _values(by: list[str], name: str) -> dict[str, str | None]:
    """The values of the partitioning fields, from the names of a file's folders (`day=2024-05-01/...`)."""
    values: dict[str, str | None] = {}
    for field, part in zip(by, posixpath.dirname(name).split("/"), strict=False):
        value = unquote(part.partition("=")[2])
        values[field] = None if value == NULL_PARTITION else value
    return values


def row_counts(
    spark: SparkSession, options: Mapping[str, Any], folder: Folder, names: list[str]
) -> dict[str, int]:
    """How many rows each file has."""
    local = local_path(options["path"])
    if local is not None:
        import pyarrow.parquet as pq

        return {name: pq.read_metadata(local / name).num_rows for name in names}
    rows = spark.read.parquet(*[f"{options['path']}/{name}" for name in names])
    counted = rows.groupBy("_metadata.file_path").count().collect()
    by_path = {unquote(str(row[0])): int(row[1]) for row in counted}  # Spark gives paths as URIs
    return {name: next((n for path, n in by_path.items() if path.endswith(f"/{name}")), 0) for name in names}


def compact(options: Mapping[str, Any], table: DeltaTable, batch_id: int) -> None:
    """Merges small files after every `merge.files` micro-batches. Errors are only logged: a later call tries again."""
    from deltalake.exceptions import DeltaError

    every = options["merge"]["files"]
    if (batch_id + 1) % every:
        return
    try:
        table.update_incremental()
        table.optimize.compact(target_size=options["merge"]["below_bytes"])
        table.vacuum(retention_hours=KEPT_HOURS, dry_run=False)
    except DeltaError as error:
        import logging

        logging.getLogger(__name__).warning("delta table not compacted", extra={"reason": str(error)})
