"""Disks that fail: full, unwritable, gone. The broker lives, the other dirs serve on, nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.records.batch import batches
from barnabas.records.partitioner import partition_for_name
from tests.clients.cli_support import Cli
from tests.clients.drivers import Confluent, Message
from tests.support.admin import admin, create_topic
from tests.support.process import BrokerProcess

SMALL_DISK_BYTES = 4 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes of its own."""
    path = tmp_path / "small"
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "none", str(path)]
    try:
        done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no `mount` on this machine")
    if done.returncode:
        pytest.skip(f"may not mount a small disk here: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def remount(path: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(path)], check=True)


def two_partitions(broker: BrokerProcess, small: Path, topic: str) -> tuple[int, int]:
    """Makes a topic with one partition in each dir: (the one on `small`, the other)."""
    create_topic(broker.bootstrap, topic, 2, {"segment.bytes": "500000"})
    rows = Cli(broker.bootstrap).json("log", "dirs", topic)
    here = [int(row["partition"].rpartition("-")[2]) for row in rows if row["dir"].startswith(str(small))]
    assert len(here) == 1
    return here[0], 1 - here[0]


def produce_until_refused(broker: BrokerProcess, topic: str, partition: int, limit: int) -> list[bytes]:
    """The values that were acknowledged, until the first error, which must be Kafka's."""
    from confluent_kafka import KafkaError, Producer

    acknowledged: list[bytes] = []
    errors: list[Any] = []

    def report(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())
        else:
            errors.append(error)

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "retries": 0,
            "max.in.flight": 1,
            "batch.num.messages": 20,
            "message.timeout.ms": 10_000,
            "log_level": 0,
        }
    )
    for number in range(limit):
        value = b"%09d" % number + uuid.uuid4().bytes * 125
        producer.produce(topic, value, partition=partition, on_delivery=report)
        producer.flush(10) if number % 20 == 19 else producer.poll(0)
        if errors:
            break
    producer.flush(10)
    assert errors, "never refused"
    assert errors[0].code() == KafkaError.KAFKA_STORAGE_ERROR, errors[0]
    return acknowledged


def values(broker: BrokerProcess, topic: str, partition: int, count: int) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values_read: list[bytes] = []
    for _ in range(60):
        values_read += [row.value() for row in consumer.consume(1000, 0.5) if row.error() is None]
        if len(values_read) >= count:
            break
    consumer.close()
    return values_read


def lines_about(broker: BrokerProcess, dir_: Path) -> list[str]:
    return [line for line in broker.log().splitlines() if "log dir is offline" in line and str(dir_) in line]


def test_a_disk_that_fills_up(
    tmp_path: Path, small_disk: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    small = small_disk / "log"
    broker = own_broker(log__dirs=f"{tmp_path / 'large'},{small}", offsets__topic__num__partitions="1")
    on_small, on_large = two_partitions(broker, small, "filled")
    acknowledged = produce_until_refused(broker, "filled", on_small, 3000)
    assert len(acknowledged) > 1000

    (line,) = lines_about(broker, small)
    assert "No space left on device" in line
    assert "Traceback" not in broker.log()
    # The other dir serves on, and clients are told which partition has no leader.
    partitions = admin(broker.bootstrap).list_topics("filled", timeout=120).topics["filled"].partitions
    assert [partitions[row].leader for row in (on_small, on_large)] == [-1, 1]
    others = [Message(on_large, None, b"%d" % index) for index in range(100)]
    assert Confluent().produce(broker.bootstrap, "filled", others, codec="none", acks=-1) == 100
    assert values(broker, "filled", on_large, 100) == [other.value for other in others]

    broker.stop()
    remount(small_disk, f"size={4 * SMALL_DISK_BYTES}")
    broker.start()
    assert values(broker, "filled", on_small, len(acknowledged))[: len(acknowledged)] == acknowledged
    more = [Message(on_small, None, b"more-%d" % index) for index in range(10)]
    assert Confluent().produce(broker.bootstrap, "filled", more, codec="none", acks=-1) == 10


def test_a_start_on_a_full_disk(
    tmp_path: Path, small_disk: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    small = small_disk / "log"
    broker = own_broker(log__dirs=f"{tmp_path / 'large'},{small}")
    on_small, on_large = two_partitions(broker, small, "filled")
    acknowledged = produce_until_refused(broker, "filled", on_small, 3000)
    for end in (broker.stop, broker.kill):
        end()
        broker.start()
        others = [Message(on_large, None, b"%d" % index) for index in range(100)]
        assert Confluent().produce(broker.bootstrap, "filled", others, codec="none", acks=-1) == 100
    broker.kill()
    remount(small_disk, f"size={4 * SMALL_DISK_BYTES}")
    broker.start()
    assert values(broker, "filled", on_small, len(acknowledged))[: len(acknowledged)] == acknowledged
    assert values(broker, "filled", on_large, 200) == 2 * [other.value for other in others]
    assert "Traceback" not in broker.log()


def test_a_start_with_a_dir_that_cannot_be_written(
    tmp_path: Path, small_disk: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    small = small_disk / "log"
    broker = own_broker(log__dirs=f"{tmp_path / 'large'},{small}")
    on_small, on_large = two_partitions(broker, small, "split")
    data = [Message(part, None, b"%d" % index) for index in range(100) for part in (0, 1)]
    assert Confluent().produce(broker.bootstrap, "split", data, codec="none", acks=-1) == 200
    broker.stop()
    remount(small_disk, "ro")
    broker.start()
    (line,) = lines_about(broker, small)
    assert "Read-only file system" in line
    assert len(values(broker, "split", on_large, 100)) == 100
    broker.stop()
    remount(small_disk, "rw")
    broker.start()
    assert len(values(broker, "split", on_small, 100)) == 100


def test_a_move_to_a_disk_that_is_too_small(
    tmp_path: Path, small_disk: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    small = small_disk / "log"
    broker = own_broker(log__dirs=f"{tmp_path / 'large'},{small}")
    on_small, on_large = two_partitions(broker, small, "moved")
    data = [Message(on_large, None, bytes(10_000)) for _ in range(600)]
    data += [Message(on_small, None, b"%d" % index) for index in range(100)]
    assert Confluent().produce(broker.bootstrap, "moved", data, codec="none", acks=-1) == 700
    done = Cli(broker.bootstrap)("log", "move", f"moved:{on_large}", str(small), code=1)
    assert b"too little room" in done.stderr
    assert values(broker, "moved", on_small, 100) == [b"%d" % index for index in range(100)]
    assert len(values(broker, "moved", on_large, 600)) == 600
    assert lines_about(broker, small) == []


def test_a_disk_that_fills_up_during_a_move(
    tmp_path: Path, small_disk: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    """The move ends; the dir and what is in it stay online."""
    small = small_disk / "log"
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    broker = own_broker(log__dirs=f"{tmp_path / 'large'},{small}", **{rate.replace(".", "__"): "50000"})
    on_small, on_large = two_partitions(broker, small, "moved")
    data = [Message(on_large, None, bytes(10_000)) for _ in range(250)]
    data += [Message(on_small, None, b"%d" % index) for index in range(100)]
    assert Confluent().produce(broker.bootstrap, "moved", data, codec="none", acks=-1) == 350
    cli = Cli(broker.bootstrap)
    cli("log", "move", f"moved:{on_large}", str(small))
    with (small_disk / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    cli("config", "set", "broker", "1", f"{rate}=1000000000")
    done = cli("log", "move", f"moved:{on_large}", str(small), "--wait", code=1)
    assert b"ended early" in done.stderr or b"too little room" in done.stderr
    assert lines_about(broker, small) == []
    (small_disk / "ballast").unlink()
    assert values(broker, "moved", on_small, 100) == [b"%d" % index for index in range(100)]
    assert len(values(broker, "moved", on_large, 250)) == 250
    more = [Message(on_small, None, b"more")]
    assert Confluent().produce(broker.bootstrap, "moved", more, codec="none", acks=-1) == 1
    assert "move to another log dir has failed" in broker.log()


def test_a_dir_that_is_removed_under_the_broker(
    tmp_path: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    gone = tmp_path / "gone"
    broker = own_broker(log__dirs=f"{tmp_path / 'kept'},{gone}")
    on_gone, on_kept = two_partitions(broker, gone, "split")
    shutil.rmtree(gone)
    produce_until_refused(broker, "split", on_gone, 1000)
    (line,) = lines_about(broker, gone)
    assert "No such file or directory" in line
    others = [Message(on_kept, None, b"%d" % index) for index in range(100)]
    assert Confluent().produce(broker.bootstrap, "split", others, codec="none", acks=-1) == 100
    assert values(broker, "split", on_kept, 100) == [other.value for other in others]
    assert "Traceback" not in broker.log()


def test_a_partition_is_not_made_anew_while_its_dir_is_away(
    tmp_path: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    """An empty log in another dir would be taken for the partition, and its records for lost."""
    away = tmp_path / "away"
    broker = own_broker(log__dirs=f"{tmp_path / 'kept'},{away}")
    on_away, on_kept = two_partitions(broker, away, "split")
    data = [Message(part, None, b"%d" % index) for index in range(100) for part in (0, 1)]
    assert Confluent().produce(broker.bootstrap, "split", data, codec="none", acks=-1) == 200
    broker.stop()
    away.rename(tmp_path / "elsewhere")
    away.write_text("not a directory")
    broker.start()
    assert len(lines_about(broker, away)) == 1
    assert len(values(broker, "split", on_kept, 100)) == 100
    partitions = admin(broker.bootstrap).list_topics("split", timeout=120).topics["split"].partitions
    assert [partitions[row].leader for row in (on_away, on_kept)] == [-1, 1]
    Cli(broker.bootstrap)("topic", "alter", "split", "--partitions", "3")
    broker.stop()
    away.unlink()
    (tmp_path / "elsewhere").rename(away)
    broker.start()
    assert "set aside" not in broker.log()
    assert len(values(broker, "split", on_away, 100)) == 100


def in_batches(broker: BrokerProcess, topic: str, count: int, size: int) -> None:
    """`count` batches of `size` records each, whose values are their offsets."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1000, "log_level": 0})
    for batch in range(count):
        for number in range(size):
            producer.produce(topic, (b"%09d" % (batch * size + number)).ljust(200, b"."), partition=0)
        assert producer.flush(20) == 0


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_batch_with_a_flipped_bit_is_never_served(
    own_broker: Callable[..., BrokerProcess], end: str
) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, "flipped", 1, {"segment.bytes": "20000"})
    in_batches(broker, "flipped", 30, 10)
    getattr(broker, end)()
    segments = sorted((broker.data_dir / "flipped-0").glob("*.log"))
    assert len(segments) > 3
    lost: set[int] = set()
    for path in (segments[1], segments[-1]):
        data = bytearray(path.read_bytes())
        batches_read = [(at, header) for at, header in batches(memoryview(bytes(data)))]
        position, header = batches_read[len(batches_read) // 2]
        data[position + header.size_bytes // 2] ^= 0x10
        path.write_bytes(data)
        lost |= set(range(header.base_offset, header.next_offset))
    broker.start()
    wanted = [(b"%09d" % index).ljust(200, b".") for index in range(300) if index not in lost]
    for _ in range(2):
        assert values(broker, "flipped", 0, len(wanted)) == wanted
    lines = [line for line in broker.log().splitlines() if "damaged batch is not served" in line]
    assert len(lines) == 2
    in_batches(broker, "flipped", 1, 10)
    assert values(broker, "flipped", 0, len(wanted) + 10)[: len(wanted)] == wanted
    broker.restart()
    assert values(broker, "flipped", 0, len(wanted) + 10)[: len(wanted)] == wanted


def test_groups_keep_their_place_while_a_dir_is_away(
    tmp_path: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    """Which partition keeps a group is told by the number of all, not by the number of those that are there."""
    from confluent_kafka import Consumer, TopicPartition

    away = tmp_path / "away"
    broker = own_broker(log__dirs=f"{tmp_path / 'kept'},{away}", offsets__topic__num__partitions="4")
    create_topic(broker.bootstrap, "read", 1)
    groups = [f"group-{number}" for number in range(8)]

    def consumer(group: str) -> Any:
        return Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})

    for number, group in enumerate(groups):
        one = consumer(group)
        one.commit(offsets=[TopicPartition("read", 0, number)], asynchronous=False)
        one.close()
    dirs = {
        row["partition"]: row["dir"]
        for row in Cli(broker.bootstrap).json("log", "dirs", "__consumer_offsets")
    }
    here = [
        number
        for number, group in enumerate(groups)
        if dirs[f"__consumer_offsets-{partition_for_name(group, 4)}"] != str(away)
    ]
    assert 0 < len(here) < len(groups)
    for wanted in (here, range(len(groups))):
        broker.stop()
        if wanted is here:
            away.rename(tmp_path / "elsewhere")
            away.write_text("not a directory")
        else:
            away.unlink()
            (tmp_path / "elsewhere").rename(away)
        broker.start()
        for number in wanted:
            one = consumer(groups[number])
            assert one.committed([TopicPartition("read", 0)], timeout=120)[0].offset == number
            one.close()
