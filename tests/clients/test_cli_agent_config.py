"""`barnabas agent --config FILE` against a real broker: many inputs, reload, kills, dead letters, metrics."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.cli_support import Cli
from tests.clients.test_cli_agent import eventually, records
from tests.support.process import free_port

LARGE = random.Random(1).randbytes(3000).hex().encode()
"""A line that no codec makes small."""


@contextmanager
def running(cli: Cli, path: Path) -> Iterator[Any]:
    with (path.parent / "agent.err").open("ab") as err:
        agent = cli.start("agent", "--config", str(path), stderr=err)
    try:
        yield agent
    finally:
        agent.kill()
        agent.wait()


def said(path: Path) -> str:
    return (path.parent / "agent.err").read_text()


def ask(port: int, what: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{what}", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def test_inputs_reload_and_what_is_told(cli: Cli, tmp_path: Path) -> None:
    one, two, dead, port = cli.topic(), cli.topic(max_message_bytes="2000"), cli.topic(), free_port()
    (tmp_path / "a.log").write_bytes(b"ERROR a\n at x\nDEBUG b\n")
    (tmp_path / "b.log").write_bytes(b"b1\n" + LARGE + b"\nb2\n")
    path = tmp_path / "agent.yaml"
    text = f"""
state: {tmp_path}/state
listen: 127.0.0.1:{port}
inputs:
- {{topic: {one}, files: {tmp_path}/a.log, output: json, exclude: ^DEBUG, multiline: {{indented: true, timeout: 1 second}}}}
- {{topic: {two}, files: {tmp_path}/b.log, dead_letters: {dead}}}
"""
    path.write_text(text)
    with running(cli, path) as agent:
        eventually(lambda: len(records(cli, one)) == 1 and len(records(cli, two)) == 2, "records arrive")
        event = json.loads(records(cli, one)[0])
        assert (event["message"], event["log"]["flags"]) == ("ERROR a\n at x", ["multiline"])
        eventually(lambda: records(cli, dead) == [LARGE], "the large line is a dead letter")
        eventually(lambda: json.loads(ask(port, "ready")) == {"status": "ready"}, "ready")
        assert f'barnabas_agent_records_refused_total{{input="{two}",topic="{two}"}} 1.0' in ask(
            port, "metrics"
        )

        def places() -> dict[str, tuple[bool, int]]:
            rows = cli.json("agent", "status", "--config", str(path))
            return {row["input"]: (row["runs"], row["behind"]) for row in rows}

        eventually(lambda: places() == {one: (True, 0), two: (True, 0)}, "both files are read to their ends")
        path.write_text(text + "- nonsense")
        agent.send_signal(signal.SIGHUP)
        eventually(lambda: "stays as it was" in said(path), "the mistake is reported")
        path.write_text(f"{text}- {{name: more, topic: {two}, files: {tmp_path}/c.log}}\n")
        (tmp_path / "c.log").write_bytes(b"c1\n")
        agent.send_signal(signal.SIGHUP)
        eventually(lambda: records(cli, two) == [b"b1", b"b2", b"c1"], "the new input ships")
        assert "1 added, 0 changed, 0 removed" in said(path)
        agent.terminate()
        assert agent.wait(60) == 0
    shown = cli.json("agent", "status", "--config", str(path))
    assert not any(row["runs"] for row in shown)


def test_records_of_several_lines_come_once_through_kills(cli: Cli, tmp_path: Path) -> None:
    topic, count, log = cli.topic(), 60_000, tmp_path / "a.log"
    log.write_text("".join(f"event {i}\n  detail of {i}\n  more of {i}\n" for i in range(count)))
    path = tmp_path / "agent.yaml"
    path.write_text(
        f"state: {tmp_path}/state\n"
        f"inputs: [{{topic: {topic}, files: {log}, multiline: {{indented: true, timeout: 1 second}}}}]\n"
    )

    def end() -> int:
        return sum(part["end"] for part in cli.json("topic", "describe", topic)[0]["partitions"])

    before = 0
    for _ in range(2):
        with running(cli, path):
            eventually(lambda: end() > before, "records arrive")  # noqa: B023
        before = end()
    starts = said(path).count("agent: ready")
    with running(cli, path) as agent:
        eventually(lambda: said(path).count("agent: ready") > starts, "the agent hears signals")
        eventually(lambda: end() >= count, "the last record has waited long enough")
        agent.terminate()
        assert agent.wait(60) == 0
    expected = [f"event {i}\n  detail of {i}\n  more of {i}".encode() for i in range(count)]
    assert records(cli, topic) == expected


def test_mistakes_and_what_is_missing(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("inputs:\n- topic: a\n  file: x\n")
    for arguments in (("agent", "--config", str(path)), ("agent", "check", "--config", str(path))):
        error = cli(*arguments, code=2).stderr
        assert b"agent.yaml:3: inputs[1] has no entry 'file'; did you mean 'files'?" in error
    assert b"--config FILE" in cli("agent", code=2).stderr
    assert json.loads(cli.out("agent", "schema"))["title"] == "barnabas agent"


def test_syslog_and_standard_input(cli: Cli, tmp_path: Path) -> None:
    logger = shutil.which("logger")
    topic, piped, port = cli.topic(), cli.topic(), free_port()
    path = tmp_path / "agent.yaml"
    path.write_text(
        f"state: {tmp_path}/state\n"
        f"inputs: [{{topic: {topic}, syslog: {{udp: '127.0.0.1:{port}', tcp: '127.0.0.1:{port}'}}}}]\n"
    )
    if logger is not None:
        with running(cli, path):
            tcp = [logger, "-n", "127.0.0.1", "-P", str(port), "-T", "-t", "app"]
            eventually(
                lambda: subprocess.run([*tcp, "one"], check=False, capture_output=True).returncode == 0, "tcp"
            )
            eventually(lambda: records(cli, topic)[:1] == [b"one"], "the message arrives")
        with running(cli, path):  # after a kill -9
            udp = [logger, "-n", "127.0.0.1", "-P", str(port), "-d", "-t", "app"]

            def sent() -> bool:
                subprocess.run([*udp, "two"], check=False, capture_output=True)
                return b"two" in records(cli, topic)

            eventually(sent, "the datagram arrives")
        assert records(cli, topic).count(b"one") == 1
    path.write_text(
        f"state: {tmp_path}/state\ninputs: [{{topic: {piped}, stdin: true, multiline: {{indented: true}}}}]\n"
    )
    cli("agent", "--config", str(path), stdin=b"a\n b\nc\nlast")
    assert records(cli, piped) == [b"a\n b", b"c", b"last"]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_files_that_live_for_a_moment_are_not_missed(cli: Cli, tmp_path: Path) -> None:
    topic, logs = cli.topic(), tmp_path / "logs" / "deep"
    logs.mkdir(parents=True)
    (logs / "first.log").write_bytes(b"first\n")
    path = tmp_path / "agent.yaml"
    path.write_text(
        f"state: {tmp_path}/state\ninputs: [{{topic: {topic}, files: '{tmp_path}/logs/**/*.log'}}]\n"
    )
    with running(cli, path) as agent:
        eventually(lambda: records(cli, topic) == [b"first"], "the agent runs")
        expected = {b"first"}
        for i in range(20):
            moment = logs / f"{i}.log"
            with moment.open("wb") as out:
                out.write(b"moment %d\n" % i)
                out.flush()
                descriptors = Path(f"/proc/{agent.pid}/fd")
                eventually(lambda: str(moment) in opened(descriptors), "the file is opened")  # noqa: B023
            moment.unlink()
            expected.add(b"moment %d" % i)
        eventually(lambda: {*records(cli, topic)} == expected, "every line arrives")
    assert len(records(cli, topic)) == 21


def opened(descriptors: Path) -> list[str]:
    paths = []
    for one in descriptors.iterdir():
        with contextlib.suppress(OSError):
            paths.append(os.readlink(one))
    return paths
