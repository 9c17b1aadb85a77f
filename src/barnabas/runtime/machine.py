"""What a broker takes from the machine it runs on, in one place; a simulation gives it all of its own."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from barnabas.runtime.clock import Clock, SystemClock
from barnabas.runtime.entropy import Entropy, SystemEntropy


@dataclass(frozen=True, slots=True)
class Machine:
    """See the module."""

    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    new_pool: Callable[[int, str], Executor] = ThreadPoolExecutor
    """(threads at most, their name) -> a pool, for work that the storage spreads over threads itself."""
    new_socket: Callable[[int, int], Any] = socket.socket
    """(family, kind) -> an unconnected socket to listen on."""
