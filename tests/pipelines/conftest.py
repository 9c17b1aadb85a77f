"""One Spark session and one broker for all pipeline tests.

BARNABAS_TEST_BOOTSTRAP names another broker to run them against, Apache Kafka for one.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient, NewTopic
from barnabas.pipelines.compiler.outputs import query_rows
from barnabas.pipelines.compiler.queries import session_program, sink_settings, source_settings
from barnabas.pipelines.formats.columns import arrow_schema, record_batches
from barnabas.pipelines.plan.pipeline import PipelineSpec
from barnabas.pipelines.serving.preparing import prepare
from barnabas.pipelines.spark.session.class_archive import find_archive
from barnabas.pipelines.spark.session.start import adopt_session, start_session
from barnabas.records.columnar import decode
from barnabas.records.columnar_encoder import BatchEncoder
from tests.support.admin import KEPT
from tests.support.process import BrokerProcess

_numbers = itertools.count()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    return os.environ.get("BARNABAS_TEST_BOOTSTRAP") or request.getfixturevalue("broker").bootstrap


@pytest.fixture
def own_broker(own_broker: Callable[..., BrokerProcess]) -> Callable[..., BrokerProcess]:
    """As in tests/conftest.py, and the records, whose times are long gone, stay."""

    def make(data_dir: Path | None = None, **options: str) -> BrokerProcess:
        return own_broker(data_dir, **{"log__retention__ms": "-1", **options})

    return make


@pytest.fixture
def client(bootstrap: str) -> Iterator[BlockingClient]:
    with BlockingClient(bootstrap) as client:
        yield client


@pytest.fixture
def new_topic(client: BlockingClient) -> Callable[..., str]:
    """Makes a topic with a name of its own that keeps what `send` writes, whose times are long gone."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"pipelines-{os.getpid()}-{next(_numbers)}"
        named = {**KEPT, **{key.replace("_", "."): value for key, value in configs.items()}}
        client.create_topics([NewTopic(name, partitions, configs=named)])
        return name

    return make


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory):
    session = start_session(
        "tests",
        master="local[2,2]",
        quick=True,
        log_file=tmp_path_factory.mktemp("spark") / "spark.log",
        archive=find_archive(),
        conf={
            # States of a few rows: one task keeps them.
            "spark.sql.shuffle.partitions": "1",
            # A few rows do not repay compiling each query: a quarter of the CPU time. Commands and servers compile.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    yield session
    session.stop()


def pass_once(spark: SparkSession, spec: PipelineSpec, bootstrap: str) -> None:
    """What is in the source, through the pipeline's source, steps and sinks into its topics, without a streaming query: for
    tests of what becomes of values, at a third of the cost."""
    prepare(spec, bootstrap)
    adopt_session(spark)
    for query in spec.queries():
        program = session_program(spark, spec, query)
        settings = source_settings(spec, query, bootstrap, program=program)
        unwanted = ("commitGroup", "startingOffsets")
        read = spark.read.format("barnabas").options(
            **{name: value for name, value in settings.items() if name not in unwanted}
        )
        rows = query_rows(spec, query, read.option("startingOffsets", "earliest").load())
        sink = sink_settings(spec, query, bootstrap, program)
        rows.write.format("barnabas").options(**sink).mode("append").save()


def send(client: BlockingClient, topic: str, values, partition: int = 0, key: bytes | None = None) -> None:
    """Writes values to one partition, in one batch."""
    import pyarrow as pa

    from barnabas.pipelines.formats.columns import append_batch

    encoder = BatchEncoder(partition + 1)
    rows = {
        "value": pa.array(values, pa.binary()),
        "partition": pa.array([partition] * len(values), pa.int32()),
    }
    if key is not None:
        rows["key"] = pa.array([key] * len(values), pa.binary())
    append_batch(encoder, pa.record_batch(rows), 1_700_000_000_000)
    for batch in encoder.flush():
        client.produce_raw(topic, partition, batch.data)


def records_of(client: BlockingClient, topic: str) -> list[dict]:
    """Everything in a topic, with headers."""
    schema = arrow_schema(("key", "value", "topic", "partition", "offset", "timestamp", "headers"))
    pairs = [(topic, p) for p in client.partitions(topic)]
    starts = client.list_offsets(dict.fromkeys(pairs, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(pairs, LATEST))
    rows = []
    for name, partition in pairs:
        end = ends[name, partition].offset
        for piece in client.read(name, partition, starts[name, partition].offset, end):
            decoded = decode(piece.records, piece.start, end, headers=True)
            for batch in record_batches(decoded, name, partition, schema, 1000):
                rows += batch.to_pylist()
    return rows
