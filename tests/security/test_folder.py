"""`barnabas security init`, `barnabas start --secure` and `security check`, with clients that somebody else wrote."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cli.main import run
from barnabas.config.properties import parse_properties
from barnabas.testing import Broker
from tests.clients import foreign
from tests.security.peer import Peer
from tests.security.test_sasl import refused
from tests.security.test_tls import PATIENCE_S
from tests.support.process import free_port


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("secure") / "dir"
    assert run(["security", "init", str(directory), "--host", "127.0.0.1", "--user", "alice"]) == 0
    return directory


@pytest.fixture(scope="module")
def address(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker in a process of its own, as its users start it."""
    where = f"127.0.0.1:{free_port()}"
    data = tmp_path_factory.mktemp("secured") / "data"
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "start",
        "--secure",
        str(folder),
        "--listen",
        where,
        "--data",
        str(data),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("ready"), line
        yield where
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


def librdkafka(folder: Path, user: str, address: str) -> dict[str, str]:
    lines = (folder / "clients" / user / "librdkafka.properties").read_text().splitlines()
    return {**dict(line.split("=", 1) for line in lines), "bootstrap.servers": address, "log_level": "0"}


def test_what_is_written(folder: Path) -> None:
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    clients = {"java.properties", "librdkafka.properties", "kafka-python.json", "pyspark.json", "curl.conf"}
    assert names == {"ca.pem", "ca-key.pem", "broker.pem", "broker.properties", "users.properties"} | {
        f"clients/{user}/{name}" for user in ("admin", "alice") for name in clients
    }
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "ca.pem":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    password = json.loads((folder / "clients" / "alice" / "kafka-python.json").read_text())[
        "sasl_plain_password"
    ]
    assert password not in (folder / "users.properties").read_text()


def test_admin_may_do_everything_and_others_nothing_yet(folder: Path, address: str) -> None:
    admin = AdminClient(librdkafka(folder, "admin", address))
    admin.create_topics([NewTopic("secured", 1)])["secured"].result(PATIENCE_S)
    alice = AdminClient(librdkafka(folder, "alice", address))
    with pytest.raises(KafkaException) as denied:
        alice.create_topics([NewTopic("hers", 1)])["hers"].result(PATIENCE_S)
    assert denied.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert set(alice.list_topics(timeout=PATIENCE_S).topics) == set()
    refused(librdkafka(folder, "alice", address) | {"sasl.password": "guessed"})
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2)


def test_the_command_line_gives_and_takes_rights(
    folder: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = login(folder, "admin", address)
    assert run(["acl", "add", "create", "describe", "--user", "alice", "--topic", "hers-*", *options]) == 0
    capsys.readouterr()
    assert run(["acl", "list", "--user", "alice", "--json", *options]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["name"], row["operation"], row["permission"]) for row in rows} == {
        ("hers-*", "create", "allow"), ("hers-*", "describe", "allow"),
    }  # fmt: skip
    alice = AdminClient(librdkafka(folder, "alice", address))
    alice.create_topics([NewTopic("hers-1", 1)])["hers-1"].result(PATIENCE_S)
    assert run(["acl", "remove", "create", "--user", "alice", "--topic", "hers-*", *options]) == 0
    assert "1 removed" in capsys.readouterr().out
    with pytest.raises(KafkaException):
        alice.create_topics([NewTopic("hers-2", 1)])["hers-2"].result(PATIENCE_S)


def login(folder: Path, user: str, address: str, **instead: str) -> list[str]:
    """Options of a command. instead: other values of properties, with _ for the points in their names."""
    properties = librdkafka(folder, user, address)
    del properties["bootstrap.servers"], properties["log_level"]
    properties |= {name.replace("_", "."): value for name, value in instead.items()}
    return [
        "-b",
        address,
        *(word for name, value in properties.items() for word in ("-X", f"{name}={value}")),
    ]


@pytest.mark.parametrize(
    "command", [["topic", "list"], ["consume", "x"], ["produce", "x"], ["group", "list"]]
)
def test_a_refused_login_is_named_at_once(
    folder: Path, address: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, *login(folder, "alice", address, sasl_password="guessed")]) == 1
    printed = capsys.readouterr().err
    assert "is out of reach with this login" in printed or "refused the credentials of alice" in printed
    assert "invalid credentials" in printed
    assert "check sasl.mechanism, sasl.username and sasl.password" in printed


def test_a_foreign_certificate_is_named_at_once(
    folder: Path, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["security", "init", str(tmp_path / "other"), "--host", "127.0.0.1"]) == 0
    foreign_ca = str(tmp_path / "other" / "ca.pem")
    assert run(["topic", "list", *login(folder, "alice", address, ssl_ca_location=foreign_ca)]) == 1
    assert f"must be in ssl.ca.location={foreign_ca}" in capsys.readouterr().err


def test_a_missing_right_is_named(folder: Path, address: str) -> None:
    admin = login(folder, "admin", address)
    assert run(["topic", "create", "read-only", *admin]) == 0
    assert run(["acl", "add", "describe", "--user", "alice", "--topic", "read-only", *admin]) == 0
    command = [sys.executable, "-m", "barnabas", "produce", "read-only", *login(folder, "alice", address)]
    done = subprocess.run(command, input="hi\n", capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "`barnabas acl add` gives it" in done.stderr
    assert "KafkaException" not in done.stderr


def test_kafka_python(folder: Path, address: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    options = json.loads((folder / "clients" / "admin" / "kafka-python.json").read_text())
    options["bootstrap_servers"] = address
    producer = KafkaProducer(**options)
    producer.send("from-kafka-python", b"x").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "from-kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **options
    )
    assert next(consumer).value == b"x"
    consumer.close()


@pytest.mark.java
def test_java(folder: Path, address: str) -> None:
    """Apache Kafka's own tools with java.properties as it was written."""
    jars = foreign.kafka_jars()
    file = str(folder / "clients" / "admin" / "java.properties")

    def tool(name: str, *words: str) -> str:
        command = [foreign.need("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*", name,
                   "--bootstrap-server", address, "--command-config", file, *words]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    tool("org.apache.kafka.tools.TopicCommand", "--create", "--topic", "from-java")
    rule = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "from-java")
    tool("org.apache.kafka.tools.AclCommand", "--add", *rule)
    listed = tool("org.apache.kafka.tools.AclCommand", "--list", "--topic", "from-java")
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in listed


def test_nothing_is_answered_without_a_login(folder: Path) -> None:
    from barnabas.security import folder as secured

    with (
        Broker({**secured.options(folder), "listeners": "SASL_PLAINTEXT://127.0.0.1:0"}) as broker,
        Peer(broker.bootstrap) as peer,
    ):
        assert not peer.works()


def test_adding_to_a_folder_keeps_what_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "dir"
    assert run(["security", "init", str(folder), "--user", "alice"]) == 0
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert run(["security", "init", str(folder), "--user", "bob", "--host", "kafka.example.org"]) == 0
    changed = {path.name for path, data in kept.items() if path.read_bytes() != data}
    assert changed == {"broker.pem", "users.properties"}
    users = {
        name.rpartition(".")[0] for name, _, _ in parse_properties((folder / "users.properties").read_text())
    }
    assert users == {"admin", "alice", "bob", "broker"}


def test_names_that_cannot_be(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("", "a/b", "..", 'a"b'):
        assert run(["security", "init", str(tmp_path / "dir"), "--user", name]) == 1
        assert "a name cannot have spaces" in capfd.readouterr().err
    assert not (tmp_path / "dir").exists()
    assert run(["start", "--secure", str(tmp_path / "nothing")]) == 1
    assert "security init" in capfd.readouterr().err


def test_check(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'logs'}\n")
    secured = [
        "security",
        "check",
        "--config",
        str(file),
        "--secure",
        str(folder),
        "--listen",
        "0.0.0.0:9092",
    ]
    assert run(secured) == 0
    assert "Nothing is left open." in capsys.readouterr().out
    file.write_text("listeners=PLAINTEXT://0.0.0.0:9092\n")
    assert run(["security", "check", "--config", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "without encryption and without a login" in printed
    assert "no authorizer.class.name is set" in printed
    store = tmp_path / "broker.pem"
    store.write_bytes((folder / "broker.pem").read_bytes())
    os.chmod(store, 0o644)
    file.write_text(f"listeners=SSL://0.0.0.0:9093\nssl.keystore.location={store}\n")
    assert run(["security", "check", "--config", str(file)]) == 1
    printed = capsys.readouterr().out
    assert "every user of this machine can read" in printed
    assert "accepts clients without a certificate" in printed


def test_files_with_secrets_that_others_may_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of them is named, by `security check` and by the start; none that is closed to others is."""
    names = (
        "server.properties",
        "broker.pem",
        "secrets.properties",
        "users.properties",
        "jaas.conf",
        "kafka.keytab",
    )
    files = {name: tmp_path / name for name in names}
    for name in ("broker.pem", "users.properties"):
        files[name].write_bytes((folder / name).read_bytes())
    files["secrets.properties"].write_text("keystore=hidden\n")
    files["jaas.conf"].write_text(
        "KafkaServer { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
        f'keyTab="{files["kafka.keytab"]}" principal="kafka/localhost@REALM"; }};\n'
    )
    files["kafka.keytab"].write_bytes(b"")
    files["server.properties"].write_text(
        f"listeners=SASL_SSL://127.0.0.1:0\nssl.keystore.location={files['broker.pem']}\n"
        f"ssl.keystore.password=${{file:{files['secrets.properties']}:keystore}}\nssl.truststore.password=plain\n"
        f"scram.users.file={files['users.properties']}\nsasl.enabled.mechanisms=SCRAM-SHA-512,GSSAPI\n"
    )
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={files['jaas.conf']}")
    check = ["security", "check", "--config", str(files["server.properties"])]

    def named() -> set[str]:
        run(check)
        lines = [
            line for line in capsys.readouterr().out.splitlines() if "every user of this machine" in line
        ]
        return {name for name in names if any(f"{files[name]}," in line for line in lines)}

    for file in files.values():
        file.chmod(0o600)
    assert named() == set()
    for file in files.values():
        file.chmod(0o604)
    assert named() == set(names)
    files["server.properties"].write_text(
        files["server.properties"].read_text().replace("ssl.truststore.password=plain\n", "")
    )
    assert named() == set(names) - {"server.properties"}, "it holds no password now"


def test_a_start_warns_of_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    users = tmp_path / "users.properties"
    users.write_text("")
    users.chmod(0o644)
    with Broker({"scram.users.file": str(users)}):
        assert any(f"can read {users}, which holds" in getattr(row, "reason", "") for row in caplog.records)
