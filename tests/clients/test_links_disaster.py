"""A disaster: the primary is killed while producers write, consumers go on in the copy, and later everything moves back."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.admin import Admin
from barnabas.testing import Broker
from tests.support.cluster import until
from tests.support.process import BrokerProcess

TOPIC = "ledger"


def command(bootstrap: str, *words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "barnabas", "mirror", *words, "-b", bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


class Writer:
    """Writes numbers with acks=all until it is stopped. acknowledged: offset -> value."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.offset()] = message.value()

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(0.001):
            self._producer.produce(TOPIC, str(number), partition=0, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(1)


class Reader:
    """A member of a group that commits after each record."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "books",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC])
        self.seen: list[int] = []

    def read(self, until_offset: Callable[[int], bool]) -> None:
        while not (self.seen and until_offset(self.seen[-1])):
            for record in self._consumer.consume(100, 1.0):
                if record.error() is None:
                    self.seen.append(record.offset())
        self._consumer.commit(offsets=[TopicPartition(TOPIC, 0, self.seen[-1] + 1)], asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def values(bootstrap: str, end: int) -> dict[int, bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "checks", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values_by_offset: dict[int, bytes] = {}
    while len(values_by_offset) < end:
        values_by_offset |= {
            record.offset(): record.value() for record in consumer.consume(500, 1.0) if record.error() is None
        }
    consumer.close()
    return values_by_offset


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_nothing_that_was_copied_is_lost_or_read_twice_and_everything_moves_back(tmp_path: Path) -> None:
    primary = BrokerProcess(tmp_path / "primary")
    primary.start()
    with Broker() as standby:
        admin = AdminClient({"bootstrap.servers": primary.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config={"retention.ms": "-1"})])[TOPIC].result(60)
        where = ("--from", primary.bootstrap, "--topics", TOPIC, "--groups", "books", "--interval-ms", "100")
        command(standby.bootstrap, "link", "create", "dr", *where)
        writer, reader = Writer(primary.bootstrap), Reader(primary.bootstrap)
        reader.read(lambda offset: offset >= 200)
        reader.close()
        with Admin(standby.bootstrap) as library:

            def committed() -> int:
                rows = library.groups.offsets(["books"]).done.get("books", {})
                return max((row.offset for row in rows.values()), default=-1)

            until(lambda: committed() == reader.seen[-1] + 1, "the group's offset in the copy")
            primary.kill()
            writer.close()
            until(lambda: library.links.describe()[0].unreachable, "the link to notice")
            previewed = json.loads(
                command(standby.bootstrap, "link", "failover", "dr", "--preview", "--json")
            )
            [tail] = json.loads(command(standby.bootstrap, "link", "failover", "dr", "--json"))
        assert previewed == [tail]
        end = tail["end"]
        copied = values(standby.bootstrap, end)
        # What was acknowledged and copied is there, at its offset; what is missing lies behind the copy's end.
        assert {
            offset: value for offset, value in writer.acknowledged.items() if offset < end
        }.items() <= copied.items()
        assert sorted(copied) == list(range(end))

        later = Writer(standby.bootstrap)
        moved = Reader(standby.bootstrap)
        moved.read(lambda offset: offset >= end + 50)
        moved.close()
        later.close()
        read = reader.seen + moved.seen
        assert read == list(range(read[-1] + 1))
        assert min(later.acknowledged) >= end

        primary.start()
        command(standby.bootstrap, "link", "failback", "dr", "--preview")
        command(standby.bootstrap, "link", "failback", "dr")
        with Admin(standby.bootstrap) as library:
            last = library.records.bounds([(TOPIC, 0)]).require()
            total = next(iter(last.values())).end
            until(lambda: library.links.describe()[0].partitions, "the link to go on")
        assert values(primary.bootstrap, total) == values(standby.bootstrap, total)
        assert later.acknowledged.items() <= values(primary.bootstrap, total).items()
        again = Writer(primary.bootstrap)
        until(lambda: len(again.acknowledged) > 20, "writes to the primary")
        again.close()
        assert min(again.acknowledged) == total
        verified = command(standby.bootstrap, "verify", "dr", "--range", "100")
        assert f"{TOPIC}" in verified
    primary.stop()
