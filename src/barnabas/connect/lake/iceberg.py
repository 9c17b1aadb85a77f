"""Apache Iceberg tables of any catalog that pyiceberg knows. The options are those of Apache Iceberg's own sink.

The offsets are a property of the snapshots: barnabas.offsets.CONNECTOR, as JSON by TOPIC-PARTITION.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from barnabas.connect.connectors import SinkContext, TopicPartition
from barnabas.connect.errors import ConnectError, DataError, OptionError, RetriableError
from barnabas.connect.lake.sink import LakeSink, Offsets
from barnabas.connect.options import Config, ConnectorOption, Importance, Type
from barnabas.connect.records import SinkRecord

CATALOG: Final = "iceberg.catalog."
PROPERTY: Final = "barnabas.offsets."
TRIES: Final = 5


class IcebergSink(LakeSink):
    """See the module."""

    doc = "Adds records to Apache Iceberg tables, each once."
    aliases = (
        "org.apache.iceberg.connect.IcebergSinkConnector",
        "io.tabular.iceberg.connect.IcebergSinkConnector",
    )
    options = (
        ConnectorOption("iceberg.catalog", default="iceberg", doc="The name of the catalog."),
        ConnectorOption(
            "iceberg.catalog.*",
            default=None,
            importance=Importance.HIGH,
            doc="Properties of the catalog, as pyiceberg names them: iceberg.catalog.type (rest, sql, glue, hive), .uri, "
            ".warehouse, .s3.endpoint.",
        ),
        ConnectorOption(
            "iceberg.tables",
            Type.LIST,
            "",
            Importance.HIGH,
            "The tables, NAMESPACE.NAME; each gets all records.",
        ),
        ConnectorOption(
            "iceberg.tables.dynamic-enabled",
            Type.BOOLEAN,
            False,
            doc="Whether iceberg.tables.route-field names each record's table.",
        ),
        ConnectorOption(
            "iceberg.tables.route-field", default="", doc="The field with the name of the table."
        ),
        ConnectorOption(
            "iceberg.tables.auto-create-enabled", Type.BOOLEAN, False, doc="Whether tables are created."
        ),
        ConnectorOption(
            "iceberg.tables.evolve-schema-enabled",
            Type.BOOLEAN,
            False,
            doc="Whether tables get columns for new fields.",
        ),
        ConnectorOption(
            "iceberg.tables.default-partition-by",
            Type.LIST,
            "",
            doc="The columns by which new tables are divided.",
        ),
    )

    @classmethod
    def check(cls, config: Config) -> dict[str, str]:
        """See Connector."""
        if config["iceberg.tables.dynamic-enabled"]:
            if not config["iceberg.tables.route-field"]:
                return {
                    "iceberg.tables.route-field": "iceberg.tables.dynamic-enabled needs iceberg.tables.route-field"
                }
            return {}
        if not config["iceberg.tables"]:
            return {
                "iceberg.tables": "name the tables, or set iceberg.tables.dynamic-enabled and .route-field"
            }
        wrong = [name for name in config["iceberg.tables"] if "." not in name]
        return {"iceberg.tables": f"{wrong[0]} is not NAMESPACE.NAME"} if wrong else {}

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise ConnectError(
                f"Iceberg tables need pyiceberg ({error}): pip install 'barnabas[iceberg]'"
            ) from error
        properties = {
            name.removeprefix(CATALOG): str(value)
            for name, value in config.items()
            if name.startswith(CATALOG) and name != f"{CATALOG}*" and value is not None
        }
        try:
            self._catalog = load_catalog(str(config["iceberg.catalog"]), **properties)
        except Exception as error:
            raise _failure("the catalog cannot be opened", error) from error
        self._property = f"{PROPERTY}{context.name}"

    def names(self, record: SinkRecord) -> Sequence[str]:
        """See LakeSink."""
        if not self.config["iceberg.tables.dynamic-enabled"]:
            return list(self.config["iceberg.tables"])
        field = self.config["iceberg.tables.route-field"]
        name = record.value.get(field)
        if not isinstance(name, str) or "." not in name:
            raise DataError(f"field {field} is {name!r}, not the name NAMESPACE.NAME of a table")
        return [name.lower()]

    def _table(self, name: str) -> Any:
        """The table; None if there is none. Raises ConnectError."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except Exception as error:
            raise _failure(f"table {name} cannot be opened", error) from error

    def stored(self, name: str) -> dict[TopicPartition, int]:
        """See LakeSink. The newest offset of each partition; each snapshot has those of one task."""
        table = self._table(name)
        ends: dict[TopicPartition, int] = {}
        snapshots = [] if table is None else table.metadata.snapshots
        for snapshot in snapshots:
            text = (
                None
                if snapshot.summary is None
                else snapshot.summary.additional_properties.get(self._property)
            )
            for place, end in json.loads(text or "{}").items():
                topic, _, partition = place.rpartition("-")
                pair = (topic, int(partition))
                ends[pair] = max(ends.get(pair, 0), end)
        return ends

    def commit(self, name: str, rows: pa.Table, offsets: Offsets) -> None:
        """See LakeSink."""
        from pyiceberg.exceptions import CommitFailedException

        before = self.stored(name)
        whole = {**before, **offsets}
        text = json.dumps({f"{topic}-{partition}": end for (topic, partition), end in whole.items()})
        for attempt in range(TRIES):
            try:
                table = self._ready(name, rows)
                table.append(self._fitted(name, table, rows), snapshot_properties={self._property: text})
                return
            except CommitFailedException as error:  # another task has committed first
                if attempt == TRIES - 1:
                    raise RetriableError(f"Iceberg table {name} is written by others: {error}") from error
            except ConnectError:
                raise
            except Exception as error:
                raise _failure(f"table {name} cannot be written", error) from error

    def _ready(self, name: str, rows: pa.Table) -> Any:
        """The table with columns for all fields. Raises ConnectError."""
        table = self._table(name)
        if table is None:
            return self._created(name, rows)
        more = [field for field in rows.schema if field.name not in table.schema().column_names]
        if more and not self.config["iceberg.tables.evolve-schema-enabled"]:
            raise ConnectError(
                f"Iceberg table {name} has no column {more[0].name}; add it, leave the field out with the transform "
                "ReplaceField, or set iceberg.tables.evolve-schema-enabled to true"
            )
        if more:
            with table.update_schema() as update:
                update.union_by_name(rows.schema)
        return table

    def _created(self, name: str, rows: pa.Table) -> Any:
        if not self.config["iceberg.tables.auto-create-enabled"]:
            raise ConnectError(
                f"there is no Iceberg table {name}; create it, or set iceberg.tables.auto-create-enabled to true"
            )
        self._catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        table = self._catalog.create_table_if_not_exists(name, rows.schema)
        columns = self.config["iceberg.tables.default-partition-by"]
        if columns and not table.spec().fields:
            with table.update_spec() as update:
                for column in columns:
                    update.add_identity(column)
        return table

    @staticmethod
    def _fitted(name: str, table: Any, rows: pa.Table) -> pa.Table:
        """The rows with the table's columns in their order, and of their types. Raises ConnectError."""
        wanted = table.schema().as_arrow()
        columns = []
        for field in wanted:
            at = rows.schema.get_field_index(field.name)
            try:
                columns.append(
                    pa.nulls(rows.num_rows, field.type) if at < 0 else rows.column(at).cast(field.type)
                )
            except pa.ArrowException as error:
                raise ConnectError(
                    f"column {field.name} of the Iceberg table {name} is {field.type}, but the field is "
                    f"{rows.schema.field(at).type}: {error}"
                ) from error
        return pa.table(columns, schema=wanted)


def _failure(what: str, error: Exception) -> ConnectError:
    text = " ".join(str(error).split())[:500] or type(error).__name__
    if isinstance(error, (KeyError, ValueError, TypeError)) and "cannot be opened" in what:
        return OptionError(f"Iceberg: {what}: {text}", "iceberg.catalog.*")
    kind = RetriableError if isinstance(error, OSError) else ConnectError
    return kind(f"Iceberg: {what}: {text}")
