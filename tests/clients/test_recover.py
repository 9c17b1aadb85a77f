"""A broker whose metadata file is damaged or lost says so in one line, and `barnabas recover` brings everything back."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource

from tests.clients.cli_support import Cli
from tests.clients.drivers import Confluent, Message
from tests.support.admin import admin, create_topic
from tests.support.process import BrokerProcess

TREE, COPY = "znodes.sqlite", "znodes.copy"
COUNT = 50


@pytest.fixture
def filled(own_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A broker with a topic that has an option, idempotently produced records, and a group with a commit."""
    broker = own_broker()
    create_topic(broker.bootstrap, "kept", 2, {"retention.ms": "-1"})
    produce(broker, "kept")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("kept", 0, 7)], asynchronous=False)
    consumer.close()
    return broker


def produce(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(60) == 0


def values(broker: BrokerProcess, topic: str, count: int) -> list[bytes | None]:
    messages: list[Message] = Confluent().consume(broker.bootstrap, topic, 2, count, timeout_s=30)
    return sorted((message.value for message in messages), key=lambda value: int(value or b"-1"))


def refused_start(broker: BrokerProcess) -> str:
    with pytest.raises(AssertionError):
        broker.start()
    lines = broker.log().strip().splitlines()
    assert "Traceback" not in broker.log()
    return lines[-1]


def recover(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = Cli("").command("recover", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def assert_everything_is_back(broker: BrokerProcess, *, options: bool) -> None:
    broker.start()
    assert values(broker, "kept", COUNT) == [b"%d" % number for number in range(COUNT)]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    assert consumer.committed([TopicPartition("kept", 0)], timeout=120)[0].offset == 7
    consumer.close()
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept")
    client = admin(broker.bootstrap)
    retention = client.describe_configs([resource])[resource].result(30)["retention.ms"].value
    assert (retention == "-1") == options
    produce(broker, "kept")  # with an id that nobody had before: nothing of it is taken for a repetition
    assert len(values(broker, "kept", 2 * COUNT)) == 2 * COUNT


def test_a_lost_file_is_restored_from_its_copy(filled: BrokerProcess) -> None:
    filled.stop()
    (filled.data_dir / TREE).unlink()
    line = refused_start(filled)
    assert "is missing" in line
    assert f"barnabas recover {filled.data_dir}" in line
    planned = recover(str(filled.data_dir))
    assert "can be restored" in planned.stdout
    assert not (filled.data_dir / TREE).exists()
    assert "restored from the copy" in recover(str(filled.data_dir), "--execute").stdout
    assert_everything_is_back(filled, options=True)


def test_a_damaged_page_is_one_line_and_is_restored(filled: BrokerProcess) -> None:
    filled.stop()
    tree = filled.data_dir / TREE
    data = bytearray(tree.read_bytes())
    data[4096 : 2 * 4096] = bytes(4096)
    tree.write_bytes(bytes(data))
    line = refused_start(filled)
    assert TREE in line
    assert "barnabas recover" in line
    recover(str(filled.data_dir), "--execute")
    assert list(filled.data_dir.glob(f"{TREE}.*.damaged"))
    assert_everything_is_back(filled, options=True)


def test_without_a_copy_the_folders_of_the_partitions_say_what_there_was(filled: BrokerProcess) -> None:
    filled.stop()
    (filled.data_dir / TREE).unlink()
    (filled.data_dir / COPY).unlink()
    done = recover(str(filled.data_dir), "--execute")
    assert "lost, because there was no copy" in done.stdout
    assert_everything_is_back(filled, options=False)


def test_topics_that_are_younger_than_the_copy_and_topics_that_were_deleted(filled: BrokerProcess) -> None:
    filled.stop()
    old = (filled.data_dir / COPY).read_bytes()
    filled.start()
    create_topic(filled.bootstrap, "young", 2)
    produce(filled, "young")
    filled.stop()
    (filled.data_dir / TREE).unlink()
    (filled.data_dir / COPY).write_bytes(old)
    shown = Cli("").command("recover", str(filled.data_dir), "--execute", "--json")
    done = subprocess.run(shown, capture_output=True, text=True, timeout=240, check=True)
    assert '"young"' in done.stdout
    filled.start()
    assert len(values(filled, "young", COUNT)) == COUNT


def test_what_cannot_be_recovered_is_said(filled: BrokerProcess, tmp_path: Path) -> None:
    assert (
        "in use" in recover(str(filled.data_dir), "--force", code=1).stderr
        or "lock" in recover(str(filled.data_dir), "--force", code=1).stderr
    )
    filled.stop()
    assert "is whole" in recover(str(filled.data_dir), code=1).stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "meta.properties" in recover(str(empty), code=1).stderr
    assert "is not a folder" in recover(str(tmp_path / "absent"), code=1).stderr
