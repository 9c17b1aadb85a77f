"""Records on their pages: by place, time and key, with filters, decoded, followed live, produced; within bounds."""

from __future__ import annotations

import json
import shlex
import struct
import subprocess
import sys
import uuid
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import requests
from barnabas.records.partitioner import partition_for_key
from tests.console.conftest import WAIT_S, ConsoleProcess
from tests.support.cluster import until

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(1)>'


class Filled:
    """A topic of four partitions with 400 records: keys by Java's hash, values JSON, times a second apart."""

    def __init__(self, console: ConsoleProcess, bootstrap: str) -> None:
        self.name = f"records-{uuid.uuid4().hex[:8]}"
        self.path = f"/topics/{self.name}/records"
        console.post("/topics", {"name": self.name, "partitions": 4, "options": {"retention.ms": "-1"}})
        producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
        for number in range(400):
            value = json.dumps({"number": number, "country": "DE" if number % 4 == 0 else "FR"})
            headers = [("source", b"shop"), ("nothing", None)]
            producer.produce(
                self.name,
                value,
                f"key-{number % 40}",
                timestamp=1_700_000_000_000 + number * 1000,
                headers=headers,
            )
        producer.flush()


@pytest.fixture(scope="module")
def filled(console: ConsoleProcess, bootstrap: str) -> Filled:
    return Filled(console, bootstrap)


def numbers(page: Any) -> list[int]:
    return [record["value"]["document"]["number"] for record in page["records"]]


def test_the_newest_come_first_and_older_ones_follow(console: ConsoleProcess, filled: Filled) -> None:
    seen: list[int] = []
    at: dict[str, str] = {}
    while True:
        page = console.data(filled.path, limit=150, **at)
        seen += numbers(page)
        assert numbers(page) == sorted(numbers(page), reverse=True)
        if page["next"] is None:
            break
        at = {"at": page["next"]}
    assert sorted(seen) == list(range(400))
    assert max(seen) == seen[0]


def test_from_the_oldest_on_every_record_is_seen_once(console: ConsoleProcess, filled: Filled) -> None:
    seen: list[int] = []
    at: dict[str, str] = {}
    while True:
        page = console.data(filled.path, **{"from": "oldest"}, limit=77, **at)
        seen += numbers(page)
        if page["next"] is None:
            break
        at = {"at": page["next"]}
    assert sorted(seen) == list(range(400))


def test_by_offset_and_by_time(console: ConsoleProcess, filled: Filled) -> None:
    page = console.data(filled.path, **{"from": "offset"}, offset=3, partition=1, limit=2)
    assert [(r["partition"], r["offset"]) for r in page["records"]] == [(1, 3), (1, 4)]
    page = console.data(filled.path, **{"from": "time"}, time="1700000390000", limit=500)
    assert sorted(numbers(page)) == list(range(390, 400))
    page = console.data(filled.path, **{"from": "time"}, time="2023-11-14T22:19:50+00:00", limit=500)
    assert sorted(numbers(page)) == list(range(390, 400))
    assert "is not a time" in console.page(filled.path, 400, **{"from": "time"}, time="soon")
    assert "holds the offsets 0 to" in console.page(
        filled.path, **{"from": "offset"}, offset=9_999, partition=1
    )


def test_a_key_is_looked_for_only_where_it_hashes_to(console: ConsoleProcess, filled: Filled) -> None:
    key = b"key-17"
    page = console.data(filled.path, key=key.decode(), limit=500)
    assert sorted(numbers(page)) == list(range(17, 400, 40))
    assert {r["partition"] for r in page["records"]} == {partition_for_key(key, 4)}
    ends = [p["end"] for p in console.data(f"/topics/{filled.name}")["partitions"]]
    assert page["progress"]["scanned"] == ends[partition_for_key(key, 4)]
    assert f"Only partition {partition_for_key(key, 4)} of 4" in console.page(filled.path, key=key.decode())
    everywhere = console.data(filled.path, key=key.decode(), partitioner="all", limit=500)
    assert numbers(everywhere) == numbers(page)
    assert everywhere["progress"]["scanned"] == 400


def test_keys_that_librdkafka_spread_are_found(console: ConsoleProcess, bootstrap: str) -> None:
    name = f"crc-{uuid.uuid4().hex[:8]}"
    console.post("/topics", {"name": name, "partitions": 5})
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(50):
        producer.produce(name, b"v", f"key-{number}")
    producer.flush()
    page = console.data(f"/topics/{name}/records", key="key-7", partitioner="librdkafka")
    assert [r["partition"] for r in page["records"]] == [zlib.crc32(b"key-7") % 5]


def test_a_filter_finds_what_it_says(console: ConsoleProcess, filled: Filled) -> None:
    page = console.data(
        filled.path, filter="country = 'DE' and number >= 300 and headers['source'] = 'shop'", limit=500
    )
    assert numbers(page) == list(range(396, 299, -4))
    assert page["progress"]["scanned"] == 400
    assert "No record fits" in console.page(filled.path, filter="country = 'XX'")
    wrong = console.page(filled.path, 400, filter="country =")
    assert "The filter cannot be understood" in wrong
    assert "country =</textarea>" in wrong, "the form is there to be mended"


def test_the_command_of_a_search_finds_the_same_records(console: ConsoleProcess, filled: Filled) -> None:
    page = console.data(filled.path, key="key-16", filter="country = 'DE' or number < 5", limit=500)
    assert len(page["records"]) == 10
    (shown,) = page["commands"]
    for command, wanted in ((shown, 10), (f"{shown} -c 3 -q", 3)):
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)], capture_output=True, text=True, timeout=WAIT_S
        )
        lines = [json.loads(line)["number"] for line in done.stdout.splitlines()]
        assert lines == sorted(numbers(page))[:wanted], done.stderr


def events(answer: requests.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


def test_a_search_tells_how_far_it_is(console: ConsoleProcess, filled: Filled) -> None:
    url = f"{console.api}{filled.path}/search"
    with requests.get(url, params={"filter": "number % 100 = 0"}, stream=True, timeout=WAIT_S) as answer:
        got = list(events(answer))
    assert sorted(n for name, event in got if name == "found" for n in numbers(event)) == [0, 100, 200, 300]
    name, done = got[-1]
    assert (name, done["scanned"], done["is_over"], done["found"]) == ("done", 400, True, 4)


def test_a_live_tail_shows_what_arrives_and_ends_with_its_reader(
    console: ConsoleProcess, filled: Filled, bootstrap: str
) -> None:
    url = f"{console.api}{filled.path}/tail"
    with requests.get(url, params={"filter": "live = true"}, stream=True, timeout=WAIT_S) as answer:
        got = events(answer)
        assert next(got)[0] == "begun"
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(
            filled.name, b'{"live": false, "number": -1}', partition=0, timestamp=1_600_000_000_000
        )
        producer.produce(
            filled.name, b'{"live": true, "number": -2}', partition=0, timestamp=1_600_000_000_000
        )
        producer.flush()
        pushed = next(event for name, event in got if name == "found")
    assert numbers(pushed) == [-2]


def test_a_filter_that_never_matches_says_so_at_the_end(console: ConsoleProcess, filled: Filled) -> None:
    url = f"{console.api}{filled.path}/search"
    with requests.get(url, params={"filter": "number < -1000"}, stream=True, timeout=WAIT_S) as answer:
        name, done = list(events(answer))[-1]
    assert (name, done["found"], done["is_over"], done["next"]) == ("done", 0, True, None)
    assert "0 fit, 100 % is done" in done["said"]
    page = console.page(filled.path, filter="number < -1000")
    assert "No record fits." in page
    page = console.page(filled.path, filter="nowhere = 1")
    assert "No record fits." in page


def test_an_export_is_lines_of_json(console: ConsoleProcess, filled: Filled) -> None:
    answer = requests.get(
        f"{console.api}{filled.path}/export", params={"filter": "number < 3 and number >= 0"}, timeout=WAIT_S
    )
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert sorted(row["value"]["number"] for row in rows) == [0, 1, 2]
    assert rows[0]["headers"] == {"source": "shop", "nothing": None}


class _Attributes(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}


def test_foreign_text_stays_text_everywhere(console: ConsoleProcess, bootstrap: str) -> None:
    name = f"hostile-{uuid.uuid4().hex[:8]}"
    console.post("/topics", {"name": name, "partitions": 1})
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, HOSTILE, HOSTILE, headers=[(HOSTILE, HOSTILE.encode()), ("esc", b"\x1b[31mred")])
    producer.produce(name, b"\xff\xfe\x00", b"\x00\x01", headers=[("bad", b"\xff")])
    producer.produce(name, None, "tombstone")
    producer.flush()
    for path in (
        f"/topics/{name}/records",
        f"/topics/{name}/records/0/0",
        f"/topics/{name}/produce?partition=0&offset=0",
    ):
        page = console.page(path)
        assert "<script>alert" not in page
        assert "<img src" not in page
        parser = _Attributes()
        parser.feed(page)
        assert not {
            name for name in parser.names if name.startswith("on") or not name.replace("-", "").isalnum()
        }
        assert "&lt;script&gt;" in page
        assert "\x1b" not in page or "/produce" in path  # what is edited is sent again as it is
    rows = requests.get(
        f"{console.api}/topics/{name}/records/search", params={"as": "html"}, timeout=WAIT_S
    ).text
    assert "<script>alert" not in rows
    assert "ff fe 00" in console.page(f"/topics/{name}/records/0/1")
    assert "null" in console.page(f"/topics/{name}/records/0/2")


def test_a_record_of_ten_megabytes_is_cut_on_pages_and_whole_in_the_api(
    console: ConsoleProcess, bootstrap: str
) -> None:
    name, size = f"large-{uuid.uuid4().hex[:8]}", 10_000_000
    console.post("/topics", {"name": name, "partitions": 1, "options": {"max.message.bytes": "20000000"}})
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 20_000_000})
    producer.produce(name, b"x" * size)
    producer.flush()
    assert len(console.page(f"/topics/{name}/records")) < 100_000
    page = console.page(f"/topics/{name}/records/0/0")
    assert len(page) < 1_000_000
    assert "Only its beginning is shown" in page
    assert len(console.data(f"/topics/{name}/records/0/0", whole=1)["record"]["value"]["text"]) == size


def test_a_record_tells_its_batch_and_who_has_passed_it(
    console: ConsoleProcess, filled: Filled, bootstrap: str
) -> None:
    group = f"passed-{uuid.uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(filled.name, 2, 5)], asynchronous=False)
    consumer.close()
    console.send(
        "/topics", {"name": f"other-{group}", "partitions": "1"}
    )  # what was read before is forgotten
    for offset, passed in ((4, True), (5, False)):
        record = console.data(f"{filled.path}/2/{offset}")
        assert {"group": group, "committed": 5, "has_passed": passed} in record["groups"]
        assert record["batch"]["base_offset"] <= offset
    assert "holds the offsets" in console.page(f"{filled.path}/2/99999", 404)


def test_a_record_is_produced_with_its_headers(console: ConsoleProcess, bootstrap: str) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    console.post("/topics", {"name": name, "partitions": 6})
    form = {"key": "anna", "value": '{"a": 1}', "value_format": "json", "headers": "x: 1\nempty:\n"}
    answer = console.send(f"/topics/{name}/produce", form)
    partition = partition_for_key(b"anna", 6)
    assert answer.headers["location"] == f"/clusters/local/topics/{name}/records/{partition}/0"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reads", "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, partition, 0)])
    record = consumer.poll(WAIT_S)
    consumer.close()
    assert (record.key(), record.value(), record.headers()) == (
        b"anna",
        b'{"a":1}',
        [("x", b"1"), ("empty", b"")],
    )
    wrong = console.send(f"/topics/{name}/produce", {"value": "{", "value_format": "json"}, status=400)
    assert "value is not json" in wrong.text
    done = console.post(
        f"/topics/{name}/produce", {"value": {"b": [1]}, "headers": {"h": "v"}, "partition": 3}
    )
    assert (done["partition"], done["offset"]) == (3, 0)
    assert (
        console.post(f"/topics/{name}/produce", {"key": "k", "value_format": "null", "partition": 3})[
            "offset"
        ]
        == 1
    )


def test_records_of_internal_topics_are_readable(
    console: ConsoleProcess, filled: Filled, bootstrap: str
) -> None:
    group = f"internal-{uuid.uuid4().hex[:8]}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(filled.name, 0, 3)], asynchronous=False)
    consumer.close()
    page = console.data("/topics/__consumer_offsets/records", filter=f"key.data.group = '{group}'")
    assert [r["value"]["document"]["data"]["offset"] for r in page["records"]] == [3]


def test_damaged_bytes_of_a_schema_are_shown_with_the_reason(console: ConsoleProcess, bootstrap: str) -> None:
    name = f"framed-{uuid.uuid4().hex[:8]}"
    console.post("/topics", {"name": name, "partitions": 1})
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, struct.pack(">bI", 0, 77) + b"abc")
    producer.flush()
    record_value = console.data(f"/topics/{name}/records", value_as="schema")["records"][0]["value"]
    assert record_value["text"] == "00 00 00 00 4d 61 62 63"
    assert record_value["error"]


def test_dead_letters_go_back_as_they_are(console: ConsoleProcess, bootstrap: str) -> None:
    mark = uuid.uuid4().hex[:8]
    dead, orders = f"dead-{mark}", f"orders-{mark}"
    for name, partitions in ((dead, 1), (orders, 3)):
        console.post("/topics", {"name": name, "partitions": partitions, "options": {"retention.ms": "-1"}})
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(12):
        headers = [("barnabas.reason", b"late" if number % 2 else b"broken"), ("source", b"shop")]
        value = bytes((0, 255, number))
        producer.produce(dead, value, f"key-{number}", headers=headers, timestamp=1_700_000_000_000 + number)
    producer.flush()
    fields = {"filter": "headers['barnabas.reason'] = 'late'", "to": orders, "without": "barnabas."}
    done = console.post(f"/topics/{dead}/records/copy", fields)
    assert (done["copied"], done["next"]) == (6, None)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": mark})
    consumer.assign([TopicPartition(orders, n, 0) for n in range(3)])
    records = []
    while len(records) < 6:
        records += consumer.consume(6 - len(records), 1.0)
    consumer.close()
    assert sorted(record.value() for record in records) == [bytes((0, 255, n)) for n in range(1, 12, 2)]
    for record in records:
        assert record.headers() == [("source", b"shop")]
        assert record.timestamp()[1] == 1_700_000_000_000 + record.value()[2]
        assert record.partition() == partition_for_key(record.key(), 3)
    refused = console.post(f"/topics/{dead}/records/copy", {"to": f"absent-{mark}"}, status=404)
    assert f"absent-{mark}" in refused["message"]
    console.send(
        f"/topics/{dead}/records/copy", {"to": orders, "limit": "1", "from": "offset", "offset": "4"}
    )
    assert console.data(f"/topics/{orders}")["records"] == 7


def test_a_key_index_says_what_it_skipped(console: ConsoleProcess, bootstrap: str) -> None:
    name = f"indexed-{uuid.uuid4().hex[:8]}"
    options = {"barnabas.key.index": "true", "segment.bytes": "1048576"}
    console.post("/topics", {"name": name, "partitions": 1, "options": options})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(3_000):
        producer.produce(name, b"v" * 1_000, f"key-{number}")
    producer.flush()
    path = f"/topics/{name}/records"

    def ready() -> bool:
        notes = " ".join(note for note in console.data(path, key="no such key")["notes"])
        return "The key index skipped" in notes and "3 of 4 segments" in notes

    until(ready, "the key index of the closed segments")
    for place in ("newest", "oldest"):
        page = console.data(path, key="key-7", **{"from": place})
        assert [(r["offset"], r["key"]["text"]) for r in page["records"]] == [(7, "key-7")]
        assert page["progress"]["scanned"] < 2_000
        assert page["next"] is None
    assert "The key index skipped" in console.page(path, key="key-7")
