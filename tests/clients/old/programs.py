"""Clients of 2013 to 2019, each as its registry still gives it, behind one command line.

COMMAND BOOTSTRAP write TOPIC COUNT CODECS [VERSIONS]    COUNT records with each codec into partition 0
COMMAND BOOTSTRAP read TOPIC COUNT [VERSIONS]            partition 0 from the beginning
COMMAND BOOTSTRAP group TOPIC COUNT [VERSIONS]           commit, and go on from there
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients import foreign

OLD = Path(__file__).parent
PYTHON_CODECS = ("lz4", "xxhash", "python-snappy", "six")


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
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        paths = [OLD / "python"]
        paths.append(_pip(f"kafka-python-{release}", f"kafka-python=={release}"))
        paths.append(_pip(f"python-codecs-{version}", *PYTHON_CODECS))
        places = ":".join(str(path) for path in paths)
        program = [sys.executable, "-W", "ignore", str(OLD / "python" / "probe.py")]
        return ["env", f"PYTHONPATH={places}", *program]

    return command


def _pip(name: str, *packages: str) -> Path:
    """Packages in a folder of their own."""

    def install(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *packages]
        foreign.fetch_or_skip(pip, OLD, f"pip cannot fetch {' '.join(packages)}")

    return foreign.made(name, install)


def java(release: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        program, javac = foreign.need("java"), foreign.need("javac")
        sources = OLD / "java"

        def make(folder: Path) -> None:
            libs, classes = folder / "libs", folder / "classes"
            what = f"kafka-clients {release}"
            foreign.maven(sources / "pom.xml", libs, what, f"-Dkafka.version={release}")
            compiler = [javac, "-nowarn", "-cp", f"{libs}/*", "-d", str(classes)]
            foreign.build([*compiler, str(sources / "OldClient.java")], sources)

        built = foreign.made(f"old-java-{release}-{foreign.fingerprint(sources, '*')}", make)
        flags = [
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        ]
        places = f"{built / 'classes'}:{built / 'libs'}/*"
        return [program, *flags, f"-Dversion={release}", "-cp", places, "OldClient"]

    return command


def sarama(release: str, modules: str) -> Callable[[], list[str]]:
    def command() -> list[str]:
        what, where = f"the modules of sarama {release}", f"-modfile={modules}"
        flags = (where, "-ldflags", f"-X main.release={release}")
        return [str(foreign.go_program(f"sarama-{release}", OLD / "sarama", what, (where,), flags))]

    return command


def kafkajs() -> list[str]:
    node, modules = foreign.need("node"), foreign.kafkajs_modules()
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
