"""Background work in steps: copying in a thread, changes of a log on the owner's thread.

for step in steps:                                       # on the owner's thread
    await loop.run_in_executor(pool, step.work)
    step.commit()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Step:
    """`work` runs in any thread, then `commit` on the owner's. Neither raises: the creator of the step checks `error`."""

    _work: Callable[[], None]
    _commit: Callable[[], None] = field(default=lambda: None)
    error: BaseException | None = None

    def work(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.error = error

    def commit(self) -> None:
        if self.error is None:
            try:
                self._commit()
            except Exception as error:
                self.error = error
