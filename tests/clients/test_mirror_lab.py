"""The lab of three clusters in a chain, with its scripts and files as they are printed; only ports and folders are others.

1st cluster -> MirrorMaker -> 2nd cluster -> MirrorMaker -> 3rd cluster. The topic is made in the first one with 3
partitions; the others create it by themselves with 13 and 33.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.support.cluster import until
from tests.support.process import free_port

FILES = {
    "bin/start-1st-cluster.sh": """\
#!/usr/bin/env bash
CONFIG=`pwd`/config
cd ~/kafka-training

## Run ZooKeeper for 1st Cluster
kafka/bin/zookeeper-server-start.sh \\
"$CONFIG/zookeeper-0.properties" &


## Run Kafka for 1st Cluster
kafka/bin/kafka-server-start.sh \\
"$CONFIG/server-0.properties"
""",
    "bin/create-topic.sh": """\
#!/usr/bin/env bash

cd ~/kafka-training

kafka/bin/kafka-topics.sh \\
  --create \\
  --zookeeper localhost:2181 \\
  --replication-factor 1 \\
  --partitions 3 \\
  --topic stock-prices \\
  --config min.insync.replicas=1
""",
    "bin/start-mirror-maker-1st-to-2nd.sh": """\
#!/usr/bin/env bash
CONFIG=`pwd`/config
cd ~/kafka-training
## Run Kafka Mirror Maker: Mirror 1st Cluster to 2nd Cluster
kafka/bin/kafka-mirror-maker.sh \\
  --consumer.config "$CONFIG/mm-consumer-1st.properties" \\
  --producer.config "$CONFIG/mm-producer-2nd.properties" \\
  --whitelist ".*"
""",
    "bin/describe-topic-1st.sh": """\
#!/usr/bin/env bash

cd ~/kafka-training

# List existing topics
kafka/bin/kafka-topics.sh --describe \\
  --topic stock-prices \\
  --zookeeper localhost:2181
""",
    "config/server-0.properties": """\
broker.id=0
port=9092
log.dirs=./logs/kafka-0
## Require three replicas to respond
## before acknowledging send from producer.
min.insync.replicas=1
auto.create.topics.enable=false
zookeeper.connect=localhost:2181
""",
    "config/server-1.properties": """\
broker.id=1
port=9093
log.dirs=./logs/kafka-1
min.insync.replicas=1
auto.create.topics.enable=true
zookeeper.connect=localhost:3181
num.partitions=13
""",
    "config/server-2.properties": """\
broker.id=2
port=9094
log.dirs=./logs/kafka-2
min.insync.replicas=1
auto.create.topics.enable=true
zookeeper.connect=localhost:4181
num.partitions=33
""",
    "config/zookeeper-0.properties": "dataDir=/tmp/zookeeper1\nclientPort=2181\nmaxClientCnxns=0\n",
    "config/zookeeper-1.properties": "dataDir=/tmp/zookeeper2\nclientPort=3181\nmaxClientCnxns=0\n",
    "config/zookeeper-2.properties": "dataDir=/tmp/zookeeper3\nclientPort=4181\nmaxClientCnxns=0\n",
    "config/mm-consumer-1st.properties": """\
bootstrap.servers=localhost:9092
client.id=mm1.Consumer
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
value.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer
group.id=mm1.Consumer
partition.assignment.strategy=org.apache.kafka.clients.consumer.RoundRobinAssignor
""",
    "config/mm-consumer-2nd.properties": """\
bootstrap.servers=localhost:9093
client.id=mm2.Consumer
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
value.deserializer=org.apache.kafka.common.serialization.ByteArrayDeserializer
group.id=mm2.Consumer
partition.assignment.strategy=org.apache.kafka.clients.consumer.RoundRobinAssignor
""",
    "config/mm-producer-2nd.properties": """\
bootstrap.servers=localhost:9093
client.id=mml1.Producer
key.serializer=org.apache.kafka.common.serialization.StringSerializer
value.serializer=org.apache.kafka.common.serialization.BytesSerializer
compression.type=lz4
linger.ms=100
batch.size=65536
""",
    "config/mm-producer-3rd.properties": """\
bootstrap.servers=localhost:9094
client.id=mml1.Producer
key.serializer=org.apache.kafka.common.serialization.StringSerializer
value.serializer=org.apache.kafka.common.serialization.BytesSerializer
compression.type=lz4
linger.ms=100
batch.size=65536
""",
}
OTHERS = {  # file -> (the one that it is made of, what differs in it)
    "bin/start-2nd-cluster.sh": ("bin/start-1st-cluster.sh", (("1st", "2nd"), ("-0.", "-1."))),
    "bin/start-3rd-cluster.sh": ("bin/start-1st-cluster.sh", (("1st", "3rd"), ("-0.", "-2."))),
    "bin/start-mirror-maker-2nd-to-3rd.sh": (
        "bin/start-mirror-maker-1st-to-2nd.sh",
        (("2nd", "3rd"), ("1st", "2nd")),
    ),
    "bin/describe-topic-2nd.sh": ("bin/describe-topic-1st.sh", (("2181", "3181"),)),
    "bin/describe-topic-3rd.sh": ("bin/describe-topic-1st.sh", (("2181", "4181"),)),
}


class Lab:
    """The reader's home folder with `kafka-training`, in which `kafka` is what is installed, and lab 9."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder = home, home / "kafka-training" / "lab9" / "solution"
        kafka = home / "kafka-training" / "kafka"
        kafka.mkdir(parents=True)
        (kafka / "bin").symlink_to(Path(sys.executable).parent)
        self.ports = {number: str(free_port()) for number in ("9092", "9093", "9094", "2181", "3181", "4181")}
        texts = dict(FILES)
        for name, (like, changes) in OTHERS.items():
            text = FILES[like]
            for old, new in changes:
                text = text.replace(old, new)
            texts[name] = text
        for name, text in texts.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            for printed, port in self.ports.items():
                text = text.replace(printed, port)
            path.write_text(text.replace("/tmp/zookeeper", f"{home}/zookeeper"))
            path.chmod(0o755)
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, script: str) -> None:
        """In a terminal of its own, which stays open."""
        log = (self.home / f"{script}.log").open("wb")
        self.running.append(
            subprocess.Popen(
                [f"bin/{script}"],
                cwd=self.folder,
                env=self._environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        )

    def run(self, script: str) -> str:
        done = subprocess.run(
            [f"bin/{script}"],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home)}

    def bootstrap(self, printed: str) -> str:
        return f"localhost:{self.ports[printed]}"

    def close(self) -> None:
        for process in reversed(self.running):
            os.killpg(
                process.pid, signal.SIGTERM
            )  # ZooKeeper's own process ends with its script, if that may end in order
        for process in self.running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def prices(bootstrap: str) -> dict[str, str]:
    """The last value of each key."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["stock-prices"])
    prices_now: dict[str, str] = {}
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        records = consumer.consume(500, 3.0)
        if prices_now and not records:
            break
        prices_now |= {
            record.key().decode(): record.value().decode() for record in records if record.error() is None
        }
    consumer.close()
    return prices_now


def has_prices(bootstrap: str, wanted: dict[str, str]) -> bool:
    return prices(bootstrap) == wanted


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_the_lab_of_three_clusters_works_as_printed(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    try:
        for script in ("start-1st-cluster.sh", "start-2nd-cluster.sh", "start-3rd-cluster.sh"):
            lab.start(script)
        for printed in ("9092", "9093", "9094"):
            clients = AdminClient({"bootstrap.servers": lab.bootstrap(printed), "log_level": 0})
            until(partial(clients.list_topics, timeout=2), f"the broker at {printed}")
        lab.run("create-topic.sh")
        lab.start("start-mirror-maker-1st-to-2nd.sh")
        lab.start("start-mirror-maker-2nd-to-3rd.sh")
        producer = Producer({"bootstrap.servers": lab.bootstrap("9092")})
        last: dict[str, str] = {}

        def mirrored(printed: str) -> bool:
            """The mirror makers begin with what is new, as printed: send until something has come."""
            for ticker in ("IBM", "SUN", "GOOG", "AAA", "BBB"):
                last[ticker] = str(len(last) + 1)
                producer.produce("stock-prices", last[ticker], ticker)
            producer.flush(30)
            clients = AdminClient({"bootstrap.servers": lab.bootstrap(printed), "log_level": 0})
            return "stock-prices" in clients.list_topics(timeout=5).topics

        until(lambda: mirrored("9093"), "the topic in the second cluster")
        until(lambda: mirrored("9094"), "the topic in the third cluster")
        for number in range(100):
            for ticker in ("IBM", "SUN", "GOOG", "AAA", "BBB"):
                last[ticker] = f"80.{number}"
                producer.produce("stock-prices", last[ticker], ticker)
        producer.flush(30)
        for printed in ("9092", "9093", "9094"):
            until(partial(has_prices, lab.bootstrap(printed), last), f"the same prices at {printed}")
        for script, partitions in (("1st", 3), ("2nd", 13), ("3rd", 33)):
            said = lab.run(f"describe-topic-{script}.sh")
            assert f"PartitionCount: {partitions}" in said or f"PartitionCount:{partitions}" in said
    finally:
        lab.close()
