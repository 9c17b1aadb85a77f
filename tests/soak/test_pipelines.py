"""Ten pipelines in one server while its driver, its workers, the broker and the targets are killed and come back.

    python -m pytest -m soak -s tests/soak/test_pipelines.py --soak-minutes 120

What the source holds at the end is compared with what the targets hold, by readers that others wrote: once where the target
is idempotent, at least once where it says so, and each record that cannot be handled in the dead letters with its reason.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.pipelines.readers import Seen, consumed
from tests.pipelines.test_opensearch import OpenSearch
from tests.pipelines.test_server import Server
from tests.support.admin import create_topic
from tests.support.databases import POSTGRES, Postgres
from tests.support.process import BrokerProcess

RATE_PER_S = int(os.environ.get("SOAK_RATE", "100"))
BAD_EACH = 50
PARTITIONS = 3
FAULT_SECONDS = (15.0, 40.0)
DRAIN_SECONDS = 900.0
TRIGGER = "5 seconds"
BUCKETS = 7

COMMON = """
pipeline: {name}
trigger: {trigger}
source: {{topic: soak-in}}
dead_letters: {name}-dead
steps:
  - parse: {{json: {{id: long, bucket: int, name: string}}}}
outputs:
{outputs}
"""


def outputs(folder: Path, postgres: str, search: str) -> dict[str, str]:
    """The outputs of the ten pipelines, by name."""
    database = f'database: {{url: "{postgres}", table: '
    return {
        "plain": "  - {topic: plain-out, key: string(id)}",
        "shared": "  - {topic: shared-a}\n  - {topic: shared-b, key: name, headers: {bucket: string(bucket)}}",
        "packed": "  - {topic: packed-out, steps: [upper: name], options: {kafka.compression.type: zstd}}",
        "delta": f"  - files: {{path: {folder}/delta}}",
        "delta-by": f"  - files: {{path: {folder}/delta-by, partition_by: [bucket], merge: {{files: 5}}}}",
        "parquet": f"  - files: {{path: {folder}/parquet, format: parquet, merge: {{files: 5}}}}",
        "upserts": f"  - {database}upserts, key: [id]}}",
        "rows": f"  - {database}rows}}",
        "search": f'  - elasticsearch: {{url: "{search}", index: soak}}',
        "counts": "  - topic: counts-out\n    aggregate: {by: [bucket], compute: {n: count(*)}}\n    key: string(bucket)",
    }


class Feeder(threading.Thread):
    """Writes records at a steady rate, over restarts of the broker."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self.stopping = threading.Event()
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 50,
             "message.timeout.ms": 300_000, "reconnect.backoff.max.ms": 500, "log_level": 2}
        )  # fmt: skip

    def run(self) -> None:
        begun = time.monotonic()
        while not self.stopping.is_set():
            for number in range(self.sent, int((time.monotonic() - begun) * RATE_PER_S)):
                value = {"id": number, "bucket": number % BUCKETS, "name": f"name {number} \u00e9"}
                text = json.dumps(value) if number % BAD_EACH else f"{{bad {number}"
                self.producer.produce("soak-in", text.encode(), partition=number % PARTITIONS)
                self.sent = number + 1
            self.producer.poll(0.05)
        assert self.producer.flush(300) == 0


@dataclass
class World:
    """Everything that runs, and how to break it."""

    folder: Path
    broker: BrokerProcess
    server: Server
    postgres: Postgres
    search: OpenSearch
    chance: random.Random
    faults: Counter[str] = field(default_factory=Counter)

    def break_something(self) -> None:
        kinds: list[Callable[[], None]] = [
            self.kill_driver, self.kill_worker, self.kill_broker, self.stall_broker, self.kill_postgres, self.kill_search
        ]  # fmt: skip
        # Each in its turn, in an order that differs from round to round.
        turn = sum(self.faults.values()) % len(kinds)
        if turn == 0:
            self.chance.shuffle(ORDER)
        fault = kinds[ORDER[turn]]
        self.faults[fault.__name__] += 1
        print(f"{time.strftime('%H:%M:%S')} {fault.__name__}", flush=True)
        fault()

    def kill_driver(self) -> None:
        self.server.stop(signal.SIGKILL)
        time.sleep(self.chance.uniform(0, 5))
        self.server.start()

    def kill_worker(self) -> None:
        """One of Spark's Python processes."""
        try:
            below = psutil.Process(self.server.process.pid).children(recursive=True)
            workers = [p for p in below if "pyspark" in " ".join(p.cmdline())]
            if workers:
                self.chance.choice(workers).kill()
        except psutil.Error:
            pass  # it ended by itself

    def kill_broker(self) -> None:
        self.broker.kill()
        time.sleep(self.chance.uniform(0, 20))
        self.broker.start()

    def stall_broker(self) -> None:
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(self.chance.uniform(1, 12))
        os.kill(self.broker.pid, signal.SIGCONT)

    def kill_postgres(self) -> None:
        self.postgres.stop("immediate")
        time.sleep(self.chance.uniform(0, 20))
        self.postgres.start()

    def kill_search(self) -> None:
        self.search.stop()
        time.sleep(self.chance.uniform(0, 20))
        self.search.start()


ORDER = list(range(6))


@pytest.fixture
def world(tmp_path: Path, own_broker: Callable[..., BrokerProcess]) -> Iterator[World]:
    if not POSTGRES:
        pytest.skip("no PostgreSQL server: apt install postgresql")
    broker = own_broker()
    search = OpenSearch(tmp_path / "opensearch")
    place = Path(tempfile.mkdtemp(prefix="barnabas-pg-"))
    postgres = Postgres(place)
    server = Server(tmp_path / "pipelines", broker.bootstrap)
    try:
        postgres.query("CREATE TABLE upserts (id bigint PRIMARY KEY, bucket int, name text)")
        postgres.query("CREATE TABLE rows (id bigint, bucket int, name text)")
        server.start()
        yield World(tmp_path, broker, server, postgres, search, random.Random(7))
    finally:
        server.stop(signal.SIGKILL)
        search.stop()
        postgres.stop("immediate")
        shutil.rmtree(place)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.java
@pytest.mark.timeout(4 * 3600)
def test_ten_pipelines_outlive_everything(world: World, request: pytest.FixtureRequest) -> None:
    create_topic(world.broker.bootstrap, "soak-in", PARTITIONS)
    url = f"postgresql+psycopg://me@127.0.0.1:{world.postgres.port}/postgres"
    outputs_by_name = outputs(world.folder, url, world.search.url)
    for name, text in outputs_by_name.items():
        file = COMMON.format(name=name, trigger=TRIGGER, outputs=text)
        status, answer = world.server.call("POST", "/pipelines", file)
        assert status == 201, answer
    feeder = Feeder(world.broker.bootstrap)
    feeder.start()
    try:
        end = time.monotonic() + 60 * request.config.getoption("--soak-minutes")
        while time.monotonic() < end:
            time.sleep(world.chance.uniform(*FAULT_SECONDS))
            world.break_something()
    finally:
        feeder.stopping.set()
        feeder.join(360)
    drain(world, set(outputs_by_name))
    judge(world)
    print(json.dumps({"records": feeder.sent, "faults": world.faults}), flush=True)


def drain(world: World, names: set[str]) -> None:
    """Waits until every pipeline runs and nothing waits in its source."""
    give_up = time.monotonic() + DRAIN_SECONDS
    settled = 0
    while settled < 3:
        _, rows = world.server.call("GET", "/pipelines")
        behind = {
            row["name"]: row["waiting"] or row["last_error"] or [query["lag"] for query in row["queries"]]
            for row in rows
            if row["state"] != "running" or any(query["lag"] != 0 for query in row["queries"])
        }
        assert {row["name"] for row in rows} == names
        settled = 0 if behind else settled + 1
        assert time.monotonic() < give_up, behind
        time.sleep(3)


def judge(world: World) -> None:
    """Compares every target with the source."""
    bootstrap = world.broker.bootstrap
    source = consumed(bootstrap, "soak-in")
    good = Counter(
        json.loads(r.value or b"")["id"] for r in source if not (r.value or b"").startswith(b"{bad")
    )
    bad = Counter(r.value for r in source if (r.value or b"").startswith(b"{bad"))
    assert max(good.values()) == max(bad.values()) == 1
    problems: list[str] = []

    def ids(topic: str, key: Callable[[Seen], int] | None = None) -> Counter[int]:
        return Counter(json.loads(r.value or b"")["id"] for r in consumed(bootstrap, topic))

    for topic in ("plain-out", "shared-a", "shared-b", "packed-out"):
        problems += compared(topic, good, ids(topic), once=False)
    for name in ("delta", "delta-by"):
        stored_ids = DeltaTable(str(world.folder / name)).to_pyarrow_table(columns=["id"])["id"].to_pylist()
        problems += compared(name, good, Counter(stored_ids), once=True)
    # Merged files too: whatever a reader of the folder sees.
    parquet = world.folder / "parquet"
    files = [str(p) for p in parquet.rglob("*.parquet") if not hidden(p, world.folder)]
    plain = ds.dataset(files).to_table(columns=["id"])["id"].to_pylist()
    problems += compared("parquet", good, Counter(plain), once=True)
    for table in ("upserts", "rows"):
        rows = world.postgres.query(f"SELECT id FROM {table}")
        problems += compared(table, good, Counter(row[0] for row in rows), once=True)
    problems += compared("search", good, found_by_search(world.search), once=True)
    counts = {int(r.key or b""): json.loads(r.value or b"")["n"] for r in consumed(bootstrap, "counts-out")}
    if counts != dict(Counter(number % BUCKETS for number in good)):
        problems.append(f"counts: {counts}")
    for name in (
        "plain",
        "shared",
        "packed",
        "delta",
        "delta-by",
        "parquet",
        "upserts",
        "rows",
        "search",
        "counts",
    ):
        letters = consumed(bootstrap, f"{name}-dead")
        problems += compared(f"{name}-dead", bad, Counter(r.value for r in letters), once=False)
        if any(not r.header("reason") for r in letters):
            problems.append(f"{name}-dead: a letter without a reason")
    assert not problems, "\n".join(problems)


def hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)


def compared(name: str, wanted: Counter, counts: Counter, *, once: bool) -> list[str]:
    lost, more = wanted.keys() - counts.keys(), counts.keys() - wanted.keys()
    twice = sorted((v for v, n in counts.items() if n > 1), key=str)
    print(f"{name}: {len(counts):,} of {len(wanted):,}, {len(twice):,} more than once", flush=True)
    problems = []
    if lost or more:
        problems.append(
            f"{name}: {len(lost)} lost like {shown(lost)}, {len(more)} that nobody sent like {shown(more)}"
        )
    if once and twice:
        problems.append(f"{name}: {len(twice)} more than once like {shown(twice)}")
    return problems


def shown(values: Iterable[object]) -> list[object]:
    return sorted(values, key=str)[:5]


def found_by_search(search: OpenSearch) -> Counter[int]:
    """The ids of all documents, page by page."""
    search.call("POST", "/soak/_refresh")
    ids: Counter[int] = Counter()
    after: list[object] = []
    while True:
        body: dict[str, object] = {"size": 5000, "sort": [{"id": "asc"}], "_source": ["id"]}
        if after:
            body["search_after"] = after
        hits = search.call("POST", "/soak/_search", body)["hits"]["hits"]
        if not hits:
            return ids
        ids.update(hit["_source"]["id"] for hit in hits)
        after = hits[-1]["sort"]
