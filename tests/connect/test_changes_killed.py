"""The worker, the database and the broker are killed, and the network to the database is cut, again and again while changes
come. Each change is in the topic once.

    pytest -m soak --soak-minutes 30 tests/connect/test_changes_killed.py
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.cluster import until
from tests.support.databases import (
    MARIADB,
    NO_MARIADB,
    NO_POSTGRES,
    POSTGRES,
    MariaDb,
    Postgres,
    new_folder,
)
from tests.support.process import BrokerProcess
from tests.support.relay import Relay

pytestmark = [pytest.mark.soak, pytest.mark.timeout(4500)]
OUTAGE_S = 3.0
COMMAND = (
    "import sys; from barnabas.kafka_tools.servers.connect_worker import standalone; "
    "sys.exit(standalone(sys.argv[1:]))"
)


class Victim:
    """A database that a writer writes to while it is killed. config: of the connector."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.folder = new_folder(kind)
        if kind == "postgres":
            self.server: Any = Postgres(self.folder, "wal_level=logical")
            self.run("CREATE SCHEMA inv; CREATE TABLE inv.log (n int PRIMARY KEY);"
                     " CREATE TABLE inv.last (id int PRIMARY KEY, n int); INSERT INTO inv.last VALUES (1, -1)")  # fmt: skip
            self.config = {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.dbname": "postgres",
                "database.user": "me",
                "schema.include.list": "inv",
                "slot.name": "inv",
                "publication.name": "inv",
                "publication.autocreate.mode": "filtered",
            }
        else:
            self.server = MariaDb(self.folder)
            self.run("CREATE DATABASE inv", "CREATE TABLE inv.log (n int PRIMARY KEY)",
                     "CREATE TABLE inv.last (id int PRIMARY KEY, n int)", "INSERT INTO inv.last VALUES (1, -1)")  # fmt: skip
            self.config = {
                "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
                "database.user": "root",
                "database.include.list": "inv",
                "include.schema.changes": "false",
            }
        self.relay = Relay(self.server.port)
        self.config |= {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.relay.port),
            "max.batch.size": "50",
        }

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.server.query(*statements)
        return rows

    def kill(self) -> None:
        if self.kind == "postgres":
            self.server.stop("immediate")
        else:
            self.server.kill()
        self.server.start()

    def close(self) -> None:
        self.relay.close()
        with contextlib.suppress(Exception):
            self.server.stop("immediate") if self.kind == "postgres" else self.server.kill()


@pytest.fixture(params=["postgres", "mariadb"])
def victim(request) -> Iterator[Victim]:
    if request.param == "postgres" and not POSTGRES:
        pytest.skip(NO_POSTGRES)
    if request.param == "mariadb" and MARIADB is None:
        pytest.skip(NO_MARIADB)
    started = Victim(request.param)
    yield started
    started.close()


def write_on(victim: Victim, ended: threading.Event) -> None:
    """Transactions of an insert and an update. One that the database does not answer may have happened."""
    number = 0
    while not ended.is_set():
        try:
            statements = [
                f"INSERT INTO inv.log VALUES ({number})",
                f"UPDATE inv.last SET n = {number} WHERE id = 1",
            ]
            victim.run("; ".join(statements)) if victim.kind == "postgres" else victim.run(*statements)
        except Exception:
            time.sleep(0.05)
        number += 1


class Standalone:
    """A worker in a process of its own, with one connector."""

    def __init__(self, bootstrap: str, name: str, config: dict[str, str], folder: Path) -> None:
        worker, connector = folder / "worker.properties", folder / "connector.properties"
        options = {"bootstrap.servers": bootstrap, "listeners": "http://127.0.0.1:0", "group.id": name}
        options |= {f"{part}.storage.topic": f"{name}-{part}" for part in ("config", "offset", "status")}
        for file, values in ((worker, options), (connector, {"name": name, **config})):
            file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        self._command = [sys.executable, "-c", COMMAND, str(worker), str(connector)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def end_of(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[1])
    except Exception:
        return 0
    finally:
        consumer.close()


def values(bootstrap: str, topic: str, enough: Callable[[list[dict]], bool]) -> list[dict]:
    """The committed values of a topic with one partition."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    events: list[dict] = []

    def look() -> bool:
        events.extend(json.loads(m.value()) for m in consumer.consume(1000, 0.3) if not m.error())
        return enough(events)

    try:
        until(look, f"all of {topic}", deadline_s=120)
    finally:
        consumer.close()
    return events


class Faults:
    """Each ends when what was broken is there again, but for connections, which clients have to open anew."""

    def __init__(self, victim: Victim, worker: Standalone, broker: BrokerProcess) -> None:
        self.victim, self.worker, self.broker = victim, worker, broker
        self.all = (
            self.kill_worker,
            self.kill_database,
            self.kill_broker,
            self.cut_network,
            self.hold_network,
        )

    def kill_worker(self) -> None:
        self.worker.kill()
        self.worker.start()

    def kill_database(self) -> None:
        self.victim.kill()

    def kill_broker(self) -> None:
        self.broker.kill()
        self.broker.start()

    def cut_network(self) -> None:
        self.victim.relay.cut()
        time.sleep(OUTAGE_S)
        self.victim.relay.mend()

    def hold_network(self) -> None:
        self.victim.relay.hold()
        time.sleep(OUTAGE_S)
        self.victim.relay.cut()
        self.victim.relay.mend()


def faults_while_changes_come(faults: Faults, log: str, minutes: float) -> Counter[str]:
    """Until the time is over, and each fault was there once. How often each came."""
    chance, counts = random.Random(34), Counter[str]()
    end, bootstrap = time.monotonic() + minutes * 60, faults.broker.bootstrap
    while time.monotonic() < end or len(counts) < len(faults.all):
        before = end_of(bootstrap, log)
        until(lambda before=before: end_of(bootstrap, log) > before + 20, "changes come", deadline_s=180)
        fewest = min(counts[fault.__name__] for fault in faults.all)
        fault = chance.choice([f for f in faults.all if counts[f.__name__] <= fewest + 1])
        counts[fault.__name__] += 1
        fault()
    return counts


def test_each_change_once(victim, own_broker, tmp_path, request):
    name, broker = f"killed-{victim.kind}", own_broker()
    worker = Standalone(broker.bootstrap, name, {**victim.config, "topic.prefix": name}, tmp_path)
    log, last = f"{name}.inv.log", f"{name}.inv.last"
    ended = threading.Event()
    writer = threading.Thread(target=write_on, args=(victim, ended))
    worker.start()
    try:
        until(lambda: end_of(broker.bootstrap, last) > 0, "the snapshot has been read", deadline_s=120)
        writer.start()
        counts = faults_while_changes_come(
            Faults(victim, worker, broker), log, request.config.getoption("--soak-minutes")
        )
        ended.set()
        writer.join()
        rows = {row[0] for row in victim.run("SELECT n FROM inv.log")}
        print(f"{victim.kind}: {len(rows)} transactions, {dict(counts)}")
        events = values(
            broker.bootstrap, log, lambda so_far: len({v["after"]["n"] for v in so_far}) >= len(rows)
        )
        time.sleep(2)
        events = values(broker.bootstrap, log, lambda so_far: len(so_far) >= len(rows))
        times = Counter(value["after"]["n"] for value in events)
        assert set(times) == rows
        assert [n for n, count in times.items() if count > 1] == []
        assert [value["after"]["n"] for value in events] == sorted(rows)
        updates = values(broker.bootstrap, last, lambda so_far: len(so_far) > len(rows))
        assert [v["after"]["n"] for v in updates if v["op"] == "u"] == sorted(rows)
    finally:
        ended.set()
        worker.kill()
