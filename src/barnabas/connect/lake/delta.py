"""Delta Lake tables. The offsets are Delta's own transactions of applications: (CONNECTOR/TOPIC-PARTITION, next offset)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from barnabas.connect.connectors import TopicPartition
from barnabas.connect.errors import ConnectError, RetriableError
from barnabas.connect.lake.sink import LakeSink, Offsets
from barnabas.connect.options import Config, ConnectorOption, Importance, Type
from barnabas.connect.records import SinkRecord

STORAGE: Final = "storage."
TOPIC: Final = "${topic}"


class DeltaSink(LakeSink):
    """See the module."""

    doc = "Adds records to Delta Lake tables, each once."
    options = (
        ConnectorOption(
            "table.path",
            importance=Importance.HIGH,
            doc=f"The folder of the table, or s3://BUCKET/PATH and others; {TOPIC} is the topic.",
        ),
        ConnectorOption("auto.create", Type.BOOLEAN, True, doc="Whether tables are created."),
        ConnectorOption("auto.evolve", Type.BOOLEAN, True, doc="Whether tables get columns for new fields."),
        ConnectorOption("partition.by", Type.LIST, "", doc="The columns by which new tables are divided."),
        ConnectorOption(
            "storage.*",
            default=None,
            doc="Options of the storage, as deltalake names them: storage.AWS_ENDPOINT_URL.",
        ),
    )

    def names(self, record: SinkRecord) -> Sequence[str]:
        """See LakeSink."""
        return [str(self.config["table.path"]).replace(TOPIC, record.topic)]

    def _storage(self) -> dict[str, str] | None:
        storage = {
            name.removeprefix(STORAGE): str(value)
            for name, value in self.config.items()
            if name.startswith(STORAGE) and value is not None
        }
        return storage or None

    def _table(self, name: str) -> Any:
        """The table; None if there is none. Raises ConnectError."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        try:
            return DeltaTable(name, storage_options=self._storage())
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise _failure(name, "opened", error) from error

    def _application(self, pair: TopicPartition) -> str:
        return f"{self.context.name}/{pair[0]}-{pair[1]}"

    def stored(self, name: str) -> dict[TopicPartition, int]:
        """See LakeSink."""
        table = self._table(name)
        return {} if table is None else _Known(table, self._application)

    def commit(self, name: str, rows: pa.Table, offsets: Offsets) -> None:
        """See LakeSink."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        table = self._table(name)
        config: Config = self.config
        if table is None and not config["auto.create"]:
            raise ConnectError(f"there is no Delta table {name}; create it, or set auto.create to true")
        if table is not None:
            known = {field.name for field in table.schema().fields}
            more = [field for field in rows.schema.names if field not in known]
            if more and not config["auto.evolve"]:
                raise ConnectError(
                    f"Delta table {name} has no column {more[0]}; add it, leave the field out with the transform "
                    "ReplaceField, or set auto.evolve to true"
                )
        marks = [Transaction(self._application(pair), end) for pair, end in offsets.items()]
        try:
            write_deltalake(
                name,
                rows,
                mode="append",
                partition_by=config["partition.by"] or None if table is None else None,
                schema_mode="merge" if table is not None else None,
                storage_options=self._storage(),
                commit_properties=CommitProperties(app_transactions=marks),
            )
        except Exception as error:  # deltalake raises plain ones for values that cannot be cast
            raise _failure(name, "written", error) from error


class _Known(dict[TopicPartition, int]):
    """The offsets of a table, which it has by partition and does not list."""

    def __init__(self, table: Any, application: Callable[[TopicPartition], str]) -> None:
        super().__init__()
        self._table, self._name = table, application

    def get(self, pair: TopicPartition, default: Any = None) -> Any:
        if pair not in self:
            self[pair] = self._table.transaction_version(self._name(pair)) or 0
        return self[pair]


def _failure(name: str, what: str, error: Exception) -> ConnectError:
    text = " ".join(str(error).split())[:500]
    passing = isinstance(error, OSError) or any(
        word in text for word in ("Generic", "timed out", "error sending")
    )
    kind = RetriableError if passing else ConnectError
    return kind(f"Delta table {name} cannot be {what}: {text}")
