"""How every program of the command line ends: with an exit code, and with one line instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from barnabas.terminal.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    describe_failure,
    discard_output,
    flush_output,
    open_closed_streams,
)
from barnabas.terminal.signals import interrupt_on_signals


def end_process(program: str, work: Callable[[], int]) -> NoReturn:
    """Run a whole command and end the process with its exit code; every failure is one line, never a traceback."""
    open_closed_streams()
    interrupt_on_signals()
    try:
        code = work()
        flush_output()
    except BrokenPipeError:
        # The reader went away, e.g. `barnabas topic list | head -1`: that is the normal end of a pipe.
        discard_output()
        code = EXIT_OK
    except KeyboardInterrupt as signal:
        code = getattr(signal, "code", EXIT_INTERRUPTED)
    except Exception as error:
        from barnabas.terminal.output import MANNER

        if MANNER.verbose or {"-v", "--verbose"} & set(sys.argv):
            raise
        description = describe_failure(error)
        # If writing has failed, the rest of the buffer cannot be written either.
        discard_output()
        print(f"{program}: {description}", file=sys.stderr)
        code = EXIT_FAILED
    sys.exit(code)
