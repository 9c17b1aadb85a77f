"""Builds and runs the client programs in other languages; each prints one line of JSON per scenario."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("BARNABAS_TEST_CACHE", Path.home() / ".cache" / "barnabas-tests"))
BUILD_TIMEOUT_S = 110
SCENARIO_TIMEOUT_S = 90


def fingerprint(folder: Path, *patterns: str) -> str:
    """Changes when a source file of the program does."""
    digest = hashlib.sha256()
    for path in sorted(p for pattern in patterns for p in folder.glob(pattern)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def need(tool: str) -> str:
    """Path of a program; skips the test when the machine has none."""
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"no `{tool}` on the PATH")
    return found


def fetch_or_skip(command: list[str], cwd: Path, what: str, env: dict[str, str] | None = None) -> None:
    """Run a command that needs a registry; skips the test when it fails for want of one."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            env={**os.environ, **(env or {})},
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{what}: the registry did not answer within {BUILD_TIMEOUT_S} s")
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["no output"]
        pytest.skip(f"{what}: {lines[0][:300]}")


def build(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> None:
    """Compile; our own sources must compile, so a failure is a failure."""
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def java_program() -> list[str]:
    """The command that runs java/Probe.java, built once per version of its sources."""
    sources = HERE / "java"
    java, javac, mvn = (need(tool) for tool in ("java", "javac", "mvn"))
    libs = CACHE / f"java-libs-{fingerprint(sources, 'pom.xml')}"
    if not (libs / ".complete").exists():
        fetch = ["-q", "-B", "-f", str(sources / "pom.xml"), "dependency:copy-dependencies"]
        where = [f"-DoutputDirectory={libs}", "-DincludeScope=runtime"]
        fetch_or_skip([mvn, *fetch, *where], sources, "Maven cannot fetch kafka-clients")
        (libs / ".complete").touch()
    classes = CACHE / f"java-{fingerprint(sources, 'pom.xml', '*.java')}"
    if not (classes / "Probe.class").exists():
        files = sorted(str(path) for path in sources.glob("*.java"))
        build([javac, "-Xlint:all,-try", "-cp", f"{libs}/*", "-d", str(classes), *files], sources)
    # Short runs: the quick compiler only and the small collector halve the time.
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return [java, *flags, "-cp", f"{classes}:{libs}/*", "Probe"]


def run(command: list[str], bootstrap: str, *words: str) -> dict[str, Any]:
    """One scenario -> its JSON. Fails with the program's own reason."""
    done = subprocess.run(
        [*command, bootstrap, *words], capture_output=True, text=True, timeout=SCENARIO_TIMEOUT_S, cwd="/"
    )
    lines = done.stdout.strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        pytest.fail(f"{' '.join(words)}: ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    assert found.get("ok") is True, f"{' '.join(words)}: {found.get('error')}\n{done.stderr[-3000:]}"
    assert done.returncode == 0
    return found
