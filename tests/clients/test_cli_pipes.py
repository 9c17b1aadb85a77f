"""`barnabas produce` and `barnabas consume` as pipes, against a real broker."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
import uuid

import pytest

from tests.clients.cli_support import Cli


def test_bytes_pass_as_they_are(cli: Cli) -> None:
    name = cli.topic()
    letters = random.Random(7)
    lines = [letters.randbytes(letters.randrange(200)).replace(b"\n", b" ") for _ in range(5000)]
    done = cli("produce", name, stdin=b"\n".join(lines) + b"\n")
    assert done.stderr.startswith(b"5,000 records")
    assert done.stdout == b""
    assert cli.out("consume", name, "-e") == b"\n".join(lines) + b"\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(cli: Cli, codec: str) -> None:
    name = cli.topic()
    data = b"".join(b"line %d of some text\n" % i for i in range(1000))
    cli("produce", name, "-z", codec, stdin=data)
    assert cli.out("consume", name, "-e") == data


def test_keys_headers_nulls_and_formats(cli: Cli) -> None:
    name = cli.topic()
    cli("produce", name, "-k", ":", "-Z", "-H", "a=1", "-H", "b=x=y", stdin=b"k1:v1\nk2:\nplain\n")
    assert cli.out("consume", name, "-e", "-f", r"%p/%o %k=%s [%h] %K %S\n", "-Z", "NULL") == (
        b"0/0 k1=v1 [a=1,b=x=y] 2 2\n0/1 k2=NULL [a=1,b=x=y] 2 -1\n0/2 NULL=plain [a=1,b=x=y] -1 5\n"
    )
    assert cli.out("consume", name, "-e", "-k", "|", "-D", ";") == b"k1|v1;k2|;|plain;"
    envelopes = [json.loads(line) for line in cli.out("consume", name, "-e", "-J").splitlines()]
    assert [(e["key"], e["payload"]) for e in envelopes] == [("k1", "v1"), ("k2", None), (None, "plain")]
    assert envelopes[0]["headers"] == ["a", "1", "b", "x=y"]


def test_envelopes_copy_a_topic(cli: Cli) -> None:
    source, copy = cli.topic(), cli.topic()
    cli("produce", source, "-k", ":", "-H", "h=1", stdin=b"k:v\n\xff:\xfe\n:\n")
    cli("produce", copy, "-J", stdin=cli.out("consume", source, "-e", "-J"))
    template = r"%k %s %h %T\n"
    assert cli.out("consume", copy, "-e", "-f", template) == cli.out("consume", source, "-e", "-f", template)


@pytest.mark.parametrize(
    ("where", "want"),
    [
        ("beginning", range(100)),
        ("40", range(40, 100)),
        ("-3", range(97, 100)),
        ("10:20", range(10, 20)),
        (":5", range(5)),
        ("95:", range(95, 100)),
        ("200", range(0)),
        ("end", range(0)),
        ("@-1h", range(100)),
        ("@-2h:@-1h", range(0)),
        ("@2020-01-01", range(100)),
        ("@0:end", range(100)),
    ],
)
def test_offsets(cli: Cli, hundred: str, where: str, want: range) -> None:
    assert cli.out("consume", hundred, "-e", "-o", where).split() == [b"%d" % i for i in want]


@pytest.fixture(scope="module")
def hundred(cli: Cli) -> str:
    """A topic with the records 0..99."""
    name = cli.topic()
    cli("produce", name, stdin=b"".join(b"%d\n" % i for i in range(100)))
    return name


def test_ranges_of_times(cli: Cli) -> None:
    name = cli.topic(retention_ms="-1")
    stamped = [{"payload": f"{ms}", "ts": ms} for ms in range(1_700_000_000_000, 1_700_000_010_000, 1000)]
    cli("produce", name, "-J", stdin="\n".join(json.dumps(record) for record in stamped).encode())
    want = [record["payload"] for record in stamped]

    def read(*offsets: str) -> list[str]:
        return cli.out("consume", name, *(word for o in offsets for word in ("-o", o))).decode().split()

    assert read("@1700000002000:@1700000005000") == want[2:5]
    assert read("@2023-11-14T22:13:22Z:@2023-11-14T22:13:24.500Z") == want[2:5]
    assert read("s@1700000002000", "e@1700000005000") == want[2:5]
    assert read("e@1700000002000") == want[:2]


def test_several_topics_in_the_order_of_their_times(cli: Cli) -> None:
    here, there = cli.topic(partitions=2, retention_ms="-1"), cli.topic(retention_ms="-1")
    for name, first in ((here, 0), (there, 1)):
        rows = [{"payload": f"{ms}", "ts": 1_700_000_000_000 + ms} for ms in range(first, 400, 2)]
        cli("produce", name, "-J", stdin="\n".join(json.dumps(row) for row in rows).encode())
    assert cli.out("consume", f"{here},{there}", "-e").decode().split() == [str(n) for n in range(400)]
    assert cli.out("consume", f"{here},{there}", "-c", "7").decode().split() == [str(n) for n in range(7)]
    assert b"leave out -g" in cli("consume", f"{here},{there}", "-g", "x", code=2).stderr
    reader = cli.start("consume", f"{here},{there}", stdout=subprocess.PIPE)
    try:
        assert reader.stdout is not None
        assert [reader.stdout.readline() for _ in range(400)] == [b"%d\n" % n for n in range(400)]
        cli("produce", there, stdin=b"new\n")
        assert reader.stdout.readline() == b"new\n", "topics at their ends hold nobody back"
    finally:
        reader.kill()
        reader.wait()
        reader.stdout.close()


def test_count_and_partition(cli: Cli) -> None:
    name = cli.topic(partitions=3)
    for partition in range(3):
        cli("produce", name, "-p", str(partition), "-c", "5", stdin=b"%d\n" % partition * 9)
    assert cli.out("consume", name, "-p", "1", "-e") == b"1\n" * 5
    assert len(cli.out("consume", name, "-c", "7").splitlines()) == 7
    assert b"no partition 9" in cli("consume", name, "-p", "9", code=1).stderr
    done = cli("produce", name, "-p", "9", stdin=b"x\n", code=3)
    assert b"1 record not delivered" in done.stderr


def test_follows_and_stops_on_signals(cli: Cli) -> None:
    name = cli.topic()
    reader = cli.start("consume", name, "-o", "beginning", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert reader.stdout is not None
        for i in range(3):
            cli("produce", name, stdin=b"%d\n" % i)
            assert reader.stdout.readline() == b"%d\n" % i
        reader.send_signal(signal.SIGINT)
        assert reader.wait(20) == 0
    finally:
        reader.kill()


def test_a_writer_that_is_interrupted_delivers_what_it_read(cli: Cli) -> None:
    name = cli.topic()
    writer = cli.start("produce", name, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert writer.stdin is not None
        writer.stdin.write(b"one\ntwo\n")
        writer.stdin.flush()
        assert cli.out("consume", name, "-c", "2") == b"one\ntwo\n"
        writer.send_signal(signal.SIGTERM)
        assert writer.wait(20) == 0
    finally:
        writer.kill()


def test_a_reader_that_goes_away_is_no_error(cli: Cli) -> None:
    name = cli.topic()
    cli("produce", name, stdin=b"0123456789" * 10 + b"\n" + b"x" * 99 + b"\n" * 1)
    cli("produce", name, stdin=(b"y" * 200 + b"\n") * 20_000)
    reader = cli.start("consume", name, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert reader.stdout is not None
        assert reader.stdout.read(10) == b"0123456789"
        reader.stdout.close()
        assert reader.wait(20) == 0
        assert reader.stderr is not None
        assert b"Traceback" not in reader.stderr.read()
    finally:
        reader.kill()


def test_a_group_goes_on_where_it_was(cli: Cli, hundred: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    assert cli.out("consume", hundred, "-g", group, "-c", "40").split() == [b"%d" % i for i in range(40)]
    assert cli.out("consume", hundred, "-g", group, "-e").split() == [b"%d" % i for i in range(40, 100)]
    assert cli.out("consume", hundred, "-g", group, "-e") == b""
    assert b"barnabas group" not in cli("consume", hundred, "-g", group, "-o", "5", code=2).stdout
    by_hand = f"group-{uuid.uuid4().hex[:8]}"
    assert len(cli.out("consume", hundred, "-g", by_hand, "-p", "0", "-c", "10").split()) == 10
    assert cli.out("consume", hundred, "-g", by_hand, "-o", "stored", "-e").split()[0] == b"10"


def test_errors(cli: Cli) -> None:
    assert b"barnabas topic list" in cli("consume", "cli-no-such-topic", "-e", code=1).stderr
    assert b"no.such: there is no such option" in cli("consume", "x", "-X", "no.such=1", code=2).stderr
    refused = cli("consume", cli.topic(), "-X", "acks=none", code=2).stderr
    assert b"librdkafka refuses the configuration" in refused
    assert b"exclude each other" in cli("consume", "x", "-J", "-f", "%s", code=2).stderr
    assert b"-g GROUP" in cli("consume", "x", "-o", "stored", code=2).stderr
    done = cli("produce", cli.topic(), "-J", stdin=b'{"value":"ok"}\nnope\n', code=1)
    assert done.stderr.splitlines()[0].startswith(b"1 record ")


def test_large_and_refused_records(cli: Cli) -> None:
    name = cli.topic(max_message_bytes="2000")
    done = cli("produce", name, stdin=b"small\n" + b"x" * 5000 + b"\n", code=3)
    assert b"max.message.bytes" in done.stderr
    assert b"Traceback" not in done.stderr


def test_pipes_are_prompt(cli: Cli) -> None:
    """No fixed wait anywhere: a slow topic's record is written while its reader waits for more."""
    name = cli.topic()
    reader = cli.start("consume", name, "-q", stdout=subprocess.PIPE)
    try:
        assert reader.stdout is not None
        cli("produce", name, stdin=b"first\n")
        reader.stdout.readline()
        began = time.monotonic()
        cli("produce", name, stdin=b"second\n")
        assert reader.stdout.readline() == b"second\n"
        assert time.monotonic() - began < 10
        reader.terminate()
        assert reader.wait(20) == 0
    finally:
        reader.kill()
