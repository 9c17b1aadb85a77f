"""The pages of examples/lessons/as_printed, typed as a student types them: with the ports and the host names that the
documents print, in a network, a process table and a home folder of their own.

A session is written as in other documents, with three more marks. Lines that begin with `>` are typed into the command; a
last line `...` says that the command goes on, in a terminal of its own; and a line that begins with `^C` that it is ended by
Ctrl-C once it has printed the lines before.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.documents.sessions import BIN, ROOT, Step, masked

FOLDER: Final = ROOT / "examples" / "lessons" / "as_printed"
PAGES: Final = sorted(FOLDER.glob("[a-z]*.md"))
HOSTS: Final = (
    "zookeeper", "kafka", "zk", "broker-1", "broker1", "zoo1.example.com", "kafka1.example.com",
)  # fmt: skip
"""Names that the documents have for the machine on which a student works."""
DATA: Final = ("/tmp/kafka-logs", "/tmp/zookeeper", "/tmp/zookeeper1", "/tmp/zookeeper2", "/tmp/zookeeper3")
"""Folders of the printed files; each run has its own in their place."""
GOES_ON: Final = "..."
CTRL_C: Final = "^C"
TIMEOUT_S: Final = 180
LOOK_S: Final = 0.3
SETTLE_S: Final = 6
"""Nothing tells when a consumer that begins at the end has found where that is."""


@dataclass(slots=True)
class Running:
    """A command in a terminal of its own."""

    step: Step
    process: subprocess.Popen[bytes]
    output: Path

    def printed(self) -> list[str]:
        return self.output.read_text("utf-8", "replace").splitlines()


@dataclass(slots=True)
class Machine:
    """A machine for one student. pid: of a process inside of it. home: the student's."""

    pid: int
    home: Path
    place: str = "~/kafka-training"
    exports: str = ""
    running: list[Running] = field(default_factory=list)

    def command(self, text: str) -> list[str]:
        script = f"cd {self.place}\n{self.exports}{text}"
        inside = ["nsenter", "-t", str(self.pid), "--net", "--mount", "--pid", "--wdns=/"]
        return [*inside, "bash", "-c", script]

    def environment(self) -> dict[str, str]:
        own = {
            "HOME": str(self.home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "CONFIG": f"{self.home}/kafka-training/config",
            "PYTHONUNBUFFERED": "1",
        }
        return {name: text for name, text in os.environ.items() if not name.startswith("BARNABAS_")} | own

    def run(self, step: Step) -> list[str]:
        """What a command prints, in the words of the page."""
        typed = [line for line in step.shown if line.startswith(">")]
        if step.command.startswith("cd "):
            self.place = step.command.removeprefix("cd ")
            return []
        if step.command.startswith("export "):
            self.exports += f"{step.command}\n"
            return []
        if step.shown and (step.shown[-1] == GOES_ON or step.shown[-1].startswith(CTRL_C)):
            return self.run_aside(step)
        done = subprocess.run(
            self.command(step.command), env=self.environment(), timeout=TIMEOUT_S, check=False,
            input="".join(f"{line[1:]}\n" for line in typed).encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return [*typed, *done.stdout.decode("utf-8", "replace").rstrip("\n").splitlines()]

    def run_aside(self, step: Step) -> list[str]:
        output = self.home / f"{step.line}.out"
        is_ended = step.shown[-1].startswith(CTRL_C)
        with output.open("wb") as out:
            process = subprocess.Popen(
                self.command(f"{'exec ' * is_ended}{step.command.removesuffix('&')}"), env=self.environment(),
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        made = Running(step, process, output)
        if is_ended:
            return self.interrupted(made)
        self.running.append(made)
        first = step.shown[0]
        if first.startswith("ready"):
            await_lines(made, 1)
            return [*made.printed()[-1:], GOES_ON]
        if "--from-beginning" not in step.command:
            time.sleep(SETTLE_S)
        return step.shown  # it is looked at when the page is at its end

    def interrupted(self, made: Running) -> list[str]:
        """What a command prints that is ended by Ctrl-C after its lines."""
        before = len(made.step.shown) - 1
        await_lines(made, before)
        # nsenter waits for the command, which is its child.
        children = Path(f"/proc/{made.process.pid}/task/{made.process.pid}/children").read_text()
        for pid in children.split():
            os.kill(int(pid), signal.SIGINT)
        made.process.wait(TIMEOUT_S)
        printed = made.printed()
        return [*printed[:before], *(f"{CTRL_C}{line}" for line in printed[before:] or [""])]

    def finish(self) -> dict[int, tuple[Step, list[str]]]:
        """What the commands that go on have printed at the end of the page, if that differs from the page."""
        different = {}
        for made in self.running:
            wanted = made.step.shown[:-1]
            if not wanted or wanted[0].startswith("ready"):
                continue
            with contextlib.suppress(AssertionError):
                await_lines(made, len(wanted))
            if sorted(masked(wanted)) != sorted(masked(made.printed())):
                different[made.step.line] = (made.step, [*made.printed(), GOES_ON])
        return different


def await_lines(made: Running, count: int) -> None:
    """Until a command has printed a line that begins with `ready`, or so many lines if the page shows none."""
    ready = made.step.shown[0].startswith("ready")
    deadline_s = time.monotonic() + (TIMEOUT_S if ready else 60)
    while True:
        printed = made.printed()
        if any(line.startswith("ready") for line in printed) if ready else len(printed) >= count:
            return
        assert made.process.poll() is None, f"{made.step.name}: it has ended: {printed[-20:]}"
        assert time.monotonic() < deadline_s, f"{made.step.name}: {printed[-20:]}"
        time.sleep(LOOK_S)


@contextlib.contextmanager
def machine(home: Path) -> Iterator[Machine]:
    """A machine that ends with all its processes. Skips where the kernel or the user's rights do not allow one."""
    for tool in ("unshare", "nsenter", "ip", "ps"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    (home / "kafka-training" / "config").mkdir(parents=True)
    hosts = home / "hosts"
    hosts.write_text("127.0.0.1 localhost\n" + "".join(f"127.0.0.1 {name}\n" for name in HOSTS))
    script = ["set -e", "ip link set lo up", f"mount --bind {hosts} /etc/hosts"]
    for path in DATA:
        own = home / "data" / Path(path).name
        own.mkdir(parents=True)
        script += [f"mkdir -p {path}", f"mount --bind {own} {path}"]
    script += ["echo up", "exec sleep infinity"]
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    process = subprocess.Popen(
        [*unshare, "bash", "-c", "\n".join(script)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if said != "up\n":
            pytest.skip(f"no machine of its own: {said.strip()}")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        yield Machine(int(children.split()[0]), home)
    finally:
        process.kill()
        process.wait()
        # The empty folders that were made below /tmp stay: removing one would take the mount away from another run.


NUMBER: Final = re.compile(r"^\s?\d{1,2}(?=\s|$)")
PROMPT: Final = re.compile(r"^(?:\[?\\?\$|root@[\w.-]+:\S*#|>(?=\s))\s*")
BULLET: Final = re.compile(r"^(?:[-❖] +)+")
TOOL: Final = re.compile(
    r"(?:\.?[\w./]*/)?(?:kafka-[a-z-]+|zookeeper-[a-z-]+|connect-(?:standalone|distributed)|zkServer|schema-registry-start)"
    r"(?:\.sh)?(?=\s|$)"
)


def printed_commands(lines: list[str]) -> dict[str, int]:
    """The commands of Kafka's tools in a document, each on one line, with the number of its last line.

    Without what stands around them: prompts, bullets, numbers of a listing and backslashes at the end of a line.
    """
    cleaned = [clean(line) for line in lines]
    found: dict[str, int] = {}
    at = 0
    while at < len(cleaned):
        text = cleaned[at]
        if TOOL.match(text):
            while at + 1 < len(cleaned) and (text.endswith("\\") or cleaned[at + 1].startswith("-")):
                at += 1
                text = f"{text.removesuffix(chr(92)).rstrip()} {cleaned[at]}"
            text = one_line(text)
            if len(text.split()) > 1:
                found.setdefault(text, at + 1)
        at += 1
    return found


def clean(line: str) -> str:
    line = NUMBER.sub("", line.rstrip().replace("\\\\", "\\"))
    return PROMPT.sub("", BULLET.sub("", line.strip())).strip()


def one_line(command: str) -> str:
    return " ".join(command.replace("\\", "").replace("```", "").removesuffix("&").removesuffix("。").split())
