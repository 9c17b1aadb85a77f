"""Clusters of three brokers under test, each started the way its users start it, and a small client for their answers."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.wire.header import decode_response_header, encode_request_parts
from barnabas.wire.messages import response_class
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.schema import Message
from bench.brokers import ApacheKafka, free_port
from bench.requests import BenchError, batch_of

BROKERS: Final = (1, 2, 3)
MIN_INSYNC: Final = 2
START_TIMEOUT_S: Final = 180
CREATE_ATTEMPTS: Final = 5
METADATA_VERSION: Final = 9
PRODUCE_VERSION: Final = 9


class Client:
    """A blocking connection to one broker, on the project's own codec."""

    def __init__(self, port: int, timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_id = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int) -> Any:
        self._next_id += 1
        self._socket.sendall(b"".join(encode_request_parts(request, version, self._next_id, "bench")))
        size = struct.unpack(">i", self._take(4))[0]
        frame = memoryview(self._take(size))
        kind = response_class(request.API_KEY)
        _, position = decode_response_header(frame, request.API_KEY, version)
        return kind.decode(frame, version, position)

    def _take(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise BenchError("a broker closed the connection")
            data += piece
        return bytes(data)

    def partitions(self, topic: str) -> tuple[int, dict[int, tuple[int, tuple[int, ...]]]]:
        """(controller, partition -> (leader, in-sync replicas)); a leader of -1 for none."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        answer = self.ask(request, METADATA_VERSION)
        return answer.controller_id, {
            row.partition_index: (row.leader_id if not row.error_code else -1, tuple(row.isr_nodes))
            for answers in answer.topics
            for row in answers.partitions
        }

    def produce(
        self, topic: str, indexes: Iterable[int], value: bytes, timeout_ms: int = 10_000
    ) -> dict[int, int]:
        """One record with acks=all to each partition; partition -> error code."""
        batch = batch_of([value])
        rows = [PartitionProduceData(index=index, records=batch) for index in indexes]
        request = ProduceRequest(
            acks=-1, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=rows)]
        )
        answer = self.ask(request, PRODUCE_VERSION)
        return {
            row.index: row.error_code
            for topic_row in answer.responses
            for row in topic_row.partition_responses
        }


class Cluster:
    """Three brokers. `start`, `kill` one, `stop`; `ports` by broker."""

    name = ""
    factor = 3

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports: dict[int, int] = {}

    def start(self) -> None:
        raise NotImplementedError

    def pid(self, broker: int) -> int:
        raise NotImplementedError

    def start_again(self, broker: int) -> None:
        """Start a broker that was killed; it may take a while until it serves."""
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def logs(self, broker: int) -> Path:
        """The folder that holds a broker's logs."""
        raise NotImplementedError

    def leaders(self, topic: str, broker: int) -> tuple[int, dict[int, int]]:
        """(controller, partition -> leader) as one broker says."""
        with Client(self.ports[broker]) as client:
            controller, partitions = client.partitions(topic)
        return controller, {index: leader for index, (leader, _) in partitions.items()}

    def kill(self, broker: int) -> float:
        """SIGKILL; when, by the monotonic clock."""
        process = psutil.Process(self.pid(broker))
        process.kill()
        killed_s = time.monotonic()
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(10)
        return killed_s

    def cpu_s(self, brokers: Iterable[int]) -> float:
        """CPU seconds of brokers until now."""
        times = [psutil.Process(self.pid(broker)).cpu_times() for broker in brokers]
        return float(sum(spent.user + spent.system for spent in times))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def admin(self) -> AdminClient:
        """librdkafka's client; by IPv4 alone, since brokers that say `localhost` listen on one of the two."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "broker.address.family": "v4"})

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic with a replica of each partition on each broker, and wait until all are in sync."""
        options = {"min.insync.replicas": str(MIN_INSYNC), **(configs or {})}
        self.make([NewTopic(topic, partitions, len(BROKERS), config=options)])
        self.await_in_sync(topic, partitions, BROKERS)

    def make(self, topics: list[NewTopic]) -> None:
        """Create topics. librdkafka gives a request up when it loses a connection; it is then sent again."""
        admin = self.admin()
        for attempt in range(CREATE_ATTEMPTS):
            refused: list[KafkaException] = []
            for future in admin.create_topics(topics, request_timeout=120).values():
                try:
                    future.result(120)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        refused.append(error)
            if not refused:
                return
            if attempt + 1 < CREATE_ATTEMPTS:
                time.sleep(1)
        raise BenchError(f"cannot create {[topic.topic for topic in topics]}: {refused[0]}")

    def await_in_sync(
        self, topic: str, partitions: int, brokers: Iterable[int], timeout_s: float = 240
    ) -> None:
        """Until every broker in `brokers` says that they are all in sync everywhere."""
        wanted = set(brokers)
        until_s = time.monotonic() + timeout_s
        for broker in sorted(wanted):
            while True:
                with contextlib.suppress(OSError, BenchError), Client(self.ports[broker]) as client:
                    rows = client.partitions(topic)[1].values()
                    if len(rows) == partitions and all(
                        leader in wanted and set(isr) == wanted for leader, isr in rows
                    ):
                        break
                if time.monotonic() > until_s:
                    raise BenchError(f"{topic} is not in sync on {sorted(wanted)} within {timeout_s:g} s")
                time.sleep(0.1)


class BarnabasCluster(Cluster):
    """`barnabas cluster start --brokers 3`: three brokers and a ZooKeeper, with the options that the command gives them."""

    name = "barnabas"

    def __init__(self, directory: Path, options: tuple[str, ...] = ()) -> None:
        """options: NAME=VALUE for every broker."""
        super().__init__(directory)
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self.zookeeper = ""

    def start(self) -> None:
        port = _free_ports(len(BROKERS))
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "barnabas", "cluster", "start", "--brokers", "3", "--data"]
        command += [str(self.directory / "data"), "--port", str(port), "--zookeeper-port", str(free_port())]
        for option in self._options:
            command += ["-o", option]
        with (self.directory / "cluster.log").open("w") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        match = re.search(r"ZooKeeper at ([^,]+),", line)
        if not line.startswith("ready") or match is None:
            raise BenchError(f"the cluster did not start: {line or log.name}")
        self.zookeeper = match.group(1)
        self.ports = {broker: port + broker - 1 for broker in BROKERS}

    def pid(self, broker: int) -> int:
        mark = f"broker-{broker}/server.properties"
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if any(word.startswith(str(self.directory)) and word.endswith(mark) for word in words):
                return int(process.pid)
        raise BenchError(f"broker {broker} does not run")

    def start_again(self, broker: int) -> None:
        command = [sys.executable, "-m", "barnabas", "cluster", "start-broker", str(broker), "--data"]
        subprocess.run([*command, str(self.directory / "data")], check=True, capture_output=True)

    def logs(self, broker: int) -> Path:
        return self.directory / "data" / f"broker-{broker}" / "log"

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


class _KafkaNode(ApacheKafka):
    """One of three KRaft nodes that are broker and controller."""

    def __init__(
        self, directory: Path, node: int, ports: Mapping[int, int], voters: str, controller: int
    ) -> None:
        super().__init__(directory)
        self._node, self._ports, self._voters, self._controller = node, ports, voters, controller

    def launch(self) -> None:
        """Start it; `await_ready` waits until it serves."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.directory
            )

    def await_ready(self) -> None:
        self._wait_ready()

    def _properties(self) -> str:
        one = super()._properties().splitlines()
        own = {
            "node.id": str(self._node),
            "controller.quorum.voters": self._voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller}",
            "offsets.topic.replication.factor": "3",
        }
        kept = [line for line in one if line.partition("=")[0] not in own]
        return "\n".join([*kept, *(f"{name}={value}" for name, value in own.items()), ""])

    def _java(self, *heap: str) -> list[str]:
        # Three heaps of 1 GB would leave the machine nothing for the page cache.
        return super()._java(*(re.sub("^-Xm([xs])1G$", r"-Xm\g<1>512m", word) for word in heap))


class KafkaCluster(Cluster):
    """Three nodes of Apache Kafka, each broker and controller (KRaft), with a heap of 512 MB each."""

    name = "kafka"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._nodes: dict[int, _KafkaNode] = {}

    def start(self) -> None:
        self.ports = {broker: free_port() for broker in BROKERS}
        controllers = {broker: free_port() for broker in BROKERS}
        voters = ",".join(f"{broker}@127.0.0.1:{port}" for broker, port in controllers.items())
        cluster_id = uuid.uuid4().hex[:22]
        for broker in BROKERS:
            folder = self.directory / f"node-{broker}"
            folder.mkdir(parents=True, exist_ok=True)
            node = self._nodes[broker] = _KafkaNode(folder, broker, self.ports, voters, controllers[broker])
            node.port = self.ports[broker]
            node.cluster_id = cluster_id
            node.prepare()
        for node in self._nodes.values():
            node.launch()
        for node in self._nodes.values():
            node.await_ready()

    def pid(self, broker: int) -> int:
        process = self._nodes[broker].process
        if process is None or process.poll() is not None:
            raise BenchError(f"node {broker} does not run")
        return process.pid

    def start_again(self, broker: int) -> None:
        self._nodes[broker].launch()
        self._nodes[broker].await_ready()

    def logs(self, broker: int) -> Path:
        return self._nodes[broker].data

    def stop(self) -> None:
        for node in self._nodes.values():
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def _free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    while True:
        first = free_port()
        if first + count > 60_000:
            continue
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    sock = stack.enter_context(socket.socket())
                    sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
