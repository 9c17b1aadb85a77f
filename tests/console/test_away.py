"""Clusters that do not answer, wholly or in part: pages say so, and show again what is there when it is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
from tests.console.conftest import WAIT_S, running
from tests.console.test_records import events
from tests.support.process import BrokerProcess, free_port


def test_a_console_starts_without_its_cluster_and_says_so(tmp_path: Path) -> None:
    with running(f"127.0.0.1:{free_port()}", tmp_path / "log") as console:
        paths = (
            "",
            "/topics",
            "/topics/x",
            "/topics/x/records",
            "/groups",
            "/groups/x",
            "/brokers",
            "/access",
        )
        with ThreadPoolExecutor(len(paths)) as pool:  # each waits for seconds
            for page in pool.map(lambda path: console.page(path, 503), paths):
                assert "The cluster does not answer" in page
                assert "Try again" in page
        refused = requests.get(f"{console.api}/topics", timeout=WAIT_S)
        assert (refused.status_code, refused.json()["error_code"]) == (503, 503)


def test_a_page_says_when_the_cluster_goes_and_shows_it_again_when_it_is_back(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker()
    with running(broker.bootstrap, tmp_path / "log") as console:
        console.post("/topics", {"name": "kept", "partitions": 1})
        assert "kept" in console.page("/topics")
        broker.kill()
        console.page("/topics/kept", 503)
        deadline = time.monotonic() + WAIT_S
        while "out of date" not in requests.get(f"{console.home}/topics", timeout=WAIT_S).text:
            answer = requests.get(f"{console.home}/topics", timeout=WAIT_S)
            if answer.status_code == 503:
                break
            assert time.monotonic() < deadline
            time.sleep(0.2)
        broker.restart()
        while requests.get(f"{console.home}/topics/kept", timeout=WAIT_S).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_live_tail_says_that_the_cluster_is_gone_and_goes_on_where_it_was(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = own_broker()
    with running(broker.bootstrap, tmp_path / "log") as console:
        console.post("/topics", {"name": "followed", "partitions": 1})
        tail = f"{console.api}/topics/followed/records/tail"
        with requests.get(tail, stream=True, timeout=WAIT_S) as answer:
            got = events(answer)
            name, begun = next(got)
            assert name == "begun"
            broker.kill()
            name, facts = next((name, fields) for name, fields in got if name != "beat")
        assert (name, facts["again"]) == ("failed", True)
        assert "The cluster does not answer" in facts["message"]
        broker.restart()
        deadline = time.monotonic() + WAIT_S
        while requests.get(f"{console.home}/topics/followed", timeout=WAIT_S).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        console.post("/topics/followed/produce", {"value": "again"})
        at = ",".join(f"{number}:{offset}" for number, offset in begun["at"].items())
        with requests.get(tail, params={"at": at}, stream=True, timeout=WAIT_S) as answer:
            event = next(fields for name, fields in events(answer) if name == "found")
        assert event["at"] == {"0": 1}
        assert [record["value"]["text"] for record in event["records"]] == ["again"]


def test_clusters_stand_beside_each_other_and_one_that_is_away_hides_no_other(
    bootstrap: str, tmp_path: Path
) -> None:
    properties = tmp_path / "other.properties"
    properties.write_text(f"bootstrap.servers={bootstrap}\nclient.id=from-file\n")
    more = ("--also", f"away=127.0.0.1:{free_port()}", "--also", f"filed={properties}")
    with running(bootstrap, tmp_path / "log", *more) as console:
        listed = requests.get(f"{console.url}/api/v1/clusters", timeout=WAIT_S).json()["clusters"]
        assert [one["name"] for one in listed] == ["local", "away", "filed"]
        assert "away" in requests.get(console.url, timeout=WAIT_S).text
        assert requests.get(f"{console.url}/clusters/away", timeout=WAIT_S).status_code == 503
        assert requests.get(f"{console.url}/clusters/filed/topics", timeout=WAIT_S).status_code == 200
        assert 'aria-current="true"' in console.page()
