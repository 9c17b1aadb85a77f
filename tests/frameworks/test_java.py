"""Java's frameworks, from Maven Central: Spring Kafka, Camel, Flink, Storm and Flume, each with a program or a file of the
kind that its documentation has."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer

from tests.clients.foreign import SHORT_JAVA, build, fingerprint, made, maven, need
from tests.frameworks.harness import capitals, prepare, running
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

pytestmark = [pytest.mark.java, pytest.mark.soak]

SOURCES: Final = Path(__file__).parent / "java"
PROGRAMS: Final = ("camel", "spring", "storm", "flink")


def libraries(name: str) -> Path:
    pom = SOURCES / name / "pom.xml"
    return made(
        f"framework-{name}-{fingerprint(pom.parent, 'pom.xml')}", lambda folder: maven(pom, folder, name)
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_capitals(name: str, broker: BrokerProcess, tmp_path: Path) -> None:
    java, javac, jars, sources = need("java"), need("javac"), libraries(name), SOURCES / name

    def compile_it(folder: Path) -> None:
        flags = [f"-J{option}" for option in SHORT_JAVA]
        build([javac, *flags, "-cp", f"{jars}/*", "-d", str(folder), str(sources / "Capitals.java")], sources)

    classes = made(f"framework-{name}-classes-{fingerprint(sources, 'pom.xml', '*.java')}", compile_it)
    prepare(broker.bootstrap, name)
    command = [java, *SHORT_JAVA, "-Xmx700m", "-cp", f"{classes}:{jars}/*", "Capitals", broker.bootstrap]
    capitals(broker.bootstrap, name, command, tmp_path, {})


def test_flume(broker: BrokerProcess, tmp_path: Path) -> None:
    config = tmp_path / "flume.conf"
    text = (SOURCES / "flume" / "flume.conf").read_text()
    config.write_text(text.replace("BOOTSTRAP", broker.bootstrap))
    prepare(broker.bootstrap, "flume")
    command = [
        need("java"),
        *SHORT_JAVA,
        "-cp",
        f"{libraries('flume')}/*",
        "org.apache.flume.node.Application",
    ]
    command += ["-n", "capitals", "-f", str(config), "--no-reload-conf"]
    # Its interceptor replaces the first word only, which is all there is in small letters.
    capitals(broker.bootstrap, "flume", command, tmp_path, {})


def test_kafkas_own_word_count(own_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """WordCountDemo of org.apache.kafka:kafka-streams-examples, as Kafka's quick start of Streams runs it."""
    bootstrap = own_broker().bootstrap
    create_topic(bootstrap, "streams-plaintext-input", 1)
    create_topic(bootstrap, "streams-wordcount-output", 1, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": bootstrap})
    for line in ("all streams lead to kafka", "hello kafka streams", "join kafka summit"):
        producer.produce("streams-plaintext-input", line)
    assert producer.flush(60) == 0
    config = tmp_path / "streams.properties"
    config.write_text(f"bootstrap.servers={bootstrap}\nstate.dir={tmp_path / 'state'}\n")
    command = [need("java"), *SHORT_JAVA, "-cp", f"{libraries('wordcount')}/*"]
    command += ["org.apache.kafka.streams.examples.wordcount.WordCountDemo", str(config)]
    log = tmp_path / "wordcount.log"
    wanted = {"all": 1, "streams": 2, "lead": 1, "to": 1, "kafka": 3, "hello": 1, "join": 1, "summit": 1}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "witness", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["streams-wordcount-output"])
    counts: dict[str, int] = {}
    deadline_s = time.monotonic() + 180
    with running(command, tmp_path, log, {}):
        while counts != wanted:
            assert time.monotonic() < deadline_s, (counts, log.read_text()[-3000:])
            for message in consumer.consume(100, 0.5):
                if message.error() is None:
                    counts[message.key().decode()] = int.from_bytes(message.value(), "big")
    consumer.close()
