"""A Connect worker as its users call it: requests as in the lessons, records from and to confluent-kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from barnabas.client.options import ClientOptions
from barnabas.connect import DataError, RetriableError
from barnabas.connect import schemas as connect_schemas
from barnabas.connect.converters.finding import make_converter
from barnabas.connect.errors import OptionError
from barnabas.connect.worker.settings import WorkerOptions
from barnabas.connect.worker.validating import overrides_refused, validate
from barnabas.http.server import HttpOptions, HttpServer, ServerThread
from barnabas.registry.main import make_server as registry_server
from barnabas.registry.service import RegistryOptions
from barnabas.registry.store import StoreOptions
from tests.support.cluster import until
from tests.support.connect_worker import Worker, records, values, worker_options


@pytest.fixture(scope="module")
def group() -> str:
    return f"connect-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def worker(bootstrap: str, group: str) -> Iterator[Worker]:
    started = Worker(worker_options(bootstrap, group))
    yield started
    started.stop()


@pytest.fixture
def name() -> str:
    return f"c-{uuid.uuid4().hex[:8]}"


def admin(bootstrap: str) -> Any:
    return AdminClient({"bootstrap.servers": bootstrap})


def test_lines_of_a_file_become_records_and_lines_again(
    worker: Worker, bootstrap: str, name: str, tmp_path: Path
) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\n")
    answer = worker.call(
        "POST",
        "/connectors",
        {"name": name, "config": {"connector.class": "FileStreamSource", "file": str(source), "topic": name}},
    )
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/connectors/{name}"
    assert answer.json()["type"] == "source"
    worker.ask(
        "PUT",
        f"/connectors/{name}-sink/config",
        {"connector.class": "FileStreamSink", "file": str(sink), "topics": name},
    )
    until(lambda: sink.exists() and sink.read_text() == "one\ntwo\n", "the lines have been copied")
    with source.open("a") as file:
        file.write("three\n")
    until(lambda: sink.read_text() == "one\ntwo\nthree\n", "the new line has been copied")
    assert values(bootstrap, name, 3) == [b'"one"', b'"two"', b'"three"']
    offsets = worker.ask("GET", f"/connectors/{name}/offsets")
    assert offsets == {"offsets": [{"partition": {"filename": str(source)}, "offset": {"position": 14}}]}
    assert worker.ask("GET", f"/connectors/{name}/topics") == {name: {"topics": [name]}}
    wanted = {
        "offsets": [{"partition": {"kafka_partition": 0, "kafka_topic": name}, "offset": {"kafka_offset": 6}}]
    }
    until(
        lambda: (
            len(worker.ask("GET", f"/connectors/{name}-sink/offsets")["offsets"]) == len(wanted["offsets"])
        ),
        "the sink has committed",
    )
    for connector in (name, f"{name}-sink"):
        assert worker.call("DELETE", f"/connectors/{connector}").status_code == 204
        assert worker.call("GET", f"/connectors/{connector}").json() == {
            "error_code": 404,
            "message": f"Connector {connector} not found",
        }


def test_polls_of_an_interval_share_a_transaction(
    worker: Worker, bootstrap: str, name: str, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{number}\n" for number in range(100)))
    interval = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "300"}
    worker.create(
        name, connector_class="FileStreamSource", file=str(source), topic=name, batch_size="10", **interval
    )
    assert len(values(bootstrap, name, 100)) == 100
    partition = [{"partition": {"filename": str(source)}, "offset": {"position": source.stat().st_size}}]
    until(
        lambda: worker.ask("GET", f"/connectors/{name}/offsets")["offsets"] == partition, "offsets are stored"
    )
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    markers = consumer.get_watermark_offsets(TopicPartition(name, 0), 10)[1] - 100
    consumer.close()
    assert 1 <= markers < 10  # with transactions of one poll there are ten
    assert worker.call("PUT", f"/connectors/{name}/stop").status_code == 204
    refused = worker.call(
        "PUT",
        f"/connectors/{name}/config",
        {"connector.class": "FileStreamSource", "topic": name, "transaction.boundary": "connector"},
    )  # fmt: skip
    assert refused.status_code == 400
    assert "Use poll or interval" in refused.json()["message"]


def test_offsets_are_set_while_a_connector_is_stopped(
    worker: Worker, bootstrap: str, name: str, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\n")
    worker.create(name, connector_class="FileStreamSource", file=str(source), topic=name)
    assert len(values(bootstrap, name, 2)) == 2
    partition = {"filename": str(source)}
    body = {"offsets": [{"partition": partition, "offset": {"position": 4}}]}
    refused = worker.call("PATCH", f"/connectors/{name}/offsets", body)
    assert refused.status_code == 400
    assert "must be in the STOPPED state" in refused.json()["message"]
    assert worker.call("PUT", f"/connectors/{name}/stop").status_code == 204
    worker.until(name, "none", tasks=0)
    until(lambda: worker.ask("GET", f"/connectors/{name}/tasks") == [], "no tasks")
    wrong = {"offsets": [{"partition": partition, "offset": {"position": -4}}]}
    assert worker.call("PATCH", f"/connectors/{name}/offsets", wrong).status_code == 400
    answer = worker.ask("PATCH", f"/connectors/{name}/offsets", body)
    assert answer == {"message": "The offsets for this connector have been altered successfully"}
    assert worker.ask("GET", f"/connectors/{name}/offsets") == body
    assert worker.call("PUT", f"/connectors/{name}/resume").status_code == 202
    assert values(bootstrap, name, 3) == [b'"one"', b'"two"', b'"two"']


def test_a_task_that_fails_is_started_again(
    worker: Worker, bootstrap: str, name: str, tmp_path: Path
) -> None:
    place = tmp_path / "in"
    place.mkdir()  # a folder cannot be read as a file
    worker.create(name, connector_class="FileStreamSource", file=str(place), topic=name)
    status = worker.until(name, "FAILED")
    trace = status["tasks"][0]["trace"]
    assert trace.startswith("org.apache.kafka.connect.errors.ConnectException: ")
    assert "cannot be read" in trace
    assert "it is started again in" in trace
    place.rmdir()
    place.write_text("one\n")
    assert values(bootstrap, name, 1) == [b'"one"']
    worker.until(name, "RUNNING")
    assert worker.call("PUT", f"/connectors/{name}/pause").status_code == 202
    worker.until(name, "PAUSED")
    lines = worker.ask("GET", f"/connectors/{name}/logs")["lines"]
    assert any("cannot be read" in line["text"] for line in lines)


def test_wrong_configurations_are_refused_in_kafkas_form(worker: Worker, name: str) -> None:
    unknown = worker.call(
        "POST", "/connectors", {"name": name, "config": {"connector.class": "FileStreamSurce"}}
    )
    assert unknown.status_code == 400
    assert "FileStreamSource" in unknown.json()["message"]
    missing = worker.call(
        "POST", "/connectors", {"name": name, "config": {"connector.class": "FileStreamSource"}}
    )
    assert missing.status_code == 400
    assert missing.json()["message"] == (
        "Connector configuration is invalid and contains the following 1 error(s):\n"
        'Missing required configuration "topic" which has no default value.\n'
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )
    report = worker.ask(
        "PUT",
        "/connector-plugins/FileStreamSource/config/validate",
        {"connector.class": "FileStreamSource", "name": name, "tasks.max": "0", "topic": "t"},
    )
    assert report["error_count"] == 1
    assert report["groups"][:3] == ["Common", "Transforms", "Predicates"]
    row = next(row for row in report["configs"] if row["value"]["name"] == "tasks.max")
    assert row["value"]["errors"] == ["Invalid value 0 for configuration tasks.max: Value must be at least 1"]
    assert row["definition"]["default_value"] == "1"
    assert worker.call("PUT", f"/connectors/{name}/config", {"name": "other"}).status_code == 400
    assert worker.call("GET", "/connectors/%2F..%2F/status").status_code == 404
    assert worker.call("POST", "/connectors", [1]).status_code == 400


def test_the_policy_of_the_worker_says_what_connectors_override() -> None:
    config = {
        "name": "x",
        "connector.class": "FileStreamSource",
        "topic": "t",
        "producer.override.linger.ms": "50",
        "producer.override.sasl.jaas.config": "x",
        "offsets.storage.topic": "others",
    }
    for policy, refused in (
        ("org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy", []),
        ("None", ["producer.override.linger.ms", "producer.override.sasl.jaas.config"]),
        ("Principal", ["producer.override.linger.ms"]),
        ("Allowlist", ["producer.override.sasl.jaas.config"]),
    ):
        options_given = {
            "connector.client.config.override.policy": policy,
            "connector.client.config.override.allowlist": "linger.ms, acks",
        }
        options = WorkerOptions.of({"bootstrap.servers": "localhost:1"}, options_given)
        assert sorted(overrides_refused(options, config)) == refused
        report = validate(options, config)
        wrong = {row["value"]["name"] for row in report["configs"] if row["value"]["errors"]}
        assert wrong == {*refused, "offsets.storage.topic"}
    with pytest.raises(OptionError, match="must be one of: All, None, Principal, Allowlist"):
        WorkerOptions.of(
            {"bootstrap.servers": "localhost:1"}, {"connector.client.config.override.policy": "Nobody"}
        )


def test_a_name_inside_the_configuration_of_a_lesson_is_replaced(
    worker: Worker, name: str, tmp_path: Path
) -> None:
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "none"),
        "topic": name,
        "name": "other",
    }
    assert worker.ask("POST", "/connectors", {"name": name, "config": config})["config"]["name"] == name
    again = worker.call("POST", "/connectors", {"name": name, "config": config})
    assert (again.status_code, again.json()["message"]) == (409, f"Connector {name} already exists")
    changed = worker.ask("PATCH", f"/connectors/{name}/config", {"batch.size": 5, "tasks.max": None})
    assert changed["config"]["batch.size"] == "5"
    assert worker.ask("GET", "/connectors?expand=status&expand=info")[name].keys() == {"status", "info"}


def test_connectors_begin_in_the_state_that_is_asked_for(worker: Worker, name: str, tmp_path: Path) -> None:
    config = {"connector.class": "FileStreamSource", "file": str(tmp_path / "none"), "topic": name}
    worker.ask("POST", "/connectors", {"name": name, "config": config, "initial_state": "STOPPED"})
    until(
        lambda: worker.ask("GET", f"/connectors/{name}/status")["connector"]["state"] == "STOPPED",
        "it is stopped",
    )
    worker.ask("PUT", f"/connectors/{name}/resume")
    worker.until(name, "RUNNING")
    restarted = worker.call("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=false")
    assert restarted.status_code == 202
    assert restarted.json()["connector"]["state"] == "RESTARTING"
    assert worker.call("POST", f"/connectors/{name}/tasks/0/restart").status_code == 204
    assert worker.call("POST", f"/connectors/{name}/tasks/7/restart").status_code == 404
    worker.until(name, "RUNNING")


def test_the_rest_of_the_api_answers(worker: Worker) -> None:
    root = worker.ask("GET", "/")
    assert root.keys() == {"version", "commit", "kafka_cluster_id"}
    assert worker.ask("GET", "/health")["status"] == "healthy"
    plugins = worker.ask("GET", "/connector-plugins?connectorsOnly=false")
    classes = {(row["class"], row["type"]) for row in plugins}
    assert ("org.apache.kafka.connect.file.FileStreamSinkConnector", "sink") in classes
    assert ("org.apache.kafka.connect.json.JsonConverter", "converter") in classes
    assert ("org.apache.kafka.connect.transforms.Cast$Key", "transformation") in classes
    assert [row["name"] for row in worker.ask("GET", "/connector-plugins/FileStreamSink/config")] == ["file"]
    assert worker.call("GET", "/connector-plugins/nothing/config").status_code == 404
    assert worker.ask("PUT", "/admin/loggers/barnabas.test", {"level": "debug"}) == ["barnabas.test"]
    assert worker.ask("GET", "/admin/loggers/barnabas.test")["level"] == "DEBUG"
    assert worker.call("PUT", "/admin/loggers/barnabas.test", {"level": "LOUD"}).status_code == 404


def test_workers_of_a_group_share_tasks_and_take_over(bootstrap: str, name: str, tmp_path: Path) -> None:
    first, second = (Worker(worker_options(bootstrap, f"g-{name}")) for _ in range(2))
    try:
        first.create(
            name, connector_class="FileStreamSink", file=str(tmp_path / "out"), topics=name, tasks_max="4"
        )
        client = admin(bootstrap)
        client.create_topics([NewTopic(name, 4)])[name].result()

        def owners(worker: Worker) -> list[str]:
            return [task["worker_id"] for task in worker.until(name, "RUNNING", 4)["tasks"]]

        until(
            lambda: sorted(map(owners(first).count, set(owners(second)))) == [2, 2],
            "two tasks on each worker",
        )
        status = second.ask("GET", f"/connectors/{name}/status")
        other = next(t for t in status["tasks"] if t["worker_id"] == first.url.rpartition("/")[2])
        began = f"task {other['id']} runs"

        def begins() -> int:
            lines = first.ask("GET", f"/connectors/{name}/logs")["lines"]
            return sum(line["text"] == began for line in lines)

        before = begins()
        assert second.call("POST", f"/connectors/{name}/tasks/{other['id']}/restart").status_code == 204
        until(lambda: begins() > before, "the other worker has started its task again")
    finally:
        first.stop()
    try:
        mine = second.url.rpartition("/")[2]
        until(lambda: set(owners(second)) == {mine}, "the other worker has taken over")
    finally:
        second.stop()


def test_transforms_dead_letters_and_avro(bootstrap: str, name: str, tmp_path: Path) -> None:
    """Lines become Avro with a key; one that cannot be cast is a dead letter of the source; a sink reads what is left."""
    options = RegistryOptions(
        ClientOptions.from_kafka({"bootstrap.servers": bootstrap}), StoreOptions(f"schemas-{name}", 1), name
    )
    registry: HttpServer = registry_server(options, HttpOptions("127.0.0.1:0"))
    thread = ServerThread([registry])
    thread.start()
    worker = Worker(worker_options(bootstrap, f"g-{name}"))
    transforms = "org.apache.kafka.connect.transforms."
    avro = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": registry.url,
    }
    source, sink = tmp_path / "in", tmp_path / "out"
    source.write_text("1\nx\n3\n")
    try:
        worker.create(
            name,
            connector_class="FileStreamSource",
            file=str(source),
            topic=name,
            transforms="cast,hoist,key",
            transforms_cast_type=f"{transforms}Cast$Value",
            transforms_cast_spec="int32",
            transforms_hoist_type=f"{transforms}HoistField$Value",
            transforms_hoist_field="n",
            transforms_key_type=f"{transforms}ValueToKey",
            transforms_key_fields="n",
            errors_tolerance="all",
            errors_deadletterqueue_topic_name=f"{name}-dead",
            errors_deadletterqueue_context_headers_enable="true",
            topic_creation_default_partitions="1",
            topic_creation_default_replication_factor="1",
            topic_creation_default_retention_ms="777000",
            **{option.replace(".", "_"): text for option, text in avro.items()},
        )
        copies = records(bootstrap, name, 2)
        client = SchemaRegistryClient({"url": registry.url})
        read = AvroDeserializer(client)
        context = SerializationContext(name, MessageField.VALUE)
        assert [read(message.value(), context) for message in copies] == [{"n": 1}, {"n": 3}]
        assert [message.key() for message in copies] == [b'{"n":1}', b'{"n":3}']
        letter = records(bootstrap, f"{name}-dead", 1)[0]
        headers = dict(letter.headers())
        assert letter.value() == b'"x"'
        assert headers["__connect.errors.stage"] == b"TRANSFORMATION"
        assert headers["__connect.errors.class.name"] == b"Cast"
        assert (
            headers["__connect.errors.exception.class.name"]
            == b"org.apache.kafka.connect.errors.DataException"
        )
        administration = admin(bootstrap)
        described = administration.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)])
        assert next(iter(described.values())).result()["retention.ms"].value == "777000"
        worker.create(
            f"{name}-sink",
            connector_class="FileStreamSink",
            file=str(sink),
            topics=name,
            transforms="keep",
            transforms_keep_type=f"{transforms}Filter",
            transforms_keep_condition="n > 1",
            **{option.replace(".", "_"): text for option, text in avro.items()},
        )
        until(lambda: sink.exists() and sink.read_text() == "{n=3}\n", "the sink has written")
        _other_formats(registry.url)
    finally:
        worker.stop()
        thread.stop()


def _other_formats(url: str) -> None:
    """What the converters of JSON Schema and Protobuf write is read by Confluent's deserializers."""
    client = SchemaRegistryClient({"url": url})
    schema = connect_schemas.struct(
        {"id": connect_schemas.INT64, "name": connect_schemas.OPTIONAL_STRING}, "person"
    )
    value = {"id": 7, "name": "Ann"}
    converters = {}
    for name in ("JsonSchemaConverter", "ProtobufConverter"):
        converters[name] = make_converter(name, {"schema.registry.url": url}, False)
    data = converters["JsonSchemaConverter"].encoder("j")(schema, value, [])
    read = JSONDeserializer(None, schema_registry_client=client)
    assert read(data, SerializationContext("j", MessageField.VALUE)) == value
    assert converters["JsonSchemaConverter"].decoder("j")(data, []) == (schema, value)
    text = 'syntax = "proto3"; message Person { int64 id = 1; string name = 2; }'
    client.register_schema("p-value", Schema(text, "PROTOBUF"))
    data = converters["ProtobufConverter"].encoder("p")(schema, value, [])
    assert data is not None
    assert data[5:] == b"\x00\x08\x07\x12\x03Ann"
    assert converters["ProtobufConverter"].decoder("p")(data, []) == (None, {"id": "7", "name": "Ann"})
    with pytest.raises(DataError, match="another converter"):
        converters["JsonSchemaConverter"].decoder("j")(b"{}", [])
    away = make_converter("AvroConverter", {"schema.registry.url": "http://127.0.0.1:9"}, False)
    with pytest.raises(RetriableError):
        away.encoder("t")(schema, value, [])


def test_a_topic_that_is_made_again_is_read_from_its_beginning(
    worker: Worker, bootstrap: str, name: str, tmp_path: Path
) -> None:
    out, client = tmp_path / "out.txt", admin(bootstrap)

    def make_topic(prefix: str, count: int) -> None:
        client.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        producer = Producer({"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 100})
        until(lambda: name in client.list_topics(timeout=10).topics, "the topic is there")
        for number in range(count):
            producer.produce(name, f"{prefix}{number}")
        assert producer.flush(60) == 0

    def lines() -> list[str]:
        return out.read_text().splitlines() if out.exists() else []

    def committed() -> list[int]:
        offsets = worker.ask("GET", f"/connectors/{name}/offsets")["offsets"]
        return [row["offset"]["kafka_offset"] for row in offsets]

    def make_again(prefix: str, count: int) -> None:
        client.delete_topics([name])[name].result(30)
        until(lambda: name not in client.list_topics(timeout=10).topics, "the topic is gone")
        make_topic(prefix, count)

    make_topic("old", 20)
    converter = "org.apache.kafka.connect.storage.StringConverter"
    worker.create(
        name, connector_class="FileStreamSink", file=str(out), topics=name, value_converter=converter
    )
    until(lambda: committed() == [20], "the offset is committed")
    make_again("new", 50)  # as many as were read, and more: no offset is out of range
    until(lambda: {f"new{n}" for n in range(50)} <= {*lines()}, "the new records are in the file")
    until(lambda: committed() == [50], "the new offset is committed")
    worker.ask("PUT", f"/connectors/{name}/stop")
    worker.until(name, "RUNNING", 0)
    make_again("last", 60)
    worker.ask("PUT", f"/connectors/{name}/resume")
    until(lambda: {f"last{n}" for n in range(60)} <= {*lines()}, "the last records are in the file")
    worker.ask("DELETE", f"/connectors/{name}")
