"""Files that a user has named."""

from __future__ import annotations

import sys
from pathlib import Path

from barnabas.terminal.errors import CliError


def read_text(file: Path | str, hint: str = "") -> str:
    """The text of a file in UTF-8; `~` is the user's home, and `-` standard input. hint: what to do if it cannot be read,
    as a half sentence. Raises CliError."""
    try:
        return sys.stdin.read() if str(file) == "-" else Path(file).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CliError(f"{file} cannot be read: {why}{hint and f'; {hint}'}") from None
