"""`barnabas agent tail` against a real broker: every line once, through rotation, restarts and kills."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.cli_support import Cli


def once(cli: Cli, tmp_path: Path, topic: str, *files: str, extra: tuple[str, ...] = ()) -> dict[str, Any]:
    """One `--once` run; its JSON summary."""
    done = cli(
        "agent", "tail", *files, "-t", topic, "--once", "--state", str(tmp_path / "st"), "--json", *extra
    )
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def records(cli: Cli, topic: str) -> list[bytes]:
    return cli.out("consume", topic, "-e", "-D", "\\x01\\x02").split(b"\x01\x02")[:-1]


def eventually(check: Callable[[], bool], what: str, seconds: float = 120, pause_s: float = 0.1) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(pause_s)


def test_once_and_again(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_bytes(b"one\r\n\n\xff\x00\xfe\nlast")
    summary = once(cli, tmp_path, topic, str(log))
    assert {"lines_read": 4, "lines_sent": 4, "already_shipped": 0}.items() <= summary.items()
    assert records(cli, topic) == [b"one\r", b"", b"\xff\x00\xfe", b"last"]
    summary = once(cli, tmp_path, topic, str(log))
    assert {"lines_read": 0, "lines_sent": 0, "already_shipped": 4}.items() <= summary.items()
    with log.open("ab") as out:
        out.write(b"\nmore\n")
    # The newline that ends the flushed last line is not another, empty line.
    summary = once(cli, tmp_path, topic, str(log))
    assert summary["already_shipped"] == 4
    assert records(cli, topic)[4:] == [b"more"]


def test_headers_and_keys(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(partitions=3), tmp_path / "a.log"
    log.write_bytes(b"one\ntwo\n")
    once(cli, tmp_path, topic, str(log), extra=("--key", "file"))
    shown = cli.out("consume", topic, "-e", "-f", r"%k|%h|%s\n").decode().splitlines()
    assert shown[0].startswith(f"{log}|file={log},position=")
    assert shown[0].endswith(":0|one")
    assert shown[1].endswith(":4|two")


def test_a_new_topic_of_the_same_name_is_filled_again(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_bytes(b"one\ntwo\n")
    assert once(cli, tmp_path, topic, str(log))["lines_sent"] == 2
    cli("topic", "delete", topic)
    eventually(lambda: cli.out("topic", "list", topic, "-n") == b"", "the topic is gone")
    cli("topic", "create", topic)
    assert once(cli, tmp_path, topic, str(log))["lines_sent"] == 2


def test_many_files_and_reset(cli: Cli, tmp_path: Path) -> None:
    topic = cli.topic()
    for name in "abc":
        (tmp_path / f"{name}.log").write_text("".join(f"{name}{i}\n" for i in range(1000)))
    pattern = str(tmp_path / "*.log")
    assert once(cli, tmp_path, topic, pattern)["lines_sent"] == 3000
    assert once(cli, tmp_path, topic, pattern, extra=("--reset",))["lines_sent"] == 3000
    counts = Counter(records(cli, topic))
    assert len(counts) == 3000
    assert set(counts.values()) == {2}


def test_follows_growth_rotation_and_truncation(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_bytes(b"1\n")
    agent = cli.start("agent", "tail", str(log), "-t", topic, "--state", str(tmp_path / "st"), "-q")
    reader = cli.start("consume", topic, "-q", stdout=subprocess.PIPE)
    assert reader.stdout is not None
    try:
        assert reader.stdout.readline() == b"1\n"
        with log.open("ab") as out:
            out.write(b"2\nhal")
            out.flush()
            assert reader.stdout.readline() == b"2\n"
            out.write(b"f\n")
        assert reader.stdout.readline() == b"half\n"
        log.rename(tmp_path / "a.log.1")
        with (tmp_path / "a.log.1").open("ab") as late:
            late.write(b"late\n")
        assert reader.stdout.readline() == b"late\n"
        log.write_bytes(b"new\n")
        assert reader.stdout.readline() == b"new\n"
        os.truncate(log, 0)
        log.write_bytes(b"after truncation\n")
        assert reader.stdout.readline() == b"after truncation\n"
        agent.terminate()
        assert agent.wait(20) == 0
    finally:
        agent.kill()
        reader.kill()
    assert once(cli, tmp_path, topic, str(log))["lines_sent"] == 0


def test_killed_in_the_middle_ships_each_line_once(cli: Cli, tmp_path: Path) -> None:
    topic, log, written = cli.topic(partitions=2), tmp_path / "a.log", itertools.count()
    ends = Consumer({"bootstrap.servers": cli.bootstrap, "group.id": "ends"})
    log.touch()

    def write_until(ended: threading.Event) -> None:
        """An agent that is killed meanwhile is always in the middle."""
        while not ended.wait(0.01):
            with log.open("a") as out:
                out.writelines(f"line {i} of a log\n" for i in itertools.islice(written, 1000))

    def end() -> int:
        return sum(ends.get_watermark_offsets(TopicPartition(topic, part), 60)[1] for part in range(2))

    try:
        for _ in range(3):
            before, ended = end(), threading.Event()
            writer = threading.Thread(target=write_until, args=(ended,))
            writer.start()
            agent = cli.start("agent", "tail", str(log), "-t", topic, "--state", str(tmp_path / "st"), "-q")
            try:
                eventually(lambda: end() > before, "lines arrive", pause_s=0.005)  # noqa: B023
            finally:
                agent.kill()
                agent.wait()
                ended.set()
                writer.join()
    finally:
        ends.close()
    count = next(written)
    summary = once(cli, tmp_path, topic, str(log))
    assert summary["lines_sent"] + summary["already_shipped"] >= count
    counts = Counter(records(cli, topic))
    assert len(counts) == count
    assert {line: n for line, n in counts.items() if n > 1} == {}


def test_lines_too_large_are_told_of_and_the_rest_arrives(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(max_message_bytes="2000"), tmp_path / "a.log"
    log.write_bytes(b"one\n" + b"x" * 5000 + b"\ntwo\n")
    done = cli(
        "agent",
        "tail",
        str(log),
        "-t",
        topic,
        "--once",
        "--state",
        str(tmp_path / "st"),
        "-z",
        "none",
        code=3,
    )
    assert b"1 line refused" in done.stderr
    assert b"max.message.bytes" in done.stderr
    assert set(records(cli, topic)) == {b"one", b"two"}


def test_two_agents_do_not_share_a_state(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_bytes(b"1\n")
    first = cli.start("agent", "tail", str(log), "-t", topic, "--state", str(tmp_path / "st"), "-q")
    try:
        eventually(lambda: records(cli, topic) == [b"1"], "the first agent ships")
        done = cli("agent", "tail", str(log), "-t", topic, "--once", "--state", str(tmp_path / "st"), code=1)
        assert b"another agent" in done.stderr
    finally:
        first.terminate()
        assert first.wait(20) == 0


@pytest.mark.skipif("BARNABAS_TEST_BOOTSTRAP" in os.environ, reason="restarts the broker")
def test_a_broker_that_is_away_is_waited_for(own_broker: Callable[..., Any], tmp_path: Path) -> None:
    broker = own_broker()
    cli = Cli(broker.bootstrap)
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_bytes(b"before\n")
    agent = cli.start("agent", "tail", str(log), "-t", topic, "--state", str(tmp_path / "st"), "-q")
    try:
        eventually(lambda: records(cli, topic) == [b"before"], "the first line")
        broker.kill()
        with log.open("ab") as out:
            out.write(b"meanwhile\n")
        broker.start()
        eventually(lambda: records(cli, topic) == [b"before", b"meanwhile"], "the second line")
        agent.terminate()
        assert agent.wait(20) == 0
    finally:
        agent.kill()
