"""Joins and windows of a SQL server whose driver, Java and workers are killed with SIGKILL, among records that are no rows:
what is committed is what the statements say, each row once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from barnabas.client.blocking import BlockingClient
from barnabas.records.batch import Record, build_batch
from tests.pipelines.readers import consumed
from tests.pipelines.test_server import until
from tests.pipelines.test_sql_server import EARLIEST, SqlServer

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3000)]

ROUNDS: Final = int(os.environ.get("KILLED_TIMES", "4"))
RECORDS: Final = 30
CARS: Final = 7
WINDOW_MS: Final = 60_000
BEGIN_MS: Final = 1_700_000_040_000
"""The beginning of a minute."""
STEP_MS: Final = 500
NO_ROW: Final = b"\x00\xff no JSON"


@pytest.fixture
def server(tmp_path: Path, bootstrap: str) -> Iterator[SqlServer]:
    started = SqlServer(tmp_path / "sql", bootstrap)
    started.start()
    yield started
    started.stop(signal.SIGKILL)


def put(client: BlockingClient, topic: str, rows: list[tuple[bytes, Any, int]]) -> None:
    """Writes records: key, value as JSON or bytes, time in milliseconds."""
    batch = [
        Record(n, at, key, value if isinstance(value, bytes) else json.dumps(value).encode(), ())
        for n, (key, value, at) in enumerate(rows)
    ]
    client.produce_raw(topic, 0, build_batch(batch))


def kill(server: SqlServer, kind: str) -> None:
    """Kills the whole server, its Java process, or the processes in which Spark runs Python."""
    if kind == "server":
        server.stop(signal.SIGKILL)
        server.start()
        return

    def victims() -> list[psutil.Process]:
        children = []
        for child in psutil.Process(server.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                if (child.name() == "java") is (kind == "java"):
                    children.append(child)
        return children

    for victim in until(victims, 300):
        with suppress(psutil.Error):
            victim.kill()


class Expected:
    """What the statements make of the records that were written so far."""

    def __init__(self) -> None:
        self.number = 0
        self.named: Counter[tuple[str, int, str]] = Counter()
        self.paired: Counter[tuple[int, int]] = Counter()
        self.counts: Counter[tuple[bytes, int]] = Counter()

    def round(self, client: BlockingClient, drives: str, stops: str) -> None:
        """Writes some records more."""
        rows: list[tuple[bytes, Any, int]] = []
        others: list[tuple[bytes, Any, int]] = []
        for _ in range(RECORDS):
            car, at, n = str(self.number % CARS), BEGIN_MS + self.number * STEP_MS, self.number
            rows.append((car.encode(), {"n": n}, at))
            others.append((b"s", {"m": n + 1}, at))
            self.named[car, n, f"owner {car}"] += 1
            self.paired[n, n + 1] += 1
            self.counts[car.encode(), at // WINDOW_MS * WINDOW_MS] += 1
            self.number += 1
        rows.insert(RECORDS // 2, (b"1", NO_ROW, rows[RECORDS // 2][2]))
        put(client, drives, rows)
        put(client, stops, others)


def found_in(bootstrap: str, topic: str) -> list[tuple[bytes, dict[str, Any]]]:
    return [(record.key, json.loads(record.value)) for record in consumed(bootstrap, topic)]


def judges(bootstrap: str, drives: str, expected: Expected) -> dict[str, Callable[[], bool]]:
    """By output, whether exactly what is expected is committed."""

    def named() -> bool:
        rows = found_in(bootstrap, f"{drives}-named")
        return Counter((key.decode(), v["N"], v["NAME"]) for key, v in rows) == expected.named

    def paired() -> bool:
        rows = found_in(bootstrap, f"{drives}-paired")
        return Counter((int.from_bytes(key, "big"), v["M"]) for key, v in rows) == expected.paired

    def counted() -> bool:
        rows = found_in(bootstrap, f"{drives}-counted")
        return {(key[:-8], int.from_bytes(key[-8:], "big")): v["C"] for key, v in rows} == expected.counts

    return {"named": named, "paired": paired, "counted": counted}


def test_what_is_committed_is_what_the_statements_say(
    server: SqlServer, client: BlockingClient, new_topic, bootstrap: str
) -> None:
    owners, drives, stops = new_topic(), new_topic(), new_topic()
    put(client, owners, [(b"%d" % n, {"name": f"owner {n}"}, BEGIN_MS) for n in range(CARS)])
    server.statements(
        f"CREATE TABLE owners (id STRING PRIMARY KEY, name STRING) WITH (kafka_topic='{owners}', value_format='JSON');"
        f"CREATE STREAM drives (id STRING KEY, n INT) WITH (kafka_topic='{drives}', value_format='JSON');"
        f"CREATE STREAM stops (id STRING KEY, m INT) WITH (kafka_topic='{stops}', value_format='JSON');"
        f"CREATE STREAM named WITH (kafka_topic='{drives}-named') AS SELECT drives.id, n, name FROM drives "
        "JOIN owners ON drives.id = owners.id EMIT CHANGES;"
        f"CREATE STREAM paired WITH (kafka_topic='{drives}-paired') AS SELECT n, m FROM drives "
        "JOIN stops WITHIN 10 SECONDS ON n = m - 1 EMIT CHANGES;"
        f"CREATE TABLE counted WITH (kafka_topic='{drives}-counted') AS SELECT id, COUNT(*) AS c FROM drives "
        "WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY id EMIT CHANGES;",
        **EARLIEST,
    )
    expected = Expected()
    expected.round(client, drives, stops)
    outputs = judges(bootstrap, drives, expected)
    for name, is_complete in outputs.items():
        until(is_complete, 600)
        print(f"{name}: complete before the first kill", flush=True)
    for turn in range(ROUNDS):
        expected.round(client, drives, stops)
        kind = ("workers", "server", "java")[turn % 3]
        kill(server, kind)
        expected.round(client, drives, stops)
        for name, is_complete in outputs.items():
            until(is_complete, 600)
            print(f"{name}: complete after a kill of: {kind}", flush=True)
