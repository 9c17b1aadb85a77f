"""How a command ends: exit codes, and errors in one line that says what to do."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import sys
from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_NOT_DELIVERED: Final = 3
"""Some records were read but the cluster did not acknowledge them."""
EXIT_INTERRUPTED: Final = 130

OUTPUT_ERRNOS: Final = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)


class CliError(Exception):
    """Ends the command with one line on standard error and `exit_code`."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CliError):
    """The command line itself is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_USAGE)


def open_closed_streams() -> None:
    """Open those of the three standard streams that the caller has closed (`>&-`).

    Otherwise the next file or connection gets their number, and what is printed goes there. Reading standard input and
    writing standard output then fail, as they should; what goes to standard error is lost.
    """
    for number, name, flags in (
        (0, "stdin", os.O_WRONLY),
        (1, "stdout", os.O_RDONLY),
        (2, "stderr", os.O_WRONLY),
    ):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, flags)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
        stream = open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def why_of_stream(error: OSError) -> str:
    """What is wrong with a standard stream that cannot be read or written."""
    return "it is closed" if error.errno == errno.EBADF else error.strerror or str(error)


def flush_output() -> None:
    """Write what was printed to standard output. Raises CliError, BrokenPipeError."""
    write_output("")


def write_output(text: str) -> None:
    """Write a text, and what was printed before, to standard output. Raises CliError, BrokenPipeError."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CliError(f"cannot write to standard output: {why_of_stream(error)}") from None


def is_of_output(error: OSError) -> bool:
    """Whether writing to standard output has failed, and not work on some other file."""
    if error.filename is not None:
        return False
    if isinstance(sys.stdout.buffer, io.RawIOBase):  # PYTHONUNBUFFERED
        return error.errno in OUTPUT_ERRNOS
    try:
        flush_output()
    except CliError:
        return True  # what could not be written is still in the buffer
    return False


def why_input_fails() -> str | None:
    """Why standard input cannot be read; None if it can."""
    try:
        is_readable = fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY
    except OSError as error:
        return why_of_stream(error)
    return None if is_readable else "it is closed"


def discard_output() -> None:
    """Discard what is still to be written to standard output, which the interpreter would flush at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def describe_failure(error: Exception) -> str:
    """An exception that no command expected, as one line."""
    from barnabas.terminal.output import MANNER

    if isinstance(error, CliError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        if error.errno == errno.EBADF and why_input_fails() is not None:
            return f"cannot read standard input: {why_input_fails()}"
        if is_of_output(error):
            return f"cannot write to standard output: {why_of_stream(error)}"
        what = f"{error.filename}: " if error.filename else ""
        return f"{what}{error.strerror}"
    text = " ".join(str(error).split())
    where = "; -v shows where" if MANNER.can_be_verbose else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"
