"""Links whose network is cut, and whose target's disk is full."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.admin import Admin, Link
from barnabas.cores.links import LinkSpec
from tests.support.admin import create_topic
from tests.support.cluster import until
from tests.support.process import BrokerProcess, free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]
RESET = struct.pack("ii", 1, 0)
"""A linger of no time: closing sends RST."""


class Wire:
    """Passes bytes to a port, until it is cut: connections stay open and silent, or are reset."""

    def __init__(self) -> None:
        self.port, self.to = free_port(), 0
        self._passes = threading.Event()
        self._passes.set()
        self._ended = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._server = socket.create_server(("127.0.0.1", self.port))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            if select.select([self._server], [], [], 0.1)[0] and self._passes.is_set():
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
                self._pairs.append((near, far))
                threading.Thread(target=self._pass, args=(near, far), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        passes = self._passes  # a silent connection stays silent after new ones have been allowed
        with contextlib.suppress(OSError, ValueError):
            while not self._ended.is_set():
                passes.wait()
                for sock in select.select([near, far], [], [], 0.1)[0]:
                    data = sock.recv(65536) if passes.is_set() else b""
                    if not passes.is_set():
                        break
                    if not data:
                        return
                    (far if sock is near else near).sendall(data)

    def fall_silent(self) -> None:
        """No byte passes any more, and no connection is accepted."""
        self._passes.clear()

    def allow_new(self) -> None:
        """New connections are served; the silent ones stay so for ever."""
        self._passes = threading.Event()
        self._passes.set()

    def reset(self) -> None:
        """Ends all connections with RST, and serves new ones."""
        for pair in self._pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    sock.close()
        self._pairs.clear()
        self.allow_new()

    def close(self) -> None:
        """Ends it."""
        self._ended.set()
        self.reset()
        self._thread.join()
        self._server.close()


def send(bootstrap: str, name: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for value in values:
        producer.produce(name, b"%d" % value + b"." * 500, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def read(bootstrap: str, name: str) -> list[tuple[int, int, bytes]]:
    """Offsets, times and values up to the end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checks", "enable.partition.eof": True})
    consumer.assign([TopicPartition(name, 0, 0)])
    rows = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        rows.append((message.offset(), message.timestamp()[1], message.value()))
    consumer.close()
    return rows


def linked(admin: Admin, source: str, topic: str) -> None:
    spec = LinkSpec("faults", {"bootstrap.servers": source}, topic, interval_ms=1000)
    admin.links.create("faults", spec.texts())


def link_of(admin: Admin) -> Link:
    return admin.links.describe(["faults"])[0]


def is_copied(admin: Admin, count: int) -> bool:
    return [row.log_end for row in link_of(admin).partitions] == [count]


def test_a_network_that_falls_silent_or_resets_holds_a_link_up_and_loses_nothing(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    wire = Wire()
    try:
        source = own_broker(
            advertised__listeners=f"PLAINTEXT://127.0.0.1:{wire.port},DIRECT://127.0.0.1:{(direct := free_port())}",
            listeners=f"PLAINTEXT://127.0.0.1:{(wire_to := free_port())},DIRECT://127.0.0.1:{direct}",
            listener__security__protocol__map="PLAINTEXT:PLAINTEXT,DIRECT:PLAINTEXT",
        )
        wire.to = wire_to
        target, near = own_broker(), f"127.0.0.1:{direct}"
        create_topic(near, "orders", 1)
        send(near, "orders", range(1000))
        with Admin(target.bootstrap) as admin:
            linked(admin, f"127.0.0.1:{wire.port}", "orders")
            until(lambda: is_copied(admin, 1000), "the first records are copied")

            wire.fall_silent()
            send(near, "orders", range(1000, 2000))
            wire.reset()
            until(lambda: is_copied(admin, 2000), "the link goes on after the reset")

            wire.fall_silent()
            send(near, "orders", range(2000, 3000))
            until(lambda: bool(link_of(admin).unreachable), "the silence is noticed")
            assert is_copied(admin, 2000)
            wire.allow_new()
            until(lambda: is_copied(admin, 3000), "the link goes on by new connections")
            until(lambda: not link_of(admin).unreachable, "the source is reached again")
        assert source.process is not None
        assert read(target.bootstrap, "orders") == read(near, "orders")
    finally:
        wire.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes of its own."""
    path = tmp_path / "small"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(path)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"may not mount a small disk here: {done.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_full_disk_of_the_target_holds_a_link_up_until_there_is_room(
    own_broker: Callable[..., BrokerProcess], small_disk: Path, tmp_path: Path
) -> None:
    source = own_broker()
    target = own_broker(
        log__dirs=f"{tmp_path / 'other'},{small_disk}", log__retention__check__interval__ms="1000"
    )
    create_topic(source.bootstrap, "orders", 2)
    for turn in range(2):  # one partition is on the small disk, whichever that is
        producer = Producer({"bootstrap.servers": source.bootstrap})
        for number in range(30_000):
            producer.produce("orders", b"%d" % number + b"." * 500, partition=turn)
            producer.poll(0)
        assert producer.flush(60) == 0
    with Admin(target.bootstrap) as admin:
        linked(admin, source.bootstrap, "orders")

        def states() -> list[tuple[str, int]]:
            return sorted((row.state, row.log_end) for row in link_of(admin).partitions)

        until(lambda: ("in sync", 30_000) in states() and len(states()) >= 1, "one partition is copied")
        assert states() != [("in sync", 30_000)] * 2
        subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
        target.restart()
        until(lambda: states() == [("in sync", 30_000)] * 2, "both are copied once there is room")
