"""Every minor version of kafka-clients behind one program, java/Every.java, and the steps that each version can do."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.clients import foreign

SOURCES = Path(__file__).parent / "java"
POM = foreign.HERE / "old" / "java" / "pom.xml"
COMMON = ("Every",)


class Step(NamedTuple):
    """A class that is compiled against `compiled` and runs with all versions from `since` on."""

    name: str
    since: tuple[int, ...]
    compiled: str


STEPS = (
    Step("Records", (0, 10, 0), "0.10.0.1"),
    Step("Groups", (0, 10, 0), "0.10.0.1"),
    Step("Topics", (0, 11), "0.11.0.3"),
    Step("Transacting", (0, 11), "0.11.0.3"),
    Step("GroupAdmin", (2, 0), "2.1.1"),
    Step("Features", (2, 7), "2.7.2"),
    Step("Producers", (3, 3), "3.3.2"),
    Step("NewGroups", (3, 7), "0.10.0.1"),
    Step("Sharing", (4, 1), "4.4.0"),
)

BORDERS = ("0.10.0.1", "0.11.0.3", "2.1.1", "2.7.2", "3.3.2", "3.7.2", "3.9.2", "4.0.2", "4.4.0")
"""The oldest, the newest, the first ones with a step of their own, and those before and after what clients stumbled
over: features whose lowest level is 0 (3.3 to 3.8), the protocols that 4.0 no longer has."""

VERSIONS = (
    "0.10.0.1", "0.10.1.1", "0.10.2.2", "0.11.0.3", "1.0.2", "1.1.1", "2.0.1", "2.1.1", "2.2.2", "2.3.1", "2.4.1",
    "2.5.1", "2.6.3", "2.7.2", "2.8.2", "3.0.2", "3.1.2", "3.2.3", "3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2",
    "3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0",
)  # fmt: skip
"""The newest patch of each minor version at Maven Central."""


def steps(version: str) -> list[str]:
    numbers = tuple(int(part) for part in version.split("."))
    return [step.name for step in STEPS if numbers >= step.since]


def program(version: str) -> list[str]:
    """The command that runs java/Every.java with this version; skips when a jar cannot be had."""
    java = foreign.need("java")
    flags = [*foreign.SHORT_JAVA, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    return [java, *flags, "-cp", f"{_classes()}:{_libs(version)}/*", "Every"]


def _libs(version: str) -> Path:
    what, definition = f"kafka-clients {version}", f"-Dkafka.version={version}"
    return foreign.made(f"java-libs-{version}", lambda folder: foreign.maven(POM, folder, what, definition))


def _classes() -> Path:
    """The steps, each compiled against the oldest version that has what it uses."""
    javac = foreign.need("javac")
    libs = {version: _libs(version) for version in dict.fromkeys(step.compiled for step in STEPS)}

    def compile_them(folder: Path) -> None:
        for version, jars in libs.items():
            names = [step.name for step in STEPS if step.compiled == version]
            names += COMMON if version == STEPS[0].compiled else ()
            files = [str(SOURCES / f"{name}.java") for name in names]
            compiler = [javac, *(f"-J{option}" for option in foreign.SHORT_JAVA), "-nowarn"]
            foreign.build([*compiler, "-cp", f"{folder}:{jars}/*", "-d", str(folder), *files], SOURCES)

    return foreign.made(f"java-every-{foreign.fingerprint(SOURCES, '*.java')}", compile_them)
