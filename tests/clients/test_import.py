"""`barnabas import`: data directories that Apache Kafka 0.11 to 4.x has written, in ZooKeeper mode and KRaft, and read back
by librdkafka: every record, offset and option is as it was."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.clients import foreign
from tests.clients.cli_support import Cli
from tests.support.cluster import until
from tests.support.process import BrokerProcess, free_port
from tests.support.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.java, pytest.mark.soak, pytest.mark.timeout(900)]

OPTIONS: Final = ("retention.ms", "max.message.bytes", "cleanup.policy", "segment.bytes")
JAVA: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")
READY_TIMEOUT_S: Final = 180
COMMON: Final = """\
log.dirs={folder}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=0
delete.topic.enable=true
"""
IN_ZOOKEEPER: Final = """\
broker.id=0
listeners=PLAINTEXT://127.0.0.1:{port}
zookeeper.connect={zookeeper}/kafka
authorizer.class.name={authorizer}
super.users=User:ANONYMOUS
"""
IN_KRAFT: Final = """\
process.roles=broker,controller
node.id=7
controller.quorum.voters=7@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
metadata.log.max.record.bytes.between.snapshots={between}
"""
OLD_AUTHORIZER: Final = "kafka.security.auth.SimpleAclAuthorizer"
NEW_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"


class Release(NamedTuple):
    """A release of Kafka. authorizer: in ZooKeeper mode; "" for KRaft. between: bytes of metadata between two snapshots."""

    version: str
    scala: str = "2.13"
    authorizer: str = ""
    between: int = 20_971_520

    @property
    def name(self) -> str:
        how = "zookeeper" if self.authorizer else "kraft" if self.between > 1_000_000 else "kraft-snapshots"
        return f"{self.version}-{how}"


NODE_ID: Final = 7
"""Of Kafka in KRaft mode, and of the broker that takes its place."""

RELEASES: Final = (
    Release("0.11.0.3", "2.11", OLD_AUTHORIZER),
    Release("2.8.2", authorizer=NEW_AUTHORIZER),
    Release("3.9.1", authorizer=NEW_AUTHORIZER),
    Release("3.9.1"),
    Release("4.1.1"),
    Release("4.1.1", between=100),
)


class Kafka:
    """One broker over a folder, which is stopped in order or killed."""

    def __init__(self, release: Release, folder: Path, zookeeper: str) -> None:
        folder.mkdir()
        self.data, self._folder, self.port = folder / "data", folder, free_port()
        jars = foreign.made(
            f"kafka-server-{release.version}",
            lambda place: foreign.maven(
                foreign.HERE / "java" / "kafka-any" / "pom.xml",
                place,
                f"Kafka {release.version}",
                f"-Dkafka.version={release.version}",
                f"-Dscala.version={release.scala}",
            ),
        )
        self._java = [foreign.need("java"), *JAVA, "-cp", f"{jars}/*"]
        self._config = folder / "server.properties"
        text = COMMON.format(folder=self.data)
        if release.authorizer:
            text += IN_ZOOKEEPER.format(port=self.port, zookeeper=zookeeper, authorizer=release.authorizer)
        else:
            text += IN_KRAFT.format(port=self.port, controller=free_port(), between=release.between)
        self._config.write_text(text)
        if not release.authorizer:
            form = [
                "kafka.tools.StorageTool",
                "format",
                "-t",
                "MkU3OEVBNTcwNTJENDM2Qg",
                "-c",
                str(self._config),
            ]
            subprocess.run([*self._java, *form], check=True, capture_output=True, timeout=180)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        log = self._folder / "kafka.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._config)], stdout=file, stderr=file, cwd=self._folder
            )
        try:
            deadline_s = time.monotonic() + READY_TIMEOUT_S
            while True:
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline_s, log.read_text()[-3000:]
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                    break
                time.sleep(0.2)
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(120)
        finally:
            process.kill()
            process.wait()


def fill(bootstrap: str) -> None:
    """Topics, records of every kind, a group that has read a part of them, transactions, a deleted topic, a rule."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    until(lambda: admin.list_topics(timeout=60).controller_id >= 0, "a controller")
    topics = [
        NewTopic("data", 3, 1, config={"retention.ms": "-1", "max.message.bytes": "70000"}),
        NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}),
        NewTopic("moved", 2, 1, config={"segment.bytes": "1048576", "retention.ms": "-1"}),
        NewTopic("deleted", 1, 1),
    ]
    for future in admin.create_topics(topics, operation_timeout=60).values():
        future.result(120)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4")):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": number % 2 == 0}
        )
        for i in range(500):
            headers = [("number", str(i).encode())] if i % 3 == 0 else None
            value = None if i % 50 == 7 else f"{codec} {i} ".encode() * 5
            producer.produce("data", value, key=str(i % 40), timestamp=1_700_000_000_000 + i, headers=headers)
            producer.produce("moved", f"{codec} {i}".encode() * 400, key=str(i))
            producer.produce("compacted", f"{codec} {i}", key=str(i % 10))
        assert producer.flush(120) == 0
    for end in ("commit", "abort", "commit"):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "teller"})
        producer.init_transactions(120)
        producer.begin_transaction()
        for i in range(10):
            producer.produce("data", f"{end} {i}")
        producer.flush(60)
        getattr(producer, f"{end}_transaction")(60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    rows = [TopicPartition("data", 0, 100, "at a hundred"), TopicPartition("moved", 1, 7)]
    consumer.commit(offsets=rows, asynchronous=False)
    consumer.close()
    admin.delete_topics(["deleted"], operation_timeout=60)["deleted"].result(120)


def witness(bootstrap: str) -> dict[str, Any]:
    """What librdkafka finds: digests of all records by partition and isolation, offsets, options."""
    facts: dict[str, Any] = {}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_topics(timeout=60).topics
    facts["topics"] = {
        name: len(topic.partitions) for name, topic in sorted(listed.items()) if not name.startswith("__")
    }
    for isolation in ("read_committed", "read_uncommitted"):
        facts[isolation] = digests(bootstrap, facts["topics"], isolation)
    asked = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    rows = [TopicPartition("data", i) for i in range(3)] + [TopicPartition("moved", i) for i in range(2)]
    facts["committed"] = [(row.offset, row.metadata) for row in asked.committed(rows, timeout=60)]
    asked.close()
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in facts["topics"]]
    own = {}
    for resource, future in admin.describe_configs(resources).items():
        entries = future.result(60)
        own[resource.name] = {name: entries[name].value for name in OPTIONS if not entries[name].is_default}
    facts["options"] = own
    return facts


def digests(bootstrap: str, topics: dict[str, int], isolation: str) -> dict[str, tuple[int, str]]:
    """(count, SHA-256) of the records of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "witness",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    rows = [TopicPartition(name, i, 0) for name, count in topics.items() for i in range(count)]
    consumer.assign(rows)
    sums = {f"{row.topic}-{row.partition}": (0, hashlib.sha256()) for row in rows}
    ends, deadline_s = 0, time.monotonic() + READY_TIMEOUT_S
    while ends < len(rows):
        assert time.monotonic() < deadline_s
        for message in consumer.consume(1000, 1):
            if message.error() is not None:
                ends += 1
                continue
            name = f"{message.topic()}-{message.partition()}"
            count, digest = sums[name]
            parts = (message.offset(), message.key(), message.value(), message.timestamp(), message.headers())
            digest.update(repr(parts).encode())
            sums[name] = (count + 1, digest)
    consumer.close()
    return {name: (count, digest.hexdigest()) for name, (count, digest) in sorted(sums.items())}


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_what_kafka_has_written_is_there(
    release: Release,
    tmp_path: Path,
    own_zookeeper: ZooKeeperServer,
    own_broker: Callable[..., BrokerProcess],
) -> None:
    kafka = Kafka(release, tmp_path / "kafka", own_zookeeper.address)
    with kafka.running():
        fill(kafka.bootstrap)
        if not release.authorizer:
            secure(kafka.bootstrap)
        before = witness(kafka.bootstrap)
    files = digest_of(kafka.data)
    words = ["import", "--from", str(kafka.data), "--data", str(tmp_path / "new"), "--json"]
    if release.authorizer:
        words += ["--zookeeper", f"{own_zookeeper.address}/kafka"]
    else:
        words += ["--node-id", str(NODE_ID)]
    report = Cli("").json(*words)
    assert report["missing"] == []
    assert report["clean"] is True
    assert digest_of(kafka.data) == files, "Kafka's own directory is as it was"
    numbered = {} if release.authorizer else {"node__id": str(NODE_ID)}
    broker = own_broker(tmp_path / "new", **numbered)
    assert witness(broker.bootstrap) == before
    if not release.authorizer:
        assert secured(broker.bootstrap)
    more(broker.bootstrap, before)
    assert broker.stop() == 0
    for word in ("ERROR", "damaged", "Traceback"):
        assert word not in broker.log()


def secure(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    rule = AclBinding(ResourceType.TOPIC, "data", ResourcePatternType.PREFIXED, "User:alice", "*",
                      AclOperation.READ, AclPermissionType.ALLOW)  # fmt: skip
    admin.create_acls([rule])[rule].result(60)
    user = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
    )
    admin.alter_user_scram_credentials([user])["alice"].result(60)
    option = ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ConfigResource.Type.BROKER, str(NODE_ID), incremental_configs=[option])
    admin.incremental_alter_configs([broker])[broker].result(60)


def secured(bootstrap: str) -> bool:
    """Whether the user and the broker's own option are there; rules are asked of brokers with an authorizer only."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    credentials = admin.describe_user_scram_credentials(["alice"])["alice"].result(60)
    broker = ConfigResource(ConfigResource.Type.BROKER, str(NODE_ID))
    options = admin.describe_configs([broker])[broker].result(60)
    return bool(
        credentials.scram_credential_infos[0].iterations == 4096
        and options["log.cleaner.threads"].value == "2"
    )


def more(bootstrap: str, before: dict[str, Any]) -> None:
    """The imported topics take more, transactions as well, and a group goes on where it was."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "teller"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("data", "afterwards", partition=0)
    producer.commit_transaction(60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consumer.subscribe(["data"])
    deadline_s = time.monotonic() + 120
    first: dict[int, int] = {}
    while 0 not in first:
        assert time.monotonic() < deadline_s
        for message in consumer.consume(100, 0.5):
            if message.error() is None:
                first.setdefault(message.partition(), message.offset())
    consumer.close()
    assert first[0] >= before["committed"][0][0] == 100


def digest_of(folder: Path) -> dict[str, str]:
    """SHA-256 of every file."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }
