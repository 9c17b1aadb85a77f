"""`barnabas start --with pipelines`: a server of pipelines in the process of a secured broker, with its users and TLS."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer

import requests
from barnabas.security import folder as secured

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

WAIT_S = 240
PIPELINE = "pipeline: p\nsource: {topic: a}\nsteps: [parse: {json: {n: int}}]\noutputs: [{topic: b}]\n"


class Together:
    """A secured broker with a registry, a server of pipelines and a console in its process."""

    def __init__(self, where: Path) -> None:
        self.folder, self.log = where / "secure", where / "log"
        secured.create(self.folder, [], ["alice"])
        self.properties = self.folder / "clients" / "admin" / "librdkafka.properties"
        command = [sys.executable, "-m", "barnabas", "start", "--secure", str(self.folder)]
        command += ["--listen", "127.0.0.1:0", "--data", str(where / "data"), "--with", "console,pipelines"]
        command += ["--pipelines-listen", "127.0.0.1:0", "--console-listen", "127.0.0.1:0"]
        command += ["--pipelines-data", str(where / "pipelines"), "--pipelines-master", "local[2,2]"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--services-client", str(self.properties)], stdout=subprocess.PIPE, stderr=log
            )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().decode()
        assert ready.startswith("ready"), self.log.read_text()
        address = re.search(r"127\.0\.0\.1:\d+", ready)
        assert address is not None
        self.bootstrap = address[0]
        started = re.findall(r"service started service=(\w+) url=(https://\S+)", self.log.read_text())
        self.urls = dict(started)

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> requests.Response:
        file = self.folder / "clients" / "alice" / "kafka-python.json"
        login = ("alice", json.loads(file.read_text())["sasl_plain_password"])
        return requests.request(
            method,
            path if "://" in path else self.urls["pipelines"] + path,
            data=body,
            headers={"Content-Type": "application/yaml", **headers},
            auth=login,
            verify=str(self.folder / "ca.pem"),
            timeout=WAIT_S,
        )

    def librdkafka(self, **more: Any) -> dict[str, Any]:
        options = dict(line.split("=", 1) for line in self.properties.read_text().splitlines())
        return {**options, "bootstrap.servers": self.bootstrap, "log_level": 0, **more}


@pytest.fixture
def together(tmp_path: Path) -> Iterator[Together]:
    started = Together(tmp_path)
    children = psutil.Process(started.process.pid).children(recursive=True)
    yield started
    started.process.kill()
    started.process.wait(WAIT_S)
    for child in children:
        if child.is_running():
            child.kill()


def test_a_pipeline_of_a_secured_broker_in_its_process(together: Together) -> None:
    """The pipeline names no cluster: it reads and writes with the login of the services."""
    assert requests.get(
        together.urls["pipelines"] + "/pipelines", verify=str(together.folder / "ca.pem"), timeout=WAIT_S
    ).status_code == 401  # fmt: skip
    producer = Producer(together.librdkafka())
    producer.produce("a", b'{"n": 1}')
    assert producer.flush(WAIT_S) == 0
    refused = together.ask(
        "POST", "/pipelines", PIPELINE.replace("parse", "prase"), **{"X-Request-ID": "mine"}
    )
    assert (refused.status_code, refused.headers["x-request-id"]) == (400, "mine")
    page = together.ask("POST", "/pipelines", PIPELINE, Origin="https://elsewhere.example")
    assert page.status_code == 403
    added = together.ask("POST", "/pipelines", PIPELINE)
    assert added.status_code == 201, added.text
    consumer = Consumer(together.librdkafka(**{"group.id": "g", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["b"])
    try:
        message = consumer.poll(WAIT_S)
        while message is not None and message.error() is not None:  # the topic has only just been created
            message = consumer.poll(WAIT_S)
        assert message is not None
        assert json.loads(message.value() or b"") == {"n": 1}
    finally:
        consumer.close()
    look_at_the_console(together)
    assert together.ask("GET", "/health").json() == {"status": "ok", "pipelines": 1, "failed": 0}
    together.process.send_signal(signal.SIGTERM)
    assert together.process.wait(WAIT_S) == 0
    log = together.log.read_text()
    assert "Traceback" not in log
    assert "service=pipelines" in log
    assert "request_id=mine" in log
    for line in together.properties.read_text().splitlines():
        if "password" in line:
            assert line.partition("=")[2] not in log


def look_at_the_console(together: Together) -> None:
    """The pages of the pipeline: the list, its picture, a preview, and checks of a file while it is edited."""
    home = f"{together.urls['console']}/api/v1/clusters/local/pipelines"
    assert [row["name"] for row in together.ask("GET", home).json()["pipelines"]] == ["p"]
    shown = together.ask("GET", f"{home}/p").json()["picture"]
    assert [box["title"] for box in shown["boxes"]] == ["a", "steps", "topic b"]
    (record,) = together.ask("GET", f"{home}/p/preview").json()["records"]
    assert (record["place"], record["value"]) == ("a/0/0", '{"n": 1}')
    assert record["steps"][0]["lines"] == [["+", "n = 1"]]
    assert [leaf["topic"] for leaf in record["leaves"]] == ["b"]
    wrong = json.dumps({"file": PIPELINE.replace("parse", "prase")})
    for path in (f"{home}/check", f"{home}/p/check"):
        checked = together.ask("POST", path, wrong, **{"Content-Type": "application/json"}).json()
        assert checked["mistakes"][0]["line"] == 3
        assert "did you mean 'parse'?" in checked["mistakes"][0]["message"]
    page = together.ask("GET", f"{together.urls['console']}/clusters/local/pipelines/p/edit").text
    assert 'data-editor="yaml"' in page
    for page in ("p", "p/preview"):
        answer = together.ask("GET", f"{together.urls['console']}/clusters/local/pipelines/{page}")
        assert answer.status_code == 200, answer.text


def test_options_that_are_refused_before_anything_starts(tmp_path: Path, capsys: Any) -> None:
    from barnabas.local.start import main

    words = ["--data", str(tmp_path), "--with", "pipelines", "--pipelines-listen", "127.0.0.1:0"]
    assert main([*words, "--pipelines-conf", "nonsense"]) == 2
    assert "--pipelines-conf 'nonsense' is not of the form spark.name=value" in capsys.readouterr().err
