"""Consoles of others: kcat, from Debian's package, as its manual shows it, and kaf, from Go's module proxy."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.clients.foreign import need
from tests.frameworks.harness import go_program
from tests.support.admin import create_topic
from tests.support.cluster import until
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.soak


def kcat(bootstrap: str, *words: str, text: str = "") -> str:
    done = subprocess.run(
        [need("kcat"), "-b", bootstrap, *words], input=text, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat(broker: BrokerProcess) -> None:
    where = broker.bootstrap
    create_topic(where, "kcat", 2)
    kcat(
        where, "-P", "-t", "kcat", "-p", "1", "-K", ":", "-H", "from=kcat", "-z", "lz4", text="a:one\nb:two\n"
    )

    listed = json.loads(kcat(where, "-L", "-J", "-t", "kcat"))
    assert [len(topic["partitions"]) for topic in listed["topics"]] == [2]
    assert kcat(where, "-C", "-t", "kcat", "-e", "-q", "-f", "%p %o %k %s %h\n").splitlines() == [
        "1 0 a one from=kcat",
        "1 1 b two from=kcat",
    ]
    assert kcat(where, "-Q", "-t", "kcat:1:-1").split() == ["kcat", "[1]", "offset", "2"]
    assert kcat(where, "-C", "-t", "kcat", "-p", "1", "-o", "-1", "-e", "-q") == "two\n"
    assert kcat(where, "-G", "kcat-readers", "-X", "auto.offset.reset=earliest", "-e", "-q", "kcat") == (
        "one\ntwo\n"
    )


def test_kaf(broker: BrokerProcess, tmp_path: Path) -> None:
    """Its commands, as its page shows them. It is sarama in a command."""
    program = go_program("kaf", "github.com/birdayz/kaf/cmd/kaf")
    environment = {**os.environ, "HOME": str(tmp_path)}

    def kaf(*words: str, text: str = "") -> str:
        done = subprocess.run(
            [program, "-b", broker.bootstrap, *words], input=text, capture_output=True, text=True, timeout=120,
            env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shows(line: str, *words: str) -> bool:
        return re.search(line, kaf(*words), re.MULTILINE) is not None

    assert broker.bootstrap in kaf("nodes")
    assert "Created topic" in kaf("topic", "create", "kaf", "-p", "2")
    assert shows(r"^kaf +2 +1 *$", "topics")
    assert kaf("produce", "kaf", "-p", "1", "-k", "one", text="hello\n").startswith(
        "Sent record to partition 1"
    )
    assert kaf("consume", "kaf", "--offset", "oldest", "--raw") == "hello\n"
    assert shows(r"^ *1 +1 +1 +\[1\] +\[1\] *$", "topic", "describe", "kaf")
    reader = subprocess.Popen(
        [program, "-b", broker.bootstrap, "consume", "kaf", "-g", "kaf-readers", "--commit", "--raw"],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "hello\n"
        assert shows(r"^kaf-readers +Stable +1 *$", "groups")
        until(lambda: shows(r"^ *1 +1 +1 +0 ", "group", "describe", "kaf-readers"), "the offset is committed")
    finally:
        reader.terminate()
        reader.communicate(timeout=60)
    until(lambda: shows(r"^kaf-readers +Empty +0 *$", "groups"), "the reader has left")
    kaf("group", "commit", "kaf-readers", "--topic", "kaf", "-p", "1", "--offset", "0", "--noconfirm")
    assert shows(r"^ *1 +0 +1 +1 ", "group", "describe", "kaf-readers")
    assert "Deleted" in kaf("topic", "delete", "kaf")
