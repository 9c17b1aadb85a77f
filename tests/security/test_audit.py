"""The audit log as a topic: what foreign consumers read there, and that trouble with it costs nobody anything."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from barnabas.broker.api import audit
from barnabas.broker.api.audit import AuditTopic
from barnabas.broker.server import StartError
from barnabas.config.loader import load
from barnabas.runtime.clock import ManualClock
from barnabas.testing import Broker
from barnabas.wire.errors import ApiError, ErrorCode
from tests.security.test_authorizer import USERS, add, binding, client, produce
from tests.security.test_tls import PATIENCE_S

LOG = "security-audit"


@pytest.fixture(scope="module")
def audited() -> Iterator[Broker]:
    options = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS + ";",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "audit.topic": LOG,
        "audit.topic.grants": "true",
    }
    with Broker(options) as broker:
        yield broker


def read(broker: Broker, is_wanted: Any, *, count: int = 1) -> list[tuple[str, dict[str, Any]]]:
    """(key, value) of the first so many wanted records of the audit topic."""
    consumer = Consumer(
        client(broker, "admin", **{"group.id": "auditors", "auto.offset.reset": "earliest"})
        | {"enable.auto.commit": False}
    )
    consumer.subscribe([LOG])
    events = []
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        while len(events) < count and time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            value = json.loads(message.value())
            if is_wanted(value):
                assert abs(message.timestamp()[1] - value["time_ms"]) == 0
                events.append(((message.key() or b"").decode(), value))
    finally:
        consumer.close()
    return events


def test_denials_and_grants_are_records(audited: Broker) -> None:
    admin = AdminClient(client(audited, "admin"))
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(PATIENCE_S)
    error = produce(audited, "alice", "orders", b"x")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    add(admin, binding("orders", AclOperation.WRITE))
    assert produce(audited, "alice", "orders", b"x") is None

    [(key, denied)] = read(audited, lambda value: value["decision"] == "denied")
    assert key == "User:alice"
    assert abs(denied.pop("time_ms") - time.time() * 1000) < 3_600_000
    assert denied == {
        "broker": 1, "decision": "denied", "principal": "User:alice", "operation": "DESCRIBE", "host": "127.0.0.1",
        "resource": "TOPIC:LITERAL:orders", "request": "Metadata", "client": "rdkafka", "rule": "DefaultDeny",
    }  # fmt: skip
    [(_, allowed)] = read(
        audited, lambda value: value["decision"] == "allowed" and value["principal"] == "User:alice"
        and value["operation"] == "WRITE"
    )  # fmt: skip
    assert allowed["request"] == "Produce"
    assert allowed["rule"] == (
        "MatchingAcl(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)"
    )


def test_reading_and_writing_the_topic_is_audited_but_the_brokers_own_writes_are_not(audited: Broker) -> None:
    error = produce(audited, "bob", LOG, b"forged")
    assert error is not None
    events = read(
        audited, lambda value: value.get("principal") == "User:bob" and value["decision"] == "denied"
    )
    assert events[0][1]["resource"] == f"TOPIC:LITERAL:{LOG}"
    server = audited.inside.server
    partition = server.services.partitions.of_topic(LOG)[0]
    deadline_s = time.monotonic() + PATIENCE_S
    end, seen_s = partition.log_end_offset, time.monotonic()
    while time.monotonic() - seen_s < 1.0:  # nothing is written any more: the log does not feed itself
        assert time.monotonic() < deadline_s
        if partition.log_end_offset != end:
            end, seen_s = partition.log_end_offset, time.monotonic()
        time.sleep(0.05)


def test_a_name_that_no_topic_can_have_stops_the_start() -> None:
    options = {"authorizer.class.name": "x", "audit.topic": "no/topic"}
    with pytest.raises(StartError, match=r"audit\.topic=no/topic: "), Broker(options):
        raise AssertionError("it started")


# --- trouble, without a broker ------------------------------------------------------------------------------------


class Stage(AuditTopic):
    """The topic, with what a test says in place of a partition."""

    def __init__(self) -> None:
        nothing: Any = None
        super().__init__("log", load(overrides={}), ManualClock(), self, nothing, nothing)  # type: ignore[arg-type]
        self.node_id = 7
        self.refusals: list[Exception] = []
        self.batches: list[bytes] = []

    async def _append(self, batch: bytes) -> None:
        await asyncio.sleep(0)
        if self.refusals:
            raise self.refusals.pop(0)
        self.batches.append(batch)

    def values(self) -> list[dict[str, Any]]:
        from barnabas.records.batch import read_records

        return [json.loads(record.value or b"") for batch in self.batches for record in read_records(batch)]


def with_short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LINGER_S", "RETRY_S", "RETRY_S_MAX"):
        monkeypatch.setattr(audit, name, 0.0)


async def until_idle(stage: Stage) -> None:
    assert stage._task is not None
    await asyncio.wait([stage._task])


def test_a_topic_that_cannot_be_written_is_tried_again_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_short_waits(monkeypatch)
    caplog.set_level("INFO", "barnabas.audit.topic")

    async def main() -> None:
        stage = Stage()
        refusal = ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas")
        stage.refusals = [refusal, refusal, OSError("gone"), refusal]
        for number in range(3):
            stage.add({"principal": f"User:{number}"})
        await until_idle(stage)
        assert [row["principal"] for row in stage.values()] == ["User:0", "User:1", "User:2"]

    asyncio.run(main())
    lines = [record.message for record in caplog.records if record.name == "barnabas.audit.topic"]
    assert lines == [
        "the audit topic cannot be written; it is tried again",  # too few replicas, twice
        "the audit topic cannot be written; it is tried again",  # gone
        "the audit topic cannot be written; it is tried again",
        "the audit topic is written again",
    ]


def test_what_finds_no_place_is_counted_in_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    with_short_waits(monkeypatch)
    monkeypatch.setattr(audit, "QUEUED_MAX", 10)

    async def main() -> None:
        stage = Stage()
        for number in range(25):
            stage.add({"principal": f"User:{number}", "client": "c" * 100_000})
        await until_idle(stage)
        rows = stage.values()
        assert [row.get("principal") for row in rows] == [*(f"User:{number}" for number in range(10)), None]
        assert rows[-1] == {"time_ms": rows[-1]["time_ms"], "broker": 7, "decision": "lost", "events": 15}
        assert len(rows[0]["client"]) == audit.TEXT_MAX
        stage.batches.clear()
        stage.add({"principal": "User:later"})
        await until_idle(stage)
        assert [row["principal"] for row in stage.values()] == ["User:later"]

    asyncio.run(main())


def test_a_topic_of_small_batches_gets_small_ones_and_a_record_that_never_fits_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_short_waits(monkeypatch)

    async def main() -> None:
        stage = Stage()
        too_large = ApiError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        halvings = audit.BATCH_RECORDS_MAX.bit_length() - 1
        stage.refusals = [too_large] * (halvings + 1)
        for number in range(3):
            stage.add({"principal": f"User:{number}"})
        await until_idle(stage)
        rows = stage.values()
        assert [row["principal"] for row in rows if "principal" in row] == ["User:1", "User:2"]
        assert sum(row.get("events", 0) for row in rows) == 1

    asyncio.run(main())


def test_a_stop_writes_what_is_queued_and_does_not_wait_for_a_broken_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        stage = Stage()
        stage.add({"principal": "User:last"})
        await stage.close()
        assert [row["principal"] for row in stage.values()] == ["User:last"]

        broken = Stage()
        broken.add({"principal": "User:lost"})
        broken.refusals = [ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "led elsewhere")]
        await broken.close()
        broken.add({"principal": "User:too-late"})
        assert broken.batches == []

    asyncio.run(main())
    assert "denials and grants were not all written" in caplog.text
