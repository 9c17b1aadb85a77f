"""Groups on their pages: lag, members, and offsets that move exactly as the preview says."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.console.conftest import WAIT_S, ConsoleProcess


class Committed:
    """A group that has committed offset 3 in both partitions of a topic with 10 records each."""

    def __init__(self, console: ConsoleProcess, bootstrap: str) -> None:
        mark = uuid.uuid4().hex[:8]
        self.topic, self.group, self.bootstrap = f"read-{mark}", f"reader-{mark}", bootstrap
        console.post("/topics", {"name": self.topic, "partitions": 2, "options": {"retention.ms": "-1"}})
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(20):
            when_ms = 1_700_000_000_000 + number * 1000
            producer.produce(self.topic, f"v{number}", partition=number % 2, timestamp=when_ms)
        producer.flush()
        consumer = self.consumer()
        consumer.commit(offsets=[TopicPartition(self.topic, n, 3) for n in (0, 1)], asynchronous=False)
        consumer.close()
        self.path = f"/groups/{self.group}"

    def consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "client.id": "seen-client",
                "auto.offset.reset": "earliest",
            }
        )

    def offsets(self) -> list[int]:
        consumer = self.consumer()
        places = consumer.committed([TopicPartition(self.topic, n) for n in (0, 1)], timeout=WAIT_S)
        consumer.close()
        return [place.offset for place in places]


@pytest.fixture
def committed(console: ConsoleProcess, bootstrap: str) -> Committed:
    return Committed(console, bootstrap)


def moved(console: ConsoleProcess, committed: Committed, **asked: Any) -> Any:
    return console.post(f"{committed.path}/reset", asked)


def test_lag_is_shown_in_records_and_seconds(console: ConsoleProcess, committed: Committed) -> None:
    page = console.data(committed.path)
    assert (page["lag"], page["state"]) == (14, "empty")
    assert [(p["committed"], p["end"], p["lag"]) for p in page["partitions"]] == [(3, 10, 7), (3, 10, 7)]
    assert page["behind_s"] > 1_000_000
    console.post("/topics", {"name": f"other-{committed.topic}"})  # what was read before is forgotten
    listed = console.data("/groups", q=committed.group)["groups"]
    assert [(row["lag"], row["topics"]) for row in listed] == [(14, 1)]
    assert committed.group in console.page("/groups", q=committed.group)
    assert committed.topic in console.page(committed.path)


@pytest.mark.parametrize(
    ("asked", "new"),
    [
        ({"to": "beginning"}, [0, 0]),
        ({"to": "end"}, [10, 10]),
        ({"to": "offset", "value": 7}, [7, 7]),
        ({"to": "shift", "value": -2}, [1, 1]),
        ({"to": "shift", "value": 100}, [10, 10]),
        ({"to": "time", "value": "1700000005000"}, [3, 2]),
    ],
)
def test_the_preview_changes_nothing_and_the_change_is_what_it_said(
    console: ConsoleProcess, committed: Committed, asked: dict[str, Any], new: list[int]
) -> None:
    shown = moved(console, committed, **asked)
    assert [(p["old"], p["new"]) for p in shown["partitions"]] == [(3, new[0]), (3, new[1])]
    assert committed.offsets() == [3, 3]
    console.send(f"{committed.path}/offsets", {"lines": shown["lines"], "was": shown["was"]})
    assert committed.offsets() == new


def test_a_move_is_undone_with_what_the_page_offers(console: ConsoleProcess, committed: Committed) -> None:
    shown = moved(console, committed, to="end")
    answer = console.send(f"{committed.path}/offsets", {"lines": shown["lines"], "was": shown["was"]})
    undo = console.page(answer.headers["location"].removeprefix("/clusters/local"))
    assert f"{committed.topic}:0:3" in undo
    back = moved(console, committed, to="list", lines=f"{committed.topic}:0:3\n{committed.topic}:1:3")
    console.send(f"{committed.path}/offsets", {"lines": back["lines"], "was": back["was"]})
    assert committed.offsets() == [3, 3]


def test_offsets_that_have_moved_since_the_preview_are_left_alone(
    console: ConsoleProcess, committed: Committed
) -> None:
    shown = moved(console, committed, to="beginning")
    consumer = committed.consumer()
    consumer.commit(offsets=[TopicPartition(committed.topic, 0, 5)], asynchronous=False)
    consumer.close()
    late = console.send(
        f"{committed.path}/offsets", {"lines": shown["lines"], "was": shown["was"]}, status=409
    )
    assert "have moved since the preview" in late.text
    assert committed.offsets() == [5, 3]


def test_wrong_offsets_are_named(console: ConsoleProcess, committed: Committed) -> None:
    for lines, reason in ((f"{committed.topic}:0:11", "holds the offsets 0 to 10"), ("a:b", "is not TOPIC:PARTITION:OFFSET"),
                          ("no-such-topic:0:1", "no-such-topic")):  # fmt: skip
        refused = console.post(f"{committed.path}/offsets", {"lines": lines}, status=400)
        assert reason in refused["message"]


def test_a_group_with_members_shows_them_and_is_not_moved(
    console: ConsoleProcess, committed: Committed
) -> None:
    consumer = committed.consumer()
    consumer.subscribe([committed.topic])
    while not consumer.assignment():
        consumer.poll(1)
    page = console.data(committed.path)
    assert [member["client"] for member in page["members"]] == ["seen-client"]
    assert page["members"][0]["assigned"] == [f"{committed.topic}-0", f"{committed.topic}-1"]
    assert "stop them before" in console.page(f"{committed.path}/reset")
    refused = console.post(f"{committed.path}/offsets", {"lines": f"{committed.topic}:0:0"}, status=409)
    assert "members" in refused["message"]
    consumer.close()


def test_a_group_is_deleted_after_its_name_was_typed(console: ConsoleProcess, committed: Committed) -> None:
    console.send(f"{committed.path}/delete", {"confirm": "x"}, status=400)
    console.send(f"{committed.path}/delete", {"confirm": committed.group})
    assert committed.offsets() == [-1001, -1001]
    console.page(committed.path, 404)


def test_groups_with_odd_names_have_pages(
    console: ConsoleProcess, committed: Committed, bootstrap: str
) -> None:
    for name in ("a/b c?d#e", "<b>bold</b>", "中文组", "..%2f"):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
        consumer.commit(offsets=[TopicPartition(committed.topic, 0, 1)], asynchronous=False)
        consumer.close()
        from urllib.parse import quote

        assert console.data(f"/groups/{quote(name, safe='')}")["group"] == name
        assert "<b>bold" not in console.page("/groups", q=name)
