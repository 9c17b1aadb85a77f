"""Kafka's own command-line tools against our broker, and ours beside them: both print the same lines."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.kafka_tools.main import run
from tests.clients import foreign
from tests.clients.cli_support import Cli
from tests.support.process import free_port

pytestmark = pytest.mark.java

SOURCE = Path(__file__).parent / "java" / "KafkaTools.java"
TOOLS = "org.apache.kafka.tools"
CLASSES = {
    "topics": f"{TOOLS}.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "get-offsets": f"{TOOLS}.GetOffsetShell",
    "log-dirs": f"{TOOLS}.LogDirsCommand",
    "groups": f"{TOOLS}.GroupsCommand",
    "delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "acls": f"{TOOLS}.AclCommand",
    "transactions": f"{TOOLS}.TransactionsCommand",
    "leader-election": f"{TOOLS}.LeaderElectionCommand",
    "reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "features": f"{TOOLS}.FeatureCommand",
    "cluster": f"{TOOLS}.ClusterTool",
    "metadata-quorum": f"{TOOLS}.MetadataQuorumCommand",
    "client-metrics": f"{TOOLS}.ClientMetricsCommand",
    "delegation-tokens": f"{TOOLS}.DelegationTokenCommand",
    "streams-groups": f"{TOOLS}.streams.StreamsGroupCommand",
    "streams-application-reset": f"{TOOLS}.StreamsResetter",
    "storage": "kafka.tools.StorageTool",
}
# Traces, the logger's own lines, and the wrappers of Java's futures: what our tools leave out on purpose.
NOISE = re.compile(
    r"\s+at |\s*\.\.\. |Caused by|java\.|\s*Suppressed|SLF4J|.*AdminCommandFailedException|WARN: New"
)

Lines = list[str]


def normal(text: str) -> Lines:
    """The lines of an answer in order of their text: Kafka prints sets in an order of its own."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n") if not NOISE.match(line))
    return sorted(re.sub(r"\d{13}", "<time>", line) for line in lines if line)


class Kafka:
    """Kafka's tools in one JVM."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def __call__(self, name: str, words: Lines) -> tuple[Lines, int]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\t".join([CLASSES[name], *words]) + "\n")
        self.process.stdin.flush()
        printed = []
        for line in self.process.stdout:
            if line.startswith("\f"):
                return normal("".join(printed)), int(line[1:])
            printed.append(line)
        raise AssertionError(f"the JVM ended: {''.join(printed)[-2000:]}")


@pytest.fixture(scope="module")
def java() -> Lines:
    """The command that runs a class with Kafka's jars."""
    java, libs = foreign.need("java"), foreign.kafka_jars()
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
    return [java, *flags, "-cp", f"{libs}/*"]


@pytest.fixture(scope="module")
def kafka(java: Lines) -> Iterator[Kafka]:
    process = subprocess.Popen(
        [*java, str(SOURCE)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    yield Kafka(process)
    process.kill()
    process.wait()


Same = Callable[..., Lines]


@pytest.fixture
def same(kafka: Kafka, cli: Cli, capsys: pytest.CaptureFixture[str]) -> Same:
    return comparer(kafka, cli.bootstrap, capsys)


def comparer(kafka: Kafka, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Same:
    """`same("topics", "--list")` runs Kafka's tool and ours and gives the lines, which must be the same.

    `{who}` in a word is another name for each of the two, and the same again in the lines.
    """

    def compare(name: str, *words: str, where: bool = True) -> Lines:
        answers = []
        for who in ("java", "ours"):
            arguments = [word.replace("{who}", who) for word in words]
            if where:
                # argparse4j wants the sub-command before the server, and takes neither after a list of options.
                arguments = [*arguments, "--bootstrap-server", bootstrap] if name == "cluster" else [
                    "--bootstrap-server", bootstrap, *arguments]  # fmt: skip
            if who == "java":
                lines, code = kafka(name, arguments)
            else:
                capsys.readouterr()
                code = run(f"kafka-{name}", arguments)
                printed = capsys.readouterr()
                lines = normal(printed.out + "\n" + printed.err)
            answers.append(([re.sub(r"\b(java|ours)\b", "{who}", line) for line in lines], code))
        (theirs, their_code), (ours, our_code) = answers
        assert ours == theirs, (name, words)
        assert our_code == their_code, (name, words)
        return ours

    return compare


@pytest.fixture
def topic(cli: Cli) -> str:
    name = cli.topic(partitions=3)
    cli("produce", name, "-k", ":", stdin=b"a:1\nb:2\nc:3\nd:4\n")
    return name


def test_topics_and_configs(same: Same, topic: str) -> None:
    assert same("topics", "--create", "--topic", f"{topic}-{{who}}", "--partitions", "2", "--config",
                "retention.ms=1000") == [f"Created topic {topic}-{{who}}."]  # fmt: skip
    assert topic in same("topics", "--list")
    assert len(same("topics", "--describe", "--topic", topic)) == 4
    same("topics", "--describe", "--topic", f"{topic}-nosuch")
    same("topics", "--create", "--topic", topic)
    same("topics", "--create", "--topic", f"{topic}-x", "--config", "foo=bar")
    same("topics", "--delete", "--topic", f"{topic}-{{who}}")
    one = ("--entity-type", "topics", "--entity-name", topic)
    same("configs", *one, "--alter", "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]")
    assert any("retention.ms=7200000" in line for line in same("configs", *one, "--describe"))
    assert len(same("configs", *one, "--describe", "--all")) > 20
    same("configs", *one, "--alter", "--delete-config", "retention.ms,cleanup.policy")
    same("configs", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    same("configs", "--entity-type", "clients", "--entity-name", topic, "--alter", "--add-config",
         "producer_byte_rate=1000000")  # fmt: skip
    same("configs", "--entity-type", "clients", "--entity-name", topic, "--describe")
    same("configs", "--entity-type", "groups", "--entity-name", f"{topic}-nosuch", "--describe")


def test_groups_and_offsets(same: Same, cli: Cli, topic: str, tmp_path: Path) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    cli("consume", topic, "-g", group, "-c", "4")
    assert group in same("consumer-groups", "--list")
    for words in ((), ("--members",), ("--state",), ("--offsets", "--verbose"), ("--members", "--verbose")):
        same("consumer-groups", "--describe", "--group", group, *words)
    same("consumer-groups", "--describe", "--group", f"{group}-nosuch")
    reset = ("consumer-groups", "--reset-offsets", "--group", group)
    for words in (
        ("--topic", topic, "--to-earliest", "--dry-run"),
        ("--topic", f"{topic}:0,1", "--to-latest", "--execute"),
        ("--all-topics", "--shift-by", "-1", "--dry-run"),
        ("--topic", topic, "--to-datetime", "2020-01-01T00:00:00.000", "--export", "--dry-run"),
        ("--topic", topic, "--by-duration", "PT0S", "--dry-run"),
        ("--topic", topic, "--to-offset", "1", "--dry-run"),
    ):
        same(*reset, *words)
    same("consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:2")
    for when in ("latest", "earliest", "max-timestamp", "0"):
        same("get-offsets", "--topic", topic, "--time", when)
    same("get-offsets", "--topic-partitions", f"{topic}:0-2")
    same("get-offsets", "--topic", f"{topic}-nosuch")
    path = tmp_path / "records.json"
    path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 1}], "version": 1}))
    same("delete-records", "--offset-json-file", str(path))
    same("log-dirs", "--describe", "--broker-list", "7")
    same("consumer-groups", "--delete", "--group", f"{group}-nosuch")
    same("streams-groups", "--list", "--state")
    same("streams-application-reset", "--application-id", f"{topic}-{{who}}", "--input-topics", topic)


def test_the_cluster(same: Same, topic: str, tmp_path: Path) -> None:
    same("cluster", "cluster-id")
    same("cluster", "list-endpoints")
    same("cluster", "unregister", "--id", "9")
    same("features", "describe")
    same("features", "upgrade", "--feature", "foo.version=1")
    same("metadata-quorum", "describe", "--status")
    same("transactions", "describe-producers", "--topic", topic, "--partition", "0")
    same("transactions", "find-hanging", "--topic", topic)
    same("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "99")
    name = f"{topic}-metrics"
    same("client-metrics", "--alter", "--name", name, "--metrics", "org.apache.", "--interval", "10000")
    assert (
        same("client-metrics", "--describe", "--name", name)[0] == f"Client metrics configs for {name} are:"
    )
    same("client-metrics", "--delete", "--name", name)
    same("client-metrics", "--describe", "--name", name)
    same("leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    moves, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    moves.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    same("reassign-partitions", "--generate", "--topics-to-move-json-file", str(moves), "--broker-list", "1")
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    for action in ("--execute", "--verify", "--cancel"):
        same("reassign-partitions", action, "--reassignment-json-file", str(plan))
    same("reassign-partitions", "--list")


def test_access_rules(same: Same, topic: str) -> None:
    same("acls", "--list")
    same("acls", "--list", "--topic", topic, "--principal", "User:bob")
    same("acls", "--remove", "--topic", topic, "--force")
    same("acls", "--list", "--principal", "bob")
    same("delegation-tokens", "--describe", "--command-config", "/dev/null")


def test_storage(same: Same, tmp_path: Path) -> None:
    dirs = f"{tmp_path}/{{who}}-a,{tmp_path}/{{who}}-b"
    text = ("process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
            "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
            "controller.listener.names=CONTROLLER\n")  # fmt: skip
    for who in ("java", "ours"):
        (tmp_path / f"{who}.properties").write_text(f"{text}log.dirs={dirs.replace('{who}', who)}\n")
    file = f"{tmp_path}/{{who}}.properties"
    same("storage", "info", "-c", file, where=False)
    form = ("storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", file)
    assert len(same(*form, where=False)) == 2
    same(*form, "--ignore-formatted", where=False)
    same("storage", "version-mapping", where=False)
    same("storage", "version-mapping", "--release-version", "3.9-IV0", where=False)
    same("storage", "feature-dependencies", "--feature", "group.version=1", where=False)


CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=3
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


@pytest.fixture
def apache(java: Lines, tmp_path: Path) -> Iterator[str]:
    """Apache Kafka itself, with access rules; where it listens."""
    port, controller = free_port(), free_port()
    config = tmp_path / "kafka.properties"
    config.write_text(CONFIG.format(port=port, controller=controller, folder=tmp_path))
    form = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(config)]
    subprocess.run([*java, *form], check=True, capture_output=True, timeout=120)
    with (tmp_path / "kafka.log").open("wb") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log, cwd=tmp_path)
    try:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            assert process.poll() is None, (tmp_path / "kafka.log").read_text()[-2000:]
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.soak
def test_against_apache_kafka(
    kafka: Kafka, apache: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What our broker does not do yet, the tools do with one that does."""
    same, cli = comparer(kafka, apache, capsys), Cli(apache)
    topic = cli.topic(partitions=3)
    for words in (
        ("--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", topic),
        ("--add", "--deny-principal", "User:eve", "--deny-host", "1.2.3.4", "--topic", "pre",
         "--resource-pattern-type", "prefixed"),
        ("--list",),
        ("--list", "--topic", "prefix", "--resource-pattern-type", "match"),
        ("--list", "--principal", "User:bob"),
        ("--add", "--allow-principal", "User:bob", "--consumer", "--topic", topic, "--group", "g"),
        ("--remove", "--allow-principal", "User:bob", "--consumer", "--topic", topic, "--group", "g", "--force"),
        ("--remove", "--topic", topic, "--force"),
        ("--list",),
    ):  # fmt: skip
        same("acls", *words)
    producer = Producer(
        {"bootstrap.servers": apache, "transactional.id": "hangs", "transaction.timeout.ms": 900_000}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    assert any("Ongoing" in line for line in same("transactions", "list"))
    same("transactions", "describe", "--transactional-id", "nosuch")
    assert len(same("transactions", "describe-producers", "--topic", topic, "--partition", "0")) == 2
    same("transactions", "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    assert run("kafka-transactions", ["--bootstrap-server", apache, "abort", "--topic", topic, "--partition", "0",
                                      "--start-offset", "0"]) == 0  # fmt: skip
    capsys.readouterr()
    user = ("--entity-type", "users", "--entity-name", "alice")
    same("configs", *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    assert same("configs", *user, "--describe") == [
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192"
    ]
    same("features", "downgrade", "--feature", "transaction.version=1", "--dry-run")
    same("features", "upgrade", "--release-version", "4.1-IV1", "--dry-run")
    same("delegation-tokens", "--create", "--max-life-time-period", "-1", "--command-config", "/dev/null",
         "--renewer-principal", "User:bob")  # fmt: skip
    same("leader-election", "--election-type", "unclean", "--topic", topic, "--partition", "0")
    same("leader-election", "--election-type", "preferred", "--topic", f"{topic}-nosuch", "--partition", "0")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    for words in (("--execute", "--throttle", "50000"), ("--verify", "--preserve-throttles"), ("--verify",)):
        same("reassign-partitions", *words, "--reassignment-json-file", str(plan))
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [7]}]}))
    same("reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
