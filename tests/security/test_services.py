"""What else listens: TLS and users of the HTTP services, by clients that somebody else wrote."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from barnabas.http.users import UserFile, Users
from barnabas.security import folder as secured
from barnabas.security.folder import users_text
from barnabas.security.sasl.scram import encode_credential, new_credential
from barnabas.services.access import Access
from barnabas.services.command import warn_of_exposed
from barnabas.testing import Broker
from tests.security.issuer import Issuer
from tests.support.registry import RegistryProcess

SCHEMA = Schema('{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}', "AVRO")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("services") / "secure"
    secured.create(directory, [], ["alice"])
    return directory


def password_of(folder: Path, user: str) -> str:
    password: str = json.loads((folder / "clients" / user / "kafka-python.json").read_text())[
        "sasl_plain_password"
    ]
    return password


@pytest.fixture(scope="module")
def registries(
    folder: Path, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[RegistryProcess]]:
    """Two instances: one of them hands changes on to the other, over TLS and with the caller's login."""
    logs = tmp_path_factory.mktemp("logs")
    words = [
        "--secure",
        str(folder),
        "--jwks",
        f"file://{issuer.file}",
        "--issuer",
        "tests",
        "--audience",
        "kafka",
    ]
    with Broker() as broker:
        processes = [RegistryProcess(broker.bootstrap, logs / f"{name}.log", *words) for name in ("a", "b")]
        for registry in processes:
            registry.launch()
        try:
            for registry in processes:
                registry.await_ready()
            yield processes
        finally:
            for registry in processes:
                assert registry.end() == 0


def client(registry: RegistryProcess, folder: Path, login: str) -> SchemaRegistryClient:
    return SchemaRegistryClient(
        {
            "url": f"https://127.0.0.1:{registry.port}", "basic.auth.user.info": login,
            "ssl.ca.location": str(folder / "ca.pem"), "max.retries": 60, "retries.wait.ms": 200,
            "retries.max.wait.ms": 500,
        }
    )  # fmt: skip


def test_confluents_client_with_tls_and_a_user(folder: Path, registries: list[RegistryProcess]) -> None:
    login = f"alice:{password_of(folder, 'alice')}"
    for number, registry in enumerate(registries):  # one of the two hands this on
        assert client(registry, folder, login).register_schema(f"subject-{number}", SCHEMA) > 0
    assert "https" in registries[0].ready_line
    for wrong in ("alice:wrong", "nobody:wrong", f"broker:{password_of(folder, 'alice')}"):
        with pytest.raises(SchemaRegistryError) as refused:
            client(registries[0], folder, wrong).get_subjects()
        assert refused.value.http_status_code == 401


def fetch(registry: RegistryProcess, folder: Path, path: str, **headers: str) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(f"https://127.0.0.1:{registry.port}{path}", headers=headers)
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers)


def test_tokens_and_what_needs_no_login(
    folder: Path, issuer: Issuer, registries: list[RegistryProcess]
) -> None:
    registry = registries[0]
    assert fetch(registry, folder, "/subjects", Authorization=f"Bearer {issuer.token()}")[0] == 200
    for token in (issuer.token(aud="else"), issuer.token(exp=time.time() - 3600), "nonsense", ""):
        assert fetch(registry, folder, "/subjects", Authorization=f"Bearer {token}")[0] == 401
    status, headers = fetch(registry, folder, "/subjects")
    assert (status, headers["www-authenticate"]) == (
        401,
        'Basic realm="barnabas", charset="UTF-8", Bearer',
    )
    for bad in ("Basic", "Basic !!!", "Basic YQ==", "Digest x", "\xff"):
        assert fetch(registry, folder, "/subjects", Authorization=bad)[0] == 401
    assert fetch(registry, folder, "/health")[0] == 200
    with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
        urllib.request.urlopen(f"https://127.0.0.1:{registry.port}/subjects", timeout=60)


def test_passwords_and_tokens_are_in_no_log(folder: Path, registries: list[RegistryProcess]) -> None:
    client(registries[0], folder, f"alice:{password_of(folder, 'alice')}").get_subjects()
    logs = "".join(registry.log_path.read_text() for registry in registries)
    assert password_of(folder, "alice") not in logs
    assert "user=alice" in logs
    assert "Traceback" not in logs


def test_the_schema_commands_log_in(folder: Path, registries: list[RegistryProcess]) -> None:
    login = f"alice:{password_of(folder, 'alice')}"
    client(registries[0], folder, login).register_schema("subject-of-the-command", SCHEMA)
    url = f"https://{login}@127.0.0.1:{registries[0].port}"
    words = [sys.executable, "-m", "barnabas", "schema", "get", "-r", url]
    environment = {**os.environ, "SSL_CERT_FILE": str(folder / "ca.pem")}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert "subject-of-the-command" in done.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["registry", "start", "--listen", "0.0.0.0:0"], "without TLS and a login; give --secure DIR"),
        (["rest", "start", "--listen", "[::]:0"], "without TLS and a login"),
        (["rest", "start", "--listen", "0.0.0.0:0", "--users", "USERS"], "without TLS; give"),
        (["reporting", "start", "--listen", "0.0.0.0:0", "--tls-cert", "CERT"], "without a login; give"),
        (["pipelines", "serve", "--listen", "0.0.0.0:0"], "without TLS and a login"),
        (["start", "--with", "registry", "--registry-listen", "0.0.0.0:0"], "or say --services-open"),
        (["registry", "start", "--secure", "/nowhere"], "barnabas security init /nowhere"),
        (["registry", "start", "--users", "/nowhere"], "cannot read /nowhere"),
        (["registry", "start", "--tls-key", "KEY"], "need --tls-cert"),
        (["registry", "start", "--issuer", "x"], "need --jwks"),
        (["registry", "start", "--jwks", "ftp://x"], "must begin with https:// or file:"),
        (["registry", "start", "--tls-cert", "USERS"], "TLS files cannot be loaded"),
    ],
)
def test_what_does_not_start(
    words: list[str], reason: str, folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas.cli.main import run

    monkeypatch.setattr("barnabas.observe.logs.set_up", lambda: None)  # it is this process's log
    files = {"USERS": str(folder / "users.properties"), "CERT": str(folder / "broker.pem")}
    code = run([files.get(word, word) for word in words])
    error = capsys.readouterr().err
    assert code == 2, error
    assert reason in error
    assert error.count("\n") == 1


# --- users, without a server --------------------------------------------------------------------------------------


def entry(password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    return {mechanism: encode_credential(new_credential(mechanism, password, b"salt of a test"))}


def test_a_file_that_changes_counts_at_once_and_a_broken_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.http.users.LOOK_S", 0.0)
    path = tmp_path / "users"
    path.write_text(users_text({"a": entry("one"), "old": entry("x", "SCRAM-SHA-256")}))
    file = UserFile(path)
    assert not file.knows("a", "one")
    assert file.check("a", "one")
    assert file.knows("a", "one")
    assert file.check("old", "x")
    assert not file.check("a", "two")
    assert not file.check("nobody", "one")
    path.write_text(users_text({"a": entry("two!")}))
    file.refresh()
    assert not file.knows("a", "one")
    assert not file.check("a", "one")
    assert file.check("a", "two!")
    path.write_text("nonsense")
    file.refresh()
    assert file.check("a", "two!")
    path.unlink()
    file.refresh()
    assert file.check("a", "two!")


def test_refusing_nobody_is_the_same_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mechanism and iterations are those of the users, also where none has SCRAM-SHA-512."""
    path, worked = tmp_path / "users", []
    only = {"SCRAM-SHA-256": encode_credential(new_credential("SCRAM-SHA-256", "p", b"salt", 8192))}
    path.write_text(users_text({"a": only, "b": only}))
    file = UserFile(path)
    derive = hashlib.pbkdf2_hmac
    monkeypatch.setattr(
        "hashlib.pbkdf2_hmac",
        lambda *arguments: worked.append((arguments[0], arguments[3])) or derive(*arguments),
    )
    for user in ("a", "nobody"):
        assert not file.check(user, "wrong")
    assert worked == [("sha256", 8192)] * 2
    path.write_text(users_text({"a": only, **{f"b{n}": entry("p") for n in range(3)}}))
    file = UserFile(path)
    worked.clear()
    assert not any(file.check(f"nobody{number}", "wrong") for number in range(40))
    assert set(worked) == {("sha256", 8192), ("sha512", 4096)}, "in proportion"


def test_files_of_a_service_that_others_may_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key, users, keys = (tmp_path / name for name in ("key.pem", "users", "keys"))
    for file in (key, users, keys):
        file.write_text("")
        file.chmod(0o644)
    access = Access(tls_cert=tmp_path / "cert.pem", tls_key=key, users=users)
    warn_of_exposed(access, [(keys, "keys of signatures")])
    reasons = [getattr(row, "reason", "") for row in caplog.records]
    assert [str(file) in reason for file, reason in zip((key, users, keys), reasons, strict=True)] == [
        True
    ] * 3
    for file in (key, users, keys):
        file.chmod(0o600)
    caplog.clear()
    warn_of_exposed(access, [(keys, "keys of signatures")])
    assert not caplog.records
    assert [file.name for file, _ in Access(secure=tmp_path).secret_files()] == [
        "broker.pem",
        "users.properties",
    ]


def test_a_page_may_ask_whether_it_may_call(tmp_path: Path) -> None:
    import asyncio

    path = tmp_path / "users"
    path.write_text(users_text({"a": entry("one")}))
    users = Users(UserFile(path), None)
    scope = {"path": "/topics", "method": "OPTIONS", "headers": [(b"access-control-request-method", b"POST")]}
    assert asyncio.run(users(scope)) is None
