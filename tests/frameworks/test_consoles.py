"""kcat, from Debian's package, as its manual shows it."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.clients.foreign import need
from tests.support.admin import create_topic
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
