"""Threads apart for each service that is asked: one that hangs keeps only its own waiting, not the pages of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
THREADS: Final = 8
"""For each service: so many requests are under way at once."""
SERVICES_MAX: Final = 100
_threads: Final[dict[str, ThreadPoolExecutor]] = {}


async def apart(service: str, work: Callable[[], T], timeout_s: float) -> T:
    """What `work` returns, in a thread for this service.

    service: its address, of the console's own options. Raises TimeoutError when it is not done in time, or has not even
    begun because others wait for the same service; and what `work` raises.
    """
    threads = _threads.get(service)
    if threads is None:
        if len(_threads) >= SERVICES_MAX:
            _threads.pop(next(iter(_threads))).shutdown(wait=False)
        threads = _threads[service] = ThreadPoolExecutor(THREADS, "service")
    return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(threads, work), timeout_s)
