"""Java servers and drivers that tests use, fetched once from Maven's registry; without it their tests skip."""

from __future__ import annotations

from pathlib import Path

from tests.clients.foreign import CACHE, build, fetch_or_skip, fingerprint, need

SOURCES = Path(__file__).parent / "java"


def libraries() -> Path:
    """The folder of jars that java/pom.xml names."""
    mvn = need("mvn")
    folder = CACHE / f"servers-{fingerprint(SOURCES, 'pom.xml')}"
    if not (folder / ".complete").exists():
        fetch = ["-q", "-B", "-f", str(SOURCES / "pom.xml"), "dependency:copy-dependencies"]
        fetch_or_skip(
            [mvn, *fetch, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"], SOURCES, "Maven"
        )
        (folder / ".complete").touch()
    return folder


def program(name: str) -> list[str]:
    """The command that runs java/NAME.java with these jars."""
    java, javac, jars = need("java"), need("javac"), libraries()
    classes = CACHE / f"servers-classes-{fingerprint(SOURCES, 'pom.xml', '*.java')}"
    if not (classes / f"{name}.class").exists():
        build([javac, "-cp", f"{jars}/*", "-d", str(classes), str(SOURCES / f"{name}.java")], SOURCES)
    flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java, *flags, "-cp", f"{classes}:{jars}/*", name]
