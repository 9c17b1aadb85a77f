"""Connectors of a worker: forms with checks, states, errors with what to do, offsets; secrets stay hidden."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import WAIT_S, ConsoleProcess, running

FILES = "org.apache.kafka.connect.file"
SOURCE, SINK = f"{FILES}.FileStreamSourceConnector", f"{FILES}.FileStreamSinkConnector"
TEXT = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
SECRET = "do-not-show-me"


def await_until(is_so: Callable[[], Any], otherwise: str) -> None:
    limit_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < limit_s, otherwise
        time.sleep(0.1)


@pytest.fixture(scope="module")
def beside(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("connect")
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "connect",
        "start",
        "-b",
        bootstrap,
        "--listen",
        "127.0.0.1:0",
    ]
    with (folder / "worker").open("wb") as log:
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert worker.stdout is not None
        ready = worker.stdout.readline().decode()
        assert ready.startswith("ready on "), (folder / "worker").read_text()
        with running(bootstrap, folder / "log", "--connect", ready.split()[2]) as console:
            yield console
    finally:
        worker.terminate()
        worker.wait(WAIT_S)


def test_a_connector_is_checked_created_changed_moved_and_deleted(
    beside: ConsoleProcess, tmp_path: Path
) -> None:
    lines = tmp_path / "in.txt"
    lines.write_text("".join(f"line {number}\n" for number in range(20)))
    form = {"name": "lines", "o.file": str(lines), "o.batch.size": "many"}
    at = f"/connector-plugins/{SOURCE}"
    assert "FileStreamSourceConnector" in beside.page("/connector-plugins")
    assert "The topic to publish data to" in beside.page(at)
    checked = beside.send(f"{at}/check", form, 200).text
    assert "Not a number of type INT" in checked
    assert "Missing required configuration" in checked
    assert "Options are wrong" in beside.send(f"{at}/create", form, 400).text
    form |= {
        "o.batch.size": "",
        "o.topic": "console-lines",
        "more": f"value.converter={TEXT}\nx.password={SECRET}",
    }
    beside.send(f"{at}/create", form)

    def positions() -> list[str]:
        return [row["offset"] for row in beside.data("/connectors/lines")["offsets"]]

    await_until(lambda: any('"position": 150' in text for text in positions()), "the file was not read")
    one = beside.data("/connectors/lines")
    assert (one["summary"]["state"], one["topics"]) == ("RUNNING", ["console-lines"])
    assert one["config"]["x.password"] == "********"
    assert any("task 0 runs" in line["text"] for line in one["log"])
    for path in ("/connectors/lines", "/connectors/lines/config", "/connectors"):
        assert SECRET not in beside.page(path)

    page = beside.page("/connectors/lines/config")
    was = page.split('name="was" value="', 1)[1].split('"', 1)[0]
    changed = {"o.topic": "console-lines", "o.file": str(lines), "o.batch.size": "7", "was": was}
    beside.send(
        "/connectors/lines/config", {**changed, "more": f"value.converter={TEXT}\nx.password=********"}
    )
    late = beside.send("/connectors/lines/config", changed, 409)
    assert "Somebody else has changed lines" in late.text
    assert SECRET not in beside.log.read_text()

    assert (
        "STOPPED" in beside.send("/connectors/lines/offsets", {"partition": "{}", "offset": "null"}, 400).text
    )
    beside.send("/connectors/lines/act", {"action": "stop"})
    await_until(lambda: beside.data("/connectors/lines")["summary"]["state"] == "STOPPED", "it does not stop")
    place = beside.data("/connectors/lines")["offsets"][0]["partition"]
    assert (
        "is not JSON" in beside.send("/connectors/lines/offsets", {"partition": "{", "offset": "1"}, 400).text
    )
    beside.send("/connectors/lines/offsets", {"partition": place, "offset": '{"position": 0}'})
    assert positions() == ['{"position": 0}']
    beside.send("/connectors/lines/delete", {"confirm": "other"}, 400)
    beside.send("/connectors/lines/delete", {"confirm": "lines"})
    beside.page("/connectors/lines", 404)


def test_an_error_is_shown_with_what_to_do_and_lag_for_a_sink(beside: ConsoleProcess, tmp_path: Path) -> None:
    beside.post("/topics", {"name": "console-sunk", "partitions": 1})
    for value in ("not JSON", "not JSON either"):
        beside.post("/topics/console-sunk/produce", {"value": value})
    options = {"topics": "console-sunk", "file": str(tmp_path / "out.txt")}
    for name, converter in (("broken", JSON), ("written", TEXT)):
        config = {**options, "value.converter": converter, "value.converter.schemas.enable": "false"}
        beside.post(f"/connector-plugins/{SINK}/create", {"name": name, "config": config})

    def row(name: str) -> Callable[[], Any]:
        return lambda: next(r for r in beside.data("/connectors")["connectors"] if r["name"] == name)

    await_until(lambda: row("broken")()["failed"] == 1, "nothing has failed")
    page = beside.page("/connectors/broken")
    assert "Task 0 has failed" in page
    assert "The records do not fit the converter" in page
    await_until(lambda: row("written")()["lag"] == 0, "the lag stays unknown")
    [place] = beside.data("/connectors/written")["partitions"]
    assert (place["topic"], place["offset"], place["end"]) == ("console-sunk", 2, 2)
    for name in ("broken", "written"):
        beside.post(f"/connectors/{name}/act", {"action": "restart-failed"})
        beside.post(f"/connectors/{name}/delete", {"confirm": name})


def test_without_a_worker_the_page_says_what_to_start(console: ConsoleProcess) -> None:
    page = console.page("/connectors", 404)
    assert "No Connect worker is known" in page
    assert "--connect URL" in page
