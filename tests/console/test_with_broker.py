"""`barnabas start --with console,registry`: one process, which knows its own services."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import requests
from barnabas.local.start import main
from tests.console.conftest import WAIT_S


def test_the_console_of_a_broker_finds_the_services_of_its_process(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "start",
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(tmp_path / "data"),
    ]
    command += [
        "--with",
        "console,registry,connect",
        "--console-listen",
        "127.0.0.1:0",
        "--registry-listen",
        "127.0.0.1:0",
        "--connect-listen",
        "127.0.0.1:0",
    ]
    roles = tmp_path / "roles"
    roles.write_text("* admin prod\n")
    command += ["--console-name", "prod", "--console-role", "none", "--console-roles", str(roles)]
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready"), log.read_text()
        match = re.search(r"service started service=console url=(\S+)", log.read_text())
        assert match is not None
        api = f"{match[1]}/api/v1/clusters/prod"
        body = {"subject": "made-value", "kind": "AVRO", "schema": '"string"'}
        assert requests.post(f"{api}/schemas", json=body, timeout=WAIT_S).status_code == 200
        assert [
            row["subject"] for row in requests.get(f"{api}/schemas", timeout=WAIT_S).json()["subjects"]
        ] == ["made-value"]
        assert requests.get(f"{api}/connectors", timeout=WAIT_S).json()["connectors"] == []
        assert requests.get(f"{match[1]}/", timeout=WAIT_S).status_code == 200
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["oidc", "https://login.example"], "--console-oidc needs --console-oidc-client ID"),
        (["oidc-client", "x"], "--console-oidc-client needs --console-oidc URL"),
        (
            ["oidc", "https://login.example", "--console-oidc-client", "x"],
            "say --console-role none (or read)",
        ),
        (["also", "local=kafka:9092"], "--console-also local: there is a cluster of this name already"),
        (["sql", "other=http://localhost"], "--console-sql other=...: there is no cluster of this name"),
        (["mcp", "all"], "--console-mcp 'all' is not one of read, change"),
    ],
)
def test_wrong_options_are_named_before_anything_runs(
    options: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = ["--data", str(tmp_path), "--listen", "127.0.0.1:0", "--with", "console"]
    assert main([*start, f"--console-{options[0]}", *options[1:]]) == 2
    assert reason in capsys.readouterr().err
