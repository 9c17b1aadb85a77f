"""Delivers rows through a sink connector.

    connector:
      connector.class: JdbcSinkConnector
      connection.url: jdbc:postgresql://db/shop?user=me
      insert.mode: upsert
      pk.mode: kafka
      topics: orders

Each Spark task has a task of the connector for the time of a micro-batch. A row becomes a record whose value are its
fields, with a schema unless some are objects or lists, whose key is the record's (text, or what `key.converter` makes of
it), and whose place is the record's: so a connector that writes by key or by place has a repeated row only once. `topics`
is the topic that the connector sees; default the record's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.kinds.connectors import checked_connector, connector_shape, connectors
from barnabas.pipelines.kinds.targets.base import Refused, TargetKind, Task
from barnabas.pipelines.plan.errors import TargetAway

SHAPE: Final = connector_shape("sink")


def _check(item: Item) -> Mapping[str, Any]:
    return {"config": checked_connector(item, lambda kind: kind.check_sink)}


def _reach(options: Mapping[str, Any]) -> None:
    wrong = connectors().reach(options["config"])
    if wrong is not None:
        raise TargetAway(f"connector: {wrong}")


def _deliver(
    options: Mapping[str, Any], task: Task, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, list[Refused]]]:
    return connectors().deliver(options["config"], task, batches)


CONNECTOR: Final = TargetKind(
    "connector",
    "a repeated row comes again with the same key and place: a connector that writes by them has it once",
    SHAPE,
    _check,
    _reach,
    deliver=_deliver,
    deletes=lambda options: True,
)
