"""Topics whose records must name schemas of their subjects: confluent.value.schema.validation and its like."""

from __future__ import annotations

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
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kafka import KafkaProducer
from kafka.errors import InvalidRecordError

from barnabas.testing import Broker
from tests.support.admin import create_topic
from tests.support.registry import call

USER = (
    '{"type": "record", "name": "User", "namespace": "shop", "fields": [{"name": "name", "type": "string"}]}'
)
VALUES = {"confluent.value.schema.validation": "true"}
STRATEGY = "io.confluent.kafka.serializers.subject."
WAIT_S = 120


class WithRegistry:
    """`barnabas start --with registry`."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        command = [sys.executable, "-m", "barnabas", "start", "--listen", "127.0.0.1:0"]
        command += ["--data", str(folder / "data"), "--with", "registry", "--registry-listen", "127.0.0.1:0"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        match = re.match(r"ready on (127\.0\.0\.1:\d+)", self.process.stdout.readline().decode())
        assert match is not None, self.log.read_text()
        self.bootstrap = match[1]
        url = re.search(r"service started service=registry url=(http://\S+)", self.log.read_text())
        assert url is not None
        self.url = url[1]

    def end(self) -> int:
        self.process.terminate()
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithRegistry]:
    process = WithRegistry(tmp_path_factory.mktemp("checks"))
    yield process
    assert process.end() == 0
    assert "Traceback" not in process.log.read_text()


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def produce(bootstrap: str, topic: str, value: bytes | None, **settings: Any) -> KafkaError | None:
    """One record by librdkafka; the error with which it failed."""
    errors: list[KafkaError | None] = []
    options = {name: settings.pop(name) for name in list(settings) if "." in name}
    producer = Producer({"bootstrap.servers": bootstrap, **options})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error), **settings)
    assert producer.flush(WAIT_S) == 0
    return errors[0]


def register(url: str, subject: str, schema: str) -> int:
    status, answer = call(url, "POST", f"/subjects/{subject}/versions", {"schema": schema})
    assert status == 200, answer
    return int(answer["id"])


def test_values_of_the_subject_and_others(both: WithRegistry, topic: str) -> None:
    create_topic(both.bootstrap, topic, config=VALUES)
    client = SchemaRegistryClient({"url": both.url})
    context = SerializationContext(topic, MessageField.VALUE)
    value = AvroSerializer(client, USER)({"name": "Ann"}, context)
    assert produce(both.bootstrap, topic, value) is None
    assert produce(both.bootstrap, topic, None) is None, "a tombstone needs no schema"
    refused = produce(both.bootstrap, topic, b"plain")
    assert refused is not None
    assert refused.code() == KafkaError.INVALID_RECORD
    other = register(both.url, f"{topic}-else-value", '"long"')
    strange = produce(both.bootstrap, topic, b"\0" + other.to_bytes(4, "big") + b"\2")
    assert strange is not None
    assert strange.code() == KafkaError.INVALID_RECORD
    # What was refused is taken once its subject has it.
    call(both.url, "PUT", f"/config/{topic}-value", {"compatibility": "NONE"})
    assert register(both.url, f"{topic}-value", '"long"') == other
    assert produce(both.bootstrap, topic, b"\0" + other.to_bytes(4, "big") + b"\2") is None


def test_a_refusal_names_its_records(both: WithRegistry, topic: str) -> None:
    create_topic(both.bootstrap, topic, config=VALUES)
    number = register(both.url, f"{topic}-value", USER)
    good = b"\0" + number.to_bytes(4, "big") + b"\6Ann"
    producer = KafkaProducer(
        bootstrap_servers=both.bootstrap, linger_ms=2000, compression_type="gzip", retries=0
    )
    sent = [producer.send(topic, value, b"k") for value in (good, b"bad", good, b"\0\0\0\0\0", None)]
    producer.flush(WAIT_S)
    reasons = [future.exception for future in sent]
    assert [type(reason) is InvalidRecordError for reason in reasons] == [False, True, False, True, False]
    assert "names no schema" in str(reasons[1])
    assert f"schema 0 is not one of the subject {topic}-value" in str(reasons[3])
    producer.close()


def test_keys_guids_and_names(both: WithRegistry, topic: str) -> None:
    """Keys by their record's name, values by topic and record, named in headers; many partitions in one request."""
    names = {
        "confluent.key.schema.validation": "true",
        "confluent.key.subject.name.strategy": f"{STRATEGY}RecordNameStrategy",
        "confluent.value.subject.name.strategy": f"{STRATEGY}TopicRecordNameStrategy",
    }
    create_topic(both.bootstrap, topic, 3, config={**VALUES, **names})
    client = SchemaRegistryClient({"url": both.url})
    settings = {
        "schema.id.serializer": header_schema_id_serializer,
        "subject.name.strategy": lambda _, name: f"{topic}-{name}",
    }
    context = SerializationContext(topic, MessageField.VALUE, [])
    value = AvroSerializer(client, USER, conf=settings)({"name": "Ann"}, context)
    assert value == b"\6Ann"
    key = b"\0" + register(both.url, "shop.User", USER).to_bytes(4, "big") + b"\6Ann"
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": both.bootstrap, "linger.ms": 500})
    for partition in range(3):
        producer.produce(
            topic,
            value,
            key,
            partition=partition,
            headers=context.headers,
            on_delivery=lambda e, _: errors.append(e),
        )
    assert producer.flush(WAIT_S) == 0
    assert errors == [None, None, None]
    assert produce(both.bootstrap, topic, value, headers=context.headers) is None, "without a key"
    for wrong in ({"headers": context.headers, "key": b"k"}, {"key": key}):
        refused = produce(both.bootstrap, topic, value, **wrong)
        assert refused is not None
        assert refused.code() == KafkaError.INVALID_RECORD


class Silent:
    """Takes connections and never answers: a registry that hangs."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.asked = threading.Event()
        self.held: list[socket.socket] = []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while True:
            try:
                self.held.append(self.listener.accept()[0])
            except OSError:
                return
            self.asked.set()

    def end(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        for sock in (self.listener, *self.held):
            sock.close()


def test_a_registry_elsewhere_that_hangs(both: WithRegistry, topic: str) -> None:
    """The first of two registries hangs: who needs it waits, all others go on; then the second one answers."""
    number = register(both.url, f"{topic}-value", USER)
    value = b"\0" + number.to_bytes(4, "big") + b"\6Ann"
    silent = Silent()
    try:
        with Broker({"confluent.schema.registry.url": f"{silent.url},{both.url}"}) as broker:
            create_topic(broker.bootstrap, topic, config=VALUES)
            create_topic(broker.bootstrap, "plain")
            errors: list[KafkaError | None] = []
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0)
            assert silent.asked.wait(WAIT_S)
            assert produce(broker.bootstrap, "plain", b"x") is None
            assert errors == []
            assert producer.flush(WAIT_S) == 0
            assert errors == [None]
    finally:
        silent.end()


def test_without_a_registry_that_answers(topic: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Broker({"confluent.schema.registry.url": f"http://127.0.0.1:{port}"}) as broker:
        create_topic(broker.bootstrap, topic, config=VALUES)
        begun = time.monotonic()
        refused = produce(broker.bootstrap, topic, b"\0\0\0\0\1x", **{"message.timeout.ms": 3000})
        assert refused is not None
        assert refused.code() in (KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
        assert time.monotonic() - begun < WAIT_S
    with Broker() as broker:
        create_topic(broker.bootstrap, topic, config=VALUES)
        refused = produce(broker.bootstrap, topic, b"\0\0\0\0\1x")
        assert refused is not None
        assert refused.code() == KafkaError.INVALID_CONFIG
