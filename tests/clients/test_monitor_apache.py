"""The monitor beside Apache Kafka: what it shows of a cluster in which no broker of ours runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.test_monitor import monitor as monitor
from tests.clients.test_monitor import test_the_history_is_read_in_every_format as test_history
from tests.clients.test_monitor import test_verdicts_reach_those_that_read_burrow as test_verdicts
from tests.clients.test_monitor import (
    test_what_does_not_exist_and_a_cluster_that_is_away as test_what_does_not_exist,
)
from tests.support.apache_kafka import present_kafka

__all__ = ["monitor", "test_history", "test_verdicts", "test_what_does_not_exist"]

pytestmark = [pytest.mark.soak, pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with present_kafka(tmp_path_factory.mktemp("kafka")) as where:
        yield where
