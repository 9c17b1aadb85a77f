"""How commands end by a signal: Ctrl-C, SIGTERM and SIGHUP (a closed terminal) do the same."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any, Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal asked the process to end. `code` is what a shell expects to see then."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


def interrupt_on_signals() -> None:
    """Raise `Ended` on SIGTERM and SIGHUP, as Python raises KeyboardInterrupt on Ctrl-C.

    So a command ends in the same way (flush, commit, leave the group) for all of them.
    """

    def end(number: int, _frame: Any) -> None:
        raise Ended(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # A process under nohup ignores SIGHUP, and must continue to do so.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


@contextlib.contextmanager
def ending(on_first: Callable[[], None]) -> Iterator[None]:
    """Call `on_first` for the first signal that asks to end; a second one raises `Ended` at once.

    For loops that must not be interrupted between taking a record and writing it.
    """
    asked = False

    def end(number: int, _frame: Any) -> None:
        nonlocal asked
        if asked:
            raise Ended(number)
        asked = True
        on_first()

    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if number != signal.SIGHUP or handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
