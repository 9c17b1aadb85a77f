"""`barnabas agent tail` under attack: kills, limits, topics made anew, a state that cannot be written, real rotation."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from tests.clients.cli_support import Cli
from tests.clients.test_cli_agent import eventually, once, records


def follow(cli: Cli, tmp_path: Path, topic: str, *files: str, **pipes: Any) -> subprocess.Popen[bytes]:
    return cli.start("agent", "tail", *files, "-t", topic, "--state", str(tmp_path / "st"), "-q", **pipes)


def test_a_topic_that_is_made_by_the_agent_has_its_limit_asked_for(
    own_broker: Callable[..., Any], tmp_path: Path
) -> None:
    cli, log = Cli(own_broker(message__max__bytes="20000").bootstrap), tmp_path / "a.log"
    lines = [b"%080d" % i for i in range(5000)]
    log.write_bytes(b"\n".join(lines) + b"\n")
    assert once(cli, tmp_path, "fresh", str(log))["lines_sent"] == 5000
    assert records(cli, "fresh") == lines


def test_a_limit_that_is_lowered_during_the_run(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_bytes(b"first\n")
    agent = follow(cli, tmp_path, topic, str(log))
    try:
        eventually(lambda: records(cli, topic) == [b"first"], "the first line")
        cli("config", "set", "topic", topic, "max.message.bytes=20000")
        lines = [b"%080d" % i for i in range(5000)]
        with log.open("ab") as out:
            out.write(b"\n".join(lines) + b"\n")
        eventually(lambda: sorted(records(cli, topic)) == [*lines, b"first"], "all lines, once")
        agent.terminate()
        assert agent.wait(120) == 0
    finally:
        agent.kill()


def test_once_ships_long_lines_whole(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(max_message_bytes="20000000"), tmp_path / "a.log"
    log.write_bytes(b"before\n" + b"x" * 7_000_000 + b"\nafter\n" + b"y" * 3_000_000)
    assert once(cli, tmp_path, topic, str(log))["lines_sent"] == 4
    assert [len(line) for line in records(cli, topic)] == [6, 7_000_000, 5, 3_000_000]


@pytest.mark.parametrize("how", ["appears", "rotated", "truncated"])
def test_a_file_first_seen_during_the_run_is_not_shipped_twice(cli: Cli, tmp_path: Path, how: str) -> None:
    topic, log, count = cli.topic(partitions=2), tmp_path / "a.log", 60_000
    if how != "appears":
        log.write_bytes(b"before\n")
    agent = follow(cli, tmp_path, topic, str(tmp_path / "*.log"))

    def end() -> int:
        return sum(part["end"] for part in cli.json("topic", "describe", topic)[0]["partitions"])

    try:
        if how != "appears":
            eventually(lambda: end() == 1, "the line before")
        else:
            eventually(lambda: any((tmp_path / "st").glob("*.json")) or agent.poll() is not None or
                       any((tmp_path / "st").glob("*.lock")), "the agent runs")  # fmt: skip
        if how == "rotated":
            log.rename(tmp_path / "a.1")
        with log.open("wb") as out:
            out.write(
                b"".join(
                    b"line %d, of some length so that shipping takes a while\n" % i for i in range(count)
                )
            )
        eventually(lambda: end() > 1, "lines arrive")
    finally:
        agent.kill()
        agent.wait()
    once(cli, tmp_path, topic, str(tmp_path / "*.log"))
    counts = Counter(records(cli, topic))
    counts.pop(b"before", None)
    assert (len(counts), set(counts.values())) == (count, {1})


@pytest.mark.skipif("BARNABAS_TEST_BOOTSTRAP" in os.environ, reason="restarts the broker")
def test_a_signal_is_heard_while_the_queue_is_full_and_the_broker_away(
    own_broker: Callable[..., Any], tmp_path: Path
) -> None:
    broker = own_broker()
    cli, log = Cli(broker.bootstrap), tmp_path / "a.log"
    topic = cli.topic()
    log.write_bytes(b"first\n")
    agent = follow(
        cli, tmp_path, topic, str(log), "-X", "queue.buffering.max.kbytes=1", stderr=subprocess.PIPE
    )
    try:
        eventually(lambda: records(cli, topic) == [b"first"], "the first line")
        broker.kill()
        with log.open("ab") as out:
            out.write(b"more\n" * 10_000)
        time.sleep(2)  # the queue fills; a signal before that would be heard anyway
        agent.terminate()
        _, printed = agent.communicate(timeout=120)
        assert agent.returncode == 3
        assert b"not acknowledged; the next run sends them again" in printed
        assert b"shipped" not in printed
    finally:
        agent.kill()
    broker.start()
    assert once(cli, tmp_path, topic, str(log))["lines_sent"] == 10_000
    assert records(cli, topic) == [b"first"] + [b"more"] * 10_000


@pytest.mark.skipif("BARNABAS_TEST_BOOTSTRAP" in os.environ, reason="restarts the broker")
def test_starting_while_the_broker_is_away(own_broker: Callable[..., Any], tmp_path: Path) -> None:
    broker = own_broker()
    cli, log = Cli(broker.bootstrap), tmp_path / "a.log"
    topic = cli.topic()
    log.write_bytes(b"first\n")
    broker.kill()
    agent = follow(cli, tmp_path, topic, str(log), stderr=subprocess.PIPE)
    try:
        assert agent.stderr is not None
        assert b"waiting for the broker" in agent.stderr.readline()
        broker.start()
        eventually(lambda: records(cli, topic) == [b"first"], "the first line")
        agent.terminate()
        assert agent.wait(120) == 0
    finally:
        agent.kill()


def test_a_topic_made_anew_during_the_run_gets_every_line_once(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_bytes(b"one\ntwo\n")
    agent = follow(cli, tmp_path, topic, str(log))
    try:
        eventually(lambda: records(cli, topic) == [b"one", b"two"], "the first lines")
        cli("topic", "delete", topic)
        eventually(lambda: cli.out("topic", "list", topic, "-n") == b"", "the topic is gone")
        cli("topic", "create", topic)
        with log.open("ab") as out:
            out.write(b"three\n")
        eventually(lambda: sorted(records(cli, topic)) == [b"one", b"three", b"two"], "all lines")
        agent.terminate()
        assert agent.wait(120) == 0
    finally:
        agent.kill()
    assert once(cli, tmp_path, topic, str(log))["lines_sent"] == 0
    assert sorted(records(cli, topic)) == [b"one", b"three", b"two"]


def test_a_state_that_cannot_be_written_is_said_and_waited_for(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_bytes(b"one\n")
    assert once(cli, tmp_path, topic, str(log))["lines_sent"] == 1
    (state,) = (tmp_path / "st").glob("*.json")
    in_the_way = state.with_suffix(".tmp")
    in_the_way.mkdir()
    with log.open("ab") as out:
        out.write(b"two\n")
    (tmp_path / "b.log").write_bytes(b"new\n")
    agent = follow(cli, tmp_path, topic, str(tmp_path / "*.log"), stderr=subprocess.PIPE)
    try:
        # A known file goes on: what it ships is found again. A new one waits, for its id would be lost in a crash.
        assert agent.stderr is not None
        assert b"cannot write" in agent.stderr.readline()
        eventually(lambda: records(cli, topic) == [b"one", b"two"], "the known file's line")
        in_the_way.rmdir()
        eventually(lambda: records(cli, topic) == [b"one", b"two", b"new"], "the new file's line")
        agent.terminate()
        _, printed = agent.communicate(timeout=120)
        assert (agent.returncode, b"Traceback" in printed) == (0, False)
    finally:
        agent.kill()


def test_a_refused_line_is_reported_when_it_is_refused(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(max_message_bytes="2000"), tmp_path / "a.log"
    log.write_bytes(b"one\n" + random.Random(3).randbytes(9000).replace(b"\n", b"") + b"\ntwo\n")
    agent = follow(cli, tmp_path, topic, str(log), stderr=subprocess.PIPE)
    try:
        assert agent.stderr is not None
        assert b"left out: " in agent.stderr.readline()
        eventually(lambda: set(records(cli, topic)) == {b"one", b"two"}, "the other lines")
        agent.terminate()
        assert agent.wait(120) == 3
    finally:
        agent.kill()


def test_a_clock_that_the_broker_does_not_believe_is_waited_for(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(message_timestamp_before_max_ms="0"), tmp_path / "a.log"
    log.write_bytes(b"one\ntwo\n")
    agent = follow(cli, tmp_path, topic, str(log), stderr=subprocess.PIPE)
    try:
        assert agent.stderr is not None
        assert b"set both clocks right" in agent.stderr.readline()
        cli("config", "unset", "topic", topic, "message.timestamp.before.max.ms")
        eventually(lambda: records(cli, topic) == [b"one", b"two"], "the lines")
        agent.terminate()
        assert agent.wait(120) == 0
    finally:
        agent.kill()


def test_a_kill_behind_an_open_transaction_of_somebody_else(cli: Cli, tmp_path: Path) -> None:
    """What was sent is not committed to consumers yet, and has arrived all the same."""
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_bytes(b"one\ntwo\n")
    other = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": topic})
    try:
        other.init_transactions()
    except KafkaException as error:
        pytest.skip(f"no transactions: {error.args[0].str()}")
    other.begin_transaction()
    other.produce(topic, b"other")
    other.flush()
    agent = follow(cli, tmp_path, topic, str(log))
    try:
        eventually(lambda: cli.json("topic", "describe", topic)[0]["partitions"][0]["end"] == 3, "the lines")
    finally:
        agent.kill()
        agent.wait()
    with log.open("ab") as out:
        out.write(b"three\n")
    once(cli, tmp_path, topic, str(log))
    other.commit_transaction()
    assert records(cli, topic) == [b"other", b"one", b"two", b"three"]


def test_a_clean_run_then_a_kill_at_once(cli: Cli, tmp_path: Path) -> None:
    """The kill comes before the second run has written anything down: what it sent is found all the same."""
    topic, log = cli.topic(), tmp_path / "a.log"
    log.write_bytes(b"one\n")
    once(cli, tmp_path, topic, str(log))
    (state,) = (tmp_path / "st").glob("*.json")
    in_the_way = state.with_suffix(".tmp")
    in_the_way.mkdir()  # as if the kill came before the next save
    with log.open("ab") as out:
        out.write(b"two\n")
    agent = follow(cli, tmp_path, topic, str(log))
    try:
        eventually(lambda: records(cli, topic) == [b"one", b"two"], "the second line")
    finally:
        agent.kill()
        agent.wait()
    in_the_way.rmdir()
    assert once(cli, tmp_path, topic, str(log))["lines_sent"] == 0
    assert records(cli, topic) == [b"one", b"two"]


def test_a_name_that_is_not_there_yet_is_waited_for(cli: Cli, tmp_path: Path) -> None:
    topic, log = cli.topic(), tmp_path / "a.log"
    cli("agent", "tail", str(log), "-t", topic, "--once", "--state", str(tmp_path / "st"), code=1)
    agent = follow(cli, tmp_path, topic, str(log), stderr=subprocess.PIPE)
    try:
        assert agent.stderr is not None
        assert b"no such file yet" in agent.stderr.readline()
        log.write_bytes(b"one\n")
        eventually(lambda: records(cli, topic) == [b"one"], "the line")
        agent.terminate()
        assert agent.wait(120) == 0
    finally:
        agent.kill()


@pytest.mark.parametrize("how", ["--once", "--follow"])
def test_more_files_than_descriptors(cli: Cli, tmp_path: Path, how: str) -> None:
    topic, logs = cli.topic(), tmp_path / "logs"
    logs.mkdir()
    for i in range(300):
        (logs / f"{i}.log").write_bytes(b"%d\n" % i)
    command = cli.command(
        "agent", "tail", str(logs / "*.log"), "-t", topic, how, "--state", str(tmp_path / "st"), "-q"
    )
    agent = subprocess.Popen(
        command,
        env=cli.environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)),
    )
    try:
        if how == "--follow":
            eventually(lambda: len(records(cli, topic)) >= 300, "all lines", 120)
            agent.terminate()
        assert agent.wait(120) == 0
    finally:
        agent.kill()
    assert sorted(map(int, records(cli, topic))) == list(range(300))
