"""How a command ends: exit codes, and errors in one line that says what to do."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_DELIVERED: Final = 3
"""Some records were read but the cluster did not acknowledge them."""
EXIT_INTERRUPTED: Final = 130


class CliError(Exception):
    """Ends the command with one line on standard error and `exit_code`."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CliError):
    """The command line itself is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_USAGE)


def discard_output() -> None:
    """Discard what is still to be written to standard output, which the interpreter would flush at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def describe_failure(error: Exception) -> str:
    """An exception that no command expected, as one line."""
    if isinstance(error, OSError) and error.strerror:
        what = f"{error.filename}: " if error.filename else ""
        return f"{what}{error.strerror}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}; -v shows where"
