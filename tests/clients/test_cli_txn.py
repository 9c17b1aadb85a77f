"""Transactions on the command line: `barnabas txn` and kafka-transactions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from tests.clients.cli_support import Cli

WAIT_S = 60


@pytest.fixture
def opened(cli: Cli) -> Iterator[tuple[str, str, Producer]]:
    """A topic and a transactional id with a transaction under way."""
    topic, name = cli.topic(), f"txn-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(WAIT_S) == 0
    yield topic, name, producer
    producer.purge()


def test_list_describe_and_abort_an_id(cli: Cli, opened: tuple[str, str, Producer]) -> None:
    topic, name, producer = opened
    listed = json.loads(cli("txn", "list", "--state", "Ongoing", "--json").stdout)
    assert name in [row["id"] for row in listed]
    (row,) = json.loads(cli("txn", "describe", name, "--json").stdout)
    assert row["state"] == "Ongoing"
    assert row["partitions"] == [f"{topic}:0"]
    assert name in cli("kafka", "transactions", "list", "--bootstrap-server", cli.bootstrap).stdout.decode()
    cli("txn", "abort", name)
    (row,) = json.loads(cli("txn", "describe", name, "--json").stdout)
    assert row["state"] in ("CompleteAbort", "Empty")
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)


def test_abort_one_partition(cli: Cli, opened: tuple[str, str, Producer]) -> None:
    topic, _, _ = opened
    assert "no transaction hangs" in cli("txn", "find-hanging", "--topic", topic).stdout.decode()
    # Its coordinator knows of it: however old, it does not hang.
    assert "hangs" in cli("txn", "find-hanging", "--topic", topic, "--older-than", "0").stdout.decode()
    cli("txn", "abort", "--topic", topic, "--start-offset", "0")
    done = cli("txn", "abort", "--topic", topic, "--start-offset", "0", code=1)
    assert b"begins at offset 0" in done.stderr


def test_what_is_not_there(cli: Cli) -> None:
    assert b"nobody: no such transactional id" in cli("txn", "describe", "nobody", code=1).stderr
    assert b"nobody: no such transactional id" in cli("txn", "abort", "nobody", code=1).stderr
    assert b"no topic" in cli("txn", "find-hanging", "--topic", "nothing", code=1).stderr
    assert b"name a transactional id" in cli("txn", "abort", code=2).stderr
