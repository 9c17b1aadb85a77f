"""Producers and their transactions, as a real transactional producer makes them."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import KafkaException, Producer

from tests.console.conftest import ConsoleProcess


class Writing:
    """A producer with an open transaction of three records."""

    def __init__(self, console: ConsoleProcess, bootstrap: str) -> None:
        self.topic = f"written-{uuid.uuid4().hex[:8]}"
        self.name = f"writer-{uuid.uuid4().hex[:8]}"
        console.post("/topics", {"name": self.topic, "partitions": 1})
        self.producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": self.name})
        self.producer.init_transactions(60)
        self.producer.begin_transaction()
        for number in range(3):
            self.producer.produce(self.topic, f"value {number}")
        assert self.producer.flush(60) == 0


@pytest.fixture
def writing(console: ConsoleProcess, bootstrap: str) -> Writing:
    return Writing(console, bootstrap)


def test_an_open_transaction_is_seen_with_its_producer_and_fenced(
    console: ConsoleProcess, writing: Writing
) -> None:
    [row] = console.data("/transactions", q=writing.name)["transactions"]
    assert (row["state"], row["partitions"]) == ("Ongoing", [f"{writing.topic}-0"])
    assert row["since_ms"] > 1_700_000_000_000
    assert console.data("/transactions", q=writing.name, open=1)["list"]["total"] == 1
    [producer] = console.data(f"/topics/{writing.topic}/producers")["producers"]
    assert (producer["producer_id"], producer["transactional_id"]) == (row["producer_id"], writing.name)
    assert (producer["last_sequence"], producer["transaction_start"]) == (2, 0)
    for path in ("/transactions", f"/topics/{writing.topic}/producers"):
        assert writing.name in console.page(path)
    assert (
        "Not done"
        in console.send("/transactions/fence", {"name": writing.name, "confirm": "other"}, status=400).text
    )
    console.send("/transactions/fence", {"name": writing.name, "confirm": writing.name})
    assert console.data("/transactions", q=writing.name, open=1)["list"]["total"] == 0
    with pytest.raises(KafkaException, match=r"(?i)fenced"):
        writing.producer.commit_transaction(60)


def test_a_topic_without_producers_says_so(console: ConsoleProcess) -> None:
    name = f"quiet-{uuid.uuid4().hex[:8]}"
    console.post("/topics", {"name": name, "partitions": 1})
    assert "no idempotent producer" in console.page(f"/topics/{name}/producers")
