"""`barnabas agent tail` behind real log writers for minutes, under kills, a full disk, broker restarts and clock steps.

BARNABAS_AGENT_STORM_SECONDS says how long the writers write. The quick version of this is in
tests/clients/test_cli_agent_storm.py.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.clients.cli_support import Cli
from tests.clients.foreign import fetch_or_skip, fingerprint, made, maven, need
from tests.support.log_writers import Writers, judge, wait_for_lines
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.soak

SECONDS = float(os.environ.get("BARNABAS_AGENT_STORM_SECONDS", "180"))
SEED = int(os.environ.get("BARNABAS_AGENT_STORM_SEED", "12"))
SETTLE_SECONDS = 240
"""How long the topic may stay as it is before the end; on a busy machine, the last start takes long."""
TWICE = 0.3
EARLY = 0.1
"""How often the agent is killed although it has not saved anything yet."""
JAVA = Path(__file__).parent / "java"

ROTATIONS = {
    "create": "create",
    "delayed": "create\n compress\n delaycompress",
    "packed": "create\n compress",
    "cut": "copytruncate",
    "cutdelayed": "copytruncate\n compress\n delaycompress",
    "cutpacked": "copytruncate\n compress",
    "cutseen": "copytruncate",
}
"""By the name of a log: how logrotate rotates it. The agent's pattern matches the copies of `cutseen` too."""


def debian(package: str) -> Path:
    """The files of a Debian package with what it needs, unpacked and not installed."""
    names = [package, "libpopt0"] if package == "logrotate" else [package]

    def unpack(folder: Path) -> None:
        fetch_or_skip([need("apt-get"), "-qq", "update"], folder, "Debian's package lists")
        fetch_or_skip(["apt-get", "-qq", "download", *names], folder, f"{package} cannot be fetched")
        for archive in folder.glob("*.deb"):
            subprocess.run([need("dpkg"), "-x", str(archive), str(folder)], check=True)

    return made(f"debian-{package}", unpack)


def library(root: Path, name: str) -> Path:
    return next(root.rglob(name))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(disk)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@dataclass
class Clock:
    """The wall clock of the processes that get `environment`; it steps when the file is written."""

    library: Path
    file: Path
    chance: random.Random

    def __post_init__(self) -> None:
        source = Path(__file__).with_name("stepped_clock.c")
        command = [need("gcc"), "-O2", "-shared", "-fPIC", "-o", str(self.library), str(source), "-ldl"]
        subprocess.run(command, check=True)
        self.file.write_bytes(bytes(8))

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "STEPPED_CLOCK": str(self.file)}

    def start(self, broker: BrokerProcess) -> None:
        """Start a broker that lives by this clock."""
        # As a new program: what is forked of another one has that one's clock.
        broker.prefix = ["env", *(f"{name}={value}" for name, value in self.environment.items())]
        broker.start()

    def step(self) -> None:
        """To somewhere between an hour ago and tomorrow."""
        with self.file.open("r+b", buffering=0) as out:
            out.write(struct.pack("=q", self.chance.randint(-3600, 86_400) * 1_000_000_000))


@dataclass
class Rotator:
    """Debian's logrotate. What it truncates is sometimes truncated twice in a row, perhaps between two looks of an agent."""

    root: Path
    folder: Path
    writers: Writers
    state: Path
    rotated_at: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def rotate_perhaps_twice(self, name: str, chance: random.Random) -> None:
        self.rotate(name)
        if name.startswith("cut") and chance.random() < TWICE:
            time.sleep(0.1)  # for the writer
            self.rotate(name, again=True)

    def rotate(self, name: str, again: bool = False) -> None:
        log = self.folder / f"{name}.log"
        is_early = self.rotated_at.get(name, 0.0) > self.agent_saved_at() - 2
        if not log.exists() or (is_early and not again):
            return
        config = self.folder.parent / f"{name}.conf"
        config.write_text(f"{log} {{\n rotate 500\n {ROTATIONS[name]}\n missingok\n su root root\n}}\n")
        config.chmod(0o644)
        with self.writers.paused(name):
            done = subprocess.run(
                [self.root / "usr/sbin/logrotate", "-f", "-s", f"{config}.state", config],
                env={**os.environ, "LD_LIBRARY_PATH": str(library(self.root, "libpopt.so.0").parent)},
                capture_output=True, timeout=60, check=False,
            )  # fmt: skip
            self.rotated_at[name] = time.time()
        assert done.returncode == 0, done.stderr.decode()
        self.count += 1

    def agent_saved_at(self) -> float:
        """When the agent wrote its positions last: it is at work and has seen what was there then."""
        return max((path.stat().st_mtime for path in self.state.glob("*.json")), default=0.0)


@dataclass
class Storm:
    """The agent, the broker, and what happens to them."""

    broker: BrokerProcess
    patterns: list[str]
    disk: Path
    clock: Clock
    rotator: Rotator
    chance: random.Random
    topic: str = "logs"
    log: Path = Path()
    happened: dict[str, int] = field(default_factory=dict)
    agent: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0

    def start_agent(self) -> None:
        cli = Cli(self.broker.bootstrap)
        command = cli.command(
            "agent", "tail", *self.patterns, "-t", self.topic, "--state", str(self.disk / "state"), "-q"
        )
        self.started_at = time.time()
        with self.log.open("ab") as out:
            self.agent = subprocess.Popen(
                command,
                env={**cli.environment(), **self.clock.environment},
                stderr=out,
                stdin=subprocess.DEVNULL,
            )

    def kill_agent(self) -> None:
        assert self.agent is not None
        assert self.agent.poll() is None, f"the agent ended by itself: {self.log.read_text()[-3000:]}"
        self.agent.kill()
        self.agent.wait()

    def may_be_killed(self) -> bool:
        """Mostly once it has come to work, which takes long on a busy machine: else it would never do anything."""
        return self.rotator.agent_saved_at() > self.started_at or self.chance.random() < EARLY

    def act(self) -> None:
        """One fault, or a rotation."""
        what = self.chance.choices(["kill", "rotate", "broker", "disk", "clock"], [4, 8, 1, 1, 2])[0]
        self.happened[what] = self.happened.get(what, 0) + 1
        match what:
            case "kill" if self.may_be_killed():
                self.kill_agent()
                time.sleep(self.chance.choice([0, 0, 0.5]))
                self.start_agent()
            case "kill":
                pass
            case "rotate":
                self.rotator.rotate_perhaps_twice(self.chance.choice([*ROTATIONS]), self.chance)
            case "broker":
                self.broker.kill()
                time.sleep(self.chance.uniform(0, 3))
                self.clock.start(self.broker)
            case "disk":
                self.fill_disk(self.chance.uniform(1, 5))
            case _:
                self.clock.step()

    def fill_disk(self, seconds: float) -> None:
        filler = self.disk / "filler"
        with filler.open("wb", buffering=0) as out:
            try:
                while True:
                    out.write(bytes(4096))
            except OSError:
                pass
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.3)
            if self.chance.random() < 0.1 and self.may_be_killed():
                self.kill_agent()
                self.start_agent()
        filler.unlink()

    def end(self, written: dict[str, int]) -> None:
        """Everything arrives, and the agent ends when it is asked to."""
        wait_for_lines(self.broker.bootstrap, self.topic, sum(written.values()), SETTLE_SECONDS)
        time.sleep(3)  # for lines that come twice
        assert self.agent is not None
        self.agent.terminate()
        assert self.agent.wait(60) == 0, self.log.read_text()[-3000:]


def start_java(writers: Writers) -> None:
    """Writers of the JDK's own handler, of Log4j 2 and of Logback, where these can be had."""
    java = need("java")
    writers.java("jul", [java, str(JAVA / "JulWriter.java")])
    jars = made(
        f"log-writers-{fingerprint(JAVA, 'pom.xml')}",
        lambda folder: maven(JAVA / "pom.xml", folder, "Log4j and Logback"),
    )
    command = [java, "-cp", f"{jars}/*"]
    writers.java("log4j", [*command, str(JAVA / "Log4jWriter.java")], str(JAVA / "log4j2.xml"))
    writers.java("logback", [*command, str(JAVA / "LogbackWriter.java")], str(JAVA / "logback.xml"))


def test_every_line_of_real_log_writers_arrives_once_and_in_order(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path, small_disk: Path
) -> None:
    logrotate = debian("logrotate")
    chance = random.Random(SEED)
    clock = Clock(tmp_path / "stepped_clock.so", tmp_path / "clock", chance)
    logs = tmp_path / "logs"
    logs.mkdir()
    broker = own_broker()
    broker.stop()
    clock.start(broker)
    Cli(broker.bootstrap)("topic", "create", "logs")
    writers = Writers(logs, SECONDS)
    rotator = Rotator(logrotate, logs, writers, small_disk / "state")
    plain = ["create", "delayed", "packed", "cut", "cutdelayed", "cutpacked", "log4j"]
    patterns = [*(f"{logs}/{name}.log" for name in plain)]
    patterns += [f"{logs}/{name}*.log*" for name in ("cutseen", "rotating", "timed", "jul", "logback")]
    storm = Storm(broker, patterns, small_disk, clock, rotator, chance, log=tmp_path / "agent.log")
    try:
        for name in ROTATIONS:
            writers.python(name, "append" if name.startswith("cut") else "watched")
        writers.python("rotating", "rotating")
        writers.python("timed", "timed")
        start_java(writers)
        storm.start_agent()
        while not rotator.agent_saved_at():
            time.sleep(0.2)
        while writers.are_at_work():
            time.sleep(chance.uniform(0.2, 1.0))
            storm.act()
        written = writers.written()
        storm.end(written)
        wrong = judge(broker.bootstrap, "logs", written)
        print(f"{sum(written.values())} lines, {rotator.count} rotations, {storm.happened}")
        assert not wrong, "\n".join(wrong) + f"\n{storm.log.read_text()[-3000:]}"
        shutil.rmtree(logs)
    finally:
        writers.kill()
        if storm.agent is not None and storm.agent.poll() is None:
            storm.agent.kill()
            storm.agent.wait()
