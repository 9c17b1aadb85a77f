"""`barnabas verify transactions`: nothing to complain of over a broker that is killed, everything over one that lies."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from barnabas.client.blocking import LATEST, BlockingClient
from barnabas.sim.transactions import Outcome
from barnabas.terminal.connection import ClusterAddress
from barnabas.verify.transactions import Run
from tests.clients.cli_support import Cli


@pytest.mark.soak
def test_a_broker_that_is_killed_keeps_its_promises(own_broker, tmp_path: Path) -> None:
    broker = own_broker(transaction__state__log__num__partitions="4", offsets__topic__num__partitions="4")
    cli = Cli(broker.bootstrap)
    topics = cli.topic(partitions=2), cli.topic()
    process = cli.start(
        "verify", "transactions", *topics, "--for", "600", "--writers", "3", "--json",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        for _ in range(2):
            _wait_until_written(cli, topics[1])
            broker.kill()
            broker.start()
        _wait_until_written(cli, topics[1])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=400)
    finally:
        process.kill()
    assert process.returncode == 0, (out, err)
    report = json.loads(out)
    assert report["violations"] == []
    assert report["transactions"]["committed"] > 3
    assert report["records"] >= report["transactions"]["committed"]


def _wait_until_written(cli: Cli, topic: str, records: int = 50) -> None:
    give_up = time.monotonic() + 120
    with BlockingClient(cli.bootstrap) as client:
        wanted = client.list_offsets({(topic, 0): LATEST})[topic, 0].offset + records
        while client.list_offsets({(topic, 0): LATEST})[topic, 0].offset < wanted:
            assert time.monotonic() < give_up
            time.sleep(0.05)


@pytest.mark.parametrize("rule", ["aborted", "lost", "torn"])
def test_lies_are_found(cli: Cli, rule: str) -> None:
    """What the writers believe is changed behind their backs: for the judge the broker has done otherwise than it said."""
    topic = cli.topic(partitions=2)
    run = Run(ClusterAddress(cli.bootstrap), [topic], writers=1, seed=1)
    run.start()
    give_up = time.monotonic() + 120
    while sum(txn.outcome is Outcome.COMMITTED for txn in run.history.txns) < 3:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    run.over.set()
    for thread in (*run.writers, run.reader):
        thread.join(120)
    committed = [txn for txn in run.history.txns if txn.outcome is Outcome.COMMITTED]
    if rule == "aborted":
        committed[1].outcome = Outcome.ABORTED
    elif rule == "lost":
        committed[1].sent[b"never"] = committed[1].acked[b"never"] = 0
    else:
        committed[-1].offset = 1 << 40
    assert rule in {violation.rule for violation in run.finish().violations}


def test_a_topic_that_is_not_there(cli: Cli) -> None:
    done = cli("verify", "transactions", "nowhere", code=1)
    assert b"topic nowhere does not exist: create it" in done.stderr
