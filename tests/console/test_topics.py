"""The pages of topics: what they show is what a client made, and what they change is what a client finds."""

from __future__ import annotations

import shlex
import uuid
from html.parser import HTMLParser

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.clients.cli_support import Cli
from tests.console.conftest import ConsoleProcess


@pytest.fixture
def client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def fresh(name: str = "seen") -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def made(console: ConsoleProcess, partitions: int = 2) -> str:
    name = fresh()
    console.send("/topics", {"name": name, "partitions": partitions})
    return name


def test_a_topic_is_created_with_options_by_the_form(console: ConsoleProcess, client: AdminClient) -> None:
    name = fresh()
    answer = console.send("/topics/create", {"name": name, "partitions": "3", "option.retention.ms": "60000"})
    assert answer.headers["location"] == f"/clusters/local/topics/{name}"
    assert len(client.list_topics(name).topics[name].partitions) == 3
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    assert client.describe_configs([resource])[resource].result()["retention.ms"].value == "60000"
    assert name in console.page("/topics", q=name)


def test_the_api_checks_before_it_creates(console: ConsoleProcess, client: AdminClient) -> None:
    name = fresh()
    done = console.post(
        "/topics", {"name": name, "partitions": 1, "check": True, "options": {"retention.ms": "5"}}
    )
    assert "--dry-run" in done["commands"][0]
    assert name not in client.list_topics().topics
    refused = console.post("/topics", {"name": name, "options": {"retention.ms": "soon"}}, status=409)
    assert "retention.ms" in refused["message"]


def test_records_and_sizes_are_shown(console: ConsoleProcess, bootstrap: str) -> None:
    name = made(console)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(name, b"x" * 100, partition=number % 2)
    producer.flush()
    page = console.data(f"/topics/{name}")
    assert [(p["start"], p["end"]) for p in page["partitions"]] == [(0, 5), (0, 5)]
    assert page["records"] == 10
    assert name in console.page(f"/topics/{name}")


def test_an_option_is_set_and_put_back(console: ConsoleProcess) -> None:
    name = made(console)
    console.send(f"/topics/{name}/options", {"option": "retention.ms", "value": "1234", "was": "604800000"})
    option = next(
        o for o in console.data(f"/topics/{name}/options")["options"] if o["name"] == "retention.ms"
    )
    assert (option["value"], option["source"]) == ("1234", "set for the topic")
    assert option["documentation"]
    console.send(f"/topics/{name}/options", {"option": "retention.ms", "unset": "1"})
    option = next(
        o for o in console.data(f"/topics/{name}/options")["options"] if o["name"] == "retention.ms"
    )
    assert option["source"] == "default"


def test_two_people_who_set_one_option_do_not_overwrite_each_other(console: ConsoleProcess) -> None:
    name = made(console)
    path = f"/topics/{name}/options"
    console.send(path, {"option": "retention.ms", "value": "1000", "was": "604800000"})
    late = console.send(path, {"option": "retention.ms", "value": "2000", "was": "604800000"}, status=409)
    assert "Somebody else has set retention.ms to 1000" in late.text


def test_partitions_are_added_and_a_definition_is_copied(
    console: ConsoleProcess, client: AdminClient
) -> None:
    name, copy = made(console), fresh("copy")
    console.send(f"/topics/{name}/partitions", {"partitions": "5"})
    console.send(f"/topics/{name}/options", {"option": "retention.ms", "value": "777000", "was": "604800000"})
    assert "can only grow" in console.send(f"/topics/{name}/partitions", {"partitions": "2"}, status=400).text
    console.send(f"/topics/{name}/clone", {"name": copy})
    assert len(client.list_topics(copy).topics[copy].partitions) == 5
    resource = ConfigResource(ConfigResource.Type.TOPIC, copy)
    assert client.describe_configs([resource])[resource].result()["retention.ms"].value == "777000"


def test_emptying_and_deleting_need_the_name(
    console: ConsoleProcess, bootstrap: str, client: AdminClient
) -> None:
    name = made(console, 1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"gone")
    producer.flush()
    for what in ("empty", "delete"):
        assert "Not done" in console.send(f"/topics/{name}/{what}", {"confirm": "other"}, status=400).text
    console.send(f"/topics/{name}/empty", {"confirm": name})
    assert console.data(f"/topics/{name}")["records"] == 0
    console.send(f"/topics/{name}/delete", {"confirm": name})
    assert name not in client.list_topics().topics
    assert "unknown" in console.page(f"/topics/{name}", status=404).lower()


def test_a_deleted_topic_is_restored_from_the_bin(
    console: ConsoleProcess, bootstrap: str, client: AdminClient
) -> None:
    name = made(console, 1)
    assert "This cannot be undone" in console.page(f"/topics/{name}/changes")
    console.send(
        f"/topics/{name}/options", {"option": "barnabas.topic.bin.ms", "value": "3600000", "was": "0"}
    )
    assert "for 3\u202f600 seconds" in console.page(f"/topics/{name}/changes")
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(name, b"kept")
    producer.flush()
    console.send(f"/topics/{name}/delete", {"confirm": name})
    assert name not in client.list_topics().topics
    [deleted] = [topic for topic in console.data("/bin")["topics"] if topic["name"] == name]
    assert name in console.page("/bin")
    console.post("/topics", {"name": name, "partitions": 1})  # somebody takes the name
    assert (
        "already exists" in console.send("/bin/restore", {"id": deleted["id"], "name": name}, status=409).text
    )
    assert (
        "Not done" in console.send("/bin/purge", {"id": deleted["id"], "confirm": "other"}, status=400).text
    )
    console.send("/bin/restore", {"id": deleted["id"], "name": f"{name}-before"})
    assert console.data(f"/topics/{name}-before/records")["records"][0]["value"]["text"] == "kept"
    late = console.send("/bin/restore", {"id": deleted["id"], "name": f"{name}-again"}, status=404)
    assert "not in the bin any more" in late.text
    console.send(f"/topics/{name}-before/delete", {"confirm": f"{name}-before"})
    console.send("/bin/purge", {"id": deleted["id"], "confirm": f"{name}-before"})
    assert [topic for topic in console.data("/bin")["topics"] if topic["id"] == deleted["id"]] == []


def test_the_list_is_found_sorted_and_cut(console: ConsoleProcess) -> None:
    mark = uuid.uuid4().hex[:6]
    for number, partitions in enumerate((3, 1, 2)):
        console.post("/topics", {"name": f"{mark}-{number}", "partitions": partitions})
    page = console.data("/topics", q=mark, sort="partitions", order="desc", rows=2)
    assert [row["partitions"] for row in page["topics"]] == [3, 2]
    assert (page["list"]["count"], page["list"]["total"]) == (2, 3)
    page = console.data("/topics", q=mark, sort="partitions", order="desc", rows=2, page=2)
    assert [row["partitions"] for row in page["topics"]] == [1]


class _Commands(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        text = dict(attrs).get("data-copy")
        if text is not None and text.startswith("barnabas "):
            self.found.append(text)


def test_the_command_that_a_page_shows_does_the_same(console: ConsoleProcess, bootstrap: str) -> None:
    name, cli = made(console), Cli(bootstrap)
    lines: set[str] = set()
    for path in ("", "/topics", f"/topics/{name}", f"/topics/{name}/options"):
        parser = _Commands()
        parser.feed(console.page(path))
        assert parser.found, path
        lines |= set(parser.found)
    for line in sorted(lines):
        cli(*shlex.split(line)[1:])
