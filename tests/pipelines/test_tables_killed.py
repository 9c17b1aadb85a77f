"""Joins, aggregates and updates of tables while driver, Java and workers are killed with SIGKILL: what is committed is,
record by record, what an undisturbed run writes.

    KILLED_RECORDS=300000 python -m pytest -m soak -s tests/pipelines/test_tables_killed.py
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from barnabas.client.blocking import NewTopic
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.interpret.interpreter import Interpreter, Record
from tests.pipelines.readers import consumed
from tests.support.admin import KEPT

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(7200)]

RECORDS = int(os.environ.get("KILLED_RECORDS", "100000"))
KEYS = max(RECORDS // 20, 10)
BATCHES = int(os.environ.get("KILLED_BATCHES", "12"))
KILLS = int(os.environ.get("KILLED_TIMES", "8"))
PIPELINE = """
pipeline: {name}
spark: {{spark.sql.shuffle.partitions: "2"}}
sources:
  visits:
    topic: {t}-visits
    options: {{maxOffsetsPerTrigger: {most}}}
    steps: [parse: {{json: {{id: int, customer: string}}}}]
  customers:
    table: {t}-customers
    options: {{maxOffsetsPerTrigger: {most}}}
    steps: [parse: {{json: {{customer: string, rank: int}}}}]
  orders:
    table: {t}-orders
    options: {{maxOffsetsPerTrigger: {most}}}
    steps: [parse: {{json: {{order: string, customer: string, amount: int}}}}]
relations:
  met: {{join: {{left: visits, right: customers, by: customer, kind: left}}}}
  named: {{join: {{left: orders, right: customers, by: customer, kind: full}}}}
  totals: {{from: named, aggregate: {{by: [rank], compute: {{n: count(*), amount: sum(amount), most: max(amount)}}}}}}
outputs:
  - {{name: met, topic: {name}-met, from: met}}
  - {{name: named, topic: {name}-named, from: named, key: "concat_ws('-', `order`, customer)"}}
  - {{name: totals, topic: {name}-totals, from: totals}}
"""
OUTPUTS = ("met", "named", "totals")


def history(seed: int):
    """topic, key, value."""
    chance = random.Random(seed)
    for number in range(RECORDS):
        customer = f"c{chance.randrange(KEYS)}"
        kind = chance.choice(("visits", "customers", "orders"))
        gone = chance.random() < 0.2
        if kind == "visits":
            yield kind, b"v%d" % number, {"id": number, "customer": customer}
        elif kind == "customers":
            value = {"customer": customer, "rank": chance.randrange(50)}
            yield kind, customer.encode(), None if gone else value
        else:
            order = f"o{chance.randrange(3 * KEYS)}"
            value = {"order": order, "customer": customer, "amount": number}
            yield kind, order.encode(), None if gone else value


def fill(bootstrap: str, topic: str, model: Interpreter) -> None:
    """Writes a history; the model reads its tables."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 50})
    for number, (kind, key, value) in enumerate(history(7)):
        data = None if value is None else json.dumps(value).encode()
        while True:
            try:
                producer.produce(
                    f"{topic}-{kind}", data, key, partition=sum(key) % 2, timestamp=1_700_000_000_000 + number
                )
                break
            except BufferError:
                producer.poll(0.1)
        if kind != "visits":
            model.read([Record(f"{topic}-{kind}", key, data, offset=number)])
    assert producer.flush(300) == 0


class Run:
    """`pipeline run --once` in a process of its own."""

    def __init__(self, file: Path, bootstrap: str) -> None:
        self.log = file.with_suffix(".log")
        command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(file), "--once", "-q"]
        command += ["--bootstrap", bootstrap, "--checkpoints", str(file.with_suffix(""))]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self, chance: random.Random) -> str:
        """Kills one of its processes, or all of them."""
        victims = {"all": [self.process.pid], "java": [], "worker": []}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                victims["java" if "java" in child.name() else "worker"].append(child.pid)
        kind = chance.choice([kind for kind, pids in victims.items() if pids])
        if kind == "all":
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            os.kill(chance.choice(victims[kind]), signal.SIGKILL)
        return kind

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def undisturbed(file: Path, bootstrap: str) -> float:
    """Runs to the end; returns how many seconds it took."""
    begun = time.monotonic()
    run = Run(file, bootstrap)
    assert run.process.wait(3600) == 0, run.log.read_text()[-3000:]
    return time.monotonic() - begun


def test_what_is_committed_is_what_an_undisturbed_run_writes(bootstrap, new_topic, client, tmp_path):
    t = new_topic()
    for name in ("visits", "customers", "orders"):
        new_topic_named(client, f"{t}-{name}")
    files = {}
    for name in (f"{t}u", f"{t}k"):
        files[name] = tmp_path / f"{name}.yaml"
        files[name].write_text(PIPELINE.format(name=name, t=t, most=max(RECORDS // 3 // BATCHES, 1)))
    calm, killed = files
    model = Interpreter(parse_spec(files[calm].read_text()).plan)
    fill(bootstrap, t, model)
    seconds = undisturbed(files[calm], bootstrap)
    chance, kills = random.Random(RECORDS), Counter()
    for _ in range(KILLS):
        run = Run(files[killed], bootstrap)
        try:
            run.process.wait(chance.uniform(0.3, 1.0) * seconds * 0.8)
        except subprocess.TimeoutExpired:
            kills[run.kill(chance)] += 1
            time.sleep(1)
        run.end()
    undisturbed(files[killed], bootstrap)
    print(f"{RECORDS:,} records, killed: {dict(kills)}, an undisturbed run takes {seconds:.0f} s")
    assert kills
    for output in OUTPUTS:
        wanted = Counter((r.key, r.value) for r in consumed(bootstrap, f"{calm}-{output}"))
        counts = Counter((r.key, r.value) for r in consumed(bootstrap, f"{killed}-{output}"))
        assert wanted
        assert counts == wanted, output
        if output != "met":
            left = {r.key: r.value for r in consumed(bootstrap, f"{killed}-{output}")}
            rows = [json.loads(value) for value in left.values() if value is not None]
            assert in_order(rows) == in_order(model.table(output).values())


def in_order(rows) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def new_topic_named(client, name: str) -> None:
    """A topic of two partitions."""
    client.create_topics([NewTopic(name, 2, configs=KEPT)])
