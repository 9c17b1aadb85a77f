"""Damaged logs under a real broker: consumers get what is whole, and operators learn what is not."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.clients.cli_support import Cli
from tests.clients.drivers import Confluent
from tests.support.admin import admin, create_topic
from tests.support.process import BrokerProcess
from tests.support.raw import write_batches

TOPIC = "orders"
BATCHES, RECORDS = 20, 3


def produce(broker: BrokerProcess, topic: str, batches: int = BATCHES) -> None:
    values = [b"%d" % number for number in range(RECORDS * batches)]
    write_batches(broker, topic, [values[i : i + RECORDS] for i in range(0, len(values), RECORDS)])


def log_file(broker: BrokerProcess, base_offset: int = 0) -> Path:
    return broker.data_dir / f"{TOPIC}-0" / f"{base_offset:020d}.log"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def offsets(broker: BrokerProcess, count: int) -> list[int]:
    return [m.offset for m in Confluent().consume(broker.bootstrap, TOPIC, 1, count, timeout_s=60)]


@pytest.fixture
def filled(own_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    broker = own_broker()
    create_topic(broker.bootstrap, TOPIC, config={"segment.bytes": "500"})
    produce(broker, TOPIC)
    return broker


def test_operators_learn_what_consumers_do_not_get(filled: BrokerProcess) -> None:
    broker = filled
    filled.stop()
    first = log_file(broker)
    size = first.stat().st_size
    batch_bytes = int.from_bytes(first.read_bytes()[8:12], "big") + 12
    flip(first, 2 * batch_bytes + 65)  # the third batch, offsets 6 to 8
    segments = sorted(first.parent.glob("*.log"))
    missing = range(int(segments[2].stem), int(segments[3].stem))
    segments[2].unlink()
    broker.start()
    cli = Cli(broker.bootstrap)
    want = [o for o in range(BATCHES * RECORDS) if o not in missing and o not in (6, 7, 8)]
    assert offsets(broker, len(want)) == want
    # What a consumer has met is known without reading anything.
    known = cli("verify", "log", "--known", "--json", code=1).stdout
    assert b'"first_offset": 6' in known
    status = cli.json("status")["cluster"]["damaged"]
    assert status == {f"{TOPIC}-0": 3}
    assert b"3 records cannot be read" in cli.out("status")
    done = cli("verify", "log", TOPIC, code=1)
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith(
        f"{TOPIC}-0: offsets 6 to 8 cannot be read (3 records), "
        f"{batch_bytes} bytes at byte {2 * batch_bytes} of {first.name}"
    )
    assert lines[1].startswith(f"{TOPIC}-0: offsets {missing[0]} to {missing[-1]} are missing")
    assert lines[2].endswith(f"2 damaged places, {3 + len(missing)} records cannot be read")
    assert size == first.stat().st_size, "nothing was cut"
    assert cli("verify", "log", "absent", code=1).stderr


def test_a_sound_broker_has_nothing_to_tell(filled: BrokerProcess) -> None:
    cli = Cli(filled.bootstrap)
    report = cli.json("verify", "log")
    assert report["damaged"] == []
    assert report["partitions"] == 1
    assert report["bytes"] > 1000
    assert cli.json("status")["cluster"]["damaged"] == {}


def test_indexes_lie_beside_a_segment_from_its_first_record_on(filled: BrokerProcess) -> None:
    create_topic(filled.bootstrap, "fresh")
    folder = filled.data_dir / "fresh-0"
    log = f"{0:020d}"
    assert {path.name for path in folder.iterdir()} == {f"{log}.log", "partition.metadata"}
    produce(filled, "fresh", 1)
    assert {path.name for path in folder.iterdir()} == {
        f"{log}.log", f"{log}.index", f"{log}.timeindex", "leader-epoch-checkpoint", "partition.metadata",
    }  # fmt: skip


def test_a_removed_folder_costs_its_partition_alone(filled: BrokerProcess) -> None:
    """The disk is well: the other partitions go on, and nothing is called offline that is not."""
    create_topic(filled.bootstrap, "other", 2)
    produce(filled, "other", 1)
    shutil.rmtree(filled.data_dir / f"{TOPIC}-0")
    filled.stop()
    filled.start()
    produce(filled, "other", 1)
    produce(filled, TOPIC, 1)
    assert offsets(filled, RECORDS) == [0, 1, 2]
    assert "log dir is offline" not in filled.log()
    assert "Traceback" not in filled.log()


class Committing(threading.Thread):
    """A group's consumer that commits again and again, whatever comes of it."""

    def __init__(self, bootstrap: str, group: str) -> None:
        super().__init__()
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        self.stopping = threading.Event()
        self.done = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
                self.done.set()
            except KafkaException:
                self.stopping.wait(0.01)
        self.consumer.close()


def test_deleting_the_offsets_topic_is_not_called_a_failed_disk(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    """Groups begin anew with a new topic, and commits that were under way are not reported as lost on a disk."""
    broker = own_broker(log__flush__interval__messages="1")
    create_topic(broker.bootstrap, TOPIC)
    committing = [Committing(broker.bootstrap, f"g{number}") for number in range(6)]
    for thread in committing:
        thread.start()
    client = admin(broker.bootstrap)
    try:
        for _ in range(2):
            for thread in committing:
                thread.done.clear()
                assert thread.done.wait(60)
            client.delete_topics(["__consumer_offsets"])["__consumer_offsets"].result(60)
    finally:
        for thread in committing:
            thread.stopping.set()
        for thread in committing:
            thread.join()
    broker.stop()
    assert broker.log().count("a coordinator's topic was deleted") == 2
    assert "offline" not in broker.log()
    assert "ERROR" not in broker.log()
