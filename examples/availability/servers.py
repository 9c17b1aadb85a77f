"""The cluster of the lesson: which zones there are, and its processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from client import FAST, SAFE
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from barnabas.testing.network import Network

PATIENCE_S: Final = 120
PORT: Final = 9092
BIN: Final = Path(sys.executable).parent
ZOOKEEPER: Final = """\
dataDir={data}
clientPort=2181
clientPortAddress={address}
tickTime=500
initLimit=20
syncLimit=4
admin.enableServer=false
"""
BROKER: Final = """\
broker.id={number}
broker.rack={zone}
listeners=PLAINTEXT://{address}:9092
log.dirs={log}
zookeeper.connect={zookeeper}
zookeeper.session.timeout.ms=6000
replica.lag.time.max.ms=6000
default.replication.factor={replicas}
min.insync.replicas=2
offsets.topic.replication.factor={replicas}
"""


@dataclass(frozen=True)
class Scene:
    """zones: how many brokers each has. steps: what happens, see lesson.py."""

    zones: dict[str, int]
    steps: tuple[str, ...]

    @property
    def brokers(self) -> int:
        return sum(self.zones.values())

    @property
    def clients(self) -> list[str]:
        """The zones with a client: those with brokers."""
        return [zone for zone, brokers in self.zones.items() if brokers]


SCENES: Final = {
    "three-zones": Scene({"a": 1, "b": 1, "c": 1}, ("lose", "bring back", "cut off", "join")),
    "two-zones": Scene(
        {"a": 2, "b": 2, "w": 0},
        (
            "lose",
            "bring back",
            "cut off",
            "join",
            "part",
            "mend",
            "lose the witness",
            "bring back the witness",
        ),
    ),
}


@dataclass
class Server:
    """A broker or a ZooKeeper: where it runs and how it is started."""

    name: str
    zone: str
    words: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None


@dataclass
class Cluster:
    """Every zone has a ZooKeeper and its brokers. All processes end with the block."""

    folder: Path
    network: Network
    scene: Scene
    servers: dict[str, Server] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        addresses = {zone: self.network.add_host(f"zk{zone}", zone) for zone in self.scene.zones}
        ensemble = "".join(
            f"server.{number}={address}:2888:3888\n" for number, address in enumerate(addresses.values(), 1)
        )
        for number, (zone, address) in enumerate(addresses.items(), 1):
            data = self.folder / f"zookeeper-{zone}"
            data.mkdir()
            (data / "myid").write_text(f"{number}\n")
            text = ZOOKEEPER.format(data=data, address=address) + ensemble
            self._server(f"zk{zone}", zone, ["zookeeper-server-start"], text)
        connect = ",".join(f"{address}:2181" for address in addresses.values())
        number = 0
        self.addresses: dict[int, str] = {}
        for zone, brokers in self.scene.zones.items():
            for _ in range(brokers):
                number += 1
                address = self.addresses[number] = self.network.add_host(f"broker{number}", zone)
                text = BROKER.format(
                    number=number, zone=zone, address=address, zookeeper=connect, replicas=self.scene.brokers,
                    log=self.folder / f"log-{number}",
                )  # fmt: skip
                self._server(f"broker{number}", zone, ["kafka-server-start"], text)
        self.bootstrap = ",".join(f"{address}:{PORT}" for address in self.addresses.values())
        self.admin = AdminClient(
            {"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 6_000, "log_level": 0}
        )
        return self

    def _server(self, name: str, zone: str, words: list[str], text: str) -> None:
        config = self.folder / f"{name}.properties"
        config.write_text(text)
        words = self.network.command(name, [str(BIN / words[0]), *words[1:], str(config)])
        self.servers[name] = Server(name, zone, words, self.folder / f"{name}.log")

    def start(self, servers: list[Server]) -> None:
        """Start these processes; does not wait."""
        for server in servers:
            with server.log.open("ab") as log:
                server.process = subprocess.Popen(
                    server.words, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )

    def kill(self, servers: list[Server]) -> None:
        """Kill them with SIGKILL, as when the power fails."""
        for server in servers:
            if server.process is not None:
                server.process.kill()
        for server in servers:
            if server.process is not None:
                server.process.wait()
                server.process = None

    def of_zone(self, zone: str) -> list[Server]:
        """What runs in a zone."""
        return [server for server in self.servers.values() if server.zone == zone]

    def begin(self) -> None:
        """Start everything, make the topics, wait until all replicas are in sync."""
        self.start(list(self.servers.values()))
        brokers = self.scene.brokers
        self.until(lambda: len(self.metadata().brokers) == brokers, "all brokers are there")
        for topic, in_sync in ((SAFE, "2"), (FAST, "1")):
            fresh = NewTopic(topic, brokers, brokers, config={"min.insync.replicas": in_sync})
            self.admin.create_topics([fresh])[topic].result(PATIENCE_S)
        self.until(self.is_well, "all replicas are in sync")

    def metadata(self) -> ClusterMetadata:
        """The cluster's metadata from a broker. Raises KafkaException."""
        return self.admin.list_topics(timeout=6)

    def controller_zone(self) -> str:
        """The zone of the controller."""
        return self.servers[f"broker{self.metadata().controller_id}"].zone

    def is_well(self) -> bool:
        """Every replica of the lesson's topics is in sync, and every broker leads its share."""
        topics = self.metadata().topics
        partitions = [partition for name in (SAFE, FAST) for partition in topics[name].partitions.values()]
        return bool(partitions) and all(
            len(partition.isrs) == self.scene.brokers and partition.leader == partition.replicas[0]
            for partition in partitions
        )

    def elect(self) -> None:
        """The first replica of each partition leads again, where it is in sync."""
        words = [
            "kafka-leader-election",
            "--bootstrap-server",
            self.bootstrap,
            "--election-type",
            "preferred",
        ]
        subprocess.run(
            [BIN / words[0], *words[1:], "--all-topic-partitions"], capture_output=True, check=False
        )

    def until(self, look: Callable[[], bool], what: str) -> None:
        """Wait for a condition; the lesson ends if it does not come true."""
        deadline = time.monotonic() + PATIENCE_S
        why: object = ""
        while time.monotonic() < deadline:
            try:
                if look():
                    return
            except Exception as error:
                why = f": {error}"
            time.sleep(0.3)
        sys.exit(f"not within {PATIENCE_S} s: {what}{why}")

    def __exit__(self, *_: object) -> None:
        self.kill(list(self.servers.values()))
