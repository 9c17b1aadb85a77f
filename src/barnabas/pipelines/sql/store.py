"""The statements that have changed the catalog, in a file of a server: they are read again when it starts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = "statements.jsonl"


@dataclass(frozen=True, slots=True)
class Stored:
    """One statement. query: the id of the query that it started; empty for none. start: where the query read from."""

    text: str
    query: str = ""
    start: str = "latest"


class StatementFile:
    """Appended to and synced; a line that a crash has cut off is left out."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def read(self) -> Iterator[Stored]:
        """All statements, in order."""
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        for line in lines:
            if line.endswith(b"\n"):
                fields = json.loads(line)
                yield Stored(fields["text"], fields.get("query", ""), fields.get("start", "latest"))

    def add(self, statement: Stored) -> None:
        """Adds a statement; it is on the disk when this returns. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        row = json.dumps({"text": statement.text, "query": statement.query, "start": statement.start})
        with self.path.open("ab") as file:
            if file.tell() and not self._ends_well():
                file.write(b"\n")
            file.write(row.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _ends_well(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
