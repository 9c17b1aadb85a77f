"""Cutting what is read from a file or pipe into records."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from typing import Final

CHUNK_BYTES: Final = 1 << 20
POLL_SECONDS: Final = 0.5


def chunks(
    descriptor: int, is_stopped: Callable[[], bool], while_idle: Callable[[], object]
) -> Iterator[bytes]:
    """The descriptor's bytes as they arrive, until its end or until stopped.

    while_idle: called about twice a second while nothing comes.
    """
    # A signal does not end `select` (Python starts it again), so its time-out limits how late a stop is noticed.
    while not is_stopped():
        ready, _, _ = select.select([descriptor], [], [], POLL_SECONDS)
        if not ready:
            while_idle()
            continue
        data = os.read(descriptor, CHUNK_BYTES)
        if not data:
            return
        yield data


def split(parts: Iterator[bytes], delimiter: bytes) -> Iterator[list[bytes]]:
    """Lists of whole records. The last one needs no delimiter at its end; bytes pass as they are."""
    rest: list[bytes] = []
    for part in parts:
        if len(delimiter) > 1 and rest:
            # The delimiter itself may be cut in two by the chunk's end.
            part = b"".join(rest) + part
            rest.clear()
        lines = part.split(delimiter)
        tail = lines.pop()
        if lines:
            lines[0] = b"".join([*rest, lines[0]])
            rest.clear()
            yield lines
        if tail:
            rest.append(tail)
    last = b"".join(rest)
    if last:
        yield [last]
