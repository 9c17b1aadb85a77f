"""The sessions in the documents: blocks of code in which lines that begin with `$ ` are commands and the others output.

A session is run against a real broker, and what it prints is compared after `masked` has replaced what differs from run
to run: ports, times, rates, ids. `--rewrite` writes into the page what the commands print now.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BIN: Final = Path(sys.executable).parent
PROMPT: Final = "$ "
DEFAULT_ADDRESS: Final = "localhost:9092"
TIMEOUT_SECONDS: Final = 120

MASKS: Final = (
    (re.compile(r"\b(?:localhost|127\.0\.0\.1):\d+"), "HOST:PORT"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"), "TIME"),
    (re.compile(r"(?<![\w.])1[5-9]\d{11}\b"), "MS"),  # not the fraction of a rate
    (re.compile(r"\b\d[\d,]*\.\d+"), "N.N"),
    (re.compile(r"\b\d[\d,]* records/s"), "N records/s"),
    # Ids in base64. One in thirty has no digit.
    (re.compile(r"(?<![\w/-])(?=[\w-]{22}(?![\w/-]))(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[\w-]{22}"), "ID"),
    (re.compile(r"process \d+"), "PROCESS"),
    (re.compile(r"data in \S+\)"), "data in DIR)"),
    (re.compile(r"\s+"), " "),
)


@dataclass(slots=True)
class Step:
    """One command of a page and what the page says it prints. line: of the command, from 1."""

    page: Path
    line: int
    command: str
    indent: str
    shown: list[str] = field(default_factory=list)
    last_line: int = 0
    """Of its output, or of the command itself."""

    @property
    def name(self) -> str:
        """Where it stands."""
        return f"{self.page.name}:{self.line}"


def steps_of(page: Path) -> list[Step]:
    """The commands of all sessions of a page, in order."""
    steps: list[Step] = []
    current: Step | None = None
    fence = False
    for number, text in enumerate(page.read_text("utf-8").splitlines(), 1):
        if text.startswith("```"):
            fence, current = not fence, None
            continue
        indent = "" if fence else "    "
        inside = fence or text.startswith(indent)
        if inside and text.startswith(indent + PROMPT):
            current = Step(page, number, text.removeprefix(indent + PROMPT), indent, last_line=number)
            steps.append(current)
        elif current is not None and inside:
            if current.command.endswith("\\") and not current.shown:
                current.command = f"{current.command[:-1]}{text.strip()}"
                current.last_line = number
            else:
                current.shown.append(text.removeprefix(indent))
                current.last_line = number
        elif current is not None and not text.strip():
            current.shown.append(
                ""
            )  # an empty line inside of a session; what follows decides whether it counts
        else:
            current = None
    for step in steps:
        while step.shown and not step.shown[-1].strip():
            step.shown.pop()
    return steps


def masked(lines: list[str]) -> list[str]:
    """The lines without what differs from run to run."""
    lines_masked = []
    for text in lines:
        for pattern, name in MASKS:
            text = pattern.sub(name, text)
        if text.strip() and "runs here as PROCESS" not in text:
            lines_masked.append(text.strip())
    return lines_masked


@dataclass(slots=True)
class Shell:
    """Runs commands as a reader would type them, with the address and the folders of this run for those of the page."""

    bootstrap: str
    folder: Path
    replaced: dict[str, str] = field(default_factory=dict)
    """Words of the pages and what stands for them here, folders for example."""
    answers: dict[str, list[str]] = field(default_factory=dict)
    """What commands have printed that were run before the session, such as the start of the broker."""

    def run(self, command: str) -> list[str]:
        """What a command prints on both channels, in the words of the page."""
        if command in self.answers:
            return self.answers[command]
        for word, here in self.replaced.items():
            command = command.replace(word, here)
        done = subprocess.run(
            ["bash", "-c", f"(\n{command.replace(DEFAULT_ADDRESS, self.bootstrap)}\n) 2>&1"],
            stdout=subprocess.PIPE,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "BARNABAS_BOOTSTRAP": self.bootstrap},
            cwd=self.folder,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        text = done.stdout.decode("utf-8", "replace")
        for word, here in self.replaced.items():
            text = text.replace(here, word)
        return text.rstrip("\n").split("\n") if text.strip() else []


def rewrite_page(page: Path, steps: dict[int, tuple[Step, list[str]]]) -> None:
    """Put what commands printed into the page; found: by the line of the command."""
    lines = page.read_text("utf-8").splitlines()
    for _, (step, printed) in sorted(steps.items(), reverse=True):
        begin = step.last_line - len(step.shown)
        lines[begin : step.last_line] = [f"{step.indent}{text}".rstrip() for text in printed]
    page.write_text("\n".join(lines) + "\n", "utf-8")
