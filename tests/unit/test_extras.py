"""An extra that is missing is named in one line, with a command that works where this Python runs."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from barnabas import extras

ROOT = Path(__file__).parents[2]
WITHOUT = (
    "import sys; sys.modules[{missing!r}] = None; from barnabas.cli.main import run; sys.exit(run({words!r}))"
)
SCRAM_LOGIN = """
import sys
sys.modules["scramp"] = None
from barnabas.client.login import log_in
from barnabas.client.options import ClientOptions, SaslOptions
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeResponse

login = log_in("host:1", ClientOptions((("host", 1),), sasl=SaslOptions("SCRAM-SHA-256", "me", "x")))
served = [ApiVersion(api_key=key, min_version=0, max_version=1) for key in (17, 36)]
version = next(login).version
version = login.send(ApiVersionsResponse(api_keys=served).encode(version)).version
try:
    login.send(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]).encode(version))
except Exception as error:
    sys.exit(str(error))
"""
"""What a broker that takes SCRAM answers is put into the login by hand."""


def test_the_extras_are_those_of_the_documents() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "installation.md").read_text()
    for name in (
        "pipelines",
        "cluster",
        "security",
        "services",
        "rules",
        "telemetry",
        "plots",
        "connectors",
        "iceberg",
        "ldap",
        "mcp",
        "all",
    ):
        assert name in declared
        assert f"| `{name}` |" in page
    everything = set(declared["all"][0].partition("[")[2].rstrip("]").split(","))
    assert everything == {
        "pipelines", "cluster", "security", "services", "rules", "telemetry", "plots", "connectors", "iceberg", "ldap",
        "mcp",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("missing", "words", "extra"),
    [
        ("pyspark", ["pipeline", "check", "PIPELINE"], "pipelines"),
        ("starlette", ["pipelines", "serve"], "pipelines"),
        ("scramp", ["config", "describe", "broker", "1", "-X", "sasl.mechanism=SCRAM-SHA-256"], "security"),
    ],
)
def test_a_missing_extra(missing: str, words: list[str], extra: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("pipeline: p\nsource: {topic: t}\noutputs: [{topic: o}]\n")
    words = [str(file) if word == "PIPELINE" else word for word in words]
    if extra == "security":
        pytest.importorskip("scramp")
        code = SCRAM_LOGIN
    else:
        code = WITHOUT.format(missing=missing, words=words)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=100
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"install it with {extras.how_to_install(extra)}" in done.stderr


def test_the_command_names_this_very_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    command = shlex.split(extras.how_to_install("cluster"))
    assert sys.executable in command
    assert command[-1] == "barnabas[cluster]"
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setattr(extras.shutil, "which", lambda name: "/usr/bin/uv")
    assert shlex.split(extras.how_to_install("cluster"))[:3] == ["uv", "pip", "install"]
