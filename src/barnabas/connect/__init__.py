"""Connectors: Kafka Connect's API and worker, and the interface for connectors written in Python.

    class Numbers(SourceConnector):
        options = (ConnectorOption("topic", doc="Where the numbers go."),)

        def poll(self, partition, offset):
            begin = (offset or {}).get("next", 0)
            return [
                SourceRecord(self.config["topic"], value=n, source_offset={"next": n + 1})
                for n in range(begin, begin + 100)
            ]

`connectors`, `records`, `options`, `schemas` and `errors` are what a connector needs; `barnabas.testing.connect` drives one
in a test.
"""

from barnabas.connect.connectors import (
    Batch,
    Connector,
    ConnectorContext,
    SinkConnector,
    SinkContext,
    SourceConnector,
    SourceContext,
)
from barnabas.connect.errors import ConnectError, DataError, RetriableError
from barnabas.connect.options import REQUIRED, Config, ConfigDef, ConnectorOption, Importance, Type, Width
from barnabas.connect.records import Header, SinkRecord, SourceRecord
from barnabas.connect.schemas import Field, Schema

__all__ = [
    "REQUIRED",
    "Batch",
    "Config",
    "ConfigDef",
    "ConnectError",
    "Connector",
    "ConnectorContext",
    "ConnectorOption",
    "DataError",
    "Field",
    "Header",
    "Importance",
    "RetriableError",
    "Schema",
    "SinkConnector",
    "SinkContext",
    "SinkRecord",
    "SourceConnector",
    "SourceContext",
    "SourceRecord",
    "Type",
    "Width",
]
