"""Java servers and drivers that tests use, fetched once from Maven's registry; without it their tests skip."""

from __future__ import annotations

from pathlib import Path

from tests.clients.foreign import build, fingerprint, made, maven, need

SOURCES = Path(__file__).parent / "java"


def libraries() -> Path:
    """The folder of jars that java/pom.xml names."""
    pom = SOURCES / "pom.xml"
    return made(
        f"servers-{fingerprint(SOURCES, 'pom.xml')}", lambda folder: maven(pom, folder, "the servers' jars")
    )


def program(name: str) -> list[str]:
    """The command that runs java/NAME.java with these jars."""
    java, javac, jars = need("java"), need("javac"), libraries()

    def compile_it(folder: Path) -> None:
        build([javac, "-cp", f"{jars}/*", "-d", str(folder), str(SOURCES / f"{name}.java")], SOURCES)

    classes = made(f"servers-{name}-{fingerprint(SOURCES, 'pom.xml', '*.java')}", compile_it)
    flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java, *flags, "-cp", f"{classes}:{jars}/*", name]
