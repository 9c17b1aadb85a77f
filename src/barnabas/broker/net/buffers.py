"""The buffers that all connections of one loop share."""

from __future__ import annotations

import mmap
from typing import Final

SHARED_BUFFER_BYTES: Final = 256 * 1024
# Small slices are sent together with the data around them, but at most this much is read from files at a time.
SEND_BUFFER_BYTES: Final = 256 * 1024
CIPHER_BUFFER_BYTES: Final = 64 * 1024


class LargeBuffers:
    """Receive buffers for large frames, kept for the next frame of the same size.

    A fresh megabyte costs a page fault for every 4 KB, and a producer of large batches sends the same size again
    and again. At most `kept_bytes_max` are kept; the oldest are dropped first. Buffers are mapped, not allocated, so the
    size that a peer announces takes no memory before the data arrives.
    """

    def __init__(self, kept_bytes_max: int = 32 << 20) -> None:
        self._kept: dict[int, list[memoryview]] = {}
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes_max

    def take(self, size_bytes: int) -> memoryview:
        """A buffer of exactly this size; its contents are arbitrary."""
        free = self._kept.get(size_bytes)
        if free:
            self._kept_bytes -= size_bytes
            return free.pop()
        return memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def give_back(self, buffer: memoryview) -> None:
        """Keep a buffer that is no longer used."""
        size_bytes = len(buffer)
        while self._kept and self._kept_bytes + size_bytes > self._kept_bytes_max:
            oldest = next(iter(self._kept))
            free = self._kept.pop(oldest)
            self._kept_bytes -= oldest * len(free)
        if size_bytes <= self._kept_bytes_max:
            self._kept.setdefault(size_bytes, []).append(buffer)
            self._kept_bytes += size_bytes


class Buffers:
    """Receive and send buffers of one loop. Each is borrowed for one read or write (docs/INVARIANTS.md)."""

    __slots__ = ("cipher", "large", "receive", "send")

    def __init__(self) -> None:
        self.receive = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.send = memoryview(bytearray(SEND_BUFFER_BYTES))
        self.cipher = memoryview(bytearray(CIPHER_BUFFER_BYTES))
        """Where TLS connections receive encrypted bytes, which are decrypted into `receive`."""
        self.large = LargeBuffers()
