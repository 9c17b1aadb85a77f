"""`barnabas start --secure DIR --with ...`: TLS and users of services in the process of a broker."""

from __future__ import annotations

import base64
import json
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.security import folder as secured

PATIENCE_S = 120
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'


class Together:
    """A secured broker with a registry and a proxy in its process; all of them with the users of one folder."""

    def __init__(self, where: Path) -> None:
        self.folder = where / "secure"
        secured.create(self.folder, [], ["alice"])
        self.log = where / "log"
        command = [sys.executable, "-m", "barnabas", "start", "--secure", str(self.folder)]
        command += ["--listen", "127.0.0.1:0", "--data", str(where / "data"), "--with", "registry,rest"]
        command += [
            "--registry-listen",
            "127.0.0.1:0",
            "--rest-listen",
            "0.0.0.0:0",
        ]  # the folder makes that good
        command += ["--services-client", str(self.folder / "clients" / "admin" / "librdkafka.properties")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().decode()
        assert ready.startswith("ready"), self.log.read_text()
        match = re.search(r"127\.0\.0\.1:\d+", ready)
        assert match is not None
        self.bootstrap = match[0]
        self.urls = {
            name: f"https://127.0.0.1:{port}"
            for name, port in re.findall(
                r"service started service=(\w+) url=https://\S+:(\d+)", self.log.read_text()
            )
        }

    def end(self) -> int:
        self.process.terminate()
        code = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def login(self, user: str) -> str:
        file = self.folder / "clients" / user / "kafka-python.json"
        return f"{user}:{json.loads(file.read_text())['sasl_plain_password']}"

    def ask(self, service: str, path: str, login: str | None, body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            self.urls[service] + path, None if body is None else json.dumps(body).encode()
        )
        request.add_header("Content-Type", "application/vnd.kafka.avro.v2+json")
        if login is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def librdkafka(self) -> dict[str, Any]:
        text = (self.folder / "clients" / "admin" / "librdkafka.properties").read_text()
        options: dict[str, Any] = dict(line.split("=", 1) for line in text.splitlines())
        return {**options, "bootstrap.servers": self.bootstrap, "log_level": 0}


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    process = Together(tmp_path_factory.mktemp("together"))
    yield process
    assert process.end() == 0
    log = process.log.read_text()
    assert "Traceback" not in log
    for user in ("alice", "admin"):
        assert process.login(user).partition(":")[2] not in log
    assert "in-process:" not in log


def test_users_of_the_folder_and_nobody_else(together: Together) -> None:
    for service, path in (("registry", "/subjects"), ("rest", "/topics")):
        assert together.ask(service, path, together.login("alice"))[0] == 200
        for wrong in (None, "alice:wrong", "in-process:wrong", "in-process:", "nobody:x"):
            assert together.ask(service, path, wrong)[0] == 401
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            urllib.request.urlopen(together.urls[service] + path, timeout=PATIENCE_S)


def test_services_of_one_process_and_the_broker_know_each_other(together: Together) -> None:
    """The proxy registers schemas, and the broker asks for them, at a registry that wants TLS and a login."""
    topic = "checked"
    admin = AdminClient(together.librdkafka())
    new = NewTopic(topic, 1, config={"confluent.value.schema.validation": "true"})
    admin.create_topics([new])[topic].result(PATIENCE_S)
    body = {"value_schema": SCHEMA, "records": [{"value": {"a": 1}}]}
    status, answer = together.ask("rest", f"/topics/{topic}", together.login("alice"), body)
    assert (status, answer["offsets"][0]["offset"]) == (200, 0), answer
    assert together.ask("registry", "/subjects", together.login("alice")) == (200, [f"{topic}-value"])
    errors = []
    producer = Producer({**together.librdkafka(), "message.timeout.ms": 60_000})
    producer.produce(topic, b"no schema", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert KafkaException(errors[0]).args[0].name() == "INVALID_RECORD"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--registry-listen", "0.0.0.0:0"], "--registry-listen 0.0.0.0:0 is reached from other machines, without TLS"),
        (["--registry-listen", "0.0.0.0:0", "--services-users", "USERS"], "without TLS; give"),
        (["--registry-listen", "[::]:0", "--services-tls-cert", "CERT"], "without a login; give"),
        (["--services-tls-key", "CERT"], "--services-tls-key and --services-tls-client-ca need --services-tls-cert"),
        (["--services-issuer", "x"], "need --services-jwks"),
        (["--services-users", "/nowhere"], "cannot read /nowhere"),
        (["--services-tls-cert", "USERS"], "TLS files cannot be loaded"),
        (["--services-client", "/nowhere"], "--services-client: cannot read /nowhere"),
        (["--registry-listen", "nonsense"], "--registry-listen 'nonsense' is not HOST:PORT"),
    ],
)  # fmt: skip
def test_what_does_not_start(words: list[str], reason: str, tmp_path: Path, capsys: Any) -> None:
    from barnabas.local.start import main

    folder = tmp_path / "secure"
    secured.create(folder, [], [])
    files = {"USERS": str(folder / "users.properties"), "CERT": str(folder / "broker.pem")}
    code = main(
        ["--data", str(tmp_path / "data"), "--with", "registry", *(files.get(word, word) for word in words)]
    )
    error = capsys.readouterr().err
    assert code == 2, error
    assert reason in error
    assert error.count("\n") == 1


def test_a_broker_without_a_listener_that_the_services_could_use(tmp_path: Path) -> None:
    folder = tmp_path / "secure"
    secured.create(folder, [], [])
    command = [sys.executable, "-m", "barnabas", "start", "--secure", str(folder), "--listen", "127.0.0.1:0"]
    command += ["--data", str(tmp_path / "data"), "--with", "registry", "--registry-listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "--services-client FILE" in done.stderr


@pytest.mark.parametrize(
    ("words", "knows", "parts"),
    [
        (["--workers", "2", "--services-users", "USERS"], False, ["set confluent.schema.registry.url"]),
        (["--workers", "2", "--services-users", "USERS"], True, []),
        (["--workers", "2", "--registry-listen", "127.0.0.1:0"], False, ["its port is chosen at the start"]),
        (["--workers", "2"], False, []),
        (["--services-users", "USERS"], False, []),
        (["--services-users", "USERS", "--registry-listen", "0.0.0.0:81"], False, ["made at random"]),
        (["--services-users", "USERS", "--services-tls-cert", "CERT", "--registry-listen", ":::81"], False,
         ["made of the key of its certificate"]),
        (["--secure", "FOLDER", "--registry-listen", "0.0.0.0:81"], False, []),
    ],
)  # fmt: skip
def test_what_a_start_warns_of(words: list[str], knows: bool, parts: list[str], tmp_path: Path) -> None:
    from barnabas.local.start import parser
    from barnabas.services.with_broker import warnings_of

    folder = tmp_path / "secure"
    secured.create(folder, [], [])
    files = {
        "USERS": str(folder / "users.properties"),
        "CERT": str(folder / "broker.pem"),
        "FOLDER": str(folder),
    }
    options = parser().parse_args(["--with", "registry,rest", *(files.get(word, word) for word in words)])
    warned = list(warnings_of(options, knows_registry=knows))
    assert len(warned) == len(parts)
    for warning, part in zip(warned, parts, strict=True):
        assert part in warning


def test_a_start_warns_of_files_that_others_may_read(tmp_path: Path) -> None:
    from barnabas.local.start import parser
    from barnabas.services.with_broker import warnings_of

    files = {name: tmp_path / name for name in ("users", "tls-key", "client")}
    for file in files.values():
        file.write_text("")
        file.chmod(0o644)
    words = [word for name, file in files.items() for word in (f"--services-{name}", str(file))]
    cert = ["--services-tls-cert", str(files["tls-key"])]
    options = parser().parse_args(["--with", "rest", *words, *cert])
    warned = list(warnings_of(options, knows_registry=True))
    assert len(warned) == 3
    assert all(any(f"can read {file}, which holds" in line for line in warned) for file in files.values())
    files["client"].chmod(0o600)
    assert len(list(warnings_of(options, knows_registry=True))) == 2
    assert list(warnings_of(parser().parse_args(words), knows_registry=True)) == [], (
        "no service, none is read"
    )
