"""Share groups with the Java client's KafkaShareConsumer and admin client (kafka-clients 4.x)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients import foreign
from tests.support.admin import create_topic, set_group_option
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.java

END_TXN = 26

SHORT_LOCKS = {
    "group__share__record__lock__duration__ms": "4000",
    "group__share__min__record__lock__duration__ms": "4000",
}


@pytest.fixture(scope="module")
def probe() -> list[str]:
    return [*foreign.java_program()]


def test_members_share_a_partition(probe: list[str], bootstrap: str) -> None:
    """Each record goes to one of three members, and nothing is left at the end."""
    report = foreign.run(probe, bootstrap, "share", "together")
    assert report["busy"] > 1


def test_accept_release_reject_and_the_delivery_count(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "share", "acknowledge")


@pytest.mark.parametrize("copy", ["true", "false"])
def test_records_given_up_become_dead_letters(probe: list[str], bootstrap: str, copy: str) -> None:
    foreign.run(probe, bootstrap, "share", "dead-letters", copy)


def test_describe_list_alter_and_delete(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "share", "admin")


def test_locks_run_out_unless_they_are_renewed(
    probe: list[str], own_broker: Callable[..., BrokerProcess]
) -> None:
    foreign.run(probe, own_broker(**SHORT_LOCKS).bootstrap, "share", "locks")


def test_what_a_killed_member_held_goes_to_another(probe: list[str], bootstrap: str) -> None:
    """And nothing that it had accepted."""
    foreign.run(probe, bootstrap, "share", "killed")


def test_aborted_records_are_left_out_where_that_is_asked(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "share", "transactions")


def test_a_killed_broker_forgets_nothing(probe: list[str], own_broker: Callable[..., BrokerProcess]) -> None:
    """kill -9 twice while a member works: nothing accepted comes again, nothing is lost."""
    count = 20_000
    broker = own_broker()
    create_topic(broker.bootstrap, "work", 1)
    set_group_option(broker.bootstrap, "workers", "share.auto.offset.reset", "earliest")
    _produce(broker.bootstrap, "work", count)
    with subprocess.Popen(
        [*probe, broker.bootstrap, "share", "work", "work", "workers", str(count)],
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
    ) as worker:
        assert worker.stdout is not None
        kill_at = [count // 4, count // 2]
        report: dict[str, Any] = {}
        for line in worker.stdout:
            words = line.split()
            if words[0] == "done" and kill_at and int(words[1]) >= kill_at[0]:
                kill_at.pop(0)
                broker.kill()
                broker.start()
            if line.startswith("{"):
                report = json.loads(line)
    assert report.get("ok") is True, report
    assert not kill_at
    assert (report["accepted"], report["again"]) == (count, 0)


def _produce(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 1000})
    for number in range(count):
        producer.produce(topic, number.to_bytes(4, "big"))
        producer.poll(0)
    assert producer.flush(30) == 0
