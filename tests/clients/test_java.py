"""Apache Kafka's own Java client (kafka-clients 4.x), producer, consumer and admin, against our broker."""

from __future__ import annotations

import pytest

from tests.clients import foreign
from tests.support.examples import examples, one_in

pytestmark = pytest.mark.java

RECORDS = examples(100_000)


@pytest.fixture(scope="session")
def probe() -> list[str]:
    return foreign.java_program()


@pytest.mark.parametrize("codec", one_in(4, ["none", "gzip", "snappy", "lz4", "zstd"]))
def test_what_is_produced_comes_back(probe: list[str], bootstrap: str, codec: str) -> None:
    """Each codec with acks 0, 1 and all."""
    assert foreign.run(probe, bootstrap, "roundtrip", codec, str(RECORDS))["records"] == 3 * RECORDS


def test_idempotent_producer(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "idempotent", str(RECORDS))


def test_commit_seek_and_times(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "offsets")


def test_admin(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "admin")


def test_administration(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "administration")


def test_group_of_three_where_one_leaves_and_one_is_killed(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "group", "cooperative-sticky")


@pytest.mark.parametrize("assignor", one_in(3, ["range", "roundrobin", "sticky", "cooperative-sticky"]))
def test_assignors(probe: list[str], bootstrap: str, assignor: str) -> None:
    foreign.run(probe, bootstrap, "assignor", assignor)


def test_a_pattern_that_the_broker_matches(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "pattern")


def test_static_member_keeps_its_partitions(probe: list[str], bootstrap: str) -> None:
    foreign.run(probe, bootstrap, "static-member")
