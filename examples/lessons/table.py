"""Writes docs/lessons.md: python examples/lessons/table.py > docs/lessons.md"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
STATES: Final = {
    "tested": "runs in every run of the tests",
    "soak": "runs in `make soak`, because it takes minutes or needs what a registry gives",
    "read": "nothing to type, or nothing that can be had; the page says more",
    "open": "not tried yet",
}
HEAD: Final = """# Lessons

Five documents teach Kafka, by lessons, labs and scenarios. With Barnabas in place of Kafka they can be followed from the
first page to the last. This table names each lab, with the place in its document and where the same runs here: a folder
with a page to read and programs to start, or a test that types what the document types.

Begin with [a first topic](../examples/lessons/first_topic/README.md).

The table is made from `examples/lessons/labs.toml`, and a test fails if the two differ or a path is missing.
"""


def read() -> dict[str, Any]:
    """documents: title by key; lab: one row per lab."""
    return tomllib.loads((HERE / "labs.toml").read_text("utf-8"))


def page() -> str:
    """The whole of docs/lessons.md."""
    data = read()
    counts = Counter(lab["state"] for lab in data["lab"])
    lines = [HEAD, "| state | labs | |", "|---|---|---|"]
    lines += [f"| {state} | {counts[state]} | {said} |" for state, said in STATES.items() if counts[state]]
    for key, title in data["documents"].items():
        lines += ["", f"## {title}", "", "| lab | place | state | runs in |", "|---|---|---|---|"]
        for lab in data["lab"]:
            if lab["document"] == key:
                runs = ", ".join(link(path) for path in lab["runs"])
                lines.append(f"| {lab['title']} | {lab['place']} | {lab['state']} | {runs} |")
    return "\n".join(lines) + "\n"


def link(path: str) -> str:
    return f"[{path}](../{path})"


if __name__ == "__main__":
    print(page(), end="")
