"""Apps as users run them, `barnabas streams run`, on Spark: the examples, timers and TTL, --watch with --listen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from barnabas.client.blocking import BlockingClient, NewTopic
from tests.pipelines.readers import Seen, consumed
from tests.support.admin import KEPT
from tests.support.process import free_port

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(1800)]

EXAMPLES = Path(__file__).parents[2] / "examples" / "streams"
PATIENCE_S = 600.0

WATCHED = """
from barnabas.streams import App

app = App("watched", tasks=2)
words = app.stream("watched-lines").flat_map_values(lambda line: line.{case}().split())
words.group_by(lambda k, v: v).count(name="counts").to_stream().to("watched-counts")
"""
TIMED = """
from barnabas.streams import App, Processor


class Once(Processor):
    \"\"\"Forwards a key when it was not seen for three seconds, and tells once a second how many it knows.\"\"\"

    def init(self, context):
        self.seen = context.store("seen")
        self.told = context.store("told")
        context.schedule("1 second", "wall_clock", self.tell)

    def process(self, record):
        if record.key not in self.seen:
            self.context.forward(record.key, "new")
        self.seen[record.key] = record.value

    def tell(self, now):
        known = len(list(self.seen.items()))
        if self.told.get("known") != known:
            self.told["known"] = known
            self.context.forward("known", known)


class Latest(Processor):
    \"\"\"Forwards the number of records of each ten seconds of the records' own time.\"\"\"

    def init(self, context):
        self.count = context.store("count")
        context.schedule("10 seconds", "stream_time", self.tell)

    def process(self, record):
        self.count["n"] = self.count.get("n", 0) + 1

    def tell(self, at):
        self.context.forward("count", self.count.get("n", 0))


app = App("timed", tasks=1)
app.add_state_store("seen", ttl="3 seconds")
app.add_state_store("told")
app.add_state_store("count")
app.stream("timed-in").process(Once, stores=["seen", "told"], wall_clock=True).to("timed-out")
app.stream("timed-in").process(Latest, stores="count").to("timed-counts")
"""


def until(look: Callable[[], Any], about: Callable[[], str]) -> Any:
    """What is found, as soon as it is something."""
    give_up = time.monotonic() + PATIENCE_S
    while not (value := look()):
        assert time.monotonic() < give_up, about()
        time.sleep(0.2)
    return value


@contextmanager
def running(folder: Path, *words: str) -> Iterator[Callable[[], str]]:
    """`barnabas streams run` in a folder. Yields a function with what it has printed."""
    log = folder / "log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "barnabas",
                "streams",
                "run",
                *words,
                "--checkpoints",
                str(folder / "state"),
            ],
            cwd=folder,
            stdout=file,
            stderr=file,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    try:
        yield log.read_text
        process.send_signal(signal.SIGINT)
        assert process.wait(120) in (0, 130), log.read_text()
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for one in (process, *family):
            one.kill()
        process.wait()
    assert "Traceback" not in log.read_text()


def topics(client: BlockingClient, *names: str) -> None:
    client.create_topics([NewTopic(name, 1, configs=KEPT) for name in names])


def send(bootstrap: str, topic: str, *records: tuple[str | None, str, int] | tuple[str | None, str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value, *at in records:
        producer.produce(topic, value, key, timestamp=at[0] if at else 0)
    assert producer.flush(60) == 0


def written(client: BlockingClient, bootstrap: str, topic: str) -> list[Seen]:
    return consumed(bootstrap, topic) if topic in client.topics() else []


def test_the_examples_on_spark(bootstrap, client, tmp_path):
    topics(client, "lines", "truck_position", "trades", "jobs")
    send(bootstrap, "lines", (None, "To be, or not to be"))
    normal = "1522847870310,44,13,1390372503,Normal,41.71,-91.32,-2458274393837068406"
    dangerous = "1522847914240,54,11,1198242881,Lane Departure,40.86,-89.91,-2458274393837068406"
    send(bootstrap, "truck_position", *[("truck/11", line) for line in (normal, dangerous, "no position")])
    trades = ((100.0, 0), (110.0, 30_000), (99.0, 59_000), (105.0, 60_000), (1.0, 200_000))
    trade = {"symbol": "MMM", "shares": 10}
    begin = 1_700_000_040_000
    send(bootstrap, "trades", *[(None, json.dumps({**trade, "price": p}), begin + at) for p, at in trades])
    for name in ("word_count", "trucks", "stock_prices"):
        words = (
            f"{EXAMPLES / name}.py:app",
            "--once",
            "-b",
            bootstrap,
            "--checkpoints",
            str(tmp_path / "state"),
        )
        subprocess.run([sys.executable, "-m", "barnabas", "streams", "run", *words], check=True, cwd=tmp_path)
    counts = {record.key: record.value for record in consumed(bootstrap, "word-counts")}
    assert counts == {b"to": b"2", b"be": b"2", b"or": b"1", b"not": b"1"}
    assert [record.value for record in consumed(bootstrap, "dangerous_driving")] == [dangerous.encode()]
    (letter,) = consumed(bootstrap, "trucks-dead-letters")
    assert letter.value == b"no position"
    assert [json.loads(record.value) for record in consumed(bootstrap, "prices-by-minute")] == [
        {"symbol": "MMM", "minute": begin, "last": 99.0, "change_percent": -1.0},
        {"symbol": "MMM", "minute": begin + 60_000, "last": 105.0, "change_percent": 0.0},
    ]

    jobs = [
        (None, json.dumps({"id": name, "priority": n})) for name, n in zip("abcd", (1, 9, 5, 9), strict=True)
    ]
    send(bootstrap, "jobs", *jobs)
    with running(tmp_path, f"{EXAMPLES / 'priority.py'}:app", "-b", bootstrap) as log:
        until(lambda: len(written(client, bootstrap, "jobs-by-priority")) == 4, log)
    assert [record.key for record in consumed(bootstrap, "jobs-by-priority")] == [b"b", b"d", b"c", b"a"]


def test_timers_and_ttl_on_spark(bootstrap, client, tmp_path):
    topics(client, "timed-in", "timed-out", "timed-counts")
    (tmp_path / "timed.py").write_text(TIMED)
    begin = 1_700_000_000_000

    def pairs_written() -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in consumed(bootstrap, "timed-out")]

    with running(tmp_path, "timed:app", "-b", bootstrap) as log:
        send(bootstrap, "timed-in", ("a", "1", begin), ("a", "2", begin + 1))
        until(lambda: (b"known", b"0") in pairs_written(), log)
        assert pairs_written().count((b"a", b"new")) == 1
        send(bootstrap, "timed-in", ("a", "3", begin + 30_000))
        until(lambda: pairs_written().count((b"a", b"new")) == 2, log)
        until(lambda: len(consumed(bootstrap, "timed-counts")) == 2, log)
    # By the records' time: at the first record, and when that of the third one has come.
    assert [record.value for record in consumed(bootstrap, "timed-counts")][-1] == b"3"
    assert consumed(bootstrap, "timed-dead-letters") == []


def test_watched_and_asked(bootstrap, client, tmp_path):
    topics(client, "watched-lines", "watched-counts")
    code = tmp_path / "watched.py"
    code.write_text(WATCHED.format(case="lower"))
    where = f"127.0.0.1:{free_port()}"

    def asked(key: str) -> str:
        words = ("streams", "get", "watched/counts", key, "--url", f"http://{where}")
        done = subprocess.run([sys.executable, "-m", "barnabas", *words], capture_output=True, text=True)
        return done.stdout

    with running(tmp_path, "watched:app", "-b", bootstrap, "--watch", "--listen", where) as log:
        send(bootstrap, "watched-lines", (None, "To be"), (None, "to go"))
        until(lambda: "1 rows of watched/counts" in asked("to"), log)
        until(lambda: " 2 " in asked("to"), log)
        code.write_text(WATCHED.format(case="upper"))
        until(lambda: "watched.py has changed: starting again" in log(), log)
        send(bootstrap, "watched-lines", (None, "to"))
        until(lambda: " 1 " in asked("TO"), log)
        assert " 2 " in asked("to")  # what was counted before stays
        code.write_text("from barnabas.streams import App\napp = App(")
        until(lambda: "it starts again when its code changes" in log(), log)
        code.write_text(WATCHED.format(case="upper"))
        send(bootstrap, "watched-lines", (None, "to"))
        until(lambda: " 2 " in asked("TO"), log)
