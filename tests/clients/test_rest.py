"""The REST proxy as its users call it: Confluent's examples with requests, records from and to confluent-kafka."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

import requests
from barnabas.http.errors import HttpError
from barnabas.proxy.consuming import Consuming
from barnabas.proxy.kafka import Kafka

WAIT_S = 120
V2 = {"Content-Type": "application/vnd.kafka.v2+json"}
USER = '{"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}'


class Together:
    """`barnabas start --with registry,rest,reporting`."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        command = [sys.executable, "-m", "barnabas", "start", "--listen", "127.0.0.1:0"]
        command += ["--data", str(folder / "data"), "--with", "registry,rest,reporting"]
        command += [
            "--registry-listen",
            "127.0.0.1:0",
            "--rest-listen",
            "127.0.0.1:0",
            "--reporting-listen",
            "127.0.0.1:0",
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().decode()
        assert ready.startswith("ready"), self.log.read_text()
        match = re.search(r"127\.0\.0\.1:\d+", ready)
        assert match is not None
        self.bootstrap = match[0]
        urls = dict(re.findall(r"service started service=(\w+) url=http://(\S+)", self.log.read_text()))
        self.registry, self.rest, self.reporting = urls["registry"], urls["rest"], urls["reporting"]

    def end(self) -> int:
        self.process.terminate()
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    process = Together(tmp_path_factory.mktemp("rest"))
    yield process
    assert process.end() == 0
    assert "Traceback" not in process.log.read_text()


@pytest.fixture
def url(together: Together) -> str:
    return f"http://{together.rest}"


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def send(url: str, path: str, body: Any, format: str = "json", status: int = 200) -> Any:
    headers = {"Content-Type": f"application/vnd.kafka.{format}.v2+json"}
    answer = requests.post(f"{url}{path}", json=body, headers=headers, timeout=WAIT_S)
    assert answer.status_code == status, answer.text
    return answer.json()


def instance(url: str, **settings: Any) -> str:
    body = {"auto.offset.reset": "earliest", **settings}
    answer = requests.post(f"{url}/consumers/g-{uuid.uuid4().hex[:8]}", json=body, headers=V2, timeout=WAIT_S)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["base_uri"])


def post(base: str, path: str, body: Any = None, status: int = 204) -> None:
    answer = requests.post(f"{base}/{path}", json=body, headers=V2, timeout=WAIT_S)
    assert answer.status_code == status, answer.text


def read(base: str, count: int, accept: str = "*/*") -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(records) < count:
        assert time.monotonic() < deadline, records
        answer = requests.get(f"{base}/records", headers={"Accept": accept}, timeout=WAIT_S)
        assert answer.status_code == 200, answer.text
        records += answer.json()
    return records


def cluster(url: str) -> str:
    cluster_row = requests.get(f"{url}/v3/clusters", timeout=WAIT_S).json()["data"][0]
    return str(cluster_row["metadata"]["self"])


def test_the_quick_start(url: str, topic: str) -> None:
    sent = send(url, f"/topics/{topic}", {"records": [{"value": {"foo": "bar"}}]})
    offset = {"partition": 0, "offset": 0, "error_code": None, "error": None}
    assert sent == {"offsets": [offset], "key_schema_id": None, "value_schema_id": None}
    base = instance(url, name="my_consumer_instance", format="json")
    assert base.endswith("/instances/my_consumer_instance")
    post(base, "subscription", {"topics": [topic]})
    (record,) = read(base, 1, "application/vnd.kafka.json.v2+json")
    assert record == {"topic": topic, "key": None, "value": {"foo": "bar"}, "partition": 0, "offset": 0}
    post(base, "offsets", status=200)
    place = {"topic": topic, "partition": 0}
    offsets = requests.get(f"{base}/offsets", json={"partitions": [place]}, headers=V2, timeout=WAIT_S).json()
    assert offsets == {"offsets": [{**place, "offset": 1, "metadata": ""}]}
    post(base, "positions/beginning", {"partitions": [place]})
    assert read(base, 1) == [record]
    post(base, "assignments", {"partitions": [place]}, status=409)
    wrong = requests.get(
        f"{base}/records", headers={"Accept": "application/vnd.kafka.avro.v2+json"}, timeout=WAIT_S
    )
    assert (wrong.status_code, wrong.json()["error_code"]) == (406, 40601)
    again = requests.post(
        base.rpartition("/instances/")[0], json={"name": "my_consumer_instance"}, headers=V2, timeout=WAIT_S
    )
    assert (again.status_code, again.json()["error_code"]) == (409, 40902)
    assert requests.delete(base, headers=V2, timeout=WAIT_S).status_code == 204
    gone = requests.delete(base, headers=V2, timeout=WAIT_S)
    assert (gone.status_code, gone.json()["error_code"]) == (404, 40403)


def test_avro_to_and_from_confluent_kafka(together: Together, url: str, topic: str) -> None:
    records = [{"key": 1, "value": {"name": "testUser"}}]
    body = {"key_schema": '{"name":"user_id", "type":"int"}', "value_schema": USER, "records": records}
    sent = send(url, f"/topics/{topic}", body, "avro")
    registry = SchemaRegistryClient({"url": f"http://{together.registry}"})
    assert registry.get_latest_version(f"{topic}-value").schema_id == sent["value_schema_id"]
    consumer = Consumer(
        {"bootstrap.servers": together.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    message = None
    deadline = time.monotonic() + WAIT_S
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(1)
    consumer.close()
    assert message is not None
    context = SerializationContext(topic, MessageField.VALUE)
    assert AvroDeserializer(registry)(message.value(), context) == {"name": "testUser"}

    producer = Producer({"bootstrap.servers": together.bootstrap})
    producer.produce(topic, AvroSerializer(registry, USER)({"name": "other"}, context))
    assert producer.flush(WAIT_S) == 0
    context.headers = []
    raw = AvroSerializer(registry, USER, conf={"schema.id.serializer": header_schema_id_serializer})
    producer.produce(topic, raw({"name": "third"}, context), headers=context.headers)
    assert producer.flush(WAIT_S) == 0
    base = instance(url, format="avro")
    post(base, "assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    assert [(row["key"], row["value"]) for row in read(base, 3)] == [
        (1, {"name": "testUser"}),
        (None, {"name": "other"}),
        (None, {"name": "third"}),
    ]
    producer.produce(topic, b"no schema")
    assert producer.flush(WAIT_S) == 0
    deadline = time.monotonic() + WAIT_S
    while (answer := requests.get(f"{base}/records", timeout=WAIT_S)).json() == []:
        assert time.monotonic() < deadline
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42203)  # and names where it is
    post(base, "positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 4}]})
    assert requests.get(f"{base}/records?timeout=100", timeout=WAIT_S).json() == []
    requests.delete(base, timeout=WAIT_S)


MESSAGE = 'syntax = "proto3"; message User { string name = 1; }'
OBJECT = '{"type": "object", "title": "User", "properties": {"name": {"type": "string"}}}'


def reader_of(format: str, registry: SchemaRegistryClient) -> Any:
    """Confluent's deserializer."""
    if format == "jsonschema":
        return JSONDeserializer(None, schema_registry_client=registry)
    file = descriptor_pb2.FileDescriptorProto(name="user.proto", syntax="proto3")
    file.message_type.add(name="User").field.add(name="name", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    message_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("User"))
    read = ProtobufDeserializer(message_class, {}, registry)
    return lambda data, context: json_format.MessageToDict(read(data, context))


@pytest.mark.parametrize(("format", "schema"), [("jsonschema", OBJECT), ("protobuf", MESSAGE)])
def test_records_with_schemas_for_confluent_kafka(
    together: Together, url: str, topic: str, format: str, schema: str
) -> None:
    user = {"name": "testUser"}
    sent = send(url, f"/topics/{topic}", {"value_schema": schema, "records": [{"value": user}]}, format)
    assert sent["offsets"][0]["offset"] == 0
    named = {"type": format.upper(), "schema": schema, "data": user}
    batch = {"entries": [
        {"id": "1", "value": {**named, "subject_name_strategy": "TOPIC_RECORD_NAME"}},
        {"id": "2", "value": {"type": "BINARY", "data": "!"}},
        {"id": "3", "value": {"schema_version": 1, "data": user}, "headers": [{"name": "h", "value": "eA=="}]},
    ]}  # fmt: skip
    answer = requests.post(f"{cluster(url)}/topics/{topic}/records:batch", json=batch, timeout=WAIT_S)
    assert answer.status_code == 207
    assert [(row["id"], row["offset"]) for row in answer.json()["successes"]] == [("1", 1), ("3", 2)]
    assert [(row["id"], row["error_code"]) for row in answer.json()["failures"]] == [("2", 400)]
    registry = SchemaRegistryClient({"url": f"http://{together.registry}"})
    assert {f"{topic}-value", f"{topic}-User"} <= set(registry.get_subjects())
    read_value, context = reader_of(format, registry), SerializationContext(topic, MessageField.VALUE)
    records = consumed(together.bootstrap, topic, 3)
    assert [read_value(row.value(), context) for row in records] == [user] * 3
    assert records[2].headers() == [("h", b"x")]
    base = instance(url, format=format)
    post(base, "assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    post(base, "positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]})
    assert [row["value"] for row in read(base, 2, f"application/vnd.kafka.{format}.v2+json")] == [user] * 2
    assert requests.delete(base, headers=V2, timeout=WAIT_S).status_code == 204


def test_what_a_rule_refuses_goes_to_its_topic(together: Together, url: str, topic: str) -> None:
    """With the headers that Confluent's serializer puts beside such a record, which runs the same rule here."""
    pytest.importorskip("celpy", reason="the extra `rules` is not installed")
    from confluent_kafka.schema_registry.rule_registry import RuleRegistry
    from confluent_kafka.schema_registry.rules.cel.cel_executor import CelExecutor
    from confluent_kafka.schema_registry.rules.dlq.dlq_action import DlqAction

    dead = f"{topic}-dead"
    rule = {
        "name": "long",
        "kind": "CONDITION",
        "type": "CEL",
        "mode": "WRITE",
        "expr": "message.name.size() > 3",
    }
    rule |= {"onFailure": "DLQ", "params": {"dlq.topic": dead}}
    body = {"schema": USER, "ruleSet": {"domainRules": [rule]}}
    answer = requests.post(
        f"http://{together.registry}/subjects/{topic}-value/versions", json=body, timeout=WAIT_S
    )
    number = answer.json()["id"]

    rows = [{"value": {"name": "Anna"}}, {"key": None, "value": {"name": "Bo"}}, {"value": {"name": "Carl"}}]
    sent = send(url, f"/topics/{topic}", {"value_schema_id": number, "records": rows}, "avro")["offsets"]
    assert [row["offset"] for row in sent] == [0, None, 1]
    assert sent[1]["error_code"] == 1
    assert sent[1]["error"] == (
        f"records[1].value: rule 'long' refuses the value: message.name.size() > 3; sent to {dead}"
    )
    record = {"value": {"type": "AVRO", "data": {"name": "Di"}}, "key": {"type": "BINARY", "data": "aw=="}}
    receipt = requests.post(f"{cluster(url)}/topics/{topic}/records", json=record, timeout=WAIT_S).json()
    assert receipt["error_code"] == 400
    assert receipt["message"].endswith(f"sent to {dead}")

    registry = SchemaRegistryClient({"url": f"http://{together.registry}"})
    action = DlqAction({"bootstrap.servers": together.bootstrap, "dlq.auto.flush": "true"})
    rules = RuleRegistry()
    rules.register_executor(CelExecutor())
    rules.register_action(action)
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    serialize = AvroSerializer(registry, conf=latest, rule_registry=rules)
    with pytest.raises(SerializationError):
        serialize({"name": "Ed"}, SerializationContext(topic, MessageField.VALUE))

    letters = consumed(together.bootstrap, dead, 3)
    assert [(row.key(), json.loads(row.value())["name"]) for row in letters] == [
        (None, "Bo"),
        (b"k", "Di"),
        (None, "Ed"),
    ]
    ours, _, theirs = (dict(row.headers()) for row in letters)
    assert ours.keys() == theirs.keys()
    assert ours.pop("__rule.exception")
    assert theirs.pop("__rule.exception")
    assert ours == theirs


def consumed(bootstrap: str, topic: str, count: int) -> list[Any]:
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, timeout=WAIT_S)
        assert len(messages) == count
        return messages
    finally:
        consumer.close()


def test_topics_by_v3(url: str, topic: str) -> None:
    cluster_url = cluster(url)
    wanted = {
        "topic_name": topic,
        "partitions_count": 3,
        "replication_factor": 1,
        "configs": [{"name": "cleanup.policy", "value": "compact"}],
    }
    created = requests.post(f"{cluster_url}/topics", json=wanted, timeout=WAIT_S)
    assert (created.status_code, created.json()["partitions_count"]) == (201, 3)
    again = requests.post(f"{cluster_url}/topics", json=wanted, timeout=WAIT_S)
    assert (again.status_code, again.json()["error_code"]) == (400, 40002)
    option = f"{cluster_url}/topics/{topic}/configs/cleanup.policy"
    option_row = requests.get(option, timeout=WAIT_S).json()
    assert (option_row["value"], option_row["source"]) == ("compact", "DYNAMIC_TOPIC_CONFIG")
    change = {
        "data": [
            {"name": "cleanup.policy", "operation": "DELETE"},
            {"name": "compression.type", "value": "gzip"},
        ]
    }
    altered = requests.post(f"{cluster_url}/topics/{topic}/configs:alter", json=change, timeout=WAIT_S)
    assert altered.status_code == 204
    assert requests.get(option, timeout=WAIT_S).json()["is_default"] is True
    more = requests.patch(f"{cluster_url}/topics/{topic}", json={"partitions_count": 4}, timeout=WAIT_S)
    assert more.status_code == 200
    rows = requests.get(f"{cluster_url}/topics/{topic}/partitions", timeout=WAIT_S).json()["data"]
    assert [row["partition_id"] for row in rows] == [0, 1, 2, 3]
    replicas = requests.get(rows[0]["replicas"]["related"], timeout=WAIT_S).json()["data"]
    assert [(row["is_leader"], row["is_in_sync"]) for row in replicas] == [(True, True)]
    assert requests.delete(f"{cluster_url}/topics/{topic}", timeout=WAIT_S).status_code == 204
    gone = requests.get(f"{cluster_url}/topics/{topic}", timeout=WAIT_S)
    assert (gone.status_code, gone.json()["error_code"]) == (404, 40403)
    old = requests.get(f"{url}/topics/{topic}", timeout=WAIT_S)
    assert (old.status_code, old.json()["error_code"]) == (404, 40401)


def test_a_stream_of_records_keeps_its_order(url: str, topic: str) -> None:
    count = 300

    def body() -> Iterator[bytes]:
        for number in range(count):
            yield json.dumps({"value": {"type": "STRING", "data": f"{number}"}}).encode()
        yield b'{"value": {"type": "BINARY", "data": "?"}}'

    send(url, f"/topics/{topic}", {"records": [{"value": "first"}]})
    answer = requests.post(f"{cluster(url)}/topics/{topic}/records", data=body(), timeout=WAIT_S)
    receipts = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["offset"] for row in receipts[:count]] == list(range(1, count + 1))
    assert receipts[count]["error_code"] == 400
    base = instance(url)
    post(base, "assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    assert [row["offset"] for row in read(base, count + 1)] == list(range(count + 1))
    requests.delete(base, timeout=WAIT_S)


def test_lags_of_a_group(url: str, topic: str) -> None:
    send(url, f"/topics/{topic}", {"records": [{"value": number} for number in range(5)]})
    base = instance(url, format="json")
    group = base.partition("/consumers/")[2].partition("/")[0]
    post(base, "subscription", {"topics": [topic]})
    read(base, 5)
    post(base, "offsets", {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]}, status=200)
    group_url = f"{cluster(url)}/consumer-groups/{group}"
    summary = requests.get(f"{group_url}/lag-summary", timeout=WAIT_S).json()
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_topic_name"]) == (3, 3, topic)
    (member,) = requests.get(f"{group_url}/consumers", timeout=WAIT_S).json()["data"]
    (place,) = requests.get(member["assignments"]["related"], timeout=WAIT_S).json()["data"]
    assert requests.get(place["lag"]["related"], timeout=WAIT_S).json()["lag"] == 3
    requests.delete(base, timeout=WAIT_S)
    absent = requests.get(f"{cluster(url)}/consumer-groups/no-such-group", timeout=WAIT_S)
    assert absent.status_code == 404


@pytest.mark.parametrize("polls", [0, 1, 2])
def test_partitions_assigned_by_hand_stay_after_a_subscription_has_ended(
    url: str, topic: str, polls: int
) -> None:
    """polls: how far the member has come when the subscription ends, from not at all to having partitions."""
    send(url, f"/topics/{topic}", {"records": [{"value": number} for number in range(3)]})
    base = instance(url, format="json")
    place = {"topic": topic, "partition": 0}
    for _ in range(5):
        post(base, "subscription", {"topics": [topic]})
        for _ in range(polls):
            requests.get(f"{base}/records?timeout=100", timeout=WAIT_S)
        assert requests.delete(f"{base}/subscription", timeout=WAIT_S).status_code == 204
        post(base, "assignments", {"partitions": [place]})
        post(base, "positions/beginning", {"partitions": [place]})
        for _ in range(2):  # a late answer of the group would arrive with the first read
            rows = read(base, 3)
            assert [row["value"] for row in rows] == [0, 1, 2]
            post(base, "positions/beginning", {"partitions": [place]})
        assert requests.delete(f"{base}/subscription", timeout=WAIT_S).status_code == 204
    requests.delete(base, timeout=WAIT_S)


def test_the_end_of_a_subscription_leaves_the_group(together: Together, url: str, topic: str) -> None:
    send(url, f"/topics/{topic}", {"records": [{"value": 1}]})
    base = instance(url)
    group = base.partition("/consumers/")[2].partition("/")[0]
    post(base, "subscription", {"topics": [topic]})
    admin = AdminClient({"bootstrap.servers": together.bootstrap})

    def members() -> int:
        return len(admin.describe_consumer_groups([group])[group].result(WAIT_S).members)

    deadline = time.monotonic() + WAIT_S
    while members() == 0:
        assert time.monotonic() < deadline
        requests.get(f"{base}/records?timeout=100", timeout=WAIT_S)
    assert requests.delete(f"{base}/subscription", timeout=WAIT_S).status_code == 204
    assert members() == 0
    requests.delete(base, timeout=WAIT_S)


def test_two_connections_share_an_instance(url: str, topic: str) -> None:
    count = 200
    send(url, f"/topics/{topic}", {"records": [{"value": number} for number in range(count)]})
    base = instance(url, format="json")
    post(base, "assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    values: list[int] = []

    def work() -> None:
        deadline = time.monotonic() + WAIT_S
        while len(values) < count and time.monotonic() < deadline:
            rows = requests.get(f"{base}/records?max_bytes=20&timeout=200", timeout=WAIT_S).json()
            values.extend(row["value"] for row in rows)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(values) == list(range(count))
    requests.delete(base, timeout=WAIT_S)


def test_what_a_cut_connection_did_not_read_comes_again(together: Together, url: str, topic: str) -> None:
    send(url, f"/topics/{topic}", {"records": [{"value": "x"}]})
    base = instance(url, **{"fetch.min.bytes": 1000})
    post(base, "assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    path = base.partition(together.rest)[2]
    with socket.create_connection(address(together.rest)) as peer:
        peer.sendall(f"GET {path}/records?timeout=30000 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        time.sleep(0.5)  # the record has been taken, and the rest is waited for
    assert [row["offset"] for row in read(base, 1)] == [0]
    requests.delete(base, timeout=WAIT_S)


BAD: list[tuple[str, str, int]] = [
    ("json", "{bad", 400),
    ("json", '{"records": []}', 422),
    ("json", '{"records": 5}', 422),
    ("json", '{"records": [5]}', 422),
    ("json", "[1]", 422),
    ("json", '{"records": [{"value": 1, "partition": "x"}]}', 422),
    ("json", '{"records": [{"value": 1, "value": 2}]}', 400),
    ("binary", '{"records": [{"value": "!!"}]}', 422),
    ("avro", '{"records": [{"value": 1}]}', 422),
    ("avro", '{"value_schema": "{}", "records": [{"value": 1}]}', 422),
    ("avro", '{"value_schema_id": 99999, "records": [{"value": 1}]}', 422),
    ("xml", '{"records": [{"value": 1}]}', 415),
]


@pytest.mark.parametrize(("format", "body", "status"), BAD)
def test_bad_requests(url: str, format: str, body: str, status: int) -> None:
    headers = {"Content-Type": f"application/vnd.kafka.{format}.v2+json"}
    answer = requests.post(f"{url}/topics/bad", data=body, headers=headers, timeout=WAIT_S)
    assert answer.status_code == status, answer.text
    assert answer.json()["message"]


def test_bodies_that_are_too_large_or_cut_short(together: Together, url: str) -> None:
    headers = {"Content-Type": "application/vnd.kafka.json.v2+json"}
    answer = requests.post(f"{url}/topics/bad", data=b"x" * (17 << 20), headers=headers, timeout=WAIT_S)
    assert answer.status_code == 413
    with socket.create_connection(address(together.rest)) as peer:
        peer.sendall(b"POST /topics/bad HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert requests.get(f"{url}/topics/bad-is-not-made", timeout=WAIT_S).status_code == 404


@pytest.mark.parametrize("convert", [to_binary_event, to_structured_event])
def test_cloud_events_and_json_lines(together: Together, url: str, topic: str, convert: Any) -> None:
    event = CloudEvent({"id": "1", "source": "/s", "type": "t", "specversion": "1.0"}, {"x": 1})
    sent = convert(event)
    target = f"http://{together.reporting}/topics/{topic}"
    answer = requests.post(target, data=sent.body, headers=dict(sent.headers), timeout=WAIT_S)
    assert answer.json() == {"offsets": [{"partition": 0, "offset": 0}]}
    lines = requests.post(target, data=b'{"a":1}\n{"a":2}\n', timeout=WAIT_S)
    assert [row["offset"] for row in lines.json()["offsets"]] == [1, 2]
    consumer = Consumer({"bootstrap.servers": together.bootstrap, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(WAIT_S)
    consumer.close()
    read = from_kafka_event(KafkaMessage(dict(message.headers() or ()), message.key(), message.value()))
    assert (read.get_id(), read.get_data()) == ("1", {"x": 1})


def test_pages_of_other_sites_get_nowhere(together: Together, url: str, topic: str) -> None:
    """What a page can make a browser send: to each service, with a foreign origin, under a foreign name, as a form."""
    schema = {"schema": '"string"'}
    point = {"Name": "a", "Topic": topic}
    calls = [
        (f"http://{together.registry}/subjects/{topic}/versions", schema, "application/json"),
        (f"{url}/topics/{topic}", {"records": [{"value": "YQ=="}]}, "application/vnd.kafka.v2+json"),
        (f"{cluster(url)}/topics", {"topic_name": f"{topic}-made"}, "application/json"),
        (f"http://{together.reporting}/topics/{topic}", {"a": 1}, "application/json"),
        (f"http://{together.reporting}/", point, "application/json"),
    ]
    for target, body, media_type in calls:
        own = "http://" + target.split("/")[2]
        for headers, status in (
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Host": "evil.example:8081"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
            ({"Origin": own, "Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ):
            sent = {"Content-Type": media_type, "X-TC-Action": "CreateAccessPoint", **headers}
            answer = requests.post(target, data=json.dumps(body), headers=sent, timeout=WAIT_S)
            assert answer.status_code == status, (target, headers, answer.text)
            assert answer.headers.get("Access-Control-Allow-Origin") is None
    assert (
        requests.get(f"http://{together.registry}/subjects/{topic}/versions", timeout=WAIT_S).status_code
        == 404
    )
    assert requests.get(f"{url}/topics/{topic}", timeout=WAIT_S).status_code == 404
    for target, body, media_type in calls[:4]:  # the services' own pages, and programs
        sent = {"Content-Type": media_type, "Origin": "http://" + target.split("/")[2]}
        assert requests.post(target, data=json.dumps(body), headers=sent, timeout=WAIT_S).ok


def test_an_idle_consumer_is_closed(together: Together) -> None:
    """One that is in use is not, however long that takes."""

    async def run() -> None:
        kafka = Kafka({"bootstrap.servers": together.bootstrap})
        consuming = Consuming(kafka, idle_s=0.2)
        consuming.start()
        settings = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "fetch.min.bytes": -1}
        settings["consumer.request.timeout.ms"] = 1000
        for name in ("used", "idle"):
            await consuming.create("idlers", name, "json", settings)

        async def until(left: int) -> None:
            async with asyncio.timeout(WAIT_S):
                while len(consuming) != left:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

        async with consuming.using("idlers", "used"):
            await until(1)
            with pytest.raises(HttpError, match="instance not found"):
                async with consuming.using("idlers", "idle"):
                    pass
        await until(0)
        await consuming.stop()
        await kafka.close()

    asyncio.run(run())


def test_the_api_describes_itself(together: Together, url: str) -> None:
    for service, path in (
        (together.registry, "/subjects/{subject}/versions"),
        (together.reporting, "/topics/{topic}"),
    ):
        assert "post" in requests.get(f"http://{service}/openapi.json", timeout=WAIT_S).json()["paths"][path]
    paths = requests.get(f"{url}/openapi.json", timeout=WAIT_S).json()["paths"]
    assert "post" in paths["/v3/clusters/{cluster}/topics/{topic}/records"]
    assert (
        "/consumers/{group}/instances/{instance}/records" in requests.get(f"{url}/docs", timeout=WAIT_S).text
    )
