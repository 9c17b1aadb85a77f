"""A table with a changelog whose query is killed with SIGKILL at random, each time with the loss of all checkpoints.

KILLED_RECORDS=1000000 python -m pytest -m soak -s tests/pipelines/test_changelogs_killed.py
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter

import pytest
from confluent_kafka import Producer

from tests.pipelines.readers import consumed
from tests.pipelines.test_tables_killed import RECORDS, Run, new_topic_named, undisturbed

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(7200)]

LOSSES = int(os.environ.get("KILLED_TIMES", "8"))
CUSTOMERS = 997
SPEC = """
pipeline: {t}
sources:
  orders:
    topic: {t}-orders
    options: {{maxOffsetsPerTrigger: {most}}}
    steps: [parse: {{json: {{customer: int, amount: int}}}}]
relations:
  totals:
    from: orders
    aggregate: {{by: [customer], compute: {{n: count(*), amount: sum(amount), kinds: count(distinct amount)}}}}
    changelog: {t}-totals
  known: {{from: totals, steps: [filter: n >= 2]}}
outputs:
  - {{topic: {t}-known, from: known, config: {{cleanup.policy: compact}}}}
"""


def test_a_table_that_loses_its_checkpoint_again_and_again(bootstrap, new_topic, client, tmp_path):
    t = new_topic()
    new_topic_named(client, f"{t}-orders")
    chance, wanted, kinds = random.Random(RECORDS), {}, {}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(RECORDS):
        customer, amount = chance.randrange(CUSTOMERS), chance.randrange(50)
        row = wanted.setdefault(customer, {"customer": customer, "n": 0, "amount": 0, "kinds": 0})
        kinds.setdefault(customer, set()).add(amount)
        row["n"], row["amount"], row["kinds"] = row["n"] + 1, row["amount"] + amount, len(kinds[customer])
        value = json.dumps({"customer": customer, "amount": amount})
        producer.produce(f"{t}-orders", value, partition=number % 2)
        producer.poll(0)
    assert producer.flush(300) == 0
    file = tmp_path / "totals.yaml"
    file.write_text(SPEC.format(t=t, most=max(RECORDS // 30, 1)))
    kills: Counter[str] = Counter()
    for _ in range(LOSSES):
        run, begun = Run(file, bootstrap), time.monotonic()
        batches = len(consumed(bootstrap, f"{t}-totals")) if kills else 0
        # Killed in the middle of its micro-batches, which begin when Spark has started.
        while run.process.poll() is None and time.monotonic() - begun < 300:
            if kills or run.log.exists():
                topics = client.topics()
                if f"{t}-totals" in topics and len(consumed(bootstrap, f"{t}-totals")) > batches:
                    break
            time.sleep(0.5)
        time.sleep(chance.uniform(0, 4))
        if run.process.poll() is None:
            kills[run.kill(chance)] += 1
        run.end()
        shutil.rmtree(file.with_suffix(""))
    undisturbed(file, bootstrap)
    print(f"{RECORDS:,} records, killed and without checkpoints: {dict(kills)}")
    assert kills
    for output in ("totals", "known"):
        left = {
            r.key: r.value for r in consumed(bootstrap, f"{t}-{output}") if b"barnabas.places" not in r.key
        }
        rows = {row["customer"]: row for row in (json.loads(value) for value in left.values() if value)}
        assert rows == wanted, output
