"""The programs that the documents print, compiled and run against a broker as they stand there; see printed.py."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients import foreign
from tests.frameworks.harness import running
from tests.lessons.printed import REGISTRY, Program, addressed, programs, source
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess
from tests.support.registry import own_registry

HERE: Final = Path(__file__).parent
POM: Final = foreign.HERE / "old" / "java" / "pom.xml"
CLIENT: Final = {"guide": "2.8.2", "exploring": "0.10.2.2"}
"""Java's client of the time at which a document was written; the guide's settings are of 2.x."""
OPENED: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.net",
    "java.nio",
    "java.util",
    "sun.nio.ch",
    "sun.util.calendar",
)
"""Packages that frameworks of Java 8's time look into."""
SHOWN_TIMEOUT_S: Final = 240
PARTITIONS: Final = 3
PROGRAMS: Final = programs()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_each_change_of_a_printed_program_is_said(program: Program) -> None:
    changed = bool(program.ends or program.swaps or program.drops or program.before or program.after)
    assert program.state == "compiles" or changed == (program.state == "mended")
    assert source(program, mended=True).strip()


@pytest.mark.soak
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_printed_program_runs(
    program: Program, own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    bootstrap, registry = "localhost:9092", REGISTRY
    with ExitStack() as services:
        if program.state != "compiles":
            bootstrap = own_broker().bootstrap
            for topic in {program.topic, program.fills} - {""}:
                create_topic(bootstrap, topic, PARTITIONS)
        if program.registry:
            registry = services.enter_context(own_registry(bootstrap, tmp_path, "printed")).url
        (tmp_path / "program").mkdir()
        for other in PROGRAMS:
            if other.name in program.beside:
                text = addressed(source(other, mended=True), bootstrap, registry)
                (tmp_path / "program" / f"{other.file}.java").write_text(text)
        text = addressed(source(program, mended=True), bootstrap, registry)
        command = COMPILERS[program.language](program, text, tmp_path / "program")
        if program.state != "compiles":
            run(program, command, bootstrap, tmp_path / "program")


def run(program: Program, command: list[str], bootstrap: str, folder: Path) -> None:
    """Until the program has shown its line, or has ended well if it shows none; its topic grows meanwhile, for those that
    begin with the newest message."""
    log = folder / "output.log"
    if not program.shows and not program.fills:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SHOWN_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return
    producer, shown = Producer({"bootstrap.servers": bootstrap}), re.compile(program.shows)
    deadline_s = time.monotonic() + SHOWN_TIMEOUT_S
    if program.topic:
        fill(producer, program)
    with running(command, folder, log, {"PYTHONUNBUFFERED": "1"}):
        while not (
            is_filled(bootstrap, program.fills)
            if program.fills
            else shown.search(log.read_text(errors="replace"))
        ):
            assert time.monotonic() < deadline_s, log.read_text(errors="replace")[-3000:]
            if program.topic:
                fill(producer, program)
            time.sleep(0.5)


def is_filled(bootstrap: str, topic: str) -> bool:
    """Whether a topic holds a message."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looking"})
    try:
        return any(
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=60)[1]
            for number in range(PARTITIONS)
        )
    finally:
        consumer.close()


def fill(producer: Producer, program: Program) -> None:
    """Twenty messages for each partition, with keys that a reader of long integers takes as well."""
    for number in range(20):
        for partition in range(PARTITIONS):
            message = program.message or f"message {number}"
            producer.produce(program.topic, message, number.to_bytes(8, "big"), partition)
    assert producer.flush(60) == 0


def java(program: Program, text: str, folder: Path) -> list[str]:
    libraries = libraries_of(program)
    (folder / f"{program.file}.java").write_text(text)
    flags = [f"-J{option}" for option in foreign.SHORT_JAVA]
    paths, files = f"{folder}:{libraries}/*", sorted(path.name for path in folder.glob("*.java"))
    foreign.build(
        [foreign.need("javac"), *flags, "-nowarn", "-cp", paths, "-d", str(folder), *files],
        folder,
    )
    more = opened() if program.libraries else []
    package = re.search(r"^\s*package ([\w.]+);", text, re.MULTILINE)
    name = f"{package[1]}.{program.file}" if package else program.file
    return [foreign.need("java"), *foreign.SHORT_JAVA, *more, "-cp", paths, name]


def scala(program: Program, text: str, folder: Path) -> list[str]:
    """With the compiler that is among the libraries."""
    libraries = libraries_of(program)
    (folder / f"{program.file}.scala").write_text(text)
    java = [foreign.need("java"), *foreign.SHORT_JAVA]
    compiler = ["-cp", f"{libraries}/*", "scala.tools.nsc.Main", "-usejavacp", "-nowarn", "-d", str(folder)]
    foreign.build([*java, *compiler, f"{program.file}.scala"], folder)
    return [*java, *opened(), "-cp", f"{folder}:{libraries}/*", program.file]


def opened() -> list[str]:
    """What libraries of Java 8's time need with later ones. Boon looks for a string's characters where they are no more."""
    opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
    return [*opens, "-Dio.advantageous.boon.faststringutils.disable=true"]


def libraries_of(program: Program) -> Path:
    """The folder with the jars that a program needs: those that its document names, or Kafka's client of its time."""
    if program.libraries:
        pom = HERE.parent / program.libraries / "pom.xml"
        name = f"{program.libraries.replace('/', '-')}-{foreign.fingerprint(pom.parent, 'pom.xml')}"
        return foreign.made(name, lambda folder: foreign.maven(pom, folder, f"what {program.name} needs"))
    release = program.client or CLIENT[program.document]
    return foreign.made(
        f"java-libs-{release}",
        lambda folder: foreign.maven(POM, folder, f"kafka-clients {release}", f"-Dkafka.version={release}"),
    )


def python(program: Program, text: str, folder: Path) -> list[str]:
    (folder / "program.py").write_text(text)
    return [sys.executable, "program.py" if program.shows else str(folder / "program.py")]


def go(program: Program, text: str, folder: Path) -> list[str]:
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, folder)
    (folder / "main.go").write_text(text)
    compiler, environment = foreign.need("go"), {"CGO_ENABLED": "1", "GOFLAGS": "-mod=mod -buildvcs=false"}
    foreign.need("gcc")
    foreign.fetch_or_skip(
        [compiler, "mod", "download"], folder, "clients for Go cannot be fetched", environment
    )
    foreign.build([compiler, "build", "-o", "program", "."], folder, environment)
    return [str(folder / "program")]


def c(program: Program, text: str, folder: Path) -> list[str]:
    """With Debian's librdkafka-dev."""
    if not Path("/usr/include/librdkafka/rdkafka.h").exists():
        pytest.skip("needs librdkafka's header: apt-get install librdkafka-dev")
    (folder / "main.c").write_text(text)
    foreign.build([foreign.need("gcc"), "-o", "program", "main.c", "-lrdkafka"], folder)
    # What a program prints is to be seen while it runs, though it goes to a file.
    return [foreign.need("stdbuf"), "-oL", str(folder / "program")]


COMPILERS: Final[dict[str, Callable[[Program, str, Path], list[str]]]] = {
    "java": java,
    "scala": scala,
    "python": python,
    "go": go,
    "c": c,
}
