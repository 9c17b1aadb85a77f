"""Share groups on the command line: `barnabas group`, kafka-share-groups and kafka-console-share-consumer."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

import confluent_kafka
import pytest

from tests.clients.cli_support import Cli
from tests.support.admin import set_group_option

needs_share_consumer = pytest.mark.skipif(
    not hasattr(confluent_kafka, "ShareConsumer"), reason="this confluent-kafka has no share consumer"
)


@pytest.fixture
def queue(cli: Cli) -> tuple[str, str]:
    """A topic of ten records, and a share group that begins at its start."""
    topic, group = cli.topic(), f"share-{uuid.uuid4().hex[:8]}"
    cli("produce", topic, stdin=b"".join(b"%d\n" % i for i in range(10)))
    set_group_option(cli.bootstrap, group, "share.auto.offset.reset", "earliest")
    return topic, group


def tool(cli: Cli, name: str, *arguments: str, code: int = 0) -> str:
    return cli("kafka", name, *arguments, "--bootstrap-server", cli.bootstrap, code=code).stdout.decode()


def complaints(cli: Cli, name: str, *arguments: str, code: int = 0) -> str:
    """What a tool says on standard error."""
    return cli("kafka", name, *arguments, "--bootstrap-server", cli.bootstrap, code=code).stderr.decode()


def take(cli: Cli, topic: str, group: str, count: int, *arguments: str) -> list[str]:
    options = ("--topic", topic, "--group", group, "--max-messages", str(count), *arguments)
    return tool(cli, "console-share-consumer", *options).splitlines()


@needs_share_consumer
def test_consume_describe_reset_and_delete(cli: Cli, queue: tuple[str, str]) -> None:
    topic, group = queue
    assert take(cli, topic, group, 4) == ["0", "1", "2", "3"]
    # What the first was given beside the four it wanted went back, and that counted.
    shown = take(cli, topic, group, 1, "--property", "print.delivery=true", "--property", "print.offset=true")
    assert shown == ["Offset:4\tDelivery:2\t4"]
    assert {"group": group, "state": "empty", "type": "share"} in cli.json("group", "list")
    (described,) = cli.json("group", "describe", group)
    row = {"topic": topic, "partition": 0, "start": 5, "end": 10, "lag": 5}
    assert (described["offsets"], described["lag"], described["members"]) == ([row], 5, [])
    (behind,) = cli.json("group", "lag", group)
    assert (behind["type"], behind["lag"]) == ("share", 5)
    assert 0 < behind["lag_seconds"] < 600
    cli("group", "reset", group, "--to", "2")
    assert cli.json("group", "describe", group)[0]["lag"] == 5  # it was only shown
    assert cli.json("group", "reset", group, "--to", "2", "--execute")["offsets"][0]["after"] == 2
    exported = cli.out("group", "export", group)
    cli("group", "reset", group, "--to", "end", "--execute")
    cli("group", "import", "-", "--execute", stdin=exported)
    assert take(cli, topic, group, 1) == ["2"]
    assert cli.out("group", "delete", group) == f"deleted {group}\n".encode()
    assert group not in [row["group"] for row in cli.json("group", "list")]


@needs_share_consumer
def test_the_names_that_kafka_has(cli: Cli, queue: tuple[str, str], tmp_path: Path) -> None:
    topic, group = queue
    command = cli.command(
        "kafka", "console-share-consumer", "--topic", topic, "--group", group,
        "--bootstrap-server", cli.bootstrap, "--consumer-property", "client.id=me",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as member:
        assert member.stdout is not None
        for _ in range(10):
            member.stdout.readline()
        members = tool(cli, "share-groups", "--describe", "--members", "--group", group).split("\n")
        assert members[1].split() == [
            "GROUP",
            "CONSUMER-ID",
            "HOST",
            "CLIENT-ID",
            "#PARTITIONS",
            "ASSIGNMENT",
        ]
        assert members[2].split()[3:] == ["me", "1", f"{topic}:0"]
        refused = ("--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute")
        assert tool(cli, "share-groups", *refused, code=1) == ""
        failed = complaints(cli, "share-groups", "--delete", "--group", group)
        assert f"Share group '{group}' is not EMPTY." in failed
        member.kill()
    # A member that is killed does not leave its group.
    assert [group, "Stable"] in [
        line.split() for line in tool(cli, "share-groups", "--list", "--state").splitlines()
    ]
    assert group not in tool(cli, "share-groups", "--list", "--state", "Empty")
    offsets = tool(cli, "share-groups", "--describe", "--group", group).split("\n")
    assert offsets[2].split() == [group, topic, "0", "10", "0"]
    gone = complaints(cli, "share-groups", "--describe", "--group", "nobody", code=1)
    assert "GroupIdNotFoundException: Group nobody not found." in gone


def test_offsets_of_a_group_that_is_not_there_yet_make_it(
    cli: Cli, queue: tuple[str, str], tmp_path: Path
) -> None:
    """As with Kafka: a queue can be told where to begin before anybody reads it."""
    topic, group = queue
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,3\n")
    tool(cli, "share-groups", "--reset-offsets", "--group", group, "--from-file", str(plan), "--execute")
    assert [group, "Empty"] in [
        line.split() for line in tool(cli, "share-groups", "--list", "--state").splitlines()
    ]
    offsets = tool(cli, "share-groups", "--describe", "--group", group).split("\n")
    assert offsets[2].split()[:4] == [group, topic, "0", "3"]
