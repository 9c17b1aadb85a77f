"""What other sites, strange names and wrong requests cannot do to the console."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer

import requests
from barnabas.console.rendering import visible
from barnabas.console.shell import command
from tests.console.conftest import WAIT_S, ConsoleProcess

HTML = "<script>alert(1)</script>"


def test_every_answer_has_a_strict_policy(console: ConsoleProcess) -> None:
    for path in ("/clusters/local", "/clusters/local/topics", "/nothing", "/login"):
        answer = requests.get(console.url + path, timeout=WAIT_S)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert " style=" not in answer.text
        assert "<script>" not in answer.text
        assert " onclick" not in answer.text


def test_forms_without_the_stamp_and_those_of_other_sites_are_refused(console: ConsoleProcess) -> None:
    answer = requests.post(f"{console.home}/topics", data={"name": "forged"}, timeout=WAIT_S)
    assert answer.status_code == 403
    assert "Reload the page" in answer.text
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        for address, body in (
            (console.home, {"data": {"name": "forged"}}),
            (console.api, {"json": {"name": "forged"}}),
        ):
            answer = requests.post(f"{address}/topics", headers=headers, timeout=WAIT_S, **body)
            assert answer.status_code == 403
    answer = requests.post(f"{console.api}/topics", data={"name": "forged"}, timeout=WAIT_S)
    assert answer.status_code == 415
    assert "forged" not in {row["name"] for row in console.data("/topics", q="forged")["topics"]}


def test_a_link_of_another_site_shows_a_page_but_no_data(console: ConsoleProcess) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert requests.get(f"{console.home}/topics", headers=link, timeout=WAIT_S).status_code == 200
    assert requests.get(f"{console.api}/topics", headers=link, timeout=WAIT_S).status_code == 403
    loaded = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert requests.get(f"{console.home}/topics", headers=loaded, timeout=WAIT_S).status_code == 403


def test_a_foreign_host_name_is_refused(console: ConsoleProcess) -> None:
    answer = requests.get(console.home, headers={"host": "evil.example"}, timeout=WAIT_S)
    assert answer.status_code == 403


@pytest.mark.parametrize("path", ["/topics/%3Cscript%3Ealert(1)%3C%2Fscript%3E", f"/topics?q={HTML}"])
def test_names_in_addresses_stay_text(console: ConsoleProcess, path: str) -> None:
    answer = requests.get(console.home + path, timeout=WAIT_S)
    assert HTML not in answer.text
    assert "&lt;script&gt;" in answer.text


def test_what_controls_a_terminal_or_turns_text_is_made_visible() -> None:
    assert visible("\x1b[31mred\x07") == "␛[31mred␇"
    assert visible("a\u202eb") == "a⟨U+202E⟩b"
    assert command("barnabas", "consume", "a;rm -rf /\x1b\n") == "barnabas consume $'a;rm -rf /\\x1b\\x0a'"
    assert command("barnabas", "it's") == "barnabas 'it'\"'\"'s'"


def test_static_files_cannot_lead_out_of_their_folder(console: ConsoleProcess) -> None:
    for path in (
        "/static/../main.py",
        "/static/..%2fmain.py",
        "/static/%2e%2e/main.py",
        "/static/vendored/README.md",
    ):
        prepared = requests.Request("GET", console.url).prepare()
        prepared.url = console.url + path
        with requests.Session() as session:
            assert session.send(prepared, timeout=WAIT_S).status_code == 404, path


def test_the_api_is_described(console: ConsoleProcess) -> None:
    document = requests.get(f"{console.url}/openapi.json", timeout=WAIT_S).json()
    paths = document["paths"]
    assert "post" in paths["/api/v1/clusters/{cluster}/topics"]
    assert all(operation["summary"] for path in paths.values() for operation in path.values())


def test_a_cluster_that_does_not_exist_is_said_plainly(console: ConsoleProcess) -> None:
    answer = requests.get(f"{console.url}/clusters/other", timeout=WAIT_S)
    assert answer.status_code == 404
    assert "There is no cluster other here" in answer.text


def test_every_change_is_a_record_of_the_audit_topic(console: ConsoleProcess, bootstrap: str) -> None:
    console.post("/topics", {"name": "audited", "partitions": 1})
    console.post("/topics", {"name": "audited", "partitions": 1}, status=409)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "auditor", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["console-audit"])
    mine = []
    while len(mine) < 2:
        for record in consumer.consume(100, 0.2):
            entry = json.loads(record.value())
            if entry["fields"].get("name") == "audited":
                mine.append(entry)
    consumer.close()
    assert mine[0]["result"] == "The topic audited is created"
    assert mine[0]["commands"][0].startswith("barnabas topic create audited")
    assert mine[1]["result"] is None
    assert "exists" in mine[1]["failure"]
