"""Kafka's own command-line tools against our broker, and ours beside them: both print the same lines."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cli.kafka.main import run
from tests.clients import foreign
from tests.clients.cli_support import Cli

pytestmark = pytest.mark.java

VERSION = "4.1.1"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas.tests</groupId><artifactId>tools</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version></dependency>
  </dependencies>
</project>
"""
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
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    java, mvn = foreign.need("java"), foreign.need("mvn")
    libs = foreign.CACHE / f"kafka-{VERSION}-tools"
    if not (libs / ".complete").exists():
        folder = tmp_path_factory.mktemp("pom")
        (folder / "pom.xml").write_text(POM)
        command = [mvn, "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={libs}", "-DincludeScope=runtime"]
        foreign.fetch_or_skip(command, folder, "Maven cannot fetch Kafka's tools")
        (libs / ".complete").touch()
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
    process = subprocess.Popen(
        [java, *flags, "-cp", f"{libs}/*", str(SOURCE)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    yield Kafka(process)
    process.kill()
    process.wait()


Same = Callable[..., Lines]


@pytest.fixture
def same(kafka: Kafka, cli: Cli, capsys: pytest.CaptureFixture[str]) -> Same:
    """`same("topics", "--list")` runs Kafka's tool and ours and gives the lines, which must be the same.

    `{who}` in a word is another name for each of the two, and the same again in the lines.
    """

    def compare(name: str, *words: str, where: bool = True) -> Lines:
        answers = []
        for who in ("java", "ours"):
            given = [word.replace("{who}", who) for word in words]
            if where:
                # argparse4j wants the sub-command before the server, and takes neither after a list of options.
                given = [*given, "--bootstrap-server", cli.bootstrap] if name == "cluster" else [
                    "--bootstrap-server", cli.bootstrap, *given]  # fmt: skip
            if who == "java":
                lines, code = kafka(name, given)
            else:
                capsys.readouterr()
                code = run(f"kafka-{name}", given)
                said = capsys.readouterr()
                lines = normal(said.out + "\n" + said.err)
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
