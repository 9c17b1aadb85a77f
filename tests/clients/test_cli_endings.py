"""How the commands end: signals, refusals, devices that are full. Nothing that was read is lost in silence."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from tests.clients.cli_support import Cli
from tests.support.examples import one_in

ENDINGS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def eventually(check: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def kafka(cli: Cli, tool: str, *arguments: str, **pipes: Any) -> subprocess.Popen[bytes]:
    return cli.start("kafka", tool, *arguments, "--bootstrap-server", cli.bootstrap, **pipes)


def fed(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdin is not None
    return process.stdin


def is_read(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has taken all that was written to its standard input."""
    import fcntl
    import struct
    import termios

    waiting = fcntl.ioctl(fed(process), termios.FIONREAD, b"\0" * 4)
    return bool(struct.unpack("i", waiting)[0] == 0)


def are_answers_read(port: int) -> bool:
    """Whether clients have taken all that was sent to them from this port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    mine = [row for row in rows if row[2].endswith(f":{port:04X}")]
    return all(int(row[4].partition(":")[2], 16) == 0 for row in mine)


@pytest.mark.parametrize("number", one_in(2, ENDINGS))
@pytest.mark.parametrize("tool", ["barnabas", "kafka"])
def test_a_producer_delivers_what_it_has_read(cli: Cli, tool: str, number: signal.Signals) -> None:
    topic = cli.topic()
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    if tool == "barnabas":
        process = cli.start("produce", topic, "-X", "linger.ms=60000", **pipes)
    else:
        process = kafka(cli, "console-producer", "--topic", topic, "--timeout", "60000", **pipes)
    fed(process).write(b"one\ntwo\n")
    fed(process).flush()
    eventually(lambda: is_read(process), "the lines are read")
    process.send_signal(number)
    _, printed = process.communicate(timeout=120)
    assert (process.returncode, b"Traceback" in printed) == (0, False)
    assert cli.out("consume", topic, "-e") == b"one\ntwo\n"


@pytest.mark.parametrize("number", one_in(2, ENDINGS))
@pytest.mark.parametrize("tool", ["barnabas", "kafka"])
def test_a_consumer_commits_and_leaves_its_group(cli: Cli, tool: str, number: signal.Signals) -> None:
    topic, group = cli.topic(), f"g-{uuid.uuid4().hex[:8]}"
    cli("produce", topic, stdin=b"one\ntwo\n")
    if tool == "barnabas":
        process = cli.start("consume", topic, "-g", group, "-q", stdout=subprocess.PIPE)
    else:
        options = ("--topic", topic, "--group", group, "--from-beginning")
        process = kafka(cli, "console-consumer", *options, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
    process.send_signal(number)
    assert process.wait(20) == 0
    (shown,) = cli.json("group", "describe", group)
    assert (shown["members"], shown["lag"], shown["state"]) == ([], 0, "empty")


@pytest.mark.parametrize("tool", ["barnabas", "kafka"])
def test_a_full_device_commits_nothing_and_leaves_no_member(cli: Cli, tool: str) -> None:
    topic, group = cli.topic(), f"g-{uuid.uuid4().hex[:8]}"
    cli("produce", topic, stdin=b"one\n")
    with open("/dev/full", "wb") as full:
        if tool == "barnabas":
            process = cli.start("consume", topic, "-g", group, stdout=full, stderr=subprocess.PIPE)
        else:
            options = ("--topic", topic, "--group", group, "--from-beginning")
            process = kafka(cli, "console-consumer", *options, stdout=full, stderr=subprocess.PIPE)
        _, printed = process.communicate(timeout=120)
    assert process.returncode == 1
    assert b"No space left on device" in printed
    assert b"Traceback" not in printed
    assert b"Exception ignored" not in printed
    (shown,) = cli.json("group", "describe", group)
    assert (shown["members"], [row["committed"] for row in shown["offsets"]]) == ([], [])


@pytest.mark.parametrize("tool", ["barnabas", "kafka"])
def test_one_refused_record_does_not_stop_the_others(cli: Cli, tool: str) -> None:
    topic = cli.topic()
    data = b"before\n" + b"x" * 10_000_000 + b"\nafter\n"
    if tool == "barnabas":
        done = cli("produce", topic, stdin=data, code=3)
        assert done.stderr.startswith(b"2 records (11 B) delivered")
        assert b"1 record not delivered" in done.stderr
    else:
        options = ("--topic", topic, "--bootstrap-server", cli.bootstrap)
        done = cli("kafka", "console-producer", *options, stdin=data, code=1)
        assert done.stderr.count(b"\n") == 1
        assert b"value: 10000000 bytes" in done.stderr
    assert b"Traceback" not in done.stderr
    assert sorted(cli.out("consume", topic, "-e").split()) == [b"after", b"before"]


@pytest.mark.parametrize("tool", ["barnabas", "kafka"])
def test_a_refused_batch_is_not_refused_records(own_broker: Callable[..., Any], tool: str) -> None:
    """The topic does not exist when the tool starts, and the broker takes small batches only."""
    broker = own_broker(message__max__bytes="20000")
    cli = Cli(broker.bootstrap)
    topic = "made-by-produce"
    lines = b"".join(b"%080d\n" % i for i in range(5000))
    if tool == "barnabas":
        cli("produce", topic, stdin=lines)
    else:
        cli("kafka", "console-producer", "--topic", topic, "--bootstrap-server", cli.bootstrap, stdin=lines)
    assert sorted(cli.out("consume", topic, "-e").splitlines()) == lines.splitlines()


def test_a_limit_that_is_lowered_while_producing(cli: Cli) -> None:
    topic = cli.topic()
    process = cli.start("produce", topic, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    fed(process).write(b"first\n")
    fed(process).flush()
    eventually(lambda: cli.out("consume", topic, "-e") == b"first\n", "the first record")
    cli("config", "set", "topic", topic, "max.message.bytes=20000")
    lines = b"".join(b"%080d\n" % i for i in range(5000))
    _, printed = process.communicate(lines, timeout=120)
    assert process.returncode == 0, printed
    assert sorted(cli.out("consume", topic, "-e").splitlines()) == [*lines.splitlines(), b"first"]


def test_bad_json_names_line_and_column(cli: Cli) -> None:
    topic = cli.topic()
    done = cli("produce", topic, "-J", stdin=b'{"value": "one"}\n{"value": two}\n', code=1)
    assert b"line 2: column 11" in done.stderr
    assert cli.out("consume", topic, "-e") == b"one\n"


def test_json_without_a_value_is_refused_and_null_is_not(cli: Cli) -> None:
    topic = cli.topic()
    done = cli(
        "produce", topic, "-J", stdin=b'{"key": "k", "value": null}\n{"key": "k", "vale": "x"}\n', code=1
    )
    assert b"line 2: neither" in done.stderr
    assert cli.out("consume", topic, "-e", "-f", r"%k %S\n") == b"k -1\n"


def test_output_closed_early_is_no_failure(cli: Cli) -> None:
    topic = cli.topic()
    cli("produce", topic, stdin=b"one\n" * 100_000)
    command = f"{' '.join(cli.command('consume', topic, '-e'))} | head -n 1"
    shown = subprocess.run(["bash", "-o", "pipefail", "-c", command], env=cli.environment(),
                           capture_output=True, timeout=120, check=False)  # fmt: skip
    assert (shown.returncode, shown.stdout) == (0, b"one\n")


def test_the_reader_of_a_dump_may_go_away(cli: Cli, tmp_path: Path) -> None:
    topic = cli.topic()
    cli("produce", topic, stdin=b"one\n" * 50_000)
    log = next(Path(row["dir"]) for row in cli.json("log", "dirs", topic)) / f"{topic}-0" / f"{0:020}.log"
    command = f"{' '.join(cli.command('log', 'dump', str(log), '--print-data'))} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_offset_past_the_end_is_said(cli: Cli) -> None:
    topic = cli.topic()
    cli("produce", topic, stdin=b"one\n")
    assert b"offset 99,999 is past the end, which is 1" in cli("consume", topic, "-o", "99999", "-e").stderr


def test_a_topic_that_produce_makes_is_said_and_one_that_stays_away_fails_at_once(
    own_broker: Callable[..., Any],
) -> None:
    fresh_cli = Cli(own_broker().bootstrap)
    assert (
        b"the topic fresh was not there; the broker has made it"
        in fresh_cli("produce", "fresh", stdin=b"x\n").stderr
    )
    assert b"was not there" not in fresh_cli("produce", "fresh", stdin=b"x\n").stderr
    closed = Cli(own_broker(auto__create__topics__enable="false").bootstrap)
    assert (
        b"`barnabas topic create nosuch` creates it"
        in closed("produce", "nosuch", stdin=b"x\n", code=1).stderr
    )


def test_a_following_consume_says_when_the_broker_is_away_and_back(own_broker: Callable[..., Any]) -> None:
    broker = own_broker()
    cli = Cli(broker.bootstrap)
    cli("topic", "create", "t")
    cli("produce", "t", stdin=b"one\n")
    process = cli.start("consume", "t", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"one\n"
    time.sleep(
        1.5
    )  # librdkafka counts once a second: it has counted the connection by then, or this is said later
    broker.stop()
    assert process.stderr.readline() == f"broker {broker.bootstrap} is away; waiting for it\n".encode()
    broker.start()
    assert process.stderr.readline().startswith(f"broker {broker.bootstrap} is back after ".encode())
    cli("produce", "t", stdin=b"two\n")
    assert process.stdout.readline() == b"two\n"
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 0
    assert printed.startswith(b"2 records")


def test_a_dump_as_json(cli: Cli, request: pytest.FixtureRequest) -> None:
    topic = cli.topic()
    cli("produce", topic, "-k", ":", "-H", "who=me", stdin=b"key: 1:payload: x\n")
    log = next(Path(row["dir"]) for row in cli.json("log", "dirs", topic)) / f"{topic}-0" / f"{0:020}.log"
    rows = [
        json.loads(line) for line in cli.out("log", "dump", str(log), "--print-data", "--json").splitlines()
    ]
    assert {row["file"] for row in rows} == {str(log)}
    (batch,) = [row for row in rows if "baseOffset" in row]
    assert (batch["count"], batch["isvalid"], batch["compresscodec"]) == (1, True, "none")
    (record,) = [row for row in rows if row.get("kind") == "record"]
    assert (record["key"], record["payload"], record["headerKeys"]) == ("key", " 1:payload: x", ["who"])


def test_the_broker_names_a_wrong_protocol(own_broker: Callable[..., Any]) -> None:
    broker = own_broker()
    host, port = broker.bootstrap.rsplit(":", 1)
    for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"):
        with socket.create_connection((host, int(port)), 10) as connected:
            connected.sendall(greeting)
            assert connected.recv(1) == b""
    eventually(lambda: "this is a TLS handshake" in broker.log_path.read_text(), "the log names TLS")
    assert "this is an HTTP request" in broker.log_path.read_text()


def test_consume_without_a_standard_output(cli: Cli) -> None:
    topic = cli.topic()
    cli("produce", topic, stdin=b"one\n")
    command = f"{' '.join(cli.command('consume', topic, '-e'))} >&-"
    done = subprocess.run(
        ["bash", "-c", command], env=cli.environment(), capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr == b"barnabas consume: cannot write to standard output: it is closed\n"


def test_a_producer_whose_broker_is_away_says_so_and_what_a_signal_does(
    own_broker: Callable[..., Any],
) -> None:
    broker = own_broker()
    cli = Cli(broker.bootstrap)
    cli("topic", "create", "t")
    process = cli.start("produce", "t", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    fed(process).write(b"one\n")
    fed(process).flush()
    eventually(lambda: cli.out("consume", "t", "-e") == b"one\n", "the first record")
    time.sleep(1.5)  # as for consume: librdkafka has counted the connection by then
    eventually(lambda: are_answers_read(broker.port), "the first acknowledgement is read")
    broker.stop()
    fed(process).write(b"two\n")
    fed(process).flush()
    assert process.stderr.readline() == f"broker {broker.bootstrap} is away; waiting for it\n".encode()
    process.send_signal(signal.SIGTERM)
    assert process.stderr.readline().startswith(
        b"waiting for the acknowledgement of 1 record; another Ctrl-C"
    )
    process.send_signal(signal.SIGTERM)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 3
    assert b"1 record not delivered: interrupted" in printed


def test_a_producer_says_that_too_few_replicas_are_in_sync(cli: Cli) -> None:
    topic = cli.topic(min_insync_replicas="2")
    printed = cli("produce", topic, "-X", "message.timeout.ms=1500", stdin=b"one\n", code=3).stderr
    assert b"has 1 in-sync replica, and min.insync.replicas is 2" in printed
