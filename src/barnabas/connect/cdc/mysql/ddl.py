"""Statements that change tables, as far as they have to be understood: what they do, and to which table. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

NAME: Final = r"((?:`(?:[^`]|``)+`|\"[^\"]+\"|[\w$]+)(?:\s*\.\s*(?:`(?:[^`]|``)+`|\"[^\"]+\"|[\w$]+))?)"
COMMENT: Final = re.compile(r"/\*(?!!).*?\*/|^\s*(?:--[^\n]*|#[^\n]*)$", re.DOTALL | re.MULTILINE)
PATTERNS: Final = (
    ("TRUNCATE", re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{NAME}", re.IGNORECASE)),
    (
        "CREATE",
        re.compile(rf"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{NAME}", re.IGNORECASE),
    ),
    (
        "ALTER",
        re.compile(rf"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?{NAME}", re.IGNORECASE),
    ),
    ("ALTER", re.compile(rf"RENAME\s+TABLE\s+(?:IF\s+EXISTS\s+)?{NAME}", re.IGNORECASE)),
    ("DROP", re.compile(rf"DROP\s+TABLE\s+(?:IF\s+EXISTS\s+)?{NAME}", re.IGNORECASE)),
    (
        "ALTER",
        re.compile(rf"(?:CREATE\s+(?:\w+\s+)*|DROP\s+)INDEX\s+.*?\sON\s+{NAME}", re.IGNORECASE | re.DOTALL),
    ),
)
DATABASE: Final = re.compile(
    rf"(CREATE|DROP|ALTER)\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+(?:NOT\s+)?EXISTS\s+)?{NAME}", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Statement:
    """action: CREATE, ALTER, DROP or TRUNCATE. table: None for statements about a whole database."""

    text: str
    action: str
    database: str
    table: str | None


def statement_of(database: str, text: str) -> Statement | None:
    """A statement that changes tables or databases; None for others. database: the one that is in use."""
    bare = COMMENT.sub(" ", text).strip()
    for action, pattern in PATTERNS:
        match = pattern.match(bare)
        if match is not None:
            parts = [_bare(part) for part in re.findall(r"`(?:[^`]|``)+`|\"[^\"]+\"|[\w$]+", match[1])]
            return Statement(text, action, parts[0] if len(parts) > 1 else database, parts[-1])
    whole = DATABASE.match(bare)
    return Statement(text, whole[1].upper(), _bare(whole[2]), None) if whole is not None else None


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name[0] in '`"' else name
