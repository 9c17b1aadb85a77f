"""From Barnabas back to Apache Kafka 4.x, with Kafka's own MirrorMaker 2 and with ours, as docs/migration.md says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.mirror_maker import KEPT, javas, ours, properties
from tests.clients.test_mirror_maker import commit, committed, make, read, send
from tests.clients.test_mirror_maker_apache import kafka
from tests.support.cluster import until
from tests.support.process import BrokerProcess

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

SAME_NAMES = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def told(messages: list[Any]) -> list[tuple[Any, ...]]:
    return [(m.partition(), m.key(), m.value(), m.timestamp(), m.headers()) for m in messages]


@pytest.mark.parametrize("run", [javas, ours], ids=["kafkas", "ours"])
def test_topics_options_records_and_groups_are_taken_back(
    run: Callable[[Path], Any], own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    here = own_broker().bootstrap
    make(here, "orders", 2, retention__ms=KEPT)
    send(here, "orders", [str(number) for number in range(300)])
    send(here, "orders", [str(number) for number in range(300, 400)], partition=1)
    commit(here, "billing", {("orders", 0): 300, ("orders", 1): 40})

    with kafka(tmp_path / "kafka") as there:
        file = properties(
            tmp_path, here, there, topics="orders", groups="billing", replication__policy__class=SAME_NAMES
        )

        def is_moved() -> bool:
            offsets = committed(there, "billing")
            return 0 < offsets.get("orders 0", 0) <= 300 and 0 < offsets.get("orders 1", 0) <= 40

        with run(file):
            until(is_moved, "the group is moved", 300)
            send(here, "orders", ["last"])
            copied = read(there, "orders", 401, 2, 300)
        assert sorted(told(copied)) == sorted(told(read(here, "orders", 401, 2)))
