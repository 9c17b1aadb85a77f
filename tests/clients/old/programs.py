"""Clients of 2013 to 2019, each as its registry still gives it, behind one command line.

COMMAND BOOTSTRAP write TOPIC COUNT CODECS [VERSIONS]    COUNT records with each codec into partition 0
COMMAND BOOTSTRAP read TOPIC COUNT [VERSIONS]            partition 0 from the beginning
COMMAND BOOTSTRAP group TOPIC COUNT [VERSIONS]           commit, and go on from there
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients import foreign

OLD = Path(__file__).parent
PYTHON_CODECS = ("lz4", "xxhash", "python-snappy", "six")
ONE_PIP = threading.Lock()
"""Releases of kafka-python share the folder of their codecs."""


@dataclass(frozen=True)
class Program:
    """`command` builds what is needed and returns the words to run; it skips where a registry is missing."""

    name: str
    command: Callable[[], list[str]]
    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4")
    versions: tuple[str, ...] = ()
    """Versions of the protocol that the program can be told to use."""
    versions_with_lz4: tuple[str, ...] = field(default=())
    """Those of `versions` that read lz4; sarama's did not before 0.10."""
    commits: bool = True


def kafka_python(release: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        paths = [OLD / "python"]
        for folder, packages in (
            (f"kafka-python-{release}", (f"kafka-python=={release}",)),
            (f"python-codecs-{sys.version_info[0]}.{sys.version_info[1]}", PYTHON_CODECS),
        ):
            target = foreign.CACHE / folder
            with ONE_PIP:
                if not (target / ".complete").exists():
                    pip = [
                        sys.executable,
                        "-m",
                        "pip",
                        "install",
                        "--quiet",
                        "--target",
                        str(target),
                        *packages,
                    ]
                    foreign.fetch_or_skip(pip, OLD, f"pip cannot fetch {' '.join(packages)}")
                    (target / ".complete").touch()
            paths.append(target)
        places = ":".join(str(path) for path in paths)
        return [
            "env",
            f"PYTHONPATH={places}",
            sys.executable,
            "-W",
            "ignore",
            str(OLD / "python" / "probe.py"),
        ]

    return command


def java(release: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        program, javac, mvn = (foreign.need(tool) for tool in ("java", "javac", "mvn"))
        sources = OLD / "java"
        name = f"old-java-{release}-{foreign.fingerprint(sources, '*')}"
        libs, classes = foreign.CACHE / name / "libs", foreign.CACHE / name / "classes"
        if not (classes / "OldClient.class").exists():
            fetch = [
                mvn, "-q", "-B", "-f", str(sources / "pom.xml"), "dependency:copy-dependencies",
                f"-DoutputDirectory={libs}", "-DincludeScope=runtime", f"-Dkafka.version={release}",
            ]  # fmt: skip
            foreign.fetch_or_skip(fetch, sources, f"Maven cannot fetch kafka-clients {release}")
            build = [
                javac,
                "-nowarn",
                "-cp",
                f"{libs}/*",
                "-d",
                str(classes),
                str(sources / "OldClient.java"),
            ]
            foreign.build(build, sources)
        flags = [
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        ]
        return [program, *flags, f"-Dversion={release}", "-cp", f"{classes}:{libs}/*", "OldClient"]

    return command


def sarama(release: str, modules: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        go = foreign.need("go")
        sources = OLD / "sarama"
        program = foreign.CACHE / f"sarama-{release}-{foreign.fingerprint(sources, '*')}"
        if not program.exists():
            foreign.CACHE.mkdir(parents=True, exist_ok=True)
            pure = {"CGO_ENABLED": "0"}
            fetch = [go, "mod", "download", f"-modfile={modules}"]
            foreign.fetch_or_skip(fetch, sources, f"the modules of sarama {release} cannot be fetched", pure)
            flags = [f"-modfile={modules}", "-ldflags", f"-X main.release={release}"]
            foreign.build([go, "build", *flags, "-o", str(program), "."], sources, pure)
        return [str(program)]

    return command


def kafkajs() -> list[str]:
    node, npm = foreign.need("node"), foreign.need("npm")
    package = foreign.HERE / "node" / "package.json"
    modules = foreign.CACHE / f"node-{foreign.fingerprint(package.parent, 'package.json')}"
    if not (modules / ".complete").exists():
        modules.mkdir(parents=True, exist_ok=True)
        shutil.copy(package, modules)
        install = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock"]
        foreign.fetch_or_skip(install, modules, "npm cannot fetch kafkajs")
        (modules / ".complete").touch()
    return ["env", f"PROBE_MODULES={modules}", "NODE_NO_WARNINGS=1", node, str(OLD / "node" / "probe.js")]


BEFORE_11 = ("auto", "0.8.2", "0.9", "0.10", "0.10.1")
TO_1_0 = ("auto", "0.8.2", "0.9", "0.10", "0.10.2", "0.11", "1.0")
SARAMA = ("default", "0.9.0.0", "0.10.0.0", "0.10.2.0", "0.11.0.0", "1.0.0")

PROGRAMS = (
    Program("kafka-python-1.3.5", kafka_python("1.3.5"), versions=BEFORE_11, versions_with_lz4=BEFORE_11),
    Program("kafka-python-1.4.7", kafka_python("1.4.7"), versions=TO_1_0, versions_with_lz4=TO_1_0),
    Program("kafka-python-2.0.2", kafka_python("2.0.2"), versions=TO_1_0, versions_with_lz4=TO_1_0),
    Program("sarama-1.23.1", sarama("1.23.1", "go.mod"), versions=SARAMA, versions_with_lz4=SARAMA[2:]),
    Program(
        "sarama-1.38.1",
        sarama("1.38.1", "v1.38.1.mod"),
        versions=("default",),
        versions_with_lz4=("default",),
    ),
    Program("java-0.9.0.1", java("0.9.0.1")),
    Program("java-0.10.2.2", java("0.10.2.2")),
    Program("java-2.0.1", java("2.0.1")),
    Program("kafkajs", kafkajs, codecs=("none", "gzip"), commits=False),
)
