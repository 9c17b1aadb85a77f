"""Python's cyclic collector looks at every object again and again; here it is kept from those that stay."""

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
    """What is allocated meanwhile stays for long: the collector does not run now, nor looks at it later.

    A full collection beside the objects of 10,000 partitions takes 100 ms, in which nothing else runs. What is frozen is
    still freed when its last reference goes; only cycles among frozen objects stay for ever.
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
    """Keeps full collections short while a process grows: what one that took long has left is not looked at again.

    A full collection looks at every object, and a broker with many topics and groups has millions, nearly all of which
    stay. Those that survive are in use at that moment; they are frozen (see `lasting_objects`), so that the next full
    collection looks only at what has come since. Cycles among frozen objects are not found any more when they become
    garbage later, which costs at most what had piled up at that moment.
    """

    def __init__(self) -> None:
        self.frozen = 0
        """How often something was frozen."""
        self._begun_s = 0.0

    def start(self) -> None:
        """Watch this process's collections from now on."""
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """End; what is frozen stays so."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != OLDEST:
            return
        if phase == "start":
            self._begun_s = time.thread_time()
        elif (time.thread_time() - self._begun_s) * 1000 > FULL_COLLECTION_MS_MAX:
            gc.freeze()
            self.frozen += 1
