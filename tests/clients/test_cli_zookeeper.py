"""zookeeper-shell beside ZooKeeper's own shell on a real server, and on a single broker's file."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.support.process import BrokerProcess
from tests.support.zookeeper import ZooKeeperServer, zookeeper_jars

MODULE = "from barnabas.kafka_tools.servers.zookeeper_shell import script; script()"
TIMEOUT_SECONDS = 120
SESSION = """\
create /a
create /a one
create -s /a/s- x
create /a/b "two words"
create /a/c {"version":1,"host":"x"}
create /nope/x y
ls /a
ls -R /a
ls -s /a
get /a
get /a/b
get /a/c
get -s /a/b
get /none
set /a new
set -v 7 /a z
set -s /a new2
stat /a
stat /none
getAcl /a
getAcl -s /a
setAcl /a/b world:anyone:rw
getAcl /a/b
addauth digest u:p
create /a/d private auth::cdrwa
getAcl /a/d
sync /a
delete /a
delete /none
getAllChildrenNumber /a
create -e /a/e 1
ls /a
history
deleteall /a
deleteall /none
ls none
ls /a/
ls /
"""


def shell(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MODULE, *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )


def java_shell(address: str, stdin: str) -> tuple[list[str], list[str]]:
    """What ZooKeeper's own shell prints, without its prompts and greetings."""
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{zookeeper_jars()}/*"]
    command += ["org.apache.zookeeper.ZooKeeperMain", "-server", address]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    out = done.stdout[done.stdout.index("[zk: ") :].partition("\nWATCHER::")[0]
    lines = re.sub(r"\[zk: \S+ \d+\] ", "", out).splitlines()
    lines = [line for line in lines if not line.startswith("JLine support")]
    errors = [
        line
        for line in done.stderr.splitlines()
        if line.startswith(("Node ", "Created ", "version ", "Path must", "Failed"))
    ]
    return lines, errors


def masked(lines: list[str]) -> list[str]:
    """Without numbers of changes, times and sessions, which differ between two runs."""
    masked = [re.sub(r"^(.Zxid|ephemeralOwner) = 0x[0-9a-f]+$", r"\1 = N", line) for line in lines]
    shape = r"^(.time) = \w{3} \w{3} \d\d \d\d:\d\d:\d\d \S+ \d{4}$"
    return [line for line in (re.sub(shape, r"\1 = T", line) for line in masked) if line]


def test_a_session_prints_what_zookeepers_own_shell_prints(zookeeper_server: ZooKeeperServer) -> None:
    roots = [f"/{uuid.uuid4()}" for _ in range(2)]
    for root in roots:
        assert shell(zookeeper_server.address, "create", root).stderr.endswith(f"Created {root}\n")
    theirs, their_errors = java_shell(zookeeper_server.address + roots[0], SESSION)
    ours = shell(zookeeper_server.address + roots[1], stdin=SESSION)
    assert masked(ours.stdout.splitlines()) == masked(theirs)
    assert [line for line in ours.stderr.splitlines() if not line.startswith("Connecting")] == their_errors


def test_one_command(zookeeper_address: str) -> None:
    done = shell(zookeeper_address, "ls", "/zookeeper")
    assert (done.returncode, done.stdout) == (0, "[config, quota]\n")
    assert done.stderr == f"Connecting to {zookeeper_address}\n"
    done = shell(zookeeper_address, "get", "/none")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("Node does not exist: /none\n")
    assert shell(zookeeper_address, "nonsense").returncode == 127
    assert shell(zookeeper_address, "setAcl", "/zookeeper", "nonsense").returncode == 1


def test_without_an_address() -> None:
    done = shell()
    assert done.returncode == 2
    assert done.stderr.startswith("USAGE: zookeeper-shell HOST:PORT")


def test_a_single_brokers_metadata_is_read_while_it_runs_and_changed_when_it_is_stopped(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    broker = BrokerProcess(data).start()
    try:
        assert shell(str(data), "ls", "/brokers/ids").stdout == "[1]\n"
        assert '"port"' in shell(f"sqlite:{data / 'znodes.sqlite'}", "get", "/brokers/ids/1").stdout
        assert "ephemeralOwner = 0x" in shell(str(data), "stat", "/brokers/ids/1").stdout
        refused = shell(str(data), "create", "/mine", "x")
        assert refused.returncode == 1
        assert "a broker uses" in refused.stderr
        assert "stop the broker first" in refused.stderr
    finally:
        broker.stop()
    commands = "create /mine x\nset /mine y\nget /mine\ncreate /mine/a z\ndelete /mine\nls -R /mine\n"
    done = shell(str(data), stdin=commands + "deleteall /mine\nls /mine\ncreate -e /e x\nsetAcl / a:b:r\n")
    assert done.stdout == "y\n/mine\n/mine/a\n"
    assert [line.split(":")[0] for line in done.stderr.splitlines()[1:]] == [
        "Created /mine",
        "Created /mine/a",
        "Node not empty",
        "Node does not exist",
        "Ephemeral nodes end with their session, and this file has sessions of brokers only",
        "This file has no ACLs",
    ]


@pytest.mark.parametrize("word", ["sqlite:/none/of/these", "."])
def test_a_folder_without_metadata(word: str, tmp_path: Path) -> None:
    done = shell(word if word != "." else str(tmp_path), "ls", "/")
    assert done.returncode == 1
    assert "there is no such file; give the broker's first log dir" in done.stderr
    assert not list(tmp_path.iterdir())
