"""`barnabas topic`, `cluster` and `group` against a real broker."""

from __future__ import annotations

import subprocess
import time
import uuid

from tests.clients.cli_support import Cli


def test_create_describe_alter_delete(cli: Cli) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    assert (
        cli.out("topic", "create", name, "-p", "2", "-c", "retention.ms=60000").decode()
        == f"created {name}\n"
    )
    (shown,) = cli.json("topic", "describe", name)
    assert shown["config"]["retention.ms"] == "60000"
    assert [part["partition"] for part in shown["partitions"]] == [0, 1]
    assert all(part["start"] == part["end"] == 0 for part in shown["partitions"])

    cli("topic", "alter", name, "-p", "3", "-c", "segment.ms=100000", "--unset", "retention.ms")
    (shown,) = cli.json("topic", "describe", name)
    assert "retention.ms" not in shown["config"]
    assert shown["config"]["segment.ms"] == "100000"
    assert len(shown["partitions"]) == 3

    assert {"topic": name, "partitions": 3, "replicas": 1} in cli.json("topic", "list")
    assert name.encode() in cli.out("topic", "list", name, "-n").splitlines()
    cli("topic", "delete", name)
    assert cli.out("topic", "list", name, "-n") == b""


def test_errors_say_what_to_do(cli: Cli) -> None:
    name = cli.topic()
    done = cli("topic", "create", name, code=1)
    assert b"--if-not-exists" in done.stderr
    assert done.stderr.count(b"\n") == 1
    cli("topic", "create", name, "--if-not-exists")
    assert b"barnabas topic list" in cli("topic", "describe", "cli-no-such-topic", code=1).stderr
    assert b"barnabas topic list" in cli("topic", "delete", "cli-no-such-topic", code=1).stderr
    cli("topic", "delete", "cli-no-such-topic", "--if-exists")
    assert cli("topic", "create", "bad/name", code=1).stderr.count(b"\n") == 1
    assert b"retention.ms" in cli("topic", "alter", name, "-c", "retention.ms=soon", code=1).stderr
    assert b"nothing to change" in cli("topic", "alter", name, code=2).stderr


def test_dry_run_creates_nothing(cli: Cli) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    assert cli.out("topic", "create", name, "--dry-run").decode() == f"would create {name}\n"
    assert cli.out("topic", "list", name, "-n") == b""


def test_cluster_info(cli: Cli, bootstrap: str) -> None:
    name = cli.topic(partitions=2)
    shown = cli.json("cluster", "info")
    assert bootstrap in [broker["address"] for broker in shown["brokers"]]
    assert not shown["leaderless"]
    assert shown["partitions"] >= 2
    assert b"controller" in cli.out("cluster", "info").lower()
    cli("topic", "delete", name)


def test_groups(cli: Cli) -> None:
    name, group = cli.topic(partitions=2), f"group-{uuid.uuid4().hex[:8]}"
    for partition in "01":
        cli("produce", name, "-p", partition, stdin=b"".join(b"%d\n" % i for i in range(50)))
    # More than one partition holds, so that the group commits in both: lag counts what a group committed or reads.
    assert len(cli.out("consume", name, "-g", group, "-c", "60").splitlines()) == 60
    assert {"group": group, "state": "empty"}.items() <= next(
        row for row in cli.json("group", "list") if row["group"] == group
    ).items()
    (shown,) = cli.json("group", "describe", group)
    assert shown["lag"] == 40
    assert sum(row["committed"] for row in shown["offsets"]) == 60

    member = cli.start("consume", name, "-g", group, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert member.stdout is not None
        for _ in range(40):
            member.stdout.readline()
        (shown,) = cli.json("group", "describe", group)
        assert shown["state"] == "stable"
        assert [len(row["partitions"]) for row in shown["members"]] == [2]
        assert b"still has members" in cli("group", "delete", group, code=1).stderr
        member.terminate()
        assert member.wait(20) == 0
    finally:
        member.kill()
    (shown,) = cli.json("group", "describe", group)
    assert (shown["lag"], shown["state"]) == (0, "empty")
    cli("group", "delete", group)
    deadline = time.monotonic() + 120
    while group in [row["group"] for row in cli.json("group", "list")]:
        assert time.monotonic() < deadline
    assert b"no such group" in cli("group", "describe", group, code=1).stderr


def test_group_offsets_are_shown_before_they_move(cli: Cli) -> None:
    name, group = cli.topic(), f"group-{uuid.uuid4().hex[:8]}"
    cli("produce", name, stdin=b"".join(b"%d\n" % i for i in range(50)))
    cli("consume", name, "-g", group, "-c", "20")

    def committed() -> int:
        offset: int = cli.json("group", "describe", group)[0]["offsets"][0]["committed"]
        return offset

    done = cli("group", "reset", group, "--to", "beginning")
    assert b"nothing was changed" in done.stderr
    assert committed() == 20
    for words, want in [
        (["--to", "beginning"], 0),
        (["--to", "end"], 50),
        (["--to", "-10"], 40),
        (["--shift", "-5"], 35),
        (["--shift", "100"], 50),
        (["--to", "7", "--topic", f"{name}:0"], 7),
        (["--to", "@-1h"], 0),
    ]:
        cli("group", "reset", group, *words, "--execute")
        assert committed() == want
    exported = cli.out("group", "export", group)
    cli("group", "reset", group, "--to", "end", "--execute")
    cli("group", "import", "-", "--execute", stdin=exported)
    assert committed() == 0
    other = f"group-{uuid.uuid4().hex[:8]}"
    cli("group", "import", "-", "--group", other, "--execute", stdin=exported)
    assert cli.json("group", "describe", other)[0]["offsets"][0]["committed"] == 0
    assert b"--topic" in cli("group", "reset", "cli-no-such-group", "--to", "end", code=1).stderr
    assert b"is not a place" in cli("group", "reset", group, "--to", "never", code=2).stderr


def test_topic_offsets(cli: Cli) -> None:
    name = cli.topic()
    cli("produce", name, stdin=b"a\nb\nc\n")
    assert cli.json("topic", "offsets", name, "--at", "-1") == [
        {"topic": name, "partition": 0, "start": 0, "end": 3, "at": 2}
    ]
    assert b"nothing was deleted" in cli("topic", "trim", name, "--before", "2").stderr


def test_config(cli: Cli) -> None:
    name = cli.topic()
    cli("config", "set", "topic", name, "retention.ms=12345")
    (row,) = [row for row in cli.json("config", "describe", "topic", name) if row["name"] == "retention.ms"]
    assert (row["value"], row["source"]) == ("12345", "dynamic_topic")
    cli("config", "unset", "topic", name, "retention.ms")
    assert "retention.ms" not in [row["name"] for row in cli.json("config", "describe", "topic", name)]
    assert "retention.ms" in [row["name"] for row in cli.json("config", "describe", "topic", name, "--all")]
    assert b"bogus" in cli("config", "set", "topic", name, "bogus=1", code=1).stderr
    assert b"KIND is 'planet'" in cli("config", "describe", "planet", "mars", code=2).stderr


def test_perf(cli: Cli) -> None:
    name = cli.topic()
    report = cli.json("perf", "produce", name, "-n", "3000", "-s", "50")
    assert (report["records"], report["failed"], report["bytes"]) == (3000, 0, 150_000)
    assert report["latency_ms"]["p50"] > 0
    assert cli.json("perf", "consume", name, "-n", "3000")["records"] == 3000
    assert cli.json("perf", "e2e", name, "-n", "10")["latency_ms"]["max"] > 0


def test_options_with_units_and_names_that_are_nearly_right(cli: Cli) -> None:
    name = cli.topic()
    cli("topic", "alter", name, "-c", "retention.ms=7d", "-c", "segment.bytes=1GiB")
    (shown,) = cli.json("topic", "describe", name)
    assert shown["config"] == {"retention.ms": "604800000", "segment.bytes": "1073741824"}
    cli("config", "set", "topic", name, "max.message.bytes=2MB")
    rows = {row["name"]: row["value"] for row in cli.json("config", "describe", "topic", name)}
    assert rows["max.message.bytes"] == "2000000"
    done = cli("topic", "create", f"{name}-2", "-c", "retension.ms=7d", code=2)
    assert b"did you mean retention.ms?" in done.stderr
    assert f"{name}-2".encode() not in cli.out("topic", "list", "-n").split()


def test_q_and_v(cli: Cli) -> None:
    name = cli.topic()
    assert cli("produce", name, "-q", stdin=b"1\n").stderr == b""
    assert cli("consume", name, "-e", "-q").stderr == b""
    assert b"nothing was deleted" in cli("topic", "trim", name, "--before", "end").stderr
    assert cli("topic", "trim", name, "--before", "end", "-q").stderr == b""
    assert (
        b"barnabas.client DescribeConfigsRequest version"
        in cli("config", "describe", "topic", name, "-v").stderr
    )
    assert cli("config", "describe", "topic", name).stderr == b""
    assert b"barnabas.client MetadataRequest" in cli("topic", "list", "-v").stderr
    assert b"rdkafka" in cli("consume", name, "-e", "-v", "-X", "debug=broker").stderr


def test_a_double_as_kafka_writes_it(cli: Cli) -> None:
    name = cli.topic(min_cleanable_dirty_ratio="0.00001")
    (row,) = cli.json("config", "describe", "topic", name)
    assert row["value"] == "1.0E-5"


def test_options_of_a_broker_that_is_not_there(cli: Cli) -> None:
    done = cli("config", "set", "broker", "77", "log.retention.ms=1000", code=1)
    assert done.stderr.startswith(b"barnabas config set: broker 77 is not among the live ones")
    done = cli("config", "set", "broker", "abc", "log.retention.ms=1000", code=2)
    assert done.stderr.startswith(b"barnabas config set: 'abc' is not the number of a broker")
    assert b"no such topic" in cli("perf", "consume", "nope77", code=1).stderr
