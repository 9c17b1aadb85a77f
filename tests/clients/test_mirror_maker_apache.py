"""MirrorMaker 2, ours and Java's by turns, between two clusters of Apache Kafka, of several releases, and of both kinds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.clients.mirror_maker import KEPT, javas, ours, properties, translated
from tests.clients.test_import import Kafka, Release
from tests.clients.test_mirror_maker import commit, committed, make, read, send
from tests.support.apache_kafka import present_kafka
from tests.support.cluster import until
from tests.support.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@contextlib.contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """A broker of Apache Kafka; where it listens."""
    folder.mkdir()
    with present_kafka(folder) as where:
        yield where


def test_ours_copies_between_clusters_of_kafka_by_turns_with_javas(tmp_path: Path) -> None:
    wanted: list[str] = []

    with kafka(tmp_path / "east") as east, kafka(tmp_path / "west") as west:

        def is_moved() -> bool:
            return committed(west, "readers").get("east.orders 0") == len(wanted)

        make(east, "orders", 2, retention__ms=KEPT)
        file = properties(tmp_path, east, west, topics="orders", emit__heartbeats__enabled="false")
        for turn, run in enumerate((javas, ours, javas, ours)):
            values = [f"{turn}.{number}" for number in range(300)]
            send(east, "orders", values)
            wanted += values
            commit(east, "readers", {("orders", 0): len(wanted)})
            with run(file):
                read(west, "east.orders", len(wanted), 2, 300)
                if run is ours:
                    until(is_moved, "the group is moved")
        assert [m.value().decode() for m in read(west, "east.orders", len(wanted), 2)] == wanted
        assert translated(west, "east", "readers") == {"east.orders 0": len(wanted)}

        make(east, "once", retention__ms=KEPT)
        send(east, "once", [str(number) for number in range(5_000)])
        exact = {"exactly__once__source__support": "enabled", "emit__heartbeats__enabled": "false"}
        with ours(properties(tmp_path, east, west, topics="once", **exact)):
            found = [m.value().decode() for m in read(west, "east.once", 5_000)]
        assert found == [str(number) for number in range(5_000)]


OLD = Release("2.8.2", authorizer="kafka.security.authorizer.AclAuthorizer")
NEWER = Release("3.9.1")


@pytest.mark.parametrize(
    ("source", "target"),
    [(OLD, OLD), (NEWER, NEWER), (OLD, NEWER), (OLD, None), (None, OLD), (NEWER, None), (None, NEWER)],
    ids=lambda one: "ours" if one is None else one.version,
)
def test_topics_groups_and_options_are_copied_whatever_each_cluster_is(
    source: Release | None, target: Release | None, tmp_path: Path, own_zookeeper: ZooKeeperServer
) -> None:
    """None: a cluster of Barnabas."""
    with contextlib.ExitStack() as stack:

        def start(release: Release | None, name: str) -> str:
            if release is None:
                return stack.enter_context(Broker()).bootstrap
            kafka = Kafka(release, tmp_path / name, f"{own_zookeeper.address}/{name}")
            stack.enter_context(kafka.running())
            return kafka.bootstrap

        east, west = start(source, "east"), start(target, "west")
        make(east, "orders", 2, retention__ms=KEPT)
        send(east, "orders", [str(number) for number in range(1_000)])
        send(east, "orders", [str(number) for number in range(300)], 1)
        commit(east, "readers", {("orders", 0): 1_000, ("orders", 1): 150})
        exact = {"exactly.once.source.support": "enabled"}
        with ours(properties(tmp_path, east, west, topics="orders", **exact)):
            values = [message.value() for message in read(west, "east.orders", 1_300, 2)]
            until(lambda: committed(west, "readers").get("east.orders 0", 0) >= 1_000, "the group is moved")
            until(
                lambda: committed(west, "readers").get("east.orders 1", 0) > 0, "the group's other partition"
            )
            send(east, "orders", ["last"])
            assert len(read(west, "east.orders", 1_301, 2)) == 1_301
            # With markers of transactions between them, offsets of the copy are higher than the source's.
            until(
                lambda: translated(west, "east", "readers") == committed(west, "readers"),
                "the group is where Java's client says",
            )
        assert sorted(values) == sorted(
            [b"%d" % number for number in range(1_000)] + [b"%d" % number for number in range(300)]
        )
        moved = committed(west, "readers")
        assert 0 < moved["east.orders 1"] <= 151
        for release in ("3.9.1", "2.8.2"):
            assert translated(west, "east", "readers", release) == moved, release
