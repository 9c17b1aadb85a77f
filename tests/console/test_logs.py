"""Log search: lines by words and conditions, over time, by field and pattern, around a hit, live."""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import requests
from tests.console.conftest import WAIT_S, ConsoleProcess, running

HOUR_S = 3600


def event(at_s: float, level: str, message: str, host: str = "web1", **fields: Any) -> bytes:
    time_text = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    log = {"level": level, "file": {"path": "/var/log/app.log"}}
    return json.dumps(
        {"@timestamp": time_text, "message": message, "host": {"name": host}, "log": log, **fields}
    ).encode()


def send(bootstrap: str, topic: str, events: list[tuple[float, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for at_s, value in events:
        producer.produce(topic, value, partition=0, timestamp=int(at_s * 1000))
    producer.flush()


@pytest.fixture(scope="module")
def log(console: ConsoleProcess) -> str:
    """A topic with 600 lines of an hour: every tenth is an error, and one of its own is in the middle."""
    topic = f"log-{uuid.uuid4().hex[:8]}"
    console.post("/topics", {"name": topic, "partitions": 1, "options": {"retention.ms": "-1"}})
    begin_s = time.time() - HOUR_S / 2
    events = []
    for number in range(600):
        at_s = begin_s + number
        host = f"web{number % 2 + 1}"
        if number == 300:
            events.append((at_s, event(at_s, "ERROR", "disk of user <b>anna</b> is full", host, user="anna")))
        elif number % 10 == 0:
            events.append((at_s, event(at_s, "ERROR", f"timeout after {number} ms", host)))
        else:
            events.append((at_s, event(at_s, "INFO", f"request {number} took {number} ms", host)))
    send(console.bootstrap, topic, events)
    return topic


def test_lines_are_found_and_counted(console: ConsoleProcess, log: str) -> None:
    assert log in console.page("/logs")
    answer = console.data(f"/logs/{log}", q="level:error -disk")["result"]
    assert (answer["matched"], answer["looked"], answer["is_over"]) == (59, 600, True)
    assert sum(bar["count"] for bar in answer["histogram"]["bars"]) == 59
    assert answer["lines"][0]["message"] == "timeout after 590 ms"
    [pattern] = answer["patterns"]
    assert (pattern["pattern"], pattern["count"]) == ("timeout after <*> ms", 59)
    values = {
        field["name"]: {one["value"]: one["count"] for one in field["values"]} for field in answer["fields"]
    }
    assert values["level"] == {"ERROR": 59}
    assert set(values["host"]) == {"web1"}
    condition = console.data(f"/logs/{log}", q="level = 'ERROR' AND message LIKE '%disk%'")["result"]
    [line] = condition["lines"]
    assert (line["fields"], line["offset"]) == ({"user": "anna"}, 300)
    assert console.data(f"/logs/{log}", q="user:anna")["result"]["matched"] == 1
    page = console.page(f"/logs/{log}", q="disk")
    assert "&lt;b&gt;anna" in page
    assert "<b>anna" not in page


def test_a_time_and_new_patterns(console: ConsoleProcess, log: str) -> None:
    half = console.data(f"/logs/{log}", since="25m")["result"]
    assert 200 < half["matched"] < 320
    bars = half["histogram"]["bars"]
    one = console.data(f"/logs/{log}", since=bars[3]["begins"], until=bars[3]["ends"])["result"]
    assert one["matched"] == bars[3]["count"]
    compared = console.data(f"/logs/{log}", since="26m", compare="1")["result"]["patterns"]
    assert {row["pattern"]: row["is_new"] for row in compared}["disk of user <b>anna</b> is full"]
    assert not {row["pattern"]: row["is_new"] for row in compared}["timeout after <*> ms"]


def test_lines_around_a_hit_are_those_of_its_file(console: ConsoleProcess, log: str) -> None:
    around = console.data(f"/logs/{log}/around", partition=0, offset=300, lines=3)
    assert [line["offset"] for line in around["lines"]] == [294, 296, 298, 300, 302, 304, 306]
    assert 'class="hit"' in console.page(f"/logs/{log}/around", partition=0, offset=300)
    assert "There is no record" in console.page(f"/logs/{log}/around", 404, partition=0, offset=10_000)


def test_what_cannot_be_understood_is_said(console: ConsoleProcess, log: str) -> None:
    assert "The query cannot be understood" in console.page(f"/logs/{log}", 400, q="level = ")
    assert "is no time" in console.page(f"/logs/{log}", 400, since="soon")
    console.page("/logs/absent", 404)


def test_lines_are_followed_and_searched_to_the_end(console: ConsoleProcess, log: str) -> None:
    url = f"{console.api}/logs/{log}"
    events = requests.get(f"{url}/search", params={"q": "timeout", "as": "html"}, timeout=WAIT_S).text
    events_read = [
        json.loads(line.removeprefix("data: ")) for line in events.splitlines() if line.startswith("data: ")
    ]
    assert events_read[-1] == {"event": "done", "said": "59 of 600 lines match."}
    assert "timeout after 590 ms" in events_read[-2]["html"]
    with requests.get(f"{url}/tail", params={"q": "late"}, timeout=WAIT_S, stream=True) as following:
        lines = following.iter_lines(chunk_size=1)
        next(line for line in lines if b"Following 1 partitions." in line)
        send(console.bootstrap, log, [(time.time(), b"WARN not this"), (time.time(), b"WARN a late line")])
        late_event = json.loads(next(line for line in lines if b"late line" in line).removeprefix(b"data: "))
    assert [(one["level"], one["message"]) for one in late_event["records"]] == [("WARN", "WARN a late line")]


def test_masked_lines_are_not_shown(bootstrap: str, log: str, tmp_path: Path) -> None:
    (tmp_path / "masks").write_text(f"{log} value.message\n")
    with running(bootstrap, tmp_path / "log", "--masks", str(tmp_path / "masks")) as console:
        for path in (f"/logs/{log}", f"/logs/{log}/around?partition=0&offset=1"):
            assert "hidden from you" in console.page(path, 403)
