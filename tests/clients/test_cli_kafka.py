"""Sessions with Kafka's own tools, typed as books and guides have them, against a real broker."""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.cli_support import TIMEOUT_SECONDS, Cli
from tests.support import preloaded

Tool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def tool(cli: Cli) -> Tool:
    """`tool("topics", "--list")` runs kafka-topics against the broker and expects the exit code."""

    def run(name: str, *words: str, stdin: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
        where = [] if name in ("dump-log", "run-class") else ["--bootstrap-server", cli.bootstrap]
        done = preloaded.run(
            cli.command("kafka", name, *where, *words),
            input=stdin, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env=cli.environment(),
        )  # fmt: skip
        assert done.returncode == code, (
            name,
            words,
            done.returncode,
            done.stdout[-500:],
            done.stderr[-2000:],
        )
        return done

    return run


@pytest.fixture
def name() -> str:
    return f"tool-{uuid.uuid4().hex[:8]}"


def test_topics(tool: Tool, name: str) -> None:
    done = tool("topics", "--create", "--topic", name, "--partitions", "2", "--replication-factor", "1",
                "--config", "retention.ms=60000")  # fmt: skip
    assert done.stdout == f"Created topic {name}.\n"
    assert name in tool("topics", "--list").stdout.splitlines()
    lines = tool("topics", "--describe", "--topic", name).stdout.splitlines()
    assert re.fullmatch(
        rf"Topic: {name}\tTopicId: [\w-]{{22}}\tPartitionCount: 2\tReplicationFactor: 1\t"
        r"Configs: .*retention.ms=60000.*",
        lines[0],
    )
    node = re.findall(r"Leader: (\d+)", lines[1])[0]
    assert lines[1:] == [
        f"\tTopic: {name}\tPartition: {i}\tLeader: {node}\tReplicas: {node}\tIsr: {node}\tElr: \tLastKnownElr: "
        for i in range(2)
    ]
    tool("topics", "--alter", "--topic", name, "--partitions", "3")
    done = tool("topics", "--alter", "--topic", name, "--partitions", "2", code=1)
    assert done.stderr.endswith(
        f"The topic {name} currently has 3 partition(s); 2 would not be an increase.\n"
    )
    done = tool("topics", "--create", "--topic", name, code=1)
    assert done.stderr == f"Error while executing topic command : Topic '{name}' already exists.\n"
    tool("topics", "--create", "--topic", name, "--if-not-exists")
    assert tool("topics", "--describe", "--under-replicated-partitions").stdout == ""
    tool("topics", "--delete", "--topic", name)
    done = tool("topics", "--describe", "--topic", name, code=1)
    assert done.stderr == f"Error while executing topic command : Topic '{name}' does not exist as expected\n"
    tool("topics", "--delete", "--topic", name, "--if-exists")


def test_topics_of_the_zookeeper_age(cli: Cli, name: str) -> None:
    def old(*words: str) -> str:
        command = cli.command("kafka", "topics", "--zookeeper", "localhost:2181", *words)
        return preloaded.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            env=cli.environment(),
            timeout=TIMEOUT_SECONDS,
        ).stdout

    assert old("--create", "--replication-factor", "1", "--partitions", "1", "--topic", name) == (
        f"Created topic {name}.\n"
    )
    assert name in old("-list").splitlines()
    assert old("--delete", "--topic", name) == (f"Topic {name} is marked for deletion.\n")


def test_console_producer_and_consumer(tool: Tool, name: str) -> None:
    tool("topics", "--create", "--topic", name)
    tool("console-producer", "--topic", name, stdin="one\ntwo\n")
    tool("console-producer", "--topic", name, "--property", "parse.key=true", "--property", "key.separator=:",
         "--reader-property", "null.marker=NIL", stdin="k:v\nk:NIL\n")  # fmt: skip
    done = tool("console-consumer", "--topic", name, "--from-beginning", "--max-messages", "4")
    assert done.stdout == "one\ntwo\nv\nnull\n"
    assert done.stderr == "Processed a total of 4 messages\n"
    done = tool("console-consumer", "--topic", name, "--partition", "0", "--offset", "2", "--max-messages", "1",
                "--property", "print.key=true", "--property", "print.offset=true",
                "--formatter-property", "print.partition=true", "--property", "print.headers=true")  # fmt: skip
    assert done.stdout == "Partition:0\tOffset:2\tNO_HEADERS\tk\tv\n"
    done = tool("console-consumer", "--topic", name, "--from-beginning", "--timeout-ms", "1500")
    assert done.stdout.count("\n") == 4
    done = tool("console-producer", "--topic", name, "--property", "parse.key=true", stdin="nokey\n", code=1)
    assert "No key separator found on line number 1: 'nokey'" in done.stderr


def test_consumer_groups(tool: Tool, name: str, tmp_path: Path) -> None:
    tool("topics", "--create", "--topic", name)
    tool("console-producer", "--topic", name, stdin="".join(f"{i}\n" for i in range(20)))
    tool("console-consumer", "--topic", name, "--group", name, "--from-beginning", "--max-messages", "5",
         "--timeout-ms", "30000")  # fmt: skip
    assert name in tool("consumer-groups", "--list").stdout.splitlines()
    assert re.search(rf"^{name} +Empty", tool("consumer-groups", "--list", "--state").stdout, re.MULTILINE)

    def offsets() -> list[str]:
        done = tool("consumer-groups", "--describe", "--group", name)
        assert done.stderr == f"\nConsumer group '{name}' has no active members.\n"
        lines = done.stdout.splitlines()
        assert lines[1].split() == [
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
        ]  # fmt: skip
        return lines[2].split()

    assert offsets() == [name, name, "0", "5", "20", "15", "-", "-", "-"]
    reset = ("consumer-groups", "--reset-offsets", "--group", name, "--topic", name)
    done = tool(*reset, "--shift-by", "-2")
    assert done.stderr.startswith("WARN: No action will be performed")
    assert done.stdout.splitlines()[-1].split() == [name, name, "0", "3"]
    assert offsets()[3] == "5"
    for words, want in [
        (["--to-offset", "7"], "7"),
        (["--shift-by", "3"], "10"),
        (["--to-earliest"], "0"),
        (["--to-latest"], "20"),
        (["--to-datetime", "2020-01-01T00:00:00.000"], "0"),
        (["--by-duration", "PT1H"], "0"),
        (["--to-offset", "99"], "20"),
    ]:
        assert tool(*reset, *words, "--execute").stdout.splitlines()[-1].split()[-1] == want
        assert offsets()[3] == want
    assert tool(*reset, "--to-offset", "4", "--dry-run", "--export").stdout == f"{name},0,4\n\n"
    (tmp_path / "plan.csv").write_text(tool(*reset, "--to-offset", "6", "--export").stdout)
    tool(
        "consumer-groups",
        "--reset-offsets",
        "--group",
        name,
        "--from-file",
        str(tmp_path / "plan.csv"),
        "--execute",
    )
    assert offsets()[3] == "6"
    state = tool("consumer-groups", "--describe", "--group", name, "--state").stdout
    assert re.search(rf"^{name} +\S+  \(\d+\) +- +Empty +0$", state, re.MULTILINE)
    done = tool("consumer-groups", "--delete-offsets", "--group", name, "--topic", name)
    assert done.stdout.startswith(f"Request succeeded for deleting offsets from group {name}.\n")
    done = tool("consumer-groups", "--describe", "--group", "no-such-group")
    assert "Group no-such-group not found." in done.stderr


def test_deleting_groups(tool: Tool, name: str) -> None:
    tool("topics", "--create", "--topic", name)
    tool("consumer-groups", "--reset-offsets", "--group", name, "--topic", name, "--to-earliest", "--execute")
    done = tool("consumer-groups", "--delete", "--group", name)
    assert done.stdout == f"Deletion of requested consumer groups ('{name}') was successful.\n"
    done = tool("consumer-groups", "--delete", "--group", name)
    assert (
        "could not be deleted due to: org.apache.kafka.common.errors.GroupIdNotFoundException" in done.stderr
    )


def test_configs(tool: Tool, name: str) -> None:
    tool("topics", "--create", "--topic", name)
    entity = ("--entity-type", "topics", "--entity-name", name)
    done = tool(
        "configs", "--alter", *entity, "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]"
    )
    assert done.stdout == f"Completed updating config for topic {name}.\n"
    lines = tool("configs", "--describe", *entity).stdout.splitlines()
    assert lines[0] == f"Dynamic configs for topic {name} are:"
    assert lines[1].startswith(
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"
    )
    assert lines[2].startswith(
        "  retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000"
    )
    tool("configs", "--alter", "--topic", name, "--delete-config", "retention.ms,cleanup.policy")
    assert tool("configs", "--describe", "--topic", name).stdout == f"Dynamic configs for topic {name} are:\n"
    assert "segment.bytes=" in tool("configs", "--describe", "--topic", name, "--all").stdout
    done = tool("configs", "--alter", "--topic", name, "--add-config", "retention.ms=soon", code=1)
    assert "retention.ms" in done.stderr
    assert (
        "Invalid config(s): bogus"
        in tool("configs", "--alter", "--topic", name, "--delete-config", "bogus", code=1).stderr
    )


def test_get_offsets(tool: Tool, name: str) -> None:
    tool("topics", "--create", "--topic", name, "--partitions", "2")
    tool("console-producer", "--topic", name, stdin="a\nb\n")
    lines = tool("get-offsets", "--topic", name).stdout.splitlines()
    assert [line.rpartition(":")[0] for line in lines] == [f"{name}:0", f"{name}:1"]
    assert sum(int(line.rpartition(":")[2]) for line in lines) == 2
    assert (
        tool("get-offsets", "--topic-partitions", f"{name}:1", "--time", "earliest").stdout == f"{name}:1:0\n"
    )
    assert "Could not match" in tool("get-offsets", "--topic", "no-such-topic", code=1).stderr


def test_cluster_and_versions(tool: Tool, bootstrap: str) -> None:
    assert re.fullmatch(r"Cluster ID: \S+\n", tool("cluster", "cluster-id").stdout)
    text = tool("broker-api-versions").stdout
    assert f"{bootstrap} (id: " in text
    assert re.search(r"\tProduce\(0\): 0 to \d+ \[usable: \d+\],", text)


def test_perf_and_verification(tool: Tool, name: str, bootstrap: str) -> None:
    tool("topics", "--create", "--topic", name)
    done = tool("producer-perf-test", "--topic", name, "--num-records", "5000", "--record-size", "100",
                "--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all")  # fmt: skip
    assert re.match(
        r"5000 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, ", done.stdout
    )
    done = tool("consumer-perf-test", "--topic", name, "--messages", "5000")
    heads, row = done.stdout.splitlines()
    assert heads.startswith("start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, ")
    assert row.split(", ")[4] == "5000"
    ignored = tool(
        "consumer-perf-test", "--topic", name, "--messages", "1", "--print-metrics", "--show-detailed-stats"
    )
    for option in ("--print-metrics", "--show-detailed-stats"):
        assert f"WARN {option} has no effect here" in ignored.stderr
    done = tool("verifiable-producer", "--topic", name, "--max-messages", "3")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["name"] for event in events] == [
        "startup_complete", *["producer_send_success"] * 3, "shutdown_complete", "tool_data",
    ]  # fmt: skip
    assert events[-1]["acked"] == 3
    assert "Percentiles: 50th = " in tool("e2e-latency", "--topic", name, "--num-records", "20").stdout


def test_dump_of_our_own_log(cli: Cli, tool: Tool, name: str, request: pytest.FixtureRequest) -> None:
    import os

    if "BARNABAS_TEST_BOOTSTRAP" in os.environ:
        pytest.skip("reads the broker's files")
    folder = request.getfixturevalue("broker").data_dir
    tool("topics", "--create", "--topic", name)
    tool("console-producer", "--topic", name, "--property", "parse.key=true", stdin="k\tv\n")
    log = folder / f"{name}-0" / f"{0:020}.log"
    lines = tool("dump-log", "--files", str(log), "--print-data-log").stdout.splitlines()
    assert lines[2].startswith("baseOffset: 0 lastOffset: 0 count: 1 ")
    assert lines[3].endswith("key: k payload: v")
