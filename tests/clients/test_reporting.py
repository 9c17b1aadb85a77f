"""Reporting over HTTP with clients that others wrote: Tencent Cloud's SDK, the CloudEvents SDK, requests."""

from __future__ import annotations

import hashlib
import hmac
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tencentcloud.ckafka.v20190819 import ckafka_client, models
from tencentcloud.common import credential
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException
from tencentcloud.common.profile.client_profile import ClientProfile
from tencentcloud.common.profile.http_profile import HttpProfile

import requests
from tests.clients.cli_support import Cli

WAIT_S = 120


class Reporting:
    """`barnabas reporting start` with a topic of its own."""

    def __init__(self, bootstrap: str, folder: Path, hooked: str) -> None:
        (folder / "keys").write_text("AKIDtest=secret\n")
        (folder / "hooks").write_text(f"# topic kind secret\n{hooked} github s3cret\n")
        command = [sys.executable, "-m", "barnabas", "reporting", "start", "-b", bootstrap]
        command += ["--listen", "127.0.0.1:0", "--topic", f"_points_{uuid.uuid4().hex[:8]}"]
        command += ["--secrets", str(folder / "keys"), "--hooks", str(folder / "hooks")]
        self.hooked = hooked
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("ready"), self.log.read_text()
        self.url = line.split()[2]

    def end(self) -> int:
        self.process.terminate()
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def client(self, key: str = "secret") -> Any:
        profile = HttpProfile(endpoint=self.url.removeprefix("http://"), protocol="http", reqTimeout=WAIT_S)
        login = credential.Credential("AKIDtest", key)
        return ckafka_client.CkafkaClient(login, "", ClientProfile(httpProfile=profile))

    def act(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        """An action that Tencent's client has no method for."""
        answered: dict[str, Any] = self.client().call_json(action, body)["Response"]
        return answered


@pytest.fixture(scope="module")
def reporting(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reporting]:
    process = Reporting(bootstrap, tmp_path_factory.mktemp("reporting"), f"hooked-{uuid.uuid4().hex[:8]}")
    yield process
    assert process.end() == 0
    assert "Traceback" not in process.log.read_text()


def message(point_id: str, *rows: tuple[str | None, str]) -> Any:
    request = models.SendMessageRequest()
    request.DataHubId = point_id
    request.Message = []
    for key, body in rows:
        content = models.BatchContent()
        content.Key, content.Body = key, body
        request.Message.append(content)
    return request


def first_record(bootstrap: str, topic: str) -> Any:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return consumer.poll(WAIT_S)
    finally:
        consumer.close()


def test_messages_of_the_guide(reporting: Reporting, cli: Cli, bootstrap: str) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    point_id = reporting.act("CreateAccessPoint", {"Topic": topic})["DataHubId"]
    client = reporting.client()
    sent = client.SendMessage(message(point_id, ("k", "hello"), (None, "two")))
    ids = [one.split(":") for one in sent.MessageId]
    assert [one[:4] for one in ids] == [[point_id, topic, "0", "0"], [point_id, topic, "0", "1"]]
    assert all(int(one[4]) <= int(one[5]) for one in ids)
    done = cli("reporting", "find", sent.MessageId[0])
    record = json.loads(done.stdout)
    assert (record["key"], record["body"], record["offset"]) == ("k", "hello", 0)

    reporting.act("PauseAccessPoint", {"DataHubId": point_id})
    with pytest.raises(TencentCloudSDKException) as caught:
        client.SendMessage(message(point_id, (None, "x")))
    assert caught.value.get_code() == "FailedOperation"
    assert caught.value.get_message() == f"task status suspended [{point_id}]"
    reporting.act("ResumeAccessPoint", {"DataHubId": point_id})
    assert client.SendMessage(message(point_id, (None, "x"))).MessageId
    with pytest.raises(TencentCloudSDKException) as caught:
        client.SendMessage(message(point_id, *[(None, "x")] * 501))
    assert caught.value.get_code() == "InvalidParameterValue"
    with pytest.raises(TencentCloudSDKException) as caught:
        reporting.client("wrong").SendMessage(message(point_id, (None, "x")))
    assert caught.value.get_code() == "AuthFailure.SignatureFailure"
    listed = reporting.act("DescribeAccessPoints", {})["AccessPoints"]
    assert [(row["DataHubId"], row["Status"]) for row in listed] == [(point_id, "Running")]
    reporting.act("DeleteAccessPoint", {"DataHubId": point_id})
    assert reporting.act("DescribeAccessPoints", {})["TotalCount"] == 0


def test_a_web_hook(reporting: Reporting, bootstrap: str) -> None:
    body = b'{\n  "zen": "Speak like a human."\n}'
    url = f"{reporting.url}/topics/{reporting.hooked}"
    digest = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    headers = {"Content-Type": "application/json", "X-Hub-Signature-256": f"sha256={digest}"}
    answer = requests.post(url, data=body, headers=headers, timeout=WAIT_S)
    assert answer.json() == {"offsets": [{"partition": 0, "offset": 0}]}
    assert requests.post(url, data=body + b" ", headers=headers, timeout=WAIT_S).status_code == 401
    assert requests.post(f"{reporting.url}/topics/other", data=b"{}", timeout=WAIT_S).status_code == 403
    assert first_record(bootstrap, reporting.hooked).value() == body
