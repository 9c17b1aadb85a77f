"""Which connectors there are, and how they are found by name.

Barnabas's own are in the table below and are imported when they are used; others come from entry points of the group
`barnabas.connectors`, whose name is the short name and whose value is `module:Class`.
"""

from __future__ import annotations

import difflib
import importlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

from barnabas.connect.connectors import Connector, SinkConnector, SourceConnector
from barnabas.connect.errors import OptionError

log = logging.getLogger(__name__)

GROUP: Final = "barnabas.connectors"
SOURCE, SINK = "source", "sink"


@dataclass(frozen=True, slots=True)
class Plugin:
    """One connector. class_name: the one that is shown. names: all that find it, besides. where: `module:Class`."""

    kind: str
    class_name: str
    where: str
    names: tuple[str, ...] = ()
    version: str = "0.1.0"

    def load(self) -> type[Connector]:
        """The class. Raises OptionError if what it needs is not installed."""
        module, _, name = self.where.partition(":")
        try:
            connector: Any = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise OptionError(
                f"connector {self.class_name} cannot be loaded ({error}); install what it needs",
                "connector.class",
            ) from error
        if not (isinstance(connector, type) and issubclass(connector, (SourceConnector, SinkConnector))):
            raise OptionError(
                f"{self.where} is neither a SourceConnector nor a SinkConnector", "connector.class"
            )
        return connector

    def found_by(self) -> Iterator[str]:
        """All its names: full, simple, and simple without `Connector`, as Kafka has them."""
        for name in (self.class_name, *self.names):
            yield name
            simple = name.rpartition(".")[2]
            yield simple
            yield simple.removesuffix("Connector")


BUILT_IN: Final[tuple[Plugin, ...]] = (
    Plugin(
        SOURCE,
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "barnabas.connect.kinds.file:FileStreamSource",
        ("file-source",),
    ),
    Plugin(
        SINK,
        "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "barnabas.connect.kinds.file:FileStreamSink",
        ("file-sink",),
    ),
    Plugin(
        SOURCE,
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        "barnabas.connect.jdbc.source:JdbcSource",
        ("jdbc-source",),
    ),
    Plugin(
        SINK,
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        "barnabas.connect.jdbc.sink:JdbcSink",
        ("jdbc-sink",),
    ),
    Plugin(
        SOURCE,
        "io.lenses.streamreactor.connect.mqtt.source.MqttSourceConnector",
        "barnabas.connect.mqtt.source:LensesMqttSource",
        ("com.datamountaineer.streamreactor.connect.mqtt.source.MqttSourceConnector", "mqtt-source"),
    ),
    Plugin(
        SINK,
        "io.lenses.streamreactor.connect.mqtt.sink.MqttSinkConnector",
        "barnabas.connect.mqtt.sink:LensesMqttSink",
        ("com.datamountaineer.streamreactor.connect.mqtt.sink.MqttSinkConnector", "mqtt-sink"),
    ),
    Plugin(
        SOURCE,
        "com.mongodb.kafka.connect.MongoSourceConnector",
        "barnabas.connect.mongodb.source:MongoSource",
        ("mongodb-source",),
    ),
    Plugin(
        SINK,
        "com.mongodb.kafka.connect.MongoSinkConnector",
        "barnabas.connect.mongodb.sink:MongoSink",
        ("mongodb-sink",),
    ),
    Plugin(
        SOURCE,
        "io.confluent.connect.mqtt.MqttSourceConnector",
        "barnabas.connect.mqtt.source:ConfluentMqttSource",
    ),
    Plugin(
        SINK,
        "io.confluent.connect.mqtt.MqttSinkConnector",
        "barnabas.connect.mqtt.sink:ConfluentMqttSink",
    ),
    Plugin(
        SOURCE,
        "io.debezium.connector.postgresql.PostgresConnector",
        "barnabas.connect.cdc.postgres.source:PostgresSource",
        ("postgres-cdc",),
    ),
    Plugin(
        SOURCE,
        "io.debezium.connector.mysql.MySqlConnector",
        "barnabas.connect.cdc.mysql.source:MysqlSource",
        ("mysql-cdc",),
    ),
    Plugin(
        SOURCE,
        "io.debezium.connector.mariadb.MariaDbConnector",
        "barnabas.connect.cdc.mysql.source:MariadbSource",
        ("mariadb-cdc",),
    ),
    Plugin(
        SOURCE,
        "io.confluent.kafka.connect.datagen.DatagenConnector",
        "barnabas.connect.kinds.datagen:Datagen",
        ("datagen",),
    ),
    Plugin(
        SOURCE,
        "com.github.jcustenborder.kafka.connect.spooldir.SpoolDirCsvSourceConnector",
        "barnabas.connect.kinds.spooldir:SpoolDirCsv",
    ),
    Plugin(
        SOURCE,
        "com.github.jcustenborder.kafka.connect.spooldir.SpoolDirJsonSourceConnector",
        "barnabas.connect.kinds.spooldir:SpoolDirJson",
        ("com.github.jcustenborder.kafka.connect.spooldir.SpoolDirSchemaLessJsonSourceConnector",),
    ),
    Plugin(
        SOURCE,
        "com.github.jcustenborder.kafka.connect.spooldir.SpoolDirLineDelimitedSourceConnector",
        "barnabas.connect.kinds.spooldir:SpoolDirLines",
    ),
    Plugin(
        SOURCE,
        "barnabas.connect.kinds.spooldir.SpoolDir",
        "barnabas.connect.kinds.spooldir:SpoolDir",
        ("spooldir",),
    ),
    Plugin(
        SOURCE,
        "io.confluent.connect.http.HttpSourceConnector",
        "barnabas.connect.kinds.http:HttpSource",
        ("http-source",),
    ),
    Plugin(
        SINK,
        "io.aiven.kafka.connect.http.HttpSinkConnector",
        "barnabas.connect.kinds.http:HttpSink",
        (
            "io.confluent.connect.http.HttpSinkConnector",
            "http-sink",
        ),
    ),
    Plugin(
        SINK,
        "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",
        "barnabas.connect.kinds.elasticsearch:ElasticsearchSink",
        (
            "io.aiven.kafka.connect.opensearch.OpensearchSinkConnector",
            "elasticsearch-sink",
            "opensearch-sink",
        ),
    ),
    Plugin(
        SINK,
        "com.redis.kafka.connect.RedisSinkConnector",
        "barnabas.connect.kinds.redis:RedisSink",
        (
            "com.github.jcustenborder.kafka.connect.redis.RedisSinkConnector",
            "redis-sink",
        ),
    ),
    Plugin(
        SOURCE,
        "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "barnabas.connect.mirror.source:MirrorSource",
        ("mirror-source",),
    ),
    Plugin(
        SOURCE,
        "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
        "barnabas.connect.mirror.checkpoint:MirrorCheckpoint",
        ("mirror-checkpoint",),
    ),
    Plugin(
        SOURCE,
        "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
        "barnabas.connect.mirror.heartbeat:MirrorHeartbeat",
        ("mirror-heartbeat",),
    ),
    Plugin(SINK, "io.confluent.connect.s3.S3SinkConnector", "barnabas.connect.kinds.s3:S3Sink", ("s3-sink",)),
    Plugin(
        SOURCE,
        "io.confluent.connect.s3.source.S3SourceConnector",
        "barnabas.connect.kinds.s3_source:S3Source",
        ("s3-source",),
    ),
    Plugin(
        SINK,
        "com.clickhouse.kafka.connect.ClickHouseSinkConnector",
        "barnabas.connect.kinds.clickhouse:ClickHouseSink",
        ("clickhouse-sink",),
    ),
    Plugin(
        SINK,
        "barnabas.connect.lake.delta.DeltaSink",
        "barnabas.connect.lake.delta:DeltaSink",
        ("delta-sink",),
    ),
    Plugin(
        SINK,
        "org.apache.iceberg.connect.IcebergSinkConnector",
        "barnabas.connect.lake.iceberg:IcebergSink",
        ("io.tabular.iceberg.connect.IcebergSinkConnector", "iceberg-sink"),
    ),
)
"""Barnabas's own connectors."""


@cache
def plugins() -> tuple[Plugin, ...]:
    """All connectors, the built-in ones first."""
    known = list(BUILT_IN)
    for entry in entry_points(group=GROUP):
        plugin = _from_entry(entry.name, entry.value)
        if plugin is not None:
            known.append(plugin)
    return tuple(known)


def _from_entry(name: str, value: str) -> Plugin | None:
    try:
        cls = Plugin("", value.replace(":", "."), value).load()
    except OptionError as error:
        log.warning("connector left out", extra={"entry_point": name, "reason": str(error)})
        return None
    kind = SOURCE if issubclass(cls, SourceConnector) else SINK
    class_name = cls.aliases[0] if cls.aliases else f"{cls.__module__}.{cls.__qualname__}"
    own = f"{cls.__module__}.{cls.__qualname__}"
    return Plugin(kind, class_name, value, (name, own, *cls.aliases), cls.version)


def find_plugin(name: str) -> Plugin:
    """The connector of a name. Raises OptionError, with what is near."""
    chosen = [plugin for plugin in plugins() if name in plugin.found_by()]
    if chosen:
        return chosen[0]
    known = sorted(
        {
            class_name
            for plugin in plugins()
            for class_name in (plugin.class_name, plugin.class_name.rpartition(".")[2], *plugin.names)
        }
    )
    simple = name.rpartition(".")[2]
    near = difflib.get_close_matches(name, known, 3) or difflib.get_close_matches(simple, known, 3)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else "see GET /connector-plugins for those that there are."
    )
    raise OptionError(
        f"Failed to find any class that implements Connector and which name matches {name}; {hint}",
        "connector.class",
    )
