"""Builds and runs the client programs in other languages; each prints one line of JSON per scenario."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("BARNABAS_TEST_CACHE", Path.home() / ".cache" / "barnabas-tests"))
BUILD_TIMEOUT_S = 900
RUN_ID = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
"""The same in all processes of one run."""
SCENARIO_TIMEOUT_S = 240
SHORT_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Of a Java that runs for seconds: the quick compiler only and the small collector halve its time."""


def fingerprint(folder: Path, *patterns: str) -> str:
    """Changes when a source file of the program does."""
    digest = hashlib.sha256()
    for path in sorted(p for pattern in patterns for p in folder.glob(pattern)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def need(tool: str) -> str:
    """Path of a program; skips the test when the machine has none."""
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"no `{tool}` on the PATH")
    return path


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Stop a test's timeout (pytest-timeout's alarm) while something is fetched or built, which has limits of its own.

    A first run on a busy machine builds for minutes, or waits while another process does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left_s)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One at a time among the processes and threads of all runs on this machine; a lock ends with its process."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` in the cache, filled by `make` when no run has done it before.

    One that was left half made is made again. Where `make` skips, for want of a registry, it skips for every other
    test of this run too, so that not each of them waits for the same answer.
    """
    folder, gone = CACHE / name, CACHE / f"{name}.skipped"
    with off_the_clock(), locked(name):
        if (folder / ".complete").exists():
            return folder
        run, _, reason = gone.read_text().partition(" ") if gone.exists() else ("", "", "")
        if run == RUN_ID:
            pytest.skip(reason)
        if folder.is_file():  # an earlier version kept the program itself there
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        try:
            make(folder)
        except pytest.skip.Exception as skipped:
            gone.write_text(f"{RUN_ID} {skipped.msg}")
            raise
        (folder / ".complete").touch()
        gone.unlink(missing_ok=True)
    return folder


def maven(pom: Path, folder: Path, what: str, *definitions: str) -> None:
    """Copy the jars that a pom.xml names into a folder; Maven's own repository is no place for two at once."""
    command = [need("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={folder}", "-DincludeScope=runtime", *definitions]
    with locked("maven"):
        fetch_or_skip(command, pom.parent, f"Maven cannot fetch {what}", {"MAVEN_OPTS": " ".join(SHORT_JAVA)})


def kafka_jars() -> Path:
    """Apache Kafka's server and its command-line tools."""
    pom = HERE / "java" / "kafka" / "pom.xml"
    name = f"kafka-{fingerprint(pom.parent, 'pom.xml')}"
    return made(name, lambda folder: maven(pom, folder, "Kafka's server and tools"))


def mirror_jars(release: str = "") -> Path:
    """Apache Kafka's MirrorMaker 2 and its client: of the release that pom.xml names, or of another one."""
    pom = HERE / "java" / "mirror" / "pom.xml"
    name = f"mirror-{release or fingerprint(pom.parent, 'pom.xml')}"
    chosen = [f"-Dkafka.version={release}"] if release else []
    return made(name, lambda folder: maven(pom, folder, f"MirrorMaker 2 {release}".rstrip(), *chosen))


def java_mirror_client(release: str = "") -> list[str]:
    """The command that runs java/mirror/Translate.java, with Kafka's client of a release."""
    sources, libs = HERE / "java" / "mirror", mirror_jars()
    java, javac = need("java"), need("javac")

    def compile_it(folder: Path) -> None:
        command = [javac, *(f"-J{option}" for option in SHORT_JAVA), "-cp", f"{libs}/*", "-d", str(folder)]
        build([*command, str(sources / "Translate.java")], sources)

    classes = made(f"mirror-client-{fingerprint(sources, '*.java')}", compile_it)
    flags = [*SHORT_JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return [java, *flags, "-cp", f"{classes}:{mirror_jars(release)}/*", "Translate"]


def kafkajs_modules(version: str = "") -> Path:
    """node_modules with kafkajs: as package.json says, or in another version."""
    package, npm = HERE / "node" / "package.json", need("npm")

    def install(folder: Path) -> None:
        shutil.copy(package, folder)
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock"]
        command += [f"kafkajs@{version}"] if version else []
        fetch_or_skip(command, folder, f"npm cannot fetch kafkajs {version}".rstrip())

    return made(f"node-{version or fingerprint(package.parent, 'package.json')}", install)


def go_program(
    name: str, sources: Path, what: str, fetch: tuple[str, ...] = (), build_flags: tuple[str, ...] = ()
) -> Path:
    """A Go program, built without C once per version of its sources."""
    go, pure = need("go"), {"CGO_ENABLED": "0"}

    def compile_it(folder: Path) -> None:
        fetch_or_skip([go, "mod", "download", *fetch], sources, f"{what} cannot be fetched", pure)
        # Building takes longer than all runs of the program: without optimization, it takes two thirds of the time.
        quick = ["-gcflags=all=-N -l", "-ldflags=-w"]
        build([go, "build", *quick, *build_flags, "-o", str(folder / "probe"), "."], sources, pure)

    return made(f"{name}-{fingerprint(sources, '*')}", compile_it) / "probe"


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
    java, javac = need("java"), need("javac")
    pom = sources / "pom.xml"
    libs = made(
        f"java-libs-{fingerprint(sources, 'pom.xml')}", lambda folder: maven(pom, folder, "kafka-clients")
    )

    def compile_it(folder: Path) -> None:
        files = sorted(str(path) for path in sources.glob("*.java"))
        build(
            [
                javac,
                *(f"-J{option}" for option in SHORT_JAVA),
                "-Xlint:all,-try",
                "-cp",
                f"{libs}/*",
                "-d",
                str(folder),
                *files,
            ],
            sources,
        )

    classes = made(f"java-{fingerprint(sources, 'pom.xml', '*.java')}", compile_it)
    flags = [*SHORT_JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return [java, *flags, "-cp", f"{classes}:{libs}/*", "Probe"]


def java_schemas() -> list[str]:
    """The command that runs java/registry/Schemas.java: Confluent's Java client of registries, as Apache Flink ships it."""
    sources = HERE / "java" / "registry"
    java, javac = need("java"), need("javac")
    mark = fingerprint(sources, "pom.xml")
    libs = made(
        f"java-registry-libs-{mark}",
        lambda folder: maven(sources / "pom.xml", folder, "a client of schema registries"),
    )

    def compile_it(folder: Path) -> None:
        command = [javac, *(f"-J{option}" for option in SHORT_JAVA), "-cp", f"{libs}/*", "-d", str(folder)]
        build([*command, str(sources / "Schemas.java")], sources)

    classes = made(f"java-registry-{fingerprint(sources, 'pom.xml', '*.java')}", compile_it)
    return [java, *SHORT_JAVA, "-cp", f"{classes}:{libs}/*", "Schemas"]


def java_transactions(release: str = "") -> list[str]:
    """The command that runs java/Transactions.java: with the newest kafka-clients, or with those of an older release."""
    program = [*java_program()[:-1], "Transactions"]
    if not release:
        return program
    pom = HERE / "old" / "java" / "pom.xml"
    libs = made(
        f"java-libs-{release}",
        lambda folder: maven(pom, folder, f"kafka-clients {release}", f"-Dkafka.version={release}"),
    )
    at = program.index("-cp") + 1
    program[at] = f"{program[at].split(':')[0]}:{libs}/*"
    return program


def run(command: list[str], bootstrap: str, *words: str) -> dict[str, Any]:
    """One scenario -> its JSON. Fails with the program's own reason."""
    done = subprocess.run(
        [*command, bootstrap, *words], capture_output=True, text=True, timeout=SCENARIO_TIMEOUT_S, cwd="/"
    )
    lines = done.stdout.strip().splitlines()
    try:
        report: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        pytest.fail(f"{' '.join(words)}: ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    assert report.get("ok") is True, f"{' '.join(words)}: {report.get('error')}\n{done.stderr[-3000:]}"
    assert done.returncode == 0
    return report
