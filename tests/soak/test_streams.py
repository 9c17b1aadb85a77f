"""Kafka Streams as a client, with both group protocols: counts that must be exact while instances and brokers die.

    pytest tests/soak/test_streams.py -m soak -s

Kafka's own smoke test generates, processes and verifies with exactly-once; brokers and an instance are killed meanwhile,
and its verdict must be success. Words.java runs with old and new versions: instances come and go, one is killed, and at
the end the application is reset with Kafka's tool or ours and counts the same again.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.kafka_tools.main import run
from tests.clients.foreign import SHORT_JAVA, build, fingerprint, made, maven, need
from tests.support.admin import set_group_option
from tests.support.cluster import Cluster
from tests.support.process import BrokerProcess
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.soak

SOURCES = Path(__file__).parent / "streams"
NEWEST = "4.3.1"
SMOKE_TOPICS = (
    "data", "echo", "max", "min", "min-suppressed", "min-raw", "dif", "sum", "cnt", "avg", "tagg", "sws-raw",
    "sws-suppressed", "wcnt", "fk",
)  # fmt: skip
KILLED_BROKERS = 3
ATTEMPTS = 3
STATES_OF_READY = "STATE RUNNING"


def jars(version: str, *, smoke: bool = False) -> Path:
    definitions = [f"-Dkafka.version={version}", *(["-Dsmoke=1"] if smoke else [])]
    name = f"streams-soak-{version}{'-smoke' if smoke else ''}-{fingerprint(SOURCES, 'pom.xml')}"
    return made(
        name, lambda folder: maven(SOURCES / "pom.xml", folder, f"Kafka Streams {version}", *definitions)
    )


def program(version: str) -> list[str]:
    """The command that runs Words.java with a version of Kafka Streams."""
    java, javac, libs = need("java"), need("javac"), jars(version)

    def compile_it(folder: Path) -> None:
        source = (SOURCES / "Words.java").read_text()
        if int(version.split(".")[0]) >= 3:  # what 3.0 renamed, and 4.0 removed
            source = source.replace("localThreadsMetadata", "metadataForLocalThreads")
        (folder / "Words.java").write_text(source)
        build([javac, "-nowarn", "-cp", f"{libs}/*", "-d", str(folder), str(folder / "Words.java")], folder)

    classes = made(f"streams-words-{version}-{fingerprint(SOURCES, '*.java')}", compile_it)
    return [java, *SHORT_JAVA, "-cp", f"{classes}:{libs}/*", "Words"]


def until(look: Callable[[], object], what: str, deadline_s: float = 180) -> None:
    end = time.monotonic() + deadline_s
    while not look():
        assert time.monotonic() < end, what
        time.sleep(0.1)


# --- Kafka's smoke test -----------------------------------------------------------------------------------


class Smoke:
    """One Java process of the smoke test, writing to a file."""

    def __init__(self, folder: Path, name: str, properties: str, command: str) -> None:
        state = folder / name
        state.mkdir()
        file = folder / f"{name}.properties"
        file.write_text(f"{properties}state.dir={state}\n")
        self.log = folder / f"{name}.log"
        classes = "org.apache.kafka.streams.tests.StreamsSmokeTest"
        libs = jars(NEWEST, smoke=True)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [need("java"), "-Xmx500m", *SHORT_JAVA, "-cp", f"{libs}/*", classes, str(file), command],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_kafkas_smoke_test_says_success(
    own_zookeeper: ZooKeeperServer, tmp_path: Path, protocol: str
) -> None:
    jars(NEWEST, smoke=True)
    options = {
        "min.insync.replicas": "2",
        "default.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        cluster = Cluster(folder, own_zookeeper, chroot=f"/streams{attempt}", options=options)
        try:
            code, text = smoke_test(cluster.start(), folder, protocol)
        finally:
            cluster.close()
        print(text[-600:])
        if not markers_came_between(text, cluster):
            break
    assert re.search(r"^SUCCESS", text, re.MULTILINE), text[-3000:]
    assert code == 0


def markers_came_between(text: str, cluster: Cluster) -> bool:
    """Whether the verifier fails because a transaction ended while it looked, which Apache Kafka's own clusters would show
    it, too. First it asks for the ends of all partitions, uncommitted, then for its own positions, which are the last
    stable offsets: if a marker is written in between, the position is after that marker and so larger than the end. Every
    replica must have a marker, and nothing else, between the two, and then it is no end that went back."""
    match = re.search(r"Offset for partition (\S+-\d+) is larger than topic endOffset: (\d+) > (\d+)", text)
    if match is None:
        return False
    position, end = int(match[2]), int(match[3])
    for broker in cluster.brokers.values():
        (log,) = (broker.data_dir / match[1]).glob("*.log")
        lines = run_dump(log)
        between = [line for line in lines if end <= int(line.split()[2]) < position]
        assert len(between) == position - end, lines[-5:]
        assert all("endTxnMarker" in line for line in between), between
    return True


def run_dump(log: Path) -> list[str]:
    """The lines of `barnabas log dump --deep` about single records."""
    command = [sys.executable, "-m", "barnabas", "log", "dump", "--deep", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [line for line in done.stdout.splitlines() if line.startswith("| offset: ")]


def smoke_test(cluster: Cluster, folder: Path, protocol: str) -> tuple[int, str]:
    """Runs it once, while brokers and an instance are killed; returns the exit code and what the driver has printed."""
    with_copies = "num.standby.replicas=1\n" if protocol == "classic" else ""
    properties = (
        f"bootstrap.servers={cluster.bootstrap}\nprocessing.guarantee=exactly_once_v2\ngroup.protocol={protocol}\n"
        f"num.stream.threads=2\nreplication.factor=3\n{with_copies}"
    )
    topics = [NewTopic(name, 5, 3, config={"min.insync.replicas": "2"}) for name in SMOKE_TOPICS]
    admin = cluster.admin()
    for future in admin.create_topics(topics).values():
        future.result()
    if protocol == "streams":
        set_group_option(cluster.bootstrap, "SmokeTest", "streams.num.standby.replicas", "1")
    chance = random.Random(protocol)
    workers = [Smoke(folder, f"worker{number}", properties, "process") for number in (1, 2)]
    driver = Smoke(folder, "driver", properties, "run")
    try:
        for number in range(KILLED_BROKERS):
            if driver.process.poll() is not None:
                break
            time.sleep(15)
            broker = chance.choice((1, 2, 3))
            cluster.brokers[broker].kill()
            time.sleep(10)
            cluster.start_again(broker)
            if number == 0:
                workers.append(Smoke(folder, "worker3", properties, "process"))
            if number == 1:
                workers[0].end()
        code = driver.process.wait(900)
    finally:
        for each in (driver, *workers):
            each.end()
    return code, driver.log.read_text()


# --- instances that come and go ---------------------------------------------------------------------------


class Instance:
    """One instance of Words."""

    def __init__(self, command: list[str], name: str, folder: Path, *options: str) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [*command, name, str(folder), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip() for line in self.process.stdout)

    def until_running(self) -> None:
        until(lambda: STATES_OF_READY in self.lines, f"it does not run: {self.lines[-5:]}")

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def tasks(self) -> tuple[list[str], list[str]]:
        """Its active and its standby tasks now."""
        known = len(self.lines)
        self.say("tasks")
        until(lambda: any(line.startswith("TASKS") for line in self.lines[known:]), "no answer")
        line = next(line for line in self.lines[known:] if line.startswith("TASKS"))
        active, standby = re.findall(r"\[(.*?)\]", line)
        return [task for task in active.split(", ") if task], [task for task in standby.split(", ") if task]

    def quit(self) -> None:
        self.say("quit")
        self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Results:
    """The last value of each key in the output topics, as a reader of committed records sees them."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.last: dict[tuple[str, bytes], bytes] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{name}-reader-{random.randrange(10**9)}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([f"{name}-counts", f"{name}-named"])
        self.name = name

    def until(self, topic: str, key: bytes, value: bytes) -> None:
        def reached() -> bool:
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self.last[message.topic(), message.key()] = message.value()
            return self.last.get((f"{self.name}-{topic}", key)) == value

        until(
            reached,
            f"{topic} {key!r} is {self.last.get((f'{self.name}-{topic}', key))!r}, not {value!r}",
            240,
        )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of its own, since the test kills it."""
    process = BrokerProcess(tmp_path / "data").start()
    yield process
    process.kill()


CASES = [
    pytest.param("4.1.2", "streams", id="4.1-streams"),
    pytest.param("4.2.2", "streams", id="4.2-streams"),
    pytest.param("4.3.1", "streams", id="4.3-streams"),
    pytest.param("2.8.2", "classic", id="2.8-classic"),
    pytest.param("3.9.2", "classic", id="3.9-classic"),
    pytest.param("4.3.1", "classic", id="4.3-classic"),
]


@pytest.mark.parametrize(("version", "protocol"), CASES)
def test_instances_come_go_and_die(
    broker: BrokerProcess, tmp_path: Path, version: str, protocol: str
) -> None:
    command, name = program(version), f"words-{version}-{protocol}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    sizes = {"lines": 3, "counts": 2, "people": 2, "orders": 2, "named": 1}
    for future in admin.create_topics([NewTopic(f"{name}-{t}", n, 1) for t, n in sizes.items()]).values():
        future.result()
    guarantee = "exactly_once_beta" if version.startswith("2.") else "exactly_once_v2"
    options = [
        f"bootstrap.servers={broker.bootstrap}",
        f"processing.guarantee={guarantee}",
        "replication.factor=1",
    ]
    if protocol == "streams":
        options.append("group.protocol=streams")
        set_group_option(broker.bootstrap, name, "streams.num.standby.replicas", "1")
    else:
        options += ["num.standby.replicas=1", "session.timeout.ms=10000"]
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def write(times: int) -> None:
        for number in range(times):
            producer.produce(f"{name}-lines", f"hello w{number % 10}", key=str(number))
        producer.flush()

    results = Results(broker.bootstrap, name)
    producer.produce(f"{name}-people", "Ann", key="ann")
    producer.flush()
    ada = Instance(command, name, tmp_path / "ada", *options)
    instances = [ada]
    try:
        ada.until_running()
        producer.produce(f"{name}-orders", "book", key="ann")
        write(100)
        results.until("counts", b"hello", b"100")
        results.until("named", b"ann", b"Ann:book")
        bob = Instance(command, name, tmp_path / "bob", *options)
        instances.append(bob)
        bob.until_running()
        until(lambda: len(bob.tasks()[0]) >= 3 and bob.tasks()[1], "the second instance gets no tasks", 120)
        write(100)
        results.until("counts", b"hello", b"200")
        ada.kill()
        write(100)
        results.until("counts", b"hello", b"300")
        until(lambda: len(bob.tasks()[0]) == 8, "the tasks of the dead instance are not taken over")
        broker.kill()
        broker.start()
        write(100)
        results.until("counts", b"hello", b"400")
        bob.quit()
    finally:
        for instance in instances:
            instance.kill()
    reset(broker, name, protocol)
    again = Instance(command, name, tmp_path / "again", *options)
    try:
        results.last.clear()
        results.until("counts", b"w3", b"40")
        results.until("counts", b"hello", b"400")
    finally:
        again.kill()
        shutil.rmtree(tmp_path, ignore_errors=True)


def reset(broker: BrokerProcess, name: str, protocol: str) -> None:
    """Back to the beginning: a streams group with our tool, a classic one with Kafka's own."""
    where = ["--bootstrap-server", broker.bootstrap]
    if protocol == "streams":
        words = ["--reset-offsets", "--group", name, "--all-input-topics", "--to-earliest", "--execute"]
        until(
            lambda: run("kafka-streams-groups", [*words, "--delete-all-internal-topics", *where]) == 0,
            "no reset",
        )
        return
    tool = [
        need("java"),
        *SHORT_JAVA,
        "-cp",
        f"{jars(NEWEST, smoke=True)}/*",
        "org.apache.kafka.tools.StreamsResetter",
    ]
    topics = ",".join(f"{name}-{topic}" for topic in ("lines", "people", "orders"))
    done = subprocess.run(
        [*tool, *where, "--application-id", name, "--input-topics", topics, "--force"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}-words-changelog" in done.stdout
