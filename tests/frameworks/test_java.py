"""Java's frameworks, from Maven Central: Spring Kafka, Camel, Flink, Storm and Flume, each with a program or a file of the
kind that its documentation has."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.clients.foreign import SHORT_JAVA, build, fingerprint, made, maven, need
from tests.frameworks.harness import capitals, prepare
from tests.support.process import BrokerProcess

pytestmark = [pytest.mark.java, pytest.mark.soak]

SOURCES: Final = Path(__file__).parent / "java"
PROGRAMS: Final = ("camel", "spring", "storm", "flink")


def libraries(name: str) -> Path:
    pom = SOURCES / name / "pom.xml"
    return made(
        f"framework-{name}-{fingerprint(pom.parent, 'pom.xml')}", lambda folder: maven(pom, folder, name)
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_capitals(name: str, broker: BrokerProcess, tmp_path: Path) -> None:
    java, javac, jars, sources = need("java"), need("javac"), libraries(name), SOURCES / name

    def compile_it(folder: Path) -> None:
        flags = [f"-J{option}" for option in SHORT_JAVA]
        build([javac, *flags, "-cp", f"{jars}/*", "-d", str(folder), str(sources / "Capitals.java")], sources)

    classes = made(f"framework-{name}-classes-{fingerprint(sources, 'pom.xml', '*.java')}", compile_it)
    prepare(broker.bootstrap, name)
    command = [java, *SHORT_JAVA, "-Xmx700m", "-cp", f"{classes}:{jars}/*", "Capitals", broker.bootstrap]
    capitals(broker.bootstrap, name, command, tmp_path, {})


def test_flume(broker: BrokerProcess, tmp_path: Path) -> None:
    config = tmp_path / "flume.conf"
    text = (SOURCES / "flume" / "flume.conf").read_text()
    config.write_text(text.replace("BOOTSTRAP", broker.bootstrap))
    prepare(broker.bootstrap, "flume")
    command = [
        need("java"),
        *SHORT_JAVA,
        "-cp",
        f"{libraries('flume')}/*",
        "org.apache.flume.node.Application",
    ]
    command += ["-n", "capitals", "-f", str(config), "--no-reload-conf"]
    # Its interceptor replaces the first word only, which is all there is in small letters.
    capitals(broker.bootstrap, "flume", command, tmp_path, {})
