"""Clusters that do not answer, wholly or in part: pages say so, and show again what is there when it is back."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


@contextmanager
def silent() -> Iterator[str]:
    """The address of a service that accepts connections, and never says anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_services_that_hang_keep_nobody_from_what_others_answer(bootstrap: str, tmp_path: Path) -> None:
    with (
        silent() as url,
        running(bootstrap, tmp_path / "log", "--connect", url, "--registry", url) as console,
    ):
        console.post("/topics", {"name": f"beside-{console.url[-5:]}", "partitions": 1})
        path = f"/topics/beside-{console.url[-5:]}"
        for number in range(20):
            console.post(f"{path}/produce", {"value": f"00000000{number:02x}00", "value_format": "hex"})
        with ThreadPoolExecutor(16) as pool:
            waiting = [
                pool.submit(requests.get, f"{console.home}/connectors", timeout=WAIT_S) for _ in range(16)
            ]
            records = console.data(f"{path}/records", value_as="auto")["records"]
            assert not any(one.done() for one in waiting), "records are shown while others wait"
            assert len(records) == 20
            assert all("no registry answers" in record["value"]["error"] for record in records)
            [reason] = console.data("/lineage")["unknown"]
            assert reason == "connect has not answered within 5 seconds"
            console.process.kill()  # requests that hang would hold it up
            console.process.wait(WAIT_S)


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
