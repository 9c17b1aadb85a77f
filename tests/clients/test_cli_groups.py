"""How far groups are behind, producers and consumers that tell all, and tools of the ZooKeeper age."""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from tests.clients.cli_support import TIMEOUT_SECONDS, Cli
from tests.support import preloaded


def group_name() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def kafka(cli: Cli, *words: str, code: int = 0) -> str:
    done = preloaded.run(
        cli.command("kafka", *words),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env=cli.environment(),
    )
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def json_lines(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def row_of(cli: Cli, group: str) -> dict[str, Any]:
    (shown,) = cli.json("group", "describe", group)
    row: dict[str, Any] = shown["offsets"][0]
    assert shown["lag_seconds"] == row["lag_seconds"]
    return row


def test_lag_in_seconds_is_the_age_of_the_first_unread_record(cli: Cli) -> None:
    topic, group = cli.topic(), group_name()
    now_ms = time.time_ns() // 1_000_000
    # Each record an hour old, but the second, which is ten hours old; the last is new.
    ages_s = [3600, 36_000, 3600, 0]
    lines = [json.dumps({"payload": str(age), "ts": now_ms - age * 1000}) for age in ages_s]
    cli("produce", topic, "-J", stdin="\n".join(lines).encode())
    waited = []
    for read in range(1, 5):
        cli("group", "reset", group, "--to", str(read), "--topic", topic, "--execute")
        row = row_of(cli, group)
        assert row["lag"] == 4 - read
        waited.append(round(row["lag_seconds"] / 600))
    assert waited == [60, 6, 0, 0]
    assert row["lag_seconds"] == 0
    assert "lag 3 (36,0" in cli_text(cli, group, topic, to=1)


def cli_text(cli: Cli, group: str, topic: str, to: int) -> str:
    cli("group", "reset", group, "--to", str(to), "--topic", topic, "--execute")
    return cli.out("group", "describe", group).decode()


def test_lag_in_seconds_of_what_retention_took(cli: Cli) -> None:
    topic, group = cli.topic(), group_name()
    now_ms = time.time_ns() // 1_000_000
    lines = [json.dumps({"payload": "x", "ts": now_ms - age * 1000}) for age in (7200, 3600, 0)]
    cli("produce", topic, "-J", stdin="\n".join(lines).encode())
    cli("group", "reset", group, "--to", "beginning", "--topic", topic, "--execute")
    cli("topic", "trim", topic, "--before", "1", "--execute")
    assert round(row_of(cli, group)["lag_seconds"] / 600) == 6


def test_what_verify_sends_it_reads(cli: Cli) -> None:
    topic, group = cli.topic(partitions=3), group_name()
    sent = json_lines(cli.out("verify", "produce", topic, "-n", "50", "--prefix", "7", "--keys", "5"))
    read = json_lines(cli.out("verify", "consume", topic, "-g", group, "-n", "50", "--records"))
    assert [line["name"] for line in sent[:1] + sent[-2:]] == [
        "startup_complete",
        "shutdown_complete",
        "tool_data",
    ]
    assert (sent[-1]["sent"], sent[-1]["acked"]) == (50, 50)

    def places(lines: list[dict[str, Any]], name: str) -> list[tuple[Any, ...]]:
        fields = ("key", "value", "topic", "partition", "offset")
        return sorted(tuple(line[field] for field in fields) for line in lines if line["name"] == name)

    assert places(sent, "producer_send_success") == places(read, "record_data")
    assert places(sent, "producer_send_success")[0][:2] == ("0", "7.0")
    names = [line["name"] for line in read]
    assert names[:2] == ["startup_complete", "partitions_assigned"]
    assert names[-2:] == ["partitions_revoked", "shutdown_complete"]
    assert sum(line["count"] for line in read if line["name"] == "records_consumed") == 50
    assert all(line["success"] for line in read if line["name"] == "offsets_committed")
    assert row_of(cli, group)["lag"] == 0


def test_kafkas_verifiable_consumer(cli: Cli) -> None:
    topic, group = cli.topic(), group_name()
    kafka(
        cli, "verifiable-producer", "--broker-list", cli.bootstrap, "--topic", topic, "--max-messages", "20"
    )
    lines = json_lines(
        kafka(cli, "verifiable-consumer", "--bootstrap-server", cli.bootstrap, "--topic", topic, "--group-id", group,
              "--group-protocol", "consumer", "--max-messages", "20").encode()
    )  # fmt: skip
    assert sum(line["count"] for line in lines if line["name"] == "records_consumed") == 20


def test_options_of_topics_in_the_zookeeper_age(cli: Cli) -> None:
    topic = cli.topic()
    old = ("topics", "--zookeeper", "zookeeper:2181", "--alter", "--topic", topic)
    printed = kafka(cli, *old, "--config", "max.message.bytes=128000")
    assert printed.startswith("WARNING: Altering topic configuration from this script has been deprecated")
    assert printed.endswith(f"Updated config for topic {topic}.\n")
    assert "max.message.bytes=128000" in kafka(
        cli, "topics", "--zookeeper", "zk:2181", "--describe", "--topic", topic
    )
    kafka(cli, *old, "--delete-config", "max.message.bytes")
    described = kafka(cli, "configs", "--zookeeper", "zk:2181", "--entity-type", "topics", "--entity-name", topic,
                      "--describe")  # fmt: skip
    assert described == f"Dynamic configs for topic {topic} are:\n"


def test_offsets_as_files_of_the_zookeeper_age(cli: Cli, tmp_path: Path) -> None:
    topic, group, file = cli.topic(partitions=2), group_name(), tmp_path / "offsets"
    cli("produce", topic, "-p", "1", stdin=b"a\nb\nc\n")
    cli("group", "reset", group, "--to", "end", "--topic", topic, "--execute")
    zookeeper = ("--zkconnect", "zoo1.example.com:2181/kafka-cluster")
    export = (
        "run-class",
        "kafka.tools.ExportZkOffsets",
        *zookeeper,
        "--group",
        group,
        "--output-file",
        str(file),
    )
    kafka(cli, *export)
    before = file.read_text()
    assert before == f"/consumers/{group}/offsets/{topic}/0:0\n/consumers/{group}/offsets/{topic}/1:3\n"
    file.write_text(before.replace("/1:3", "/1:1"))
    kafka(cli, "run-class", "kafka.tools.ImportZkOffsets", *zookeeper, "--input-file", str(file))
    kafka(cli, *export)
    assert file.read_text() == before.replace("/1:3", "/1:1")
    checked = kafka(
        cli, "run-class", "kafka.tools.ConsumerOffsetChecker", "--zookeeper", "z:2181", "--group", group
    )
    assert [line.split()[2:6] for line in checked.splitlines()[1:]] == [
        ["0", "0", "0", "0"],
        ["1", "1", "3", "2"],
    ]
    # Only what the topic's consumers have read goes, not the whole group.
    kafka(
        cli, "consumer-groups", "--zookeeper", "z:2181", "--delete", "--group", group, "--topic", f"{topic}:0"
    )
    assert [row["partition"] for row in cli.json("group", "describe", group)[0]["offsets"]] == [1]


def test_records_of_internal_topics(cli: Cli) -> None:
    topic, group = cli.topic(), group_name()
    cli("produce", topic, stdin=b"a\nb\n")
    cli("consume", topic, "-g", group, "-c", "2")
    command = ("console-consumer", "--bootstrap-server", cli.bootstrap, "--topic", "__consumer_offsets",
               "--from-beginning", "--timeout-ms", "2000", "--formatter")  # fmt: skip
    text = kafka(cli, *command, "org.apache.kafka.tools.consumer.OffsetsMessageFormatter")
    rows = [json.loads(row) for row in text.replace('}{"key"', '}\n{"key"').splitlines()]
    mine = [
        row["value"]["data"]["offset"]
        for row in rows
        if row["key"]["data"]["group"] == group and row["value"]
    ]
    assert mine[-1] == 2
    old = kafka(cli, *command, "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter")
    assert f"[{group},{topic},0]::OffsetAndMetadata(offset=2, leaderEpoch=" in old
    text = kafka(cli, *command, "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter")
    assert f'{{"key":{{"type":2,"data":{{"group":"{group}"}}}}' in text
    kafka(cli, *command, "no.such.Formatter", code=1)


def test_a_streams_application_begins_anew(cli: Cli) -> None:
    topic, name = cli.topic(), group_name()
    cli("produce", topic, stdin=b"a\nb\n")
    cli("consume", topic, "-g", name, "-c", "2")
    cli("topic", "create", f"{name}-store-changelog", f"{name}-output")
    reset = ("streams-application-reset", "--bootstrap-server", cli.bootstrap, "--application-id", name,
             "--input-topics", topic)  # fmt: skip
    assert f"Deleting inferred internal topics [{name}-store-changelog]" in kafka(cli, *reset, "--dry-run")
    assert row_of(cli, name)["committed"] == 2
    kafka(cli, *reset)
    assert row_of(cli, name)["committed"] == 0
    assert [row["topic"] for row in cli.json("topic", "list", name)] == [f"{name}-output"]


def test_mirror_maker_copies_to_another_cluster(cli: Cli, own_broker: Any, tmp_path: Path) -> None:
    topic, target = cli.topic(partitions=2), Cli(own_broker().bootstrap)
    cli("produce", topic, "-k", ":", "-H", "h=1", stdin=b"a:1\nb:2\nc:3\n")
    target("topic", "create", topic, "-p", "3")
    (tmp_path / "c").write_text(
        f"bootstrap.servers={cli.bootstrap}\ngroup.id={group_name()}\nauto.offset.reset=earliest\n"
    )
    (tmp_path / "p").write_text(f"bootstrap.servers={target.bootstrap}\n")
    files = ("--consumer.config", str(tmp_path / "c"), "--producer.config", str(tmp_path / "p"))
    mirror = cli.start("kafka", "mirror-maker", *files, "--whitelist", f"{topic},other.*", "--blacklist", "other.no.*",
                       "--num.streams", "2", "--new.consumer", "--abort.on.send.failure", "true",
                       "--offset.commit.interval.ms", "1000", "--message.handler", "com.example.Handler")  # fmt: skip
    try:
        copied = target.out("consume", topic, "-c", "3", "-J")
    finally:
        mirror.terminate()
        assert mirror.wait(30) == 0
    rows = sorted((row["key"], row["payload"], row["headers"]) for row in json_lines(copied))
    assert rows == [("a", "1", ["h", "1"]), ("b", "2", ["h", "1"]), ("c", "3", ["h", "1"])]
    read = target.out("topic", "offsets", topic, "--json")
    assert sum(row["end"] for row in json.loads(read)) == 3


def test_only_the_broker_that_is_named_is_stopped(cli: Cli, own_broker: Any) -> None:
    broker = own_broker(node__id="98765")
    kafka(cli, "server-stop", "--node-id", "98764", code=1)
    kafka(cli, "server-stop", "--node-id", "98765")
    assert broker.process.wait(30) == 0
    assert "No kafka server to stop" in kafka(cli, "server-stop", "--node-id", "98765", code=1)


def test_records_that_a_group_has_never_read_are_said(cli: Cli) -> None:
    """A member that has committed nothing: no lag is known, and 3 records were never read."""
    topic, group = cli.topic(), f"g-{uuid.uuid4().hex[:8]}"
    cli("produce", topic, stdin=b"1\n2\n3\n")
    member = Consumer({"bootstrap.servers": cli.bootstrap, "group.id": group, "enable.auto.commit": False})
    member.subscribe([topic])
    try:
        deadline = time.monotonic() + 120
        while not member.assignment():
            member.poll(0.1)
            assert time.monotonic() < deadline
        assert b"lag 0, 3 never read" in cli.out("group", "describe", group).splitlines()[0]
        assert cli.json("group", "describe", group)[0]["never_read"] == 3
    finally:
        member.close()


def test_completion_of_topics_and_groups(cli: Cli) -> None:
    topic, group = cli.topic(), f"g-{uuid.uuid4().hex[:8]}"
    cli("produce", topic, stdin=b"1\n")
    cli("consume", topic, "-e", "-g", group)
    environment = {**cli.environment(), "_BARNABAS_COMPLETE": "1"}

    def offered(*words: str) -> list[str]:
        typed = ["barnabas", *words]
        command = cli.command(str(len(typed) - 1), *typed)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.split()

    assert offered("consume", topic[:-1]) == [topic]
    assert offered("topic", "describe", topic[:-1]) == [topic]
    assert offered("group", "reset", group[:-1]) == [group]
    broker = ("--bootstrap-server", cli.bootstrap)
    assert offered("kafka", "kafka-console-consumer", *broker, "--topic", topic[:-1]) == [topic]


def test_status(cli: Cli) -> None:
    assert f"{cli.bootstrap} answers: 1 broker".encode() in cli.out("status")
    assert cli.json("status")["cluster"]["answers"] is True
    assert b"no broker answers" in cli("status", "-b", "127.0.0.1:1", code=1).stdout
