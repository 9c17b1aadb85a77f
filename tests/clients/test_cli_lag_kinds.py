"""`barnabas group lag` where offsets and records differ: transactions, deleted records; again and again; by tenant."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.cli_support import Cli
from tests.support.admin import KEPT, create_topic

WAIT_S = 120
WITHIN_S = 1.0


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)


def fresh(bootstrap: str, partitions: int = 1, **config: str) -> str:
    topic = f"lag-{uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions, {**KEPT, **config})
    return topic


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def lag_of(cli: Cli, group: str, *more: str) -> dict[str, object]:
    (row,) = cli.json("group", "lag", group, *more)
    return row


def ago_ms(seconds: float) -> int:
    return int((time.time() - seconds) * 1000)


def assert_about(value: object, seconds: float, since: float) -> None:
    """The value is right within a second, given that the command itself took a while since `since`."""
    assert isinstance(value, float)
    assert seconds - WITHIN_S <= value <= seconds + (time.time() - since) + WITHIN_S


def test_a_paused_group_waits_by_the_clock_and_is_behind_by_the_log(cli: Cli, bootstrap: str) -> None:
    topic = fresh(bootstrap)
    producer, since = Producer({"bootstrap.servers": bootstrap}), time.time()
    for age_s in (900, 600, 300):
        producer.produce(topic, b"x", timestamp=ago_ms(age_s))
    assert producer.flush(WAIT_S) == 0
    commit(bootstrap, topic, topic, 1)
    row = lag_of(cli, topic)
    assert row["lag"] == 2
    assert_about(row["lag_seconds"], 600, since)
    assert abs(row["behind_seconds"] - 300) <= WITHIN_S


def test_markers_and_aborted_records_are_no_lag(cli: Cli, bootstrap: str) -> None:
    topic = fresh(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(WAIT_S)

    def transaction(age_s: float, *, good: bool) -> None:
        producer.begin_transaction()
        producer.produce(topic, b"x", timestamp=ago_ms(age_s))
        producer.flush(WAIT_S)
        if good:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)

    since = time.time()
    transaction(900, good=True)  # offsets 0 and its marker 1
    commit(bootstrap, topic, topic, 1)  # as a consumer commits that takes the last record's offset plus one
    row = lag_of(cli, topic)
    assert (row["lag"], row["lag_seconds"], row["behind_seconds"]) == (0, 0.0, 0.0)
    transaction(800, good=False)  # 2, 3
    assert (lag_of(cli, topic)["lag"], lag_of(cli, topic)["lag_seconds"]) == (0, 0.0)
    assert_about(lag_of(cli, topic, "--uncommitted")["lag_seconds"], 800, since)
    transaction(700, good=True)  # 4, 5
    assert_about(lag_of(cli, topic)["lag_seconds"], 700, since)
    commit(bootstrap, topic, topic, 6)
    producer.begin_transaction()
    producer.produce(topic, b"open", timestamp=ago_ms(500))
    producer.flush(WAIT_S)
    row = lag_of(cli, topic)
    part: dict[str, Any]
    (part,) = row["partitions"]
    assert (row["lag"], part["held"]) == (0, 1)
    producer.abort_transaction(WAIT_S)


def test_what_retention_has_deleted_is_not_waited_for(cli: Cli, bootstrap: str) -> None:
    topic = fresh(bootstrap)
    producer, since = Producer({"bootstrap.servers": bootstrap}), time.time()
    for age_s in (900, 600):
        producer.produce(topic, b"x", timestamp=ago_ms(age_s))
        producer.flush(WAIT_S)
    commit(bootstrap, topic, topic, 0)
    cli("topic", "trim", topic, "--before", "1", "--execute")
    row = lag_of(cli, topic)
    assert_about(row["lag_seconds"], 600, since)


def test_a_group_that_catches_up_is_told_when(cli: Cli, bootstrap: str) -> None:
    topic = fresh(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(1000):
        producer.produce(topic, b"x")
    assert producer.flush(WAIT_S) == 0
    commit(bootstrap, topic, topic, 0)
    watching = cli.start(
        "group", "lag", topic, "--watch", "--interval-s", "0.2", "--json", stdout=subprocess.PIPE
    )
    try:
        assert watching.stdout is not None
        for offset in range(100, 1000, 100):
            commit(bootstrap, topic, topic, offset)
            look = json.loads(watching.stdout.readline())
            (row,) = look["groups"]
            if row["caught_up"] is not None:
                break
        else:
            pytest.fail("no look said when the group has caught up")
    finally:
        watching.kill()
        watching.wait(WAIT_S)
        watching.stdout.close()


def test_lag_by_tenant_and_by_key(cli: Cli, bootstrap: str) -> None:
    topic = fresh(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap})
    for tenant, number in (("acme", 3), ("umbra", 1)):
        for i in range(number):
            producer.produce(topic, b"x", key=f"{tenant}/{i}", headers={"tenant": tenant})
    producer.produce(topic, b"x")
    assert producer.flush(WAIT_S) == 0
    commit(bootstrap, topic, topic, 1)
    for by, want in (
        ("tenant", {"acme": 2, "umbra": 1, "(none)": 1}),
        ("key:/", {"acme": 2, "umbra": 1, "(none)": 1}),
        ("key", {"acme/1": 1, "acme/2": 1, "umbra/0": 1, "(none)": 1}),
    ):
        rows = cli.json("group", "lag", topic, "--by", by)
        assert {row["value"]: row["lag"] for row in rows} == want
