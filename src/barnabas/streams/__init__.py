"""Kafka Streams' building blocks in Python, on Spark.

    from barnabas.streams import StreamsBuilder, TopologyTestDriver

    builder = StreamsBuilder()
    (
        builder.stream("lines")
        .flat_map_values(lambda line: line.lower().split())
        .group_by(lambda k, v: v)
        .count(name="counts")
        .to_stream()
        .to("word-counts")
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("lines", None, "to be or not to be")
        print(driver.read_output("word-counts"))

`barnabas streams run module:builder` runs it on Spark. Nothing here imports Spark until then.
"""

from barnabas.streams.app import App
from barnabas.streams.builder import StreamsBuilder
from barnabas.streams.driver import TopologyTestDriver
from barnabas.streams.dsl import KStream, KTable
from barnabas.streams.errors import StreamsError
from barnabas.streams.global_tables import GlobalKTable
from barnabas.streams.handling import Failure
from barnabas.streams.records import Record, Window, Windowed
from barnabas.streams.registered import avro, json_schema, protobuf
from barnabas.streams.running.processors import Context, Processor
from barnabas.streams.serdes import Serde, session_windowed, time_windowed
from barnabas.streams.topology import Topology
from barnabas.streams.windows import (
    hopping,
    session,
    sliding,
    tumbling,
    unlimited,
    until_time_limit,
    until_window_closes,
)

__all__ = [
    "App",
    "Context",
    "Failure",
    "GlobalKTable",
    "KStream",
    "KTable",
    "Processor",
    "Record",
    "Serde",
    "StreamsBuilder",
    "StreamsError",
    "Topology",
    "TopologyTestDriver",
    "Window",
    "Windowed",
    "avro",
    "hopping",
    "json_schema",
    "protobuf",
    "session",
    "session_windowed",
    "sliding",
    "time_windowed",
    "tumbling",
    "unlimited",
    "until_time_limit",
    "until_window_closes",
]
