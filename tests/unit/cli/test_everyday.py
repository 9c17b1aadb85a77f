"""What is typed every day: units, aliases, suggestions, completion, old option names, daemons."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.cli import completion, main
from barnabas.config.loader import load
from barnabas.config.option import ConfigError
from barnabas.terminal.connection import ClusterAddress
from barnabas.terminal.errors import UsageError
from barnabas.terminal.units import plain_value, topic_settings


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1.5h", "5400000"),
        ("retention.ms", "500", "500"),
        ("retention.ms", "-1", "-1"),
        ("segment.bytes", "1GiB", "1073741824"),
        ("segment.bytes", "1 MB", "1000000"),
        ("segment.bytes", "512k", "524288"),
        ("cleanup.policy", "7d", "7d"),
    ],
)
def test_units(name: str, text: str, want: str) -> None:
    assert plain_value(name, text) == want


def test_units_and_names_that_are_wrong() -> None:
    with pytest.raises(UsageError, match="'GiB' is not a unit of time; use ms, s, m"):
        plain_value("retention.ms", "7GiB")
    with pytest.raises(UsageError, match=r"did you mean retention\.ms"):
        topic_settings({"retension.ms": "7d"})
    assert topic_settings({"follower.replication.throttled.replicas": "*"}) is not None


def test_rm_and_ls_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topic", "rm", "x", "-b", "127.0.0.1:1"]) == 1
    assert main.run(["group", "ls", "-b", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err.count("no broker answers") == 2


def test_nothing_that_destroys_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    for slip in ("trm", "delte", "destroy"):
        assert main.run(["topic", slip, "orders"]) == 2
    assert main.run(["topic", "lst"]) == 2
    *harmful, harmless = capsys.readouterr().err.splitlines()
    assert not any("did you mean" in line for line in harmful)
    assert "did you mean 'list'" in harmless


def test_completion_of_options_profiles_and_tools(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("_BARNABAS_COMPLETE", "1")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "barnabas").mkdir()
    (tmp_path / "barnabas" / "profiles.toml").write_text('[laptop]\nbootstrap = "a:1"\n')
    assert main.run(["5", "barnabas", "topic", "create", "x", "-c", "retention.m"]) == 0
    assert main.run(["2", "barnabas", "--profile", "la"]) == 0
    assert capsys.readouterr().out.split() == ["retention.ms=", "laptop"]
    monkeypatch.delenv("_BARNABAS_COMPLETE")
    for shell in completion.SCRIPTS:
        assert main.run(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert "kafka-console-consumer.sh" in script
        if shell == "bash":
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_importing_the_completion_needs_no_dispatcher() -> None:
    code = "import sys, barnabas.cli.completion\nassert 'barnabas.cli.main' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_assignors_by_their_class() -> None:
    java = "org.apache.kafka.clients.consumer.RangeAssignor,roundrobin"
    connection = ClusterAddress("a:1", {"partition.assignment.strategy": java})
    assert connection.config()["partition.assignment.strategy"] == "range,roundrobin"


def test_the_books_port_and_host_name(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("port=9095\nhost.name=127.0.0.1\nadvertised.host.name=kafka1\nadvertised.port=19095\n")
    config = load(file)
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://127.0.0.1:9095"]
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://kafka1:19095"]
    assert config.warnings == ()
    file.write_text("port=9095\nlisteners=PLAINTEXT://:9096\n")
    assert [listener.port for listener in load(file).listeners] == [9096]
    file.write_text("port=many\n")
    with pytest.raises(ConfigError, match="port"):
        load(file)


def test_a_daemon_keeps_nobodys_terminal_open(tmp_path: Path) -> None:
    """The pipes that a caller gave end although the broker runs on; what it says is in kafkaServer.out."""
    file = tmp_path / "server.properties"
    file.write_text(f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/data\n")
    environment = {**os.environ, "LOG_DIR": str(tmp_path / "logs")}
    command = [sys.executable, "-m", "barnabas", "kafka", "server-start", "-daemon", str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=True)
    assert done.stdout.startswith(b"ready")
    assert b"ready" in (tmp_path / "logs" / "kafkaServer.out").read_bytes()
    (pid,) = [
        int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_started_with(int(pid), str(file))
    ]
    os.kill(pid, signal.SIGTERM)
    file.write_text("log.retention.hours=many\n")
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert b"log.retention.hours" in done.stderr


def is_started_with(pid: int, word: str) -> bool:
    try:
        return word in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return False


def test_a_newer_meta_properties_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=2\ncluster.id=x\nnode.id=1\n")
    command = [sys.executable, "-m", "barnabas", "start", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, text=True)
    assert done.returncode == 1
    assert "version 2 was written by a newer release" in done.stderr


@pytest.mark.parametrize("name", ["zookeeper-server-start", "zkServer.sh start"])
def test_one_broker_needs_no_zookeeper(name: str) -> None:
    done = run_zookeeper_script(*name.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert "one broker needs no ZooKeeper" in done.stdout


def test_a_missing_zookeeper_file_is_named() -> None:
    done = run_zookeeper_script("zookeeper-server-start.sh", "-daemon", "/none/zookeeper.properties")
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "zookeeper-server-start: there is no file /none/zookeeper.properties (`barnabas config samples DIR` writes it)\n"
    )


def run_zookeeper_script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [name, *arguments]
    code = f"import sys; sys.argv = {words!r}; from barnabas.kafka_tools.servers.zookeeper import script; script()"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_log_goes_where_it_is_told(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    command = [sys.executable, "-m", "barnabas", "start", "--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0",
               "--log-file", str(log), "--log-format", "json", "--log-level", "DEBUG"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith(b"ready")
        broker.terminate()
        _, printed = broker.communicate(timeout=120)
    assert (broker.returncode, printed) == (0, b"")
    import json

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()


def test_a_broker_that_nobody_configured_listens_on_loopback() -> None:
    from barnabas.local import start

    def parsed(*words: str) -> dict[str, str]:
        return start.overrides_from(start.parser().parse_args(words))

    assert parsed()["listeners"] == "PLAINTEXT://localhost:9092"
    assert parsed("--listen", "0.0.0.0:9092")["listeners"] == "PLAINTEXT://0.0.0.0:9092"
    assert parsed("-o", "listeners=PLAINTEXT://:9092")["listeners"] == "PLAINTEXT://:9092"
    assert "listeners" not in parsed("-o", "port=9095")
    assert "listeners" not in parsed("--config", "any.properties")
