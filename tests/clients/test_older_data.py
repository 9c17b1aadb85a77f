"""Data dirs that earlier versions wrote (tests/data, made by tests/support/data_dir.py) open with today's broker, and
real clients find in them what was there."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import ConfigResource

from tests.support.admin import admin
from tests.support.data_dir import OPTIONS, PLAIN, produce_once, rows
from tests.support.process import BrokerProcess

ARCHIVES = sorted((Path(__file__).resolve().parents[1] / "data").glob("*.tar.gz"))


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_everything_is_there(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path, archive: Path, clean: bool
) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    data = tmp_path / "data"
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
    expected: dict[str, Any] = json.loads((data / "expected.json").read_text())
    broker = own_broker(data, **{name.replace(".", "__"): value for name, value in OPTIONS.items()})
    bootstrap = broker.bootstrap
    for topic, before in expected["topics"].items():
        assert json.loads(json.dumps(rows(bootstrap, topic))) == before
    resource = ConfigResource(ConfigResource.Type.TOPIC, PLAIN)
    client = admin(bootstrap)
    configs = client.describe_configs([resource])[resource].result(30)
    assert configs["retention.ms"].value == expected["retention.ms"]
    for group, protocol in (("readers", "classic"), ("modern", "consumer")):
        assert positions(bootstrap, group) == [(3, "at three"), (4, "")]
        assert rest(bootstrap, group, protocol, len(expected["topics"][PLAIN]) - 7)
    producer = expected["producer"]
    repeated = produce_once(broker, producer["id"], producer["epoch"], 0)
    assert repeated == producer["offset"], "what was written before is known for a repetition"
    assert produce_once(broker, producer["id"], producer["epoch"], 2) == producer["offset"] + 2
    if "released" in expected and hasattr(confluent_kafka, "ShareConsumer"):
        assert released(bootstrap, len(expected["released"])) == expected["released"]
    assert broker.stop() == 0
    for word in ("ERROR", "damaged", "set aside", "Traceback"):
        assert word not in broker.log()


def positions(bootstrap: str, group: str) -> list[tuple[int, str]]:
    """What a group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    committed = consumer.committed([TopicPartition(PLAIN, 0), TopicPartition(PLAIN, 1)], 30)
    consumer.close()
    return [(row.offset, row.metadata or "") for row in committed]


def rest(bootstrap: str, group: str, protocol: str, count: int) -> bool:
    """Whether a member of the group reads `count` records from where it stood."""
    options = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **options})
    consumer.subscribe([PLAIN])
    messages: list[Any] = []
    while len(messages) < count:
        more = consumer.consume(count - len(messages), 60)
        assert more, "the group does not go on"
        messages += more
    consumer.close()
    return all(m.error() is None and m.offset() >= (3, 4)[m.partition()] for m in messages)


def released(bootstrap: str, count: int) -> list[str]:
    """The jobs that the share group gets again."""
    worker = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": "workers", "share.acknowledgement.mode": "implicit"}
    )
    worker.subscribe(["jobs"])
    values: list[str] = []
    for _ in range(300):
        values += [message.value().decode() for message in worker.poll(0.2)]
        if len(values) >= count:
            break
    worker.close()
    return sorted(values)
