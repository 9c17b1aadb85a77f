"""Patterns of topics: internal topics are matched only by those who ask for them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.cli_support import Cli
from tests.support import preloaded

INTERNAL = "__consumer_offsets"


@pytest.fixture
def used(own_broker: Callable[..., Any]) -> Cli:
    """A broker with a topic, and a group that has committed offsets."""
    cli = Cli(own_broker().bootstrap)
    cli("produce", "letters", "-k", ":", stdin=b"a:1\nb:2\n")
    cli("consume", "letters", "-g", "readers", "-c", "2")
    return cli


def json_lines(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def shown_topics(cli: Cli, *words: str) -> set[str]:
    """The topics of the records that the console consumer prints."""
    done = preloaded.run(
        [*cli.command("kafka", "console-consumer"), "--bootstrap-server", cli.bootstrap, "--from-beginning",
         "--timeout-ms", "4000", *words],
        capture_output=True, env=cli.environment(), timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    return {"letters" if line in (b"1", b"2") else INTERNAL for line in lines}


def test_the_console_consumer(used: Cli) -> None:
    assert shown_topics(used, "--include", ".*") == {"letters"}
    assert shown_topics(
        used, "--whitelist", ".*", "--consumer-property", "exclude.internal.topics=false"
    ) == {
        "letters",
        INTERNAL,
    }
    assert shown_topics(used, "--blacklist", "lett.*") == set()
    assert shown_topics(used, "--whitelist", "*") == {"letters"}


def test_barnabas_consume(used: Cli) -> None:
    for joined in ((), ("-g", "everything", "-c", "2")):
        rows = json_lines(used.out("consume", "^.*", "-J", "-e" if not joined else "-q", *joined))
        assert {row["topic"] for row in rows} == {"letters"}
    rows = json_lines(used.out("consume", "^__.*", "-J", "-e"))
    assert {row["topic"] for row in rows} == {INTERNAL}


def test_mirror_maker_copies_everything_but_internal_topics(
    used: Cli, own_broker: Callable[..., Any], tmp_path: Path
) -> None:
    target = Cli(own_broker().bootstrap)
    (tmp_path / "c").write_text(
        f"bootstrap.servers={used.bootstrap}\ngroup.id=mirror\nauto.offset.reset=earliest\n"
    )
    (tmp_path / "p").write_text(f"bootstrap.servers={target.bootstrap}\n")
    files = ("--consumer.config", str(tmp_path / "c"), "--producer.config", str(tmp_path / "p"))
    target("topic", "create", "letters")
    mirror = used.start("kafka", "mirror-maker", *files, "--whitelist", ".*")
    try:
        rows = json_lines(target.out("consume", "letters", "-c", "2", "-J"))
        used("consume", "letters", "-g", "others", "-c", "2")  # internal records after the copy has begun
        used("produce", "letters", "-k", ":", stdin=b"c:3\n")
        rows += json_lines(target.out("consume", "letters", "-o", "2", "-c", "1", "-J"))
    finally:
        mirror.terminate()
        assert mirror.wait(60) == 0
    assert [row["payload"] for row in rows] == ["1", "2", "3"]
    names = {row["topic"] for row in target.json("topic", "list")}
    assert names == {"letters"}


JAVA = r"let[a-z&&[^x]]\p{Lower}rs|\Qa+b\E|l(?<rest>\d+)"
"""What neither Python's nor librdkafka's expressions understand; it matches `letters`."""


def test_expressions_are_java_s(used: Cli, own_broker: Callable[..., Any], tmp_path: Path) -> None:
    assert shown_topics(used, "--include", JAVA) == {"letters"}
    assert shown_topics(used, "--blacklist", JAVA) == set()
    for tool, option in (("topics", "--list"), ("get-offsets", "--time=-1")):
        listing = used.command("kafka", tool, "--bootstrap-server", used.bootstrap, option, "--topic", JAVA)
        printed = preloaded.run(listing, capture_output=True, text=True, check=True, timeout=120).stdout
        assert [line.partition(":")[0] for line in printed.splitlines()] == ["letters"]
    broken = used.command("kafka", "topics", "--bootstrap-server", used.bootstrap, "--list", "--topic", "(a")
    done = preloaded.run(broken, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "(a is an invalid regex" in done.stderr) == (1, True)


def test_a_topic_that_is_made_later_is_read_too(used: Cli) -> None:
    reader = used.start(
        "kafka", "console-consumer", "--bootstrap-server", used.bootstrap, "--from-beginning", "--include", r"new-\d+",
        "--max-messages", "2", "--consumer-property", "metadata.max.age.ms=200",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    used("produce", "new-1", stdin=b"one\n")
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"one\n"
    used("produce", "new-2", stdin=b"two\n")
    assert reader.communicate(timeout=120)[0] == b"two\n"
    assert reader.returncode == 0
