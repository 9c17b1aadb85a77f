"""Filebeat's output, which is sarama with settings of its own: Filebeat itself is not on Go's module proxy."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients import foreign
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

SOURCES: Final = Path(__file__).parent / "go"
LINES: Final = [f"line {number}" for number in range(5000)]
PARTITIONS: Final = 3


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filebeat")
    for name in ("go.mod", "go.sum"):
        shutil.copy(SOURCES / name, folder)
    shutil.copy(SOURCES / "filebeat" / "filebeat.go", folder / "main.go")
    compiler, environment = foreign.need("go"), {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false"}
    foreign.fetch_or_skip([compiler, "mod", "download"], folder, "sarama cannot be fetched", environment)
    foreign.build([compiler, "build", "-o", "program", "."], folder, environment)
    return folder / "program"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("version", "compression"), [("0.10.2.0", "none"), ("1.0.0", "gzip"), ("2.1.0", "gzip"), ("2.1.0", "lz4")]
)
def test_lines_arrive_as_events(
    version: str, compression: str, program: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    bootstrap = own_broker().bootstrap
    create_topic(bootstrap, "test", PARTITIONS)
    done = subprocess.run(
        [str(program), bootstrap, "test", version, compression],
        input="\n".join(LINES), capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"sent {len(LINES)}, acknowledged {len(LINES)}\n", "")
    partitions = [events(bootstrap, number) for number in range(PARTITIONS)]
    assert sorted(line for lines in partitions for line in lines) == sorted(LINES)
    assert max(map(len, partitions)) - min(map(len, partitions)) <= 1  # round_robin


def events(bootstrap: str, partition: int) -> list[str]:
    """The message of each event of a partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looking"})
    try:
        place = TopicPartition("test", partition, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=60)
        consumer.assign([place])
        found: list[str] = []
        while len(found) < end:
            for message in consumer.consume(1000, 10):
                value = message.value()
                assert value is not None, message.error()
                found.append(json.loads(value)["message"])
        return found
    finally:
        consumer.close()
