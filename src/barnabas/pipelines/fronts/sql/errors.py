"""Mistakes in statements, shown with the place in their text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a text: line and column, from 1, and how many characters it has."""

    line: int
    column: int
    length: int = 1


TOO_DEEP: Final = "the statement is nested too deeply, or has too many conditions in a row: divide it"


class SqlError(Exception):
    """A statement that cannot be understood or carried out. spot: None if it has no single place."""

    def __init__(self, message: str, spot: Spot | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.spot = spot

    def shown(self, text: str) -> str:
        """The message; for a mistake with a place, with its line and a caret below the word."""
        lines = text.splitlines()
        if self.spot is None or not 1 <= self.spot.line <= len(lines):
            return self.message
        line = lines[self.spot.line - 1]
        start = min(max(self.spot.column - 1, 0), len(line))
        carets = "^" * max(min(self.spot.length, len(line) - start), 1)
        blanks = "".join("\t" if char == "\t" else " " for char in line[:start])
        return f"line {self.spot.line}:{self.spot.column}: {self.message}\n{line}\n{blanks}{carets}"
