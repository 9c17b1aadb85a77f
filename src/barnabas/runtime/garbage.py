"""Python's cyclic garbage collector examines all objects again and again; this keeps it away from long-lived ones."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

FULL_COLLECTION_MS_MAX: Final = 5.0
OLDEST: Final = 2


@contextmanager
def lasting_objects() -> Iterator[None]:
    """Objects allocated in this context are long-lived: the collector does not run now, and will not examine them later.

    A full collection with the objects of 10,000 partitions takes 100 ms, in which nothing else runs. A frozen object is
    still freed when its last reference goes; only cycles among frozen objects are never collected.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


class ShortCollections:
    """Keeps full collections short while a process grows: objects that survive a long one are not examined again.

    A full collection examines every object, and a broker with many topics and groups has millions, nearly all of them
    long-lived. The survivors are in use at that moment; they are frozen (see `lasting_objects`), so that the next full
    collection examines only newer objects. Cycles among frozen objects are not collected when they become garbage later;
    this costs at most the memory in use at that moment.
    """

    def __init__(self) -> None:
        self.frozen = 0
        """How often objects were frozen."""
        self._begun_s = 0.0

    def start(self) -> None:
        """Start watching this process's collections."""
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """Stop; frozen objects stay frozen."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != OLDEST:
            return
        if phase == "start":
            self._begun_s = time.thread_time()
        elif (time.thread_time() - self._begun_s) * 1000 > FULL_COLLECTION_MS_MAX:
            gc.freeze()
            self.frozen += 1
