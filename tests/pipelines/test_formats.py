"""Topics whose records name their schemas, through a whole pipeline: confluent-kafka's serializers write the source, and its
deserializers read what comes out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from barnabas.client.blocking import BlockingClient
from barnabas.pipelines.compiler.checking import check_plan
from barnabas.pipelines.compiler.outputs import query_rows
from barnabas.pipelines.compiler.queries import sink_settings, source_settings
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.preparing import prepare
from barnabas.pipelines.spark.session.start import adopt_session
from tests.pipelines.conftest import pass_once, send
from tests.pipelines.readers import consumed
from tests.support.registry import RegistryProcess

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def registry(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    log = tmp_path_factory.mktemp("registry") / "registry.log"
    names = ("--topic", "_schemas_pipelines", "--group", "registry-pipelines")
    process = RegistryProcess(bootstrap, log, *names).start()
    process.await_writer()
    yield process
    process.end()


TEXT = """
pipeline: {topic}
source: {{topic: {topic}}}
steps:
  - parse: {{registry: {{url: "{url}", subject: {topic}-value}}}}
  - set: {{total: price * count}}
outputs:
  - {{topic: {topic}-out, key: id, value: {{registry: {{url: "{url}"}}}}}}
"""


def schema(**more: dict[str, object]) -> str:
    fields = [
        {"name": "id", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "count", "type": "int"},
        *[{"name": name, **kind} for name, kind in more.items()],
    ]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def test_versions_that_come_while_the_query_runs(
    spark: SparkSession,
    bootstrap: str,
    client: BlockingClient,
    new_topic: Callable[..., str],
    registry: RegistryProcess,
    tmp_path: Path,
) -> None:
    topic = new_topic()
    schemas = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext(topic, MessageField.VALUE)

    def produce(writer: AvroSerializer, *rows: dict[str, object]) -> None:
        send(client, topic, [writer({"price": Decimal("2.50"), "count": 2, **row}, context) for row in rows])

    first = AvroSerializer(schemas, schema(note={"type": ["null", "string"], "default": None}))
    produce(first, {"id": "a", "note": "n"}, {"id": "b", "note": None})
    spec = parse_spec(TEXT.format(topic=topic, url=registry.url))
    check_plan(spark, spec)
    with pytest.raises(SchemaRegistryError):
        schemas.get_latest_version(f"{topic}-out-value")
    prepare(spec, bootstrap)
    (query,) = spec.queries()
    adopt_session(spark)
    settings = source_settings(spec, query, bootstrap) | {"startingOffsets": "earliest"}
    rows = query_rows(spec, query, spark.readStream.format("barnabas").options(**settings).load())
    sink = sink_settings(spec, query, bootstrap)
    running = (
        rows.writeStream.format("barnabas")
        .options(**sink)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        running.processAllAvailable()
        later = AvroSerializer(
            schemas, schema(tags={"type": {"type": "array", "items": "string"}, "default": []})
        )
        produce(later, {"id": "c", "tags": ["x"]})
        send(client, topic, [b"plain", b"\0\0\0\x7f\x7fx"])
        produce(first, {"id": "d", "note": "m"})
        running.processAllAvailable()
    finally:
        running.stop()
    read = AvroDeserializer(schemas)
    out = consumed(bootstrap, f"{topic}-out")
    assert [record.key for record in out] == [b"a", b"b", b"c", b"d"]
    decoded = [read(record.value, SerializationContext(f"{topic}-out", MessageField.VALUE)) for record in out]
    order = {"price": Decimal("2.50"), "count": 2, "total": Decimal("5.00")}
    assert decoded == [
        {"id": "a", "note": "n", **order},
        {"id": "b", "note": None, **order},
        {"id": "c", "note": None, **order},
        {"id": "d", "note": "m", **order},
    ]
    dead = consumed(bootstrap, f"{topic}-dead-letters")
    assert [(record.value, record.header("reason")) for record in dead] == [
        (b"plain", "the bytes do not begin with the id of a schema: 0x706c61696e"),
        (b"\0\0\0\x7f\x7fx", f"the registry has no schema with id {0x7F7F}"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("{url}", "http://127.0.0.1:1", ":5: step 1 parse: no registry answers at http://127.0.0.1:1"),
        ("subject: p-value", "subject: nowhere", ":5: step 1 parse: Subject 'nowhere' not found"),
        ("set: {total: price * count}", "drop: id", "needs the field 'id', which is missing"),
        ("set: {total: price * count}", "set: {more: 1}", "field 'more' is not in version 1 of p-out-value"),
        ("- set:", "- parse: {json: all, from: id}\n  - set:", "the fields must be known before"),
    ],
)
def test_what_does_not_suit_shows_before_anything_runs(
    spark: SparkSession, registry: RegistryProcess, old: str, new: str, reason: str
) -> None:
    schemas = SchemaRegistryClient({"url": registry.url})
    schemas.register_schema("p-value", Schema(schema(), "AVRO"))
    schemas.register_schema("p-out-value", Schema(schema(), "AVRO"))
    text = TEXT.replace("{topic}", "p").replace("{{", "{").replace("}}", "}")
    text = text.replace(old, new, 1).replace("{url}", registry.url)
    with pytest.raises(PipelineError) as raised:
        check_plan(spark, parse_spec(text, "p.yaml"))
    assert reason in str(raised.value)


def test_columns_instead_of_bytes(
    spark: SparkSession,
    bootstrap: str,
    client: BlockingClient,
    new_topic: Callable[..., str],
    registry: RegistryProcess,
    tmp_path: Path,
) -> None:
    """The data source by itself: a later version comes while the query runs; the sink's subject is made of its columns."""
    topic, out = new_topic(), new_topic()
    schemas = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext(topic, MessageField.VALUE)
    first = AvroSerializer(schemas, schema(note={"type": ["null", "string"], "default": None}))
    order = {"price": Decimal("2.50"), "count": 2}
    send(client, topic, [first({"id": "a", "note": "n", **order}, context)])
    settings = {"kafka.bootstrap.servers": bootstrap, "value.schema": "registry"}
    settings["schema.registry.url"] = registry.url
    rows = (
        spark.readStream.format("barnabas")
        .options(**settings, subscribe=topic, startingOffsets="earliest", undecodable="null")
        .load()
    )
    assert rows.select("value.*").columns == ["id", "price", "count", "note"]
    running = (
        rows.selectExpr(
            "struct(value.id, value.price * value.count AS total, error, value IS NULL AS gone) AS value"
        )
        .writeStream.format("barnabas")
        .options(**settings, topic=out, checkpointLocation=str(tmp_path))
        .start()
    )
    try:
        running.processAllAvailable()
        tags = {"type": {"type": "array", "items": "string"}, "default": []}
        later = AvroSerializer(schemas, schema(tags=tags))
        send(client, topic, [later({"id": "b", "tags": ["x"], **order}, context), b"plain", None])
        running.processAllAvailable()
    finally:
        running.stop()
    read = AvroDeserializer(schemas)
    decoded = [read(r.value, SerializationContext(out, MessageField.VALUE)) for r in consumed(bootstrap, out)]
    good = {"total": Decimal("5.00"), "error": None, "gone": False}
    nothing = {"id": None, "total": None, "gone": True}
    assert decoded == [
        {"id": "a", **good},
        {"id": "b", **good},
        {**nothing, "error": "value: the bytes do not begin with the id of a schema: 0x706c61696e"},
        {**nothing, "error": None},
    ]
    batch = spark.read.format("barnabas").options(**settings, subscribe=topic, startingOffsets="earliest")
    with pytest.raises(
        Exception, match=f"value of a record at or after {topic}-0 .*undecodable=null reads it"
    ):
        batch.load().collect()
    suited = batch.option("endingOffsets", json.dumps({topic: {"0": 2}})).load()
    assert [row["value"]["tags"] for row in suited.collect()] == [[], ["x"]]
    unsuited = suited.selectExpr("struct(value.id, 1 AS more) AS value")
    with pytest.raises(Exception, match=f"field 'more' is not in version 1 of {out}-value"):
        unsuited.write.format("barnabas").options(**settings, topic=out).mode("append").save()


def test_schemas_that_headers_name(
    spark: SparkSession,
    bootstrap: str,
    client: BlockingClient,
    new_topic: Callable[..., str],
    registry: RegistryProcess,
) -> None:
    """Confluent's serializers put a GUID into a header when they are told so; the value is Avro alone then."""
    topic = new_topic()
    schemas = SchemaRegistryClient({"url": registry.url})
    by_header = {"schema.id.serializer": header_schema_id_serializer}
    order = {"price": Decimal("2.50"), "count": 2}
    producer = Producer({"bootstrap.servers": bootstrap})

    def produce(writer: AvroSerializer, **row: object) -> None:
        headers: list[tuple[str, bytes]] = []
        value = writer({**order, **row}, SerializationContext(topic, MessageField.VALUE, headers))
        producer.produce(topic, value, headers=headers)

    newest = schema(tags={"type": {"type": "array", "items": "string"}, "default": []})
    produce(AvroSerializer(schemas, schema(), conf=by_header), id="a")
    produce(AvroSerializer(schemas, newest, conf=by_header), id="b", tags=["x"])
    produce(AvroSerializer(schemas, newest), id="c", tags=["y"])
    unknown = b"\1" + bytes(range(16))
    producer.produce(topic, b"x", headers=[("__value_schema_id", unknown)])
    assert producer.flush(30) == 0

    pass_once(spark, parse_spec(TEXT.format(topic=topic, url=registry.url)), bootstrap)
    read = AvroDeserializer(schemas)
    context = SerializationContext(f"{topic}-out", MessageField.VALUE)
    rows = [read(record.value, context) for record in consumed(bootstrap, f"{topic}-out")]
    assert [(row["id"], row["tags"], row["total"]) for row in rows] == [
        ("a", [], Decimal("5.00")),
        ("b", ["x"], Decimal("5.00")),
        ("c", ["y"], Decimal("5.00")),
    ]
    (letter,) = consumed(bootstrap, f"{topic}-dead-letters")
    why = f"the registry has no schema with GUID {UUID(bytes=unknown[1:])}"
    assert (letter.value, letter.header("reason")) == (b"x", why)

    settings = {"kafka.bootstrap.servers": bootstrap, "value.schema": "registry"}
    settings |= {"schema.registry.url": registry.url, "undecodable": "null"}
    table = (
        spark.read.format("barnabas").options(**settings, subscribe=topic, startingOffsets="earliest").load()
    )
    assert "headers" not in table.columns
    cells = [(row["value"] and row["value"]["id"], row["error"]) for row in table.collect()]
    assert cells == [("a", None), ("b", None), ("c", None), (None, f"value: {why}")]
