"""The programs that the documents of examples/lessons/labs.toml print, taken from the documents themselves.

Nothing of their text is kept here: `examples/lessons/printed.toml` says in which lines of which document a program stands,
and what has to be mended before it compiles: lines that the page's margin cut off, and misprints. `pieces.toml` does the
same for programs that are printed in pieces.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.documents.sessions import ROOT

CATALOGUES: Final = tuple(ROOT / "examples" / "lessons" / name for name in ("printed.toml", "pieces.toml"))
FOLDER: Final = Path(os.environ.get("BARNABAS_TEST_SEEDS", ROOT.parent / "shared" / "seeds"))
FILES: Final = {
    "guide": "000_*.txt",
    "platform": "001_*.txt",
    "exploring": "002_*.txt",
    "notes": "003_*.txt",
    "principle": "004_*.txt",
}
"""Of the documents."""

IDE_MARGIN: Final = re.compile(r"^\s?\d+(?![\d,.)]) ?[>►⚡ ]*(?=\s|$)|^[>►⚡] ?")
"""What a screenshot of an editor has at its left: the line's number, and marks for folding and running."""
IDE_HINT: Final = re.compile(r"(?<=[(,])\s*[a-z]\w*: (?=[\w\"])|^(\s*)[a-z]\w*: (?=\")")
"""An editor shows the name of a parameter before its argument; it is not part of the program."""
PLACES: Final = (
    "localhost:9092,localhost:9093,localhost:9094",
    "localhost:9092",
    "xx.xx.xx.xx:xxxx",
    "172.16.16.12:9092",
    "IP:PORT",
)
"""What the documents write for the address of a cluster."""
REGISTRY: Final = "http://localhost:8081"
"""And of a schema registry."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the catalogue. lines: pairs of first and last line; ends: what a line lacks at its end;
    swaps: pairs of what is printed and what is meant; drops: lines that belong to nothing."""

    name: str
    document: str
    place: str
    language: str
    state: str
    lines: tuple[tuple[int, int], ...]
    ends: dict[int, str] = field(default_factory=dict)
    swaps: dict[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    drops: frozenset[int] = frozenset()
    editor: bool = False
    file: str = ""
    before: str = ""
    after: str = ""
    """Lines that the document leaves out, such as its imports."""
    topic: str = ""
    message: str = ""
    """What the messages of that topic are, if any text does not do."""
    needs: tuple[str, ...] = ()
    shows: str = ""
    """A regular expression of a line that the program prints once it has done its work."""
    fills: str = ""
    """The topic that a program writes which prints nothing."""
    libraries: str = ""
    """The folder below tests whose pom.xml names what a program needs besides Kafka's client."""
    client: str = ""
    """The release of Kafka's client, if not that of the document's time."""
    registry: bool = False
    """Whether it needs a schema registry."""
    beside: tuple[str, ...] = ()
    """The programs whose classes it uses."""


def _program(row: dict[str, Any]) -> Program:
    return Program(
        **{
            **{key: value for key, value in row.items() if key != "note"},
            "lines": tuple((first, last) for first, last in row["lines"]),
            "ends": {int(line): end for line, end in row.get("ends", {}).items()},
            "swaps": {
                int(line): tuple(zip(words[::2], words[1::2], strict=True))
                for line, words in row.get("swaps", {}).items()
            },
            "drops": frozenset(row.get("drops", ())),
            "beside": tuple(row.get("beside", ())),
            "needs": tuple(row.get("needs", ())),
        }
    )


def programs() -> list[Program]:
    return [_program(row) for path in CATALOGUES for row in tomllib.loads(path.read_text("utf-8"))["program"]]


def document(name: str) -> list[str]:
    """The lines of a document; skips the test where the documents are not."""
    paths = sorted(FOLDER.glob(FILES[name]))
    if not paths:
        pytest.skip(f"the documents are not at {FOLDER}")
    return paths[0].read_text("utf-8").split("\n")


def source(program: Program, *, mended: bool) -> str:
    """The text of a program as it is printed, or with its lines completed and its misprints set right."""
    text, kept = document(program.document), []
    for first, last in program.lines:
        for number in range(first, last + 1):
            line = text[number - 1]
            if line.startswith("```"):
                continue
            if program.editor:
                line = IDE_HINT.sub(r"\1", IDE_MARGIN.sub("", line))
            line = line.replace("\\\\", "\\")  # the documents' converter doubled them
            if mended:
                if number in program.drops:
                    continue
                if number in program.swaps:
                    for old, new in program.swaps[number]:
                        assert old in line, f"{program.name}: line {number} does not hold {old!r}"
                        line = line.replace(old, new)
                line = line.rstrip() + program.ends[number] if number in program.ends else line
            kept.append(line)
    text_of = "\n".join(kept) + "\n"
    return program.before + text_of + program.after if mended else text_of


def addressed(text: str, bootstrap: str, registry: str = REGISTRY) -> str:
    """With the addresses of a broker and of a registry where the document writes its own."""
    for place in PLACES:
        text = text.replace(place, bootstrap)
    return text.replace(REGISTRY, registry)
