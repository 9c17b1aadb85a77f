"""Clients of Kafka Connect's API that others wrote, against our worker: kafka-connect-py and kafka-connect-api from PyPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.clients.foreign import fetch_or_skip, made
from tests.support.connect_worker import Worker, worker_options

PROGRAM = """
import json, sys, time
from kafka_connect import KafkaConnect
from kafka_connect_api.kafka_connect_api import Api, Cluster, Connector

url, file, name = sys.argv[1:]

def until(look):
    end = time.monotonic() + 60
    while not look() and time.monotonic() < end:
        time.sleep(0.1)

client = KafkaConnect(url=url)
config = {"connector.class": "FileStreamSource", "file": file, "topic": name, "tasks.max": "1"}
found = {"created": client.create_connector({"name": name, "config": config})["config"]}
state = lambda: [task["state"] for task in client.get_connector_status(name)["tasks"]]
until(lambda: state() == ["RUNNING"])
found["state"] = state()
found["listed"] = client.list_connectors(pattern=name, state="running")
client.restart_connector_task(name, 0)
found["restart"] = client.restart_connector(name, include_tasks=True)["connector"]["state"]
client.pause_connector(name)
until(lambda: state() == ["PAUSED"])
found["paused"] = state()
client.resume_connector(name)
until(lambda: client.list_connector_topics(name)[name]["topics"])
found["topics"] = client.list_connector_topics(name)[name]["topics"]
found["errors"] = client.validate_connector_config("FileStreamSource", {**config, "tasks.max": "0"})["error_count"]
found["updated"] = client.update_connector(name, {**config, "batch.size": "5"})["config"]["batch.size"]
host, port = url.rpartition("/")[2].split(":")
cluster = Cluster(Api(host, port=int(port)))
other = Connector(cluster, name)
found["other"] = [other.exists(), other.config["batch.size"], [task.is_running() for task in other.tasks]]
other.delete()
try:
    client.get_connector(name)
except Exception as error:
    found["gone"] = str(error)
print(json.dumps(found))
"""


@pytest.mark.soak
def test_clients_of_others_drive_connectors(bootstrap: str, tmp_path: Path) -> None:
    def fetch(folder: Path) -> None:
        wanted = ["kafka-connect-py==1.0.0", "kafka-connect-api==0.5.10"]
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *wanted]
        fetch_or_skip(command, folder, "clients of Kafka Connect")

    packages = made("kafka-connect-py-1.0.0", fetch)
    name = f"c-{uuid.uuid4().hex[:8]}"
    (tmp_path / "in").write_text("a line\n")
    worker = Worker(worker_options(bootstrap, f"g-{name}"))
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, worker.url, str(tmp_path / "in"), name],
            env={**os.environ, "PYTHONPATH": str(packages)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        worker.stop()
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["created"]["name"] == name
    assert (report["state"], report["paused"]) == (["RUNNING"], ["PAUSED"])
    assert (report["listed"], report["topics"]) == ([name], [name])
    assert (report["restart"], report["errors"], report["updated"]) == ("RESTARTING", 2, "5")
    assert report["other"][:2] == [True, "5"]
    assert "404" in report["gone"]
